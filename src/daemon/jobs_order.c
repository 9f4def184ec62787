/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Orders: which processes a request is for, whether it may go out now, and giving it to them. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/mem.h"
#include "daemon/config_text.h"
#include "daemon/jobs_impl.h"

#define DEFAULT_PROCESS_LIMIT 1000
#define INDENT "    " /* in front of the lines of a config, as always */

/* --- reading the request --- */

static const char *kind_of(const json_t *v)
{
	switch (json_typeof(v)) {
	case JSON_OBJECT:
		return "object";
	case JSON_ARRAY:
		return "array";
	case JSON_STRING:
		return "string";
	case JSON_INTEGER:
	case JSON_REAL:
		return "number";
	case JSON_TRUE:
	case JSON_FALSE:
		return "boolean";
	default:
		return "null";
	}
}

json_t *jobs_type_fault(const char *wanted, const json_t *got)
{
	return json_pack("{s:o}", "status",
			 json_sprintf("failed with exception = [json.exception.type_error.302] "
				      "type must be %s, but is %s",
				      wanted, kind_of(got)));
}

json_t *jobs_read_int(const json_t *value, int64_t *out)
{
	if (json_is_integer(value))
		*out = json_integer_value(value);
	else if (json_is_boolean(value))
		*out = json_is_true(value);
	else if (json_is_real(value) && json_real_value(value) >= -9e18 &&
		 json_real_value(value) <= 9e18)
		*out = (int64_t)json_real_value(value);
	else
		return jobs_type_fault("number", value);
	return NULL;
}

static int by_number(const void *a, const void *b)
{
	int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;

	return x < y ? -1 : x > y;
}

static json_t *read_pids(const json_t *pids, struct jobs_target *t)
{
	json_t *fault = NULL, *pid;
	size_t i;

	if (!json_is_array(pids))
		return jobs_type_fault("array", pids);
	t->pids = xcalloc(json_array_size(pids) + 1, sizeof(*t->pids));
	json_array_foreach(pids, i, pid)
	{
		int64_t n;

		fault = jobs_read_int(pid, &n);
		if (fault)
			return fault;
		t->pids[t->npids++] = (int32_t)n;
	}
	t->all = !t->npids || (t->npids == 1 && t->pids[0] == 0);
	qsort(t->pids, t->npids, sizeof(*t->pids), by_number);
	return NULL;
}

void jobs_target_release(struct jobs_target *t)
{
	free(t->pids);
}

bool jobs_target_read(const json_t *request, bool need_pids, struct jobs_target *out,
		      json_t **out_fault)
{
	const json_t *job = json_object_get(request, "job_id");
	const json_t *pids = json_object_get(request, "pids");
	json_t *fault = NULL;

	*out = (struct jobs_target){.all = !pids};
	if (!pids && need_pids)
		fault = json_pack("{s:s}", "status", "failed");
	if (!fault && job)
		fault = jobs_read_int(job, &out->job_id);
	if (!fault && pids)
		fault = read_pids(pids, out);
	if (!fault)
		return true;
	jobs_target_release(out);
	*out_fault = fault;
	return false;
}

bool jobs_target_matches(const struct jobs_target *t, const struct jobs_process *p)
{
	if (t->all)
		return true;
	for (unsigned i = 0; i < p->npids; i++)
		if (bsearch(&p->pids[i], t->pids, t->npids, sizeof(*t->pids), by_number))
			return true;
	return false;
}

/* A whole order. */
struct order {
	struct jobs_target target;
	const char *config;
	int64_t limit;
	int64_t now_ms;
	enum config_kind kind;
};

static bool order_read(const json_t *request, struct order *o, json_t **out_fault)
{
	const json_t *config = json_object_get(request, "config");
	const json_t *limit = json_object_get(request, "process_limit");
	json_t *fault = NULL;

	*o = (struct order){.limit = DEFAULT_PROCESS_LIMIT, .now_ms = jobs_now_ms()};
	if (!config)
		fault = json_pack("{s:s}", "status", "failed");
	else if (!json_is_string(config))
		fault = jobs_type_fault("string", config);
	else if (limit)
		fault = jobs_read_int(limit, &o->limit);
	if (fault) {
		*out_fault = fault;
		return false;
	}
	o->config = json_string_value(config);
	o->kind = config_kind(o->config);
	return jobs_target_read(request, true, &o->target, out_fault);
}

