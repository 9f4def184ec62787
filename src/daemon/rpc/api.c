/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "daemon/rpc/api.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/text/json_depth.h"
#include "daemon/fabric/fabric.h"
#include "daemon/inspect/inspect.h"
#include "daemon/jobs/jobs.h"
#include "daemon/metrics/history.h"
#include "daemon/metrics/metrics.h"
#include "daemon/rpc/rpc.h"
#include "daemon/sandbox/sandbox.h"
#include "net/tls/tls.h"
#include "wire/rpc.h"

#define DUMP_FLAGS (JSON_COMPACT | JSON_SORT_KEYS | JSON_ENCODE_ANY | JSON_REAL_PRECISION(15))

/* --- requests --- */

json_t *api_parse(const char *text, size_t len, struct err *err)
{
	json_error_t why;

	if (json_depth(text, len) > RPC_DEPTH_MAX) {
		err_set(err, -EBADMSG, "nested deeper than %d levels", RPC_DEPTH_MAX);
		return NULL;
	}
	json_t *request = json_loadb(text, len, 0, &why);
	/* Clients send job ids of 64 bits without a sign: such a number is taken as a float. */
	if (!request && json_error_code(&why) == json_error_numeric_overflow)
		request = json_loadb(text, len, JSON_DECODE_INT_AS_REAL, &why);
	if (!request) {
		err_set(err, -EBADMSG, "no JSON: %s at byte %d", why.text, why.position);
		return NULL;
	}
	if (json_object_get(request, "fn"))
		return request;
	err_set(err, -EBADMSG, "no object with a member \"fn\"");
	json_decref(request);
	return NULL;
}

/* --- functions --- */

static json_t *get_version(struct daemon *d, const struct access_grant *who, const json_t *request)
{
	(void)d, (void)who, (void)request;
	return json_pack("{ss}", "version", SONDE_VERSION);
}

/* The clock is read last: who asks takes it for a moment between question and answer. */
static json_t *get_time(struct daemon *d, const struct access_grant *who, const json_t *request)
{
	char host[256] = "";

	(void)d, (void)who, (void)request;
	gethostname(host, sizeof(host) - 1);
	json_t *o = json_object(), *name = json_string(host);

	if (name)
		json_object_set_new(o, "hostname", name);
	json_object_set_new(o, "time_ns", json_integer((json_int_t)clock_real_ns()));
	return o;
}

static json_t *get_metrics(struct daemon *d, const struct access_grant *who, const json_t *request)
{
	(void)request;
	if (!d->metrics)
		return json_object();
	metrics_open_found_devices(d->metrics);
	return metrics_latest(d->metrics, who);
}

/* What came after `after_ns`, of the last hour. */
static json_t *get_history(struct daemon *d, const struct access_grant *who, const json_t *request)
{
	int64_t now = clock_real_ns();
	int64_t after = json_integer_value(json_object_get(request, "after_ns"));
	int64_t first = course_first_bin(after, now);
	const struct history *h = d->metrics ? metrics_history(d->metrics) : NULL;
	uint64_t bytes = 0;

	if (d->metrics)
		metrics_open_found_devices(d->metrics);
	json_t *processes = jobs_history(d->jobs, who, first, now, &bytes);
	return json_pack("{sI sI sI sI so so}", "bin_ns", (json_int_t)COURSE_BIN_NS, "first_ns",
			 (json_int_t)(first * COURSE_BIN_NS), "now_ns", (json_int_t)now, "bytes",
			 (json_int_t)(bytes + (h ? history_bytes(h) : 0)), "series",
			 h ? history_json(h, first, now) : json_array(), "processes", processes);
}

static json_t *pause_counters(struct daemon *d, const struct access_grant *who,
			      const json_t *request)
{
	const json_t *duration = json_object_get(request, "duration_s");
	double seconds = json_number_value(duration);

	(void)who;
	if (!json_is_number(duration) || !(seconds >= 0 && seconds <= UINT32_MAX))
		return json_pack("{ss}", "status", "failed");
	bool paused = d->metrics && metrics_pause(d->metrics, true, (unsigned)seconds);
	return json_pack("{sb}", "status", paused);
}

static json_t *resume_counters(struct daemon *d, const struct access_grant *who,
			       const json_t *request)
{
	(void)who, (void)request;
	bool resumed = d->metrics && metrics_pause(d->metrics, false, 0);
	return json_pack("{sb}", "status", resumed);
}

static json_t *describe_jobs(const struct jobs *j)
{
	struct jobs_counts c = jobs_counts(j);

	return json_pack(
		"{sI sI sI sI sI sI sI sI sI sI sI sI}", "processes", (json_int_t)c.processes,
		"jobs", (json_int_t)c.jobs, "delivered", (json_int_t)c.delivered, "refused",
		(json_int_t)c.refused, "ended", (json_int_t)c.ended, "silent", (json_int_t)c.silent,
		"pauses", (json_int_t)c.pauses, "unpaused", (json_int_t)c.unpaused, "reports",
		(json_int_t)c.reports, "late_reports", (json_int_t)c.late_reports, "regressions",
		(json_int_t)c.regressions, "waits", (json_int_t)c.longer_waits);
}

