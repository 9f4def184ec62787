/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "device/metrics.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"

void metric_list_clear(struct metric_list *l)
{
	l->n = 0;
}

void metric_list_release(struct metric_list *l)
{
	free(l->metrics);
	*l = (struct metric_list){0};
}

static struct metric *add_metric(struct metric_list *l, const char *name, const char *instance,
				 enum metric_type type)
{
	l->metrics = xgrow(l->metrics, &l->cap, l->n + 1, sizeof(*l->metrics));
	struct metric *m = &l->metrics[l->n++];
	*m = (struct metric){.name = name, .instance = instance, .type = type};
	return m;
}

void metric_list_int(struct metric_list *l, const char *name, const char *instance, int64_t v)
{
	add_metric(l, name, instance, METRIC_INT)->i = v;
}

void metric_list_uint(struct metric_list *l, const char *name, const char *instance, uint64_t v)
{
	add_metric(l, name, instance, METRIC_UINT)->u = v;
}

void metric_list_float(struct metric_list *l, const char *name, const char *instance, double v)
{
	add_metric(l, name, instance, METRIC_FLOAT)->f = v;
}

void metric_list_text(struct metric_list *l, const char *name, const char *text)
{
	if (*text)
		add_metric(l, name, NULL, METRIC_TEXT)->s = text;
}

void metric_list_emit(const struct metric_list *l, const char *source, int64_t device, sample_fn fn,
		      void *arg)
{
	if (!l->n)
		return;
	struct sample sample = {.source = source,
				.time_ns = clock_real_ns(),
				.device = device,
				.metrics = l->metrics,
				.n = l->n};
	fn(arg, &sample);
}