/* --- what all processes together do --- */

const char *jobs_state_name(int state)
{
	static const char *const names[] = {"Uninitialized", "Idle", "Running", "Ready"};

	return state >= FABRIC_UNINITIALIZED && state <= FABRIC_READY ? names[state + 1]
								      : "unknown";
}

/* Running > Ready > Idle > anything else > Uninitialized */
static int weight(int state)
{
	switch (state) {
	case FABRIC_RUNNING:
		return 4;
	case FABRIC_READY:
		return 3;
	case FABRIC_IDLE:
		return 2;
	case FABRIC_UNINITIALIZED:
		return 0;
	default:
		return 1;
	}
}

struct aggregate {
	int trace, monitor;
	const struct jobs_process *leader; /* whose steps are told; NULL: nobody told any */
};

static struct aggregate aggregate(const struct jobs *j)
{
	struct aggregate a = {.trace = FABRIC_UNINITIALIZED, .monitor = FABRIC_UNINITIALIZED};
	int64_t now = jobs_now_ms();
	uint64_t key, value;
	size_t at = 0;

	while (hmap_next(&j->processes, &at, &key, &value))
		for (const struct jobs_process *p = (struct jobs_process *)(uintptr_t)value; p;
		     p = p->hash_next) {
			int monitor = jobs_monitor_state(p, now);
			int more = weight(p->trace) - weight(a.trace);

			if (weight(monitor) > weight(a.monitor))
				a.monitor = monitor;
			if (!(p->heard & JOBS_HEARD_TRACE))
				continue;
			if (!a.leader || more > 0 ||
			    (more == 0 && p->status_ms > a.leader->status_ms)) {
				a.leader = p;
				a.trace = p->trace;
			}
		}
	return a;
}

json_t *jobs_get_status(const struct jobs *j)
{
	struct aggregate a = aggregate(j);
	json_t *out = json_pack("{s:i,s:s,s:s}", "current_step",
				a.leader ? a.leader->current_step : -1, "npumonitor",
				jobs_state_name(a.monitor), "nputrace", jobs_state_name(a.trace));

	if (a.trace == FABRIC_RUNNING || a.trace == FABRIC_READY) {
		json_object_set_new(out, "start_step", json_integer(a.leader->start_step));
		json_object_set_new(out, "stop_step", json_integer(a.leader->stop_step));
	}
	return out;
}

/* Whether the NPU's one profiling resource is free for it: "effective" if so. */
static const char *gate(enum config_kind kind, struct aggregate a)
{
	switch (kind) {
	case CONFIG_NPU_MONITOR:
		if (a.trace == FABRIC_RUNNING || a.monitor == FABRIC_UNINITIALIZED)
			return "ineffective";
		return a.trace == FABRIC_IDLE || a.trace == FABRIC_READY ? "effective" : "unknown";
	case CONFIG_NPU_TRACE:
		if (a.monitor == FABRIC_RUNNING || a.trace == FABRIC_UNINITIALIZED)
			return "ineffective";
		return a.monitor == FABRIC_IDLE ? "effective" : "unknown";
	default:
		return "effective";
	}
}

/* --- giving it out --- */

/* Whether it is a client for this kind of order. An NPU framework reports states and libkineto does
 * not; old versions of both do nothing but register, and could be either. */
static bool understands(const struct jobs_process *p, enum config_kind kind)
{
	if (kind == CONFIG_KINETO)
		return !(p->heard & (JOBS_HEARD_TRACE | JOBS_HEARD_MONITOR));
	return p->heard & (JOBS_HEARD_CONTEXT | JOBS_HEARD_TRACE | JOBS_HEARD_MONITOR);
}

