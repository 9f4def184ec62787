/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * /metrics. Names are those that dashboards know from today's daemon. What came in an interval is
 * told twice: as today's gauge, and summed up as a counter NAME_total, which survives a scrape that
 * is missed. Texts of devices become labels of one line, NAME_info.
 */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "daemon/metrics/metrics_impl.h"
#include "daemon/metrics/names.h"
#include "daemon/metrics/prometheus_text.h"

#define MAX_LABELS 16
#define NAME_BYTES 128

static const char *device_label(const struct sample *s, char text[static 24])
{
	if (s->device == SAMPLE_NO_DEVICE)
		return NULL;
	snprintf(text, 24, "%lld", (long long)s->device);
	return text;
}

static void add_metric(struct prom_text *e, const struct stored *s, size_t i)
{
	const struct metric *m = &s->sample.metrics[i];
	const struct metric_name *known = metric_name_find(m->name);
	char device[24], total[NAME_BYTES];
	double value;

	if (!metric_number(m, &value))
		return;
	const struct prom_label labels[] = {
		{"device", device_label(&s->sample, device)},
		{metric_instance_label(m->name), m->instance},
	};
	size_t at = prom_labels(e, labels, 2);
	prom_add_at(e, &(struct prom_family){m->name, PROM_GAUGE, known->help}, value, at);
	if (known->kind != METRIC_DELTA)
		return;
	snprintf(total, sizeof(total), "%s_total", known->name);
	prom_add_at(e, &(struct prom_family){total, PROM_COUNTER, known->help}, s->sums[i], at);
}

static void add_texts(struct prom_text *e, const struct stored *s)
{
	char device[24], name[NAME_BYTES];
	struct prom_label labels[MAX_LABELS] = {{"device", device_label(&s->sample, device)}};
	size_t n = 1;

	for (size_t i = 0; i < s->sample.n && n < MAX_LABELS; i++) {
		const struct metric *m = &s->sample.metrics[i];

		if (m->type == METRIC_TEXT)
			labels[n++] = (struct prom_label){m->name, m->s};
	}
	if (n == 1)
		return;
	snprintf(name, sizeof(name), "%s_info", s->sample.source);
	prom_add(e, &(struct prom_family){name, PROM_GAUGE, "What the source says in words."}, 1,
		 labels, n);
}

/* The name of a marker is no label: a job makes a new one at every step if it likes. */
static void add_activity(struct prom_text *e, const struct stored *s)
{
	static const struct prom_family sum = {
		"npu_activity_duration_ns_total", PROM_COUNTER,
		"Time spent in activities that monitors reported, in nanoseconds."};
	static const struct prom_family count = {"npu_activity_records_total", PROM_COUNTER,
						 "Records that monitors sent."};
	static const struct prom_family last = {"duration", PROM_GAUGE,
						"Duration of the last record, in nanoseconds."};
	static const struct prom_family when = {"timestamp", PROM_GAUGE,
						"Time of the last record, in ns since 1970."};
	const char *device = metric_text(&s->sample, "deviceId");
	struct prom_label labels[] = {{"device", device},
				      {"kind", metric_text(&s->sample, "kind")},
				      {"domain", metric_text(&s->sample, "domain")}};

	size_t ours = prom_labels(e, labels, 3);
	labels[0].name = "deviceId"; /* as today's daemon spells it */
	size_t todays = prom_labels(e, labels, 3);

	prom_add_at(e, &count, (double)s->records, ours);
	for (size_t i = 0; i < s->sample.n; i++) {
		const struct metric *m = &s->sample.metrics[i];

		if (!strcmp(m->name, "duration")) {
			prom_add_at(e, &sum, s->sums[i], ours);
			prom_add_at(e, &last, (double)m->u, todays);
		} else if (!strcmp(m->name, "timestamp")) {
			prom_add_at(e, &when, (double)m->u, todays);
		}
	}
}

void metrics_prometheus(const struct metrics *m, struct buf *out)
{
	uint64_t now = clock_mono_ns();
	struct prom_text e;

	prom_init(&e);
	for (size_t i = 0; i < m->store.n; i++) {
		const struct stored *s = m->store.items[i];

		if (metrics_is_stale(m, s, now))
			continue;
		if (!strcmp(s->sample.source, "data")) {
			add_activity(&e, s);
			continue;
		}
		for (size_t k = 0; k < s->sample.n; k++)
			add_metric(&e, s, k);
		add_texts(&e, s);
	}
	metrics_own(m, &e);
	prom_print(&e, out);
	prom_release(&e);
}