static json_t *get_daemon(struct daemon *d, const struct access_grant *who, const json_t *request)
{
	char host[256] = "";
	json_t *fabric = d->fabric ? fabric_describe(d->fabric) : json_null();
	json_t *rpc = d->rpc ? rpc_server_describe(d->rpc) : json_null();
	json_t *tls = d->tls ? tls_server_describe(d->tls) : json_null();

	(void)who, (void)request;
	gethostname(host, sizeof(host) - 1);
	return json_pack("{ss si sf ss so so so so so}", "version", SONDE_VERSION, "pid",
			 (int)getpid(), "uptime_s", d->rpc ? rpc_server_age_s(d->rpc) : 0.0,
			 "hostname", host, "endpoints", fabric, "rpc", rpc, "tls", tls, "jobs",
			 describe_jobs(d->jobs), "sandbox", sandbox_describe(d->sandbox));
}

static json_t *get_memory(struct daemon *d, const struct access_grant *who, const json_t *request)
{
	return inspect_memory(d->inspect, who, request);
}

static json_t *take_snapshot(struct daemon *d, const struct access_grant *who,
			     const json_t *request)
{
	return inspect_take_snapshot(d->inspect, who, request);
}

static json_t *get_snapshot(struct daemon *d, const struct access_grant *who, const json_t *request)
{
	return inspect_get_snapshot(d->inspect, who, request);
}

static json_t *make_report(struct daemon *d, const struct access_grant *who, const json_t *request)
{
	return inspect_make_report(d->inspect, who, request);
}

static json_t *get_report(struct daemon *d, const struct access_grant *who, const json_t *request)
{
	return inspect_get_report(d->inspect, who, request);
}

static json_t *get_hosts(struct daemon *d, const struct access_grant *who, const json_t *request)
{
	return inspect_hosts(d->inspect, who, request);
}

static json_t *order_hosts(struct daemon *d, const struct access_grant *who, const json_t *request)
{
	return inspect_order_hosts(d->inspect, who, request);
}

static json_t *get_order(struct daemon *d, const struct access_grant *who, const json_t *request)
{
	return inspect_get_order(d->inspect, who, request);
}

enum effect {
	READS,
	CHANGES, /* what the caller's processes do */
	CHANGES_NODE, /* what all users share */
};

static const struct function {
	const char *name;
	enum effect effect;
	/* one of the two */
	json_t *(*of_jobs)(struct jobs *j, const struct access_grant *who, const json_t *request);
	json_t *(*of_daemon)(struct daemon *d, const struct access_grant *who,
			     const json_t *request);
} functions[] = {
	{"getStatus", READS, jobs_get_status, NULL},
	{"getVersion", READS, NULL, get_version},
	{"setKinetOnDemandRequest", CHANGES, jobs_set_request, NULL},
	{"stopTrace", CHANGES, jobs_stop_trace, NULL},
	{"dcgmProfPause", CHANGES_NODE, NULL, pause_counters},
	{"dcgmProfResume", CHANGES_NODE, NULL, resume_counters},
	{"listProcesses", READS, jobs_list, NULL},
	{"getProcess", READS, jobs_get_process, NULL},
	{"explainRequest", READS, jobs_explain, NULL},
	{"getTop", READS, jobs_get_top, NULL},
	{"getAnswers", READS, jobs_get_replies, NULL},
	{"getMetrics", READS, NULL, get_metrics},
	{"getHistory", READS, NULL, get_history},
	{"getMemory", READS, NULL, get_memory},
	{"takeSnapshot", CHANGES, NULL, take_snapshot},
	{"getSnapshot", READS, NULL, get_snapshot},
	{"makeReport", CHANGES, NULL, make_report},
	{"getReport", READS, NULL, get_report},
	{"getHosts", CHANGES, NULL, get_hosts},
	{"orderHosts", CHANGES, NULL, order_hosts},
	{"getOrder", READS, NULL, get_order},
	{"getDaemon", READS, NULL, get_daemon},
	{"getTime", READS, NULL, get_time},
};
#define FUNCTIONS (sizeof(functions) / sizeof(functions[0]))

static const struct function *find_function(const char *name)
{
	for (size_t i = 0; name && i < FUNCTIONS; i++)
		if (!strcmp(functions[i].name, name))
			return &functions[i];
	return NULL;
}

bool api_is_read_only(const char *fn)
{
	const struct function *f = find_function(fn);

	return f && f->effect == READS;
}

const char *api_refusal(const struct access_grant *who, const char *fn)
{
	const struct function *f = find_function(fn);

	if (!f)
		return NULL;
	if (who->right == ACCESS_NONE)
		return who->why;
	if (f->effect != READS && who->right == ACCESS_VIEW)
		return "a viewer reads and changes nothing";
	if (f->effect == CHANGES_NODE && who->right != ACCESS_ALL)
		return "the counters belong to all users of the node: root, the daemon's user and "
		       "members of its --admin-group may pause and resume them";
	return NULL;
}

json_t *api_call(struct daemon *d, const struct access_grant *who, const json_t *request)
{
	const char *name = json_string_value(json_object_get(request, "fn"));
	const struct function *f = find_function(name);
	const char *refusal = api_refusal(who, name);

	if (!f)
		return NULL;
	if (refusal)
		return json_pack("{s:o}", "status", json_sprintf(RPC_REFUSED "%s", refusal));
	return f->of_jobs ? f->of_jobs(d->jobs, who, request) : f->of_daemon(d, who, request);
}

const char *const *api_names(void)
{
	static const char *names[FUNCTIONS + 1];

	for (size_t i = 0; i < FUNCTIONS; i++)
		names[i] = functions[i].name;
	return names;
}

/* --- replies --- */

static int add_piece(const char *piece, size_t n, void *buf)
{
	buf_add(buf, piece, n);
	return 0;
}

void api_print(const json_t *reply, struct buf *out)
{
	json_dump_callback(reply, add_piece, out, DUMP_FLAGS);
}