static bool wanted(const struct jobs_process *p, const void *arg)
{
	const struct order *o = arg;

	return (p->heard & JOBS_HEARD_REQUEST) && p->job_id == o->target.job_id &&
	       understands(p, o->kind) && !jobs_is_silent(p, o->now_ms) &&
	       jobs_target_matches(&o->target, p);
}

/* The order in which a limit is used up: that of the sets of pids. */
static int by_pids(const void *a, const void *b)
{
	const struct jobs_process *x = *(struct jobs_process *const *)a;
	const struct jobs_process *y = *(struct jobs_process *const *)b;

	for (unsigned i = 0; i < x->npids && i < y->npids; i++)
		if (x->pids[i] != y->pids[i])
			return x->pids[i] < y->pids[i] ? -1 : 1;
	return x->npids < y->npids ? -1 : x->npids > y->npids;
}

static uint64_t trace_id(struct jobs *j)
{
	struct {
		char host[64];
		struct timespec now;
		uint64_t order;
		pid_t pid;
	} seed;

	memset(&seed, 0, sizeof(seed));
	(void)gethostname(seed.host, sizeof(seed.host) - 1);
	clock_gettime(CLOCK_REALTIME, &seed.now);
	seed.order = ++j->orders;
	seed.pid = getpid();
	return XXH64(&seed, sizeof(seed), 0);
}

static struct jobs_config *make_config(struct jobs *j, const struct order *o)
{
	char *text = xasprintf("\n" INDENT "%s\n" INDENT "REQUEST_TRACE_ID=%llu", o->config,
			       (unsigned long long)trace_id(j));
	size_t len = strlen(text);
	struct jobs_config *c = xmalloc(sizeof(*c) + len + 1);

	c->refs = 1;
	c->is_monitor = o->kind == CONFIG_NPU_MONITOR;
	c->monitor_ms = config_monitor_ms(o->config);
	c->len = len;
	memcpy(c->text, text, len + 1);
	free(text);
	return c;
}

static json_t *give(struct jobs *j, const struct order *o, struct jobs_process **matched, size_t n)
{
	json_t *pids = json_array(), *triggered = json_array();
	struct jobs_config *config = make_config(j, o);
	int64_t given = 0, busy = 0;

	for (size_t i = 0; i < n; i++) {
		struct jobs_process *p = matched[i];

		json_array_append_new(pids, json_integer(p->pid));
		if (given >= o->limit)
			continue;
		if (p->pending) {
			busy++;
			continue;
		}
		p->pending = config;
		config->refs++;
		given++;
		json_array_append_new(triggered, json_integer(p->pid));
	}
	jobs_config_release(config);
	return json_pack("{s:I,s:o,s:i,s:[],s:o}", "activityProfilersBusy", (json_int_t)busy,
			 "activityProfilersTriggered", triggered, "eventProfilersBusy", 0,
			 "eventProfilersTriggered", "processesMatched", pids);
}

json_t *jobs_set_request(struct jobs *j, const json_t *request)
{
	json_t *reply = NULL;
	struct order o;
	size_t n;

	if (!order_read(request, &o, &reply))
		return reply;
	const char *verdict = gate(o.kind, aggregate(j));
	if (strcmp(verdict, "effective")) {
		jobs_target_release(&o.target);
		return json_pack("{s:s}", "commandStatus", verdict);
	}
	struct jobs_process **matched = jobs_collect(j, wanted, &o, by_pids, &n);
	if (o.kind == CONFIG_KINETO) {
		reply = give(j, &o, matched, n);
	} else if (!n) {
		reply = json_pack("{s:s}", "commandStatus", "ineffective");
	} else {
		reply = give(j, &o, matched, n);
		json_object_set_new(reply, "commandStatus", json_string("effective"));
	}
	free(matched);
	jobs_target_release(&o.target);
	return reply;
}

/* --- why --- */

