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
#define NO_PID INT32_MIN
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
	else if (!json_is_real(value))
		return jobs_type_fault("number", value);
	else if (json_real_value(value) >= -0x1p63 && json_real_value(value) < 0x1p63)
		*out = (int64_t)json_real_value(value);
	else
		return json_pack("{s:s}", "status",
				 "failed with exception = [json.exception.out_of_range.406] number "
				 "does not fit into 64 bits");
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
		/* cut to 32 bits it would be another's, or 0, which is everybody's */
		t->pids[t->npids++] = n >= INT32_MIN && n <= INT32_MAX ? (int32_t)n : NO_PID;
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

static bool is_named(const struct jobs_target *t, int32_t pid)
{
	return bsearch(&pid, t->pids, t->npids, sizeof(*t->pids), by_number);
}

/* By the pid that it has here, which it cannot choose. A process of a container calls itself by
 * another one, but this is what npu-smi and nvidia-smi show. */
static bool is_named_here(const struct jobs_target *t, const struct jobs_process *p)
{
	return p->peer && !(p->heard & JOBS_FOR_ANOTHER) && is_named(t, p->peer->pid);
}

bool jobs_target_matches(const struct jobs_target *t, const struct jobs_process *p)
{
	if (t->all || is_named_here(t, p))
		return true;
	for (unsigned i = 0; i < p->npids; i++)
		if (is_named(t, p->pids[i]))
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

json_t *jobs_get_status(const struct jobs *j)
{
	struct jobs_aggregate a = jobs_aggregate(j);
	json_t *out = json_pack("{s:i,s:s,s:s}", "current_step",
				a.leader ? a.leader->current_step : -1, "npumonitor",
				jobs_state_name(a.monitor), "nputrace", jobs_state_name(a.trace));

	if (a.trace == FABRIC_RUNNING || a.trace == FABRIC_READY) {
		json_object_set_new(out, "start_step", json_integer(a.leader->start_step));
		json_object_set_new(out, "stop_step", json_integer(a.leader->stop_step));
	}
	return out;
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

/* Those that are named by their pid here come first: others may call themselves anything. */
static void named_first(const struct jobs_target *t, struct jobs_process **matched, size_t n)
{
	struct jobs_process **rest = xcalloc(n + 1, sizeof(*rest));
	size_t nrest = 0, first = 0;

	for (size_t i = 0; i < n; i++)
		if (is_named_here(t, matched[i]))
			matched[first++] = matched[i];
		else
			rest[nrest++] = matched[i];
	if (nrest)
		memcpy(matched + first, rest, nrest * sizeof(*rest));
	free(rest);
}

/* Leaves those of users whose NPUs are free for it; the verdict for the others if none is left. */
static const char *pass_gate(const struct jobs *j, enum config_kind kind,
			     struct jobs_process **matched, size_t *n)
{
	const char *verdict = "unknown";
	struct hmap by_user;
	size_t kept = 0;

	if (!*n) {
		struct jobs_aggregate all = jobs_aggregate(j);

		return jobs_gate_open(kind, all) ? "ineffective" : jobs_gate(kind, all);
	}
	jobs_by_user(j, &by_user);
	for (size_t i = 0; i < *n; i++) {
		struct jobs_aggregate a = jobs_of_user(&by_user, matched[i]->uid);

		if (jobs_gate_open(kind, a))
			matched[kept++] = matched[i];
		else if (strcmp(jobs_gate(kind, a), "unknown"))
			verdict = jobs_gate(kind, a);
	}
	hmap_release(&by_user);
	*n = kept;
	return kept ? "effective" : verdict;
}

json_t *jobs_set_request(struct jobs *j, const json_t *request)
{
	json_t *reply = NULL;
	struct order o;
	size_t n;

	if (!order_read(request, &o, &reply))
		return reply;
	struct jobs_process **matched = jobs_collect(j, wanted, &o, by_pids, &n);
	if (!o.target.all)
		named_first(&o.target, matched, n);
	if (o.kind == CONFIG_KINETO) {
		reply = give(j, &o, matched, n);
	} else {
		const char *verdict = pass_gate(j, o.kind, matched, &n);

		reply = n ? give(j, &o, matched, n) : json_object();
		json_object_set_new(reply, "commandStatus", json_string(verdict));
	}
	free(matched);
	jobs_target_release(&o.target);
	return reply;
}

/* --- why --- */

/* Why one process would not get it; NULL: it would. */
static const char *why_not(const struct order *o, const struct hmap *by_user,
			   const struct jobs_process *p)
{
	struct jobs_aggregate of_user = jobs_of_user(by_user, p->uid);

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
	if (!jobs_gate_open(o->kind, of_user))
		return jobs_gate_reason(o->kind, of_user);
	if (p->pending)
		return "has not yet fetched the previous request";
	return NULL;
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
	size_t matched, ready, in_job, pending;
	const char *gated; /* why those that match have to wait; NULL: none has to */
};

static void count(struct tally *t, const struct order *o, const struct jobs_process *p,
		  const struct hmap *by_user, const char *reason)
{
	struct jobs_aggregate of_user = jobs_of_user(by_user, p->uid);

	t->in_job += p->job_id == o->target.job_id;
	if (!wanted(p, o))
		return;
	t->matched++;
	t->ready += !reason;
	if (!jobs_gate_open(o->kind, of_user))
		t->gated = jobs_gate_reason(o->kind, of_user);
	else
		t->pending += !!p->pending;
}

static json_t *explain_each(const struct jobs *j, const struct order *o, json_t *matched,
			    struct tally *t)
{
	json_t *each = json_array();
	struct hmap by_user;
	size_t n;
	struct jobs_process **all = jobs_collect(j, NULL, NULL, by_pids, &n);

	jobs_by_user(j, &by_user);
	for (size_t i = 0; i < n; i++) {
		const struct jobs_process *p = all[i];
		const char *reason = why_not(o, &by_user, p);
		bool match = wanted(p, o);

		count(t, o, p, &by_user, reason);
		if (match)
			json_array_append_new(matched, json_integer(p->pid));
		if (i < 256)
			json_array_append_new(
				each, json_pack("{s:i,s:I,s:b,s:s}", "pid", p->pid, "job_id",
						(json_int_t)p->job_id, "matched", match, "reason",
						reason ? reason : "takes it at its next poll"));
	}
	hmap_release(&by_user);
	free(all);
	return each;
}

static const char *explain_all(const struct jobs *j, const struct order *o, const struct tally *t)
{
	struct jobs_aggregate all = jobs_aggregate(j);

	if (!t->matched && !jobs_gate_open(o->kind, all))
		return jobs_gate_reason(o->kind, all);
	if (!t->matched)
		return why_none(j, o, t->in_job);
	if (!t->ready && t->pending)
		return "every process that matches has yet to fetch the previous request: try "
		       "again after its next poll";
	if (!t->ready && t->gated)
		return t->gated;
	if ((int64_t)t->ready > o->limit)
		return "more processes match than --process-limit allows";
	return "it is taken at the next poll of each process";
}

json_t *jobs_explain(const struct jobs *j, const json_t *request)
{
	struct tally t = {0};
	json_t *reply = NULL;
	struct order o;

	if (!order_read(request, &o, &reply))
		return reply;
	json_t *matched = json_array();
	json_t *each = explain_each(j, &o, matched, &t);
	const char *reason = explain_all(j, &o, &t);

	jobs_target_release(&o.target);
	return json_pack("{s:o,s:o,s:s}", "matched", matched, "processes", each, "reason", reason);
}
