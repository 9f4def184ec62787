/* SPDX-License-Identifier: MulanPSL-2.0 */
/* The daemon's lines about itself in /metrics. */
#include <string.h>
#include <time.h>

#include "daemon/fabric/fabric.h"
#include "daemon/http/http.h"
#include "daemon/jobs/jobs.h"
#include "daemon/metrics/metrics_impl.h"
#include "daemon/metrics/prometheus_text.h"
#include "daemon/rpc/rpc.h"
#include "net/tls/tls.h"

static void gauge(struct prom_text *e, const char *name, const char *help, double value)
{
	prom_add(e, &(struct prom_family){name, PROM_GAUGE, help}, value, NULL, 0);
}

static void counter(struct prom_text *e, const char *name, const char *help, uint64_t value)
{
	prom_add(e, &(struct prom_family){name, PROM_COUNTER, help}, (double)value, NULL, 0);
}

static const struct prom_family dropped = {
	"sonde_dropped_total", PROM_COUNTER,
	"What was dropped because it was not what it should be, or too much."};

static void drop(struct prom_text *e, const char *reason, uint64_t n)
{
	prom_add(e, &dropped, (double)n, &(struct prom_label){"reason", reason}, 1);
}

static void add_jobs(struct prom_text *e, const struct jobs *j)
{
	struct jobs_counts c = jobs_counts(j);

	gauge(e, "sonde_processes", "Processes that are registered.", (double)c.processes);
	gauge(e, "sonde_jobs", "Jobs that these processes belong to.", (double)c.jobs);
	counter(e, "sonde_configs_delivered_total", "Configs handed to processes.", c.delivered);
	counter(e, "sonde_processes_ended_total", "Processes forgotten because they ended.",
		c.ended);
	counter(e, "sonde_processes_silent_total", "Processes forgotten because they were silent.",
		c.silent);
	drop(e, "limit_per_user", c.refused);
	counter(e, "sonde_monitor_pauses_total",
		"How often a monitor was asked to pause for a trace in the same process.",
		c.pauses);
	counter(e, "sonde_top_reports_total",
		"Reports of what takes the time of devices that were accepted.", c.reports);
	jobs_add_top_metrics(j, e);
}

static void add_fabric(struct prom_text *e, const struct fabric *f)
{
	static const struct prom_family datagrams = {"sonde_datagrams_total", PROM_COUNTER,
						     "Datagrams received from processes."};
	json_t *all = fabric_describe(f), *v;
	const char *reason;
	size_t i;

	json_array_foreach(json_object_get(all, "endpoints"), i, v)
	{
		struct prom_label label = {"endpoint",
					   json_string_value(json_object_get(v, "name"))};

		prom_add(e, &datagrams, json_number_value(json_object_get(v, "received")), &label,
			 1);
	}
	json_object_foreach(json_object_get(all, "dropped"), reason, v)
		drop(e, reason, (uint64_t)json_number_value(v));
	json_decref(all);
}

static void add_rpc(struct prom_text *e, const struct rpc_server *s)
{
	static const struct prom_family refused = {"sonde_rpc_refused_total", PROM_COUNTER,
						   "RPC connections closed without an answer."};
	json_t *all = rpc_server_describe(s), *v;
	const char *reason;

	counter(e, "sonde_rpc_calls_total", "RPC calls answered.",
		(uint64_t)json_number_value(json_object_get(all, "calls")));
	gauge(e, "sonde_rpc_connections", "RPC connections that are open.",
	      json_number_value(json_object_get(all, "connections")));
	json_object_foreach(json_object_get(all, "refused"), reason, v) prom_add(
		e, &refused, json_number_value(v), &(struct prom_label){"reason", reason}, 1);
	json_decref(all);
}

static void add_http(struct prom_text *e, const struct http_server *s)
{
	struct http_counts c = http_server_counts(s);

	counter(e, "sonde_http_requests_total", "HTTP requests answered.", c.requests);
	counter(e, "sonde_http_refused_total", "HTTP connections and requests refused.", c.refused);
}

/* The end of its validity is told in words: "2027-01-31 12:00:00 UTC". */
static void add_tls(struct prom_text *e, const struct tls_server *t)
{
	json_t *all = tls_server_describe(t);
	const char *until = json_string_value(json_object_get(all, "not_after"));
	struct tm tm = {0};

	if (until && strptime(until, "%Y-%m-%d %H:%M:%S", &tm))
		gauge(e, "sonde_certificate_expiry_seconds",
		      "Seconds until the certificate of the daemon expires.",
		      difftime(timegm(&tm), time(NULL)));
	json_decref(all);
}

static void add_readers(struct prom_text *e, const struct metrics *m)
{
	static const struct prom_family up = {"sonde_source_up", PROM_GAUGE,
					      "Whether a source of metrics works."};
	static const struct prom_family round = {
		"sonde_source_round_seconds", PROM_GAUGE,
		"How long the reading of a source takes that is going on; 0 between two."};
	static const struct prom_family failures = {"sonde_source_failures_total", PROM_COUNTER,
						    "Readings of a source that failed."};
	const struct metrics_loop *loops[] = {&m->kernel, &m->perf};

	for (unsigned i = 0; i < 2; i++) {
		if (!loops[i]->source)
			continue;
		struct prom_label label = {"source", loops[i]->source->name};
		prom_add(e, &up, loops[i]->timer != NULL, &label, 1);
		prom_add(e, &failures, (double)loops[i]->failures, &label, 1);
	}
	for (unsigned i = 0; i < m->nreaders; i++) {
		struct reader_info r = reader_info(m->readers[i]);
		struct prom_label label = {"source", r.source};

		if (r.state == READER_ABSENT)
			continue;
		prom_add(e, &up, r.state == READER_WORKS && r.round_s < READER_HANGS_S, &label, 1);
		prom_add(e, &round, r.round_s, &label, 1);
		prom_add(e, &failures, (double)r.failures, &label, 1);
	}
}

static void add_sinks(struct prom_text *e, const struct metrics *m)
{
	static const struct prom_family delivered = {"sonde_sink_records_total", PROM_COUNTER,
						     "Records that a sink has taken."};
	static const struct prom_family lost = {"sonde_sink_dropped_total", PROM_COUNTER,
						"Records that a sink could not deliver."};

	for (unsigned i = 0; i < m->nsinks; i++) {
		struct prom_label label = {"sink", m->sinks[i]->ops->name};

		prom_add(e, &delivered, (double)m->sinks[i]->delivered, &label, 1);
		prom_add(e, &lost, (double)m->sinks[i]->dropped, &label, 1);
	}
}

void metrics_own(const struct metrics *m, struct prom_text *e)
{
	static const struct prom_family build = {"sonde_build_info", PROM_GAUGE,
						 "Version of the daemon."};
	const struct daemon *d = m->d;

	prom_add(e, &build, 1, &(struct prom_label){"version", SONDE_VERSION}, 1);
	gauge(e, "sonde_start_time_seconds", "When the daemon started, in seconds since 1970.",
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
	drop(e, "bad_data_record", m->bad_data);
	drop(e, "too_many_series", m->store.refused);
	add_readers(e, m);
	add_sinks(e, m);
}