/* Why one process would not get it; NULL: it would. */
static const char *why_not(const struct order *o, const struct jobs_process *p)
{
	if (p->job_id != o->target.job_id)
		return "belongs to another job";
	if (!(p->heard & JOBS_HEARD_REQUEST))
		return "reports its state but does not ask for work itself";
	if (!jobs_target_matches(&o->target, p))
		return "neither it nor an ancestor is among the pids";
	if (!understands(p, o->kind))
		return o->kind == CONFIG_KINETO
			       ? "is an NPU framework: use nputrace"
			       : "is PyTorch's own profiler, not an NPU framework: use gputrace";
	if (jobs_is_silent(p, o->now_ms))
		return "has not asked for work for two minutes";
	if (p->pending)
		return "has not yet fetched the previous request";
	return NULL;
}

static const char *why_gated(enum config_kind kind, struct aggregate a)
{
	if (a.trace == FABRIC_UNINITIALIZED && a.monitor == FABRIC_UNINITIALIZED)
		return "no NPU framework has reported to this daemon: start the daemon first, then "
		       "the job with MSMONITOR_USE_DAEMON=1";
	if (kind == CONFIG_NPU_TRACE && a.monitor == FABRIC_RUNNING)
		return "npu-monitor is running, and only one of the two can: stop it with 'dyno "
		       "npu-monitor --npu-monitor-stop'";
	if (kind == CONFIG_NPU_MONITOR && a.trace == FABRIC_RUNNING)
		return "nputrace is collecting, and only one of the two can: wait until 'dyno "
		       "status' says Idle";
	return "the NPU framework reports a state in which it takes no request; see 'dyno status'";
}

static const char *why_none(const struct jobs *j, const struct order *o, size_t in_job)
{
	if (!j->counts.processes)
		return "no process has registered with this daemon: start the daemon first, then "
		       "the "
		       "job with KINETO_USE_DAEMON=1 (PyTorch) or MSMONITOR_USE_DAEMON=1 "
		       "(torch_npu, MindSpore)";
	if (!in_job)
		return "processes are registered, but none with this job id: see 'dyno ps', and "
		       "give "
		       "--job-id";
	return o->target.all ? "the processes of this job do not ask for work any more"
			     : "no registered process has one of these pids or a descendant of "
			       "them: see 'dyno ps'";
}

struct tally {
	size_t matched, ready, in_job;
};

static json_t *explain_each(const struct jobs *j, const struct order *o, json_t *matched,
			    struct tally *t)
{
	json_t *each = json_array();
	size_t n;
	struct jobs_process **all = jobs_collect(j, NULL, NULL, by_pids, &n);

	for (size_t i = 0; i < n; i++) {
		const struct jobs_process *p = all[i];
		const char *reason = why_not(o, p);
		bool match = wanted(p, o);

		t->matched += match;
		t->ready += !reason;
		t->in_job += p->job_id == o->target.job_id;
		if (match)
			json_array_append_new(matched, json_integer(p->pid));
		if (i < 256)
			json_array_append_new(
				each, json_pack("{s:i,s:I,s:b,s:s}", "pid", p->pid, "job_id",
						(json_int_t)p->job_id, "matched", match, "reason",
						reason ? reason : "takes it at its next poll"));
	}
	free(all);
	return each;
}

json_t *jobs_explain(const struct jobs *j, const json_t *request)
{
	struct tally t = {0};
	json_t *reply = NULL;
	struct order o;

	if (!order_read(request, &o, &reply))
		return reply;
	struct aggregate a = aggregate(j);
	json_t *matched = json_array();
	json_t *each = explain_each(j, &o, matched, &t);
	const char *reason = "it is taken at the next poll of each process";

	if (strcmp(gate(o.kind, a), "effective"))
		reason = why_gated(o.kind, a);
	else if (!t.matched)
		reason = why_none(j, &o, t.in_job);
	else if (!t.ready)
		reason = "every process that matches has yet to fetch the previous request: try "
			 "again after its next poll";
	else if ((int64_t)t.ready > o.limit)
		reason = "more processes match than --process-limit allows";
	jobs_target_release(&o.target);
	return json_pack("{s:o,s:o,s:s}", "matched", matched, "processes", each, "reason", reason);
}
