/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * /metrics. Names are those that dashboards know from today's daemon. What came in an interval is
 * there twice: as today's gauge, and summed up as a counter NAME_total, which survives a scrape
 * that is missed. Texts of devices become labels of one line, NAME_info.
 */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "daemon/fabric/fabric.h"
#include "daemon/http/http.h"
#include "daemon/jobs/jobs.h"
#include "daemon/metrics/metrics_impl.h"
#include "daemon/metrics/names.h"
#include "daemon/metrics/prometheus_text.h"
#include "daemon/rpc/rpc.h"
#include "net/tls/tls.h"

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
	char uid[16];
	struct prom_label labels[] = {{"device", device},
				      {"kind", metric_text(&s->sample, "kind")},
				      {"domain", metric_text(&s->sample, "domain")},
				      {"uid", s->sample.uid ? uid : NULL}};

	snprintf(uid, sizeof(uid), "%u", (unsigned)s->sample.uid);
	size_t ours = prom_labels(e, labels, 4);
	labels[0].name = "deviceId"; /* as today's daemon spells it */
	size_t todays = prom_labels(e, labels, 4);

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

/* --- the daemon itself --- */

static void add_one(struct prom_text *e, enum prom_type type, const char *name, const char *help,
		    double value, const char *label, const char *label_value)
{
	prom_add(e, &(struct prom_family){name, type, help}, value,
		 &(struct prom_label){label, label_value}, label ? 1 : 0);
}

static void add_gauge(struct prom_text *e, const char *name, const char *help, double value)
{
	add_one(e, PROM_GAUGE, name, help, value, NULL, NULL);
}

static void add_counter(struct prom_text *e, const char *name, const char *help, uint64_t value)
{
	add_one(e, PROM_COUNTER, name, help, (double)value, NULL, NULL);
}

static void add_dropped(struct prom_text *e, const char *reason, uint64_t n)
{
	add_one(e, PROM_COUNTER, "sonde_dropped_total",
		"What was dropped because it was not what it should be, or too much.", (double)n,
		"reason", reason);
}

static void add_jobs(struct prom_text *e, const struct jobs *j)
{
	struct jobs_counts c = jobs_counts(j);

	add_gauge(e, "sonde_processes", "Processes that are registered.", (double)c.processes);
	add_gauge(e, "sonde_jobs", "Jobs that these processes belong to.", (double)c.jobs);
	add_counter(e, "sonde_configs_delivered_total", "Configs handed to processes.",
		    c.delivered);
	add_counter(e, "sonde_processes_ended_total", "Processes forgotten because they ended.",
		    c.ended);
	add_counter(e, "sonde_processes_silent_total",
		    "Processes forgotten because they were silent.", c.silent);
	add_dropped(e, "limit_per_user", c.refused);
	add_counter(e, "sonde_monitor_pauses_total",
		    "How often a monitor was asked to pause for a trace in the same process.",
		    c.pauses);
	add_counter(e, "sonde_top_reports_total",
		    "Reports of what takes the time of devices that were accepted.", c.reports);
	jobs_add_top_metrics(j, e);
}

static void add_fabric(struct prom_text *e, const struct fabric *f)
{
	json_t *all = fabric_describe(f), *v;
	const char *reason;
	size_t i;

	json_array_foreach(json_object_get(all, "endpoints"), i, v)
	{
		add_one(e, PROM_COUNTER, "sonde_datagrams_total",
			"Datagrams received from processes.",
			json_number_value(json_object_get(v, "received")), "endpoint",
			json_string_value(json_object_get(v, "name")));
	}
	json_object_foreach(json_object_get(all, "dropped"), reason, v)
		add_dropped(e, reason, (uint64_t)json_number_value(v));
	json_decref(all);
}

