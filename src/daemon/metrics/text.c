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

static void add_metric(struct expo *e, const struct stored *s, size_t i)
{
	const struct metric *m = &s->sample.metrics[i];
	const struct metric_name *known = metric_name_find(m->name);
	char device[24], total[NAME_BYTES];
	double value;

	if (!metric_number(m, &value))
		return;
	const struct expo_label labels[] = {
		{"device", device_label(&s->sample, device)},
		{metric_instance_label(m->name), m->instance},
	};
	size_t at = expo_labels(e, labels, 2);
	expo_add_at(e, &(struct expo_family){m->name, EXPO_GAUGE, known->help}, value, at);
	if (known->kind != METRIC_DELTA)
		return;
	snprintf(total, sizeof(total), "%s_total", known->name);
	expo_add_at(e, &(struct expo_family){total, EXPO_COUNTER, known->help}, s->sums[i], at);
}

static void add_texts(struct expo *e, const struct stored *s)
{
	char device[24], name[NAME_BYTES];
	struct expo_label labels[MAX_LABELS] = {{"device", device_label(&s->sample, device)}};
	size_t n = 1;

	for (size_t i = 0; i < s->sample.n && n < MAX_LABELS; i++) {
		const struct metric *m = &s->sample.metrics[i];

		if (m->type == METRIC_TEXT)
			labels[n++] = (struct expo_label){m->name, m->s};
	}
	if (n == 1)
		return;
	snprintf(name, sizeof(name), "%s_info", s->sample.source);
	expo_add(e, &(struct expo_family){name, EXPO_GAUGE, "What the source says in words."}, 1,
		 labels, n);
}

/* The name of a marker is no label: a job makes a new one at every step if it likes. */
static void add_activity(struct expo *e, const struct stored *s)
{
	static const struct expo_family sum = {
		"npu_activity_duration_ns_total", EXPO_COUNTER,
		"Time spent in activities that monitors reported, in nanoseconds."};
	static const struct expo_family count = {"npu_activity_records_total", EXPO_COUNTER,
						 "Records that monitors sent."};
	static const struct expo_family last = {"duration", EXPO_GAUGE,
						"Duration of the last record, in nanoseconds."};
	static const struct expo_family when = {"timestamp", EXPO_GAUGE,
						"Time of the last record, in ns since 1970."};
	const char *device = metric_text(&s->sample, "deviceId");
	struct expo_label labels[] = {{"device", device},
				      {"kind", metric_text(&s->sample, "kind")},
				      {"domain", metric_text(&s->sample, "domain")}};

	size_t ours = expo_labels(e, labels, 3);
	labels[0].name = "deviceId"; /* as today's daemon spells it */
	size_t todays = expo_labels(e, labels, 3);

	expo_add_at(e, &count, (double)s->records, ours);
	for (size_t i = 0; i < s->sample.n; i++) {
		const struct metric *m = &s->sample.metrics[i];

		if (!strcmp(m->name, "duration")) {
			expo_add_at(e, &sum, s->sums[i], ours);
			expo_add_at(e, &last, (double)m->u, todays);
		} else if (!strcmp(m->name, "timestamp")) {
			expo_add_at(e, &when, (double)m->u, todays);
		}
	}
}

void metrics_prometheus(const struct metrics *m, struct buf *out)
{
	uint64_t now = clock_mono_ns();
	struct expo e;

	expo_init(&e);
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
	expo_print(&e, out);
	expo_release(&e);
}