static void add_rpc(struct prom_text *e, const struct rpc_server *s)
{
	json_t *all = rpc_server_describe(s), *v;
	const char *reason;

	add_counter(e, "sonde_rpc_calls_total", "RPC calls answered.",
		    (uint64_t)json_number_value(json_object_get(all, "calls")));
	add_gauge(e, "sonde_rpc_connections", "RPC connections that are open.",
		  json_number_value(json_object_get(all, "connections")));
	json_object_foreach(json_object_get(all, "refused"), reason, v)
		add_one(e, PROM_COUNTER, "sonde_rpc_refused_total",
			"RPC connections closed without an answer.", json_number_value(v), "reason",
			reason);
	json_decref(all);
}

static void add_http(struct prom_text *e, const struct http_server *s)
{
	struct http_counts c = http_server_counts(s);

	add_counter(e, "sonde_http_requests_total", "HTTP requests answered.", c.requests);
	add_counter(e, "sonde_http_refused_total", "HTTP connections and requests refused.",
		    c.refused);
}

/* The end of its validity is text: "2027-01-31 12:00:00 UTC". */
static void add_tls(struct prom_text *e, const struct tls_server *t)
{
	json_t *all = tls_server_describe(t);
	const char *until = json_string_value(json_object_get(all, "not_after"));
	struct tm tm = {0};

	if (until && strptime(until, "%Y-%m-%d %H:%M:%S", &tm))
		add_gauge(e, "sonde_certificate_expiry_seconds",
			  "Seconds until the certificate of the daemon expires.",
			  difftime(timegm(&tm), time(NULL)));
	json_decref(all);
}

static void add_sources(struct prom_text *e, const struct metrics *m)
{
	struct reader_info r;

	for (unsigned i = 0; i < METRICS_SOURCES; i++) {
		if (!metrics_source_info(m, i, &r) || r.state == READER_ABSENT)
			continue;
		add_one(e, PROM_GAUGE, "sonde_source_up", "Whether a source of metrics works.",
			r.state == READER_WORKS && r.round_s < READER_HANGS_S, "source", r.source);
		if (r.has_thread)
			add_one(e, PROM_GAUGE, "sonde_source_round_seconds",
				"How long the reading of a source takes that is going on; 0 "
				"between "
				"two.",
				r.round_s, "source", r.source);
		add_one(e, PROM_COUNTER, "sonde_source_failures_total",
			"Readings of a source that failed.", (double)r.failures, "source",
			r.source);
	}
}

static void add_sinks(struct prom_text *e, const struct metrics *m)
{
	for (unsigned i = 0; i < m->nsinks; i++) {
		const struct sink *s = m->sinks[i];

		add_one(e, PROM_COUNTER, "sonde_sink_records_total",
			"Records that a sink has taken.", (double)s->delivered, "sink",
			s->ops->name);
		add_one(e, PROM_COUNTER, "sonde_sink_dropped_total",
			"Records that a sink could not deliver.", (double)s->dropped, "sink",
			s->ops->name);
	}
}

static void add_daemon(const struct metrics *m, struct prom_text *e)
{
	const struct daemon *d = m->d;

	add_one(e, PROM_GAUGE, "sonde_build_info", "Version of the daemon.", 1, "version",
		SONDE_VERSION);
	add_gauge(e, "sonde_start_time_seconds", "When the daemon started, in seconds since 1970.",
		  (double)d->started_ns / 1e9);
	if (d->jobs)
		add_jobs(e, d->jobs);
	if (d->fabric)
		add_fabric(e, d->fabric);
	if (d->rpc)
		add_rpc(e, d->rpc);
	if (d->http)
		add_http(e, d->http);
	if (d->tls)
		add_tls(e, d->tls);
	add_dropped(e, "bad_data_record", m->bad_data);
	add_dropped(e, "too_many_series", m->store.refused);
	add_dropped(e, "records_per_user", user_limit_suppressed(m->record_limit));
	add_sources(e, m);
	add_sinks(e, m);
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
	add_daemon(m, &e);
	prom_print(&e, out);
	prom_release(&e);
}
