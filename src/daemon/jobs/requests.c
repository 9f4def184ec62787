/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Requests of users: which processes they name, which of those take them, and which get a config.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/clock.h"
#include "base/mem.h"
#include "daemon/jobs/jobs_impl.h"
#include "wire/request.h"

#define DEFAULT_PROCESS_LIMIT 1000
/* What the dyno of today always sends with npu-monitor, and without being asked with nputrace. It
 * is meant for frameworks, of which one process asks for all ranks of a node. */
#define UNMEANT_LIMIT 3
#define INDENT "    " /* in front of the lines of a config, as always */
#define NO_PID INT32_MIN

/* --- targets: which processes a request names, and numbers of every kind that JSON has --- */

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

static json_t *type_fault(const char *wanted, const json_t *got)
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
		return type_fault("number", value);
	else if (json_real_value(value) >= -0x1p63 && json_real_value(value) < 0x1p63)
		*out = (int64_t)json_real_value(value);
	else
		return json_pack("{s:s}", "status",
				 "failed with exception = [json.exception.out_of_range.406] number "
				 "does not fit into 64 bits");
	return NULL;
}

int jobs_compare_pids(const void *a, const void *b)
{
	int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;

	return x < y ? -1 : x > y;
}

static json_t *read_pids(const json_t *pids, struct jobs_target *t)
{
	json_t *fault = NULL, *pid;
	size_t i;

	if (!json_is_array(pids))
		return type_fault("array", pids);
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
	qsort(t->pids, t->npids, sizeof(*t->pids), jobs_compare_pids);
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

	*out = (struct jobs_target){.all = !pids, .any_job = !job && !need_pids};
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

bool jobs_target_names(const struct jobs_target *t, int32_t pid)
{
	return bsearch(&pid, t->pids, t->npids, sizeof(*t->pids), jobs_compare_pids);
}

/* By the pid that it has here, which it cannot choose. A process of a container calls itself by
 * another one, but this is what npu-smi and nvidia-smi show. */
static bool names_here(const struct jobs_target *t, const struct jobs_process *p)
{
	return p->peer && !(p->received & JOBS_FOR_ANOTHER) && jobs_target_names(t, p->peer->pid);
}

bool jobs_target_has_job(const struct jobs_target *t, const struct jobs_process *p)
{
	return t->any_job || p->job_id == t->job_id;
}

bool jobs_target_matches(const struct jobs_target *t, const struct jobs_process *p)
{
	if (t->all || names_here(t, p))
		return true;
	for (unsigned i = 0; i < p->npids; i++)
		if (jobs_target_names(t, p->pids[i]))
			return true;
	return false;
}

/* --- requests --- */

static uint64_t reporter_key(uint32_t uid, int32_t pid)
{
	return (uint64_t)uid << 32 | (uint32_t)pid;
}

/* Processes with a framework in them; a guest is none. */
static void find_frameworks(const struct jobs *j, struct jobs_request *o)
{
	const unsigned reports = JOBS_RECEIVED_TRACE | JOBS_RECEIVED_MONITOR;
	const struct jobs_process *p;

	for (struct jobs_cursor c = {0}; (p = jobs_next(j, &c));) {
		uint64_t who = reporter_key(p->uid, p->pid);

		if (p->guest)
			continue;
		if (p->received & reports)
			hmap_put(&o->reporters, who, 1);
		if (jobs_is_silent(p, o->now_ms))
			continue;
		if (p->received & (reports | JOBS_RECEIVED_CONTEXT) || !strcmp(p->endpoint, "home"))
			hmap_put(&o->frameworks, who, 1);
	}
}

bool jobs_request_read_target(const struct jobs *j, const json_t *request, struct jobs_request *o,
			      json_t **out_fault)
{
	if (!jobs_target_read(request, true, &o->target, out_fault))
		return false;
	find_frameworks(j, o);
	return true;
}

/* Profilers of frameworks would wait for a number of steps that is not there. */
static bool is_trace_by_time(const struct jobs_request *o)
{
	struct trace_request trace;

	return o->kind == CONFIG_NPU_TRACE &&
	       !trace_request_read(o->config, strlen(o->config), &trace) && !trace.steps;
}

bool jobs_request_read(const struct jobs *j, const struct access_grant *who, const json_t *request,
		       struct jobs_request *o, json_t **out_fault)
{
	const json_t *config = json_object_get(request, "config");
	const json_t *limit = json_object_get(request, "process_limit");
	json_t *fault = NULL;

	*o = (struct jobs_request){
		.who = who, .limit = DEFAULT_PROCESS_LIMIT, .now_ms = jobs_now_ms()};
	if (!config)
		fault = json_pack("{s:s}", "status", "failed");
	else if (!json_is_string(config))
		fault = type_fault("string", config);
	else if (limit)
		fault = jobs_read_int(limit, &o->limit);
	if (fault) {
		*out_fault = fault;
		return false;
	}
	o->config = json_string_value(config);
	o->kind = config_kind(o->config);
	o->by_time = is_trace_by_time(o);
	if (!jobs_request_read_target(j, request, o, out_fault))
		return false;
	o->with_reason = json_is_true(json_object_get(request, "with_reason"));
	const json_t *meant = json_object_get(request, "process_limit_is_meant");
	o->each_guest =
		o->kind != CONFIG_KINETO && o->limit == UNMEANT_LIMIT && !json_is_true(meant);
	return true;
}

void jobs_request_release(struct jobs_request *o)
{
	hmap_release(&o->reporters);
	hmap_release(&o->frameworks);
	jobs_target_release(&o->target);
}

/* --- which processes take it --- */

/*
 * An NPU framework reports states, libkineto does not. A process that polls for a rank may have
 * reported to a daemon that has ended since; then the rank, which goes on reporting, or the socket
 * in the home directory, which only NPU frameworks use, shows what it is.
 */
static bool is_npu_client(const struct jobs_request *o, const struct jobs_process *p)
{
	if (p->received & (JOBS_RECEIVED_TRACE | JOBS_RECEIVED_MONITOR) ||
	    !strcmp(p->endpoint, "home"))
		return true;
	for (unsigned i = 0; i < p->npids; i++)
		if (hmap_get(&o->reporters, reporter_key(p->uid, p->pids[i])) != HMAP_NONE)
			return true;
	return false;
}

/*
 * A guest takes what is for NPUs, unless there is a framework in the same process, whose own
 * profiler it is for. Old versions of both kinds of frameworks do nothing but register, and could
 * be either.
 */
bool jobs_request_understood(const struct jobs_request *o, const struct jobs_process *p)
{
	if (p->guest)
		return o->kind != CONFIG_KINETO &&
		       hmap_get(&o->frameworks, reporter_key(p->uid, p->pid)) == HMAP_NONE;
	if (o->kind == CONFIG_KINETO)
		return !is_npu_client(o, p);
	if (o->by_time)
		return false;
	return is_npu_client(o, p) || p->received & JOBS_RECEIVED_CONTEXT;
}

bool jobs_request_wants(const struct jobs_process *p, const void *arg)
{
	const struct jobs_request *o = arg;

	return (p->received & JOBS_RECEIVED_REQUEST) && p->job_id == o->target.job_id &&
	       jobs_request_understood(o, p) && !jobs_is_silent(p, o->now_ms) &&
	       jobs_target_matches(&o->target, p);
}

int jobs_by_pids(const void *a, const void *b)
{
	const struct jobs_process *x = *(struct jobs_process *const *)a;
	const struct jobs_process *y = *(struct jobs_process *const *)b;

	for (unsigned i = 0; i < x->npids && i < y->npids; i++)
		if (x->pids[i] != y->pids[i])
			return x->pids[i] < y->pids[i] ? -1 : 1;
	return x->npids < y->npids ? -1 : x->npids > y->npids;
}

void jobs_take_turns(struct jobs_process **all, size_t n)
{
	struct jobs_process **sorted = xcalloc(n + 1, sizeof(*sorted));
	size_t *turns = xcalloc(n + 1, sizeof(*turns)), *begins = xcalloc(n + 2, sizeof(*begins));
	struct hmap of_user = {0};

	for (size_t i = 0; i < n; i++) {
		turns[i] = jobs_count(&of_user, all[i]->uid, 1) - 1;
		begins[turns[i] + 1]++;
	}
	for (size_t i = 0; i < n; i++)
		begins[i + 1] += begins[i];
	for (size_t i = 0; i < n; i++)
		sorted[begins[turns[i]]++] = all[i];
	if (n)
		memcpy(all, sorted, n * sizeof(*sorted));
	hmap_release(&of_user);
	free(begins);
	free(turns);
	free(sorted);
}

uint64_t jobs_trace_id(struct jobs *j)
{
	struct {
		char host[64];
		struct timespec now;
		uint64_t request;
		pid_t pid;
	} seed;

	memset(&seed, 0, sizeof(seed));
	(void)gethostname(seed.host, sizeof(seed.host) - 1);
	clock_gettime(CLOCK_REALTIME, &seed.now);
	seed.request = ++j->requests;
	seed.pid = getpid();
	return XXH64(&seed, sizeof(seed), 0);
}

struct jobs_config *jobs_config_new(const char *text)
{
	size_t len = strlen(text);
	struct jobs_config *c = xcalloc(1, sizeof(*c) + len + 1);

	c->refs = 1;
	c->asker = JOBS_ANY_USER;
	c->len = len;
	memcpy(c->text, text, len);
	return c;
}

uid_t jobs_asker(const struct access_grant *who)
{
	return who && who->right == ACCESS_OWN ? who->uid : JOBS_ANY_USER;
}

static struct jobs_config *make_config(struct jobs *j, const struct jobs_request *o)
{
	uint64_t id = jobs_trace_id(j);
	char *text = xasprintf("\n" INDENT "%s\n" INDENT "REQUEST_TRACE_ID=%llu", o->config,
			       (unsigned long long)id);
	struct jobs_config *c = jobs_config_new(text);

	c->id = id;
	c->asker = jobs_asker(o->who);
	c->is_monitor = o->kind == CONFIG_NPU_MONITOR;
	c->is_npu_trace = o->kind == CONFIG_NPU_TRACE;
	c->leaves_out = c->is_npu_trace && o->leaves_out;
	c->starts = config_is_true(o->config, "NPU_MONITOR_START");
	c->stops = config_is_true(o->config, "NPU_MONITOR_STOP");
	c->lease = c->is_monitor ? jobs_lease_of(o->config) : 0;
	c->renews = c->lease && !c->starts && !c->stops;
	c->monitor_ms = config_monitor_ms(o->config);
	c->wait_ms = config_trace_begins_ms(o->config, (int64_t)(clock_real_ns() / 1000000));
	free(text);
	return c;
}

/* --- assigning configs --- */

/*
 * A monitor that has not fetched its start need not get a stop as well, nor a second start. A trace
 * that a guest has not fetched is replaced by what replaces one that it waits with.
 */
static bool replaces_pending(const struct jobs_process *p, const struct jobs_config *c)
{
	bool switches = c->is_monitor && (c->stops || c->starts);

	if (c->lease || p->pending->lease) /* observers give way; see jobs_lease_allows() */
		return true;
	return p->guest && (switches || (!p->pending->is_monitor && !c->is_monitor));
}

/* A stop is effective for what is asked for next: a trace waits until it is fetched. A guest fetches
 * it at once. */
static bool follows_pending(const struct jobs_process *p, const struct jobs_config *c)
{
	return p->pending->is_monitor && p->pending->stops && c->is_npu_trace && !p->guest &&
	       !p->after;
}

static void install_config(struct jobs *j, const struct jobs_request *o, struct jobs_process *p,
			   struct jobs_config *c)
{
	struct jobs_config **place = p->pending && follows_pending(p, c) ? &p->after : &p->pending;

	jobs_config_release(*place);
	*place = c;
	c->refs++;
	if (!c->renews) /* a caller gets the reply to the request it waits for */
		jobs_expect_reply(p, c);
	jobs_lease_assigned(p, c);
	if (p->guest)
		jobs_notify(j, p);
	else if (o->kind == CONFIG_KINETO)
		jobs_arbiter_trace_requested(j, p);
}

/* Whether the limit is meant for such a one. */
static bool is_counted(const struct jobs_request *o, const struct jobs_process *p)
{
	return !p->guest || !o->each_guest;
}

static json_t *assign_config(struct jobs *j, const struct jobs_request *o,
			     struct jobs_process **matched, size_t n)
{
	json_t *pids = json_array(), *triggered = json_array();
	struct jobs_config *config = make_config(j, o);
	int64_t assigned = 0, busy = 0;
	uint64_t unsupported = 0;
	bool guests = false;
	json_t *effects = json_object();

	for (size_t i = 0; i < n; i++) {
		struct jobs_process *p = matched[i];
		bool counts = is_counted(o, p);

		json_array_append_new(pids, json_integer(p->pid));
		if (counts && assigned >= o->limit)
			continue;
		if ((config->lease && !jobs_lease_allows(p, config)) ||
		    (p->pending && !replaces_pending(p, config) && !follows_pending(p, config))) {
			busy++;
			continue;
		}
		jobs_add_trace_effects(o, config, p, effects);
		install_config(j, o, p, config);
		assigned += counts;
		json_array_append_new(triggered, json_integer(p->pid));
		guests = guests || p->guest;
		if (p->guest)
			jobs_guest_unsupported(p->guest, o->config, &unsupported);
	}
	uint64_t id = config->id;
	jobs_config_release(config);
	json_t *reply =
		json_pack("{s:I,s:o,s:i,s:[],s:o}", "activityProfilersBusy", (json_int_t)busy,
			  "activityProfilersTriggered", triggered, "eventProfilersBusy", 0,
			  "eventProfilersTriggered", "processesMatched", pids);
	json_object_update(reply, effects);
	json_decref(effects);
	if (unsupported)
		json_object_set_new(reply, "notHonoured", jobs_unsupported_options(unsupported));
	if (guests)
		json_object_set_new(reply, "requestTraceId",
				    json_sprintf("%llu", (unsigned long long)id));
	return reply;
}

/* Those that are named by their pid here come first: others may call themselves anything. */
static void put_named_first(const struct jobs_target *t, struct jobs_process **matched, size_t n)
{
	struct jobs_process **rest = xcalloc(n + 1, sizeof(*rest));
	size_t nrest = 0, first = 0;

	for (size_t i = 0; i < n; i++)
		if (names_here(t, matched[i]))
			matched[first++] = matched[i];
		else
			rest[nrest++] = matched[i];
	if (nrest)
		memcpy(matched + first, rest, nrest * sizeof(*rest));
	free(rest);
}

/* Ranks that were not asked leave no trace: their guests say why. */
static bool leaves_out(const struct jobs *j, const struct jobs_request *o,
		       struct jobs_process *const *matched, size_t n)
{
	struct jobs_request to_all = *o;
	int64_t counted = 0;
	size_t all = n;

	for (size_t i = 0; i < n; i++)
		counted += is_counted(o, matched[i]);
	to_all.target.all = true;
	if (!o->target.all)
		free(jobs_collect(j, o->who, jobs_request_wants, &to_all, NULL, &all));
	return counted > o->limit || all > n;
}

/* Leaves those of users whose NPUs are free for it; the verdict for the others if none is left. */
static const char *pass_gate(const struct jobs *j, const struct jobs_request *o,
			     struct jobs_process **matched, size_t *n)
{
	const enum config_kind kind = o->kind;
	const char *verdict = "unknown";
	struct hmap by_user;
	size_t kept = 0;

	if (!*n) {
		struct jobs_aggregate all = jobs_aggregate(j, o->who);

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

json_t *jobs_set_request(struct jobs *j, const struct access_grant *who, const json_t *request)
{
	json_t *reply = NULL;
	struct jobs_request o;
	size_t n;

	if (!jobs_request_read(j, who, request, &o, &reply))
		return reply;
	struct jobs_process **matched =
		jobs_collect(j, who, jobs_request_wants, &o, jobs_by_pids, &n);
	jobs_take_turns(matched, n);
	size_t others = jobs_count_others(j, who, jobs_request_wants, &o);
	if (!o.target.all)
		put_named_first(&o.target, matched, n);
	o.leaves_out = leaves_out(j, &o, matched, n);
	if (o.kind == CONFIG_KINETO) {
		reply = assign_config(j, &o, matched, n);
	} else {
		/* empty lists: the caller has none of those that match */
		bool only_others = !n && others;
		const char *verdict = pass_gate(j, &o, matched, &n);

		reply = n || only_others ? assign_config(j, &o, matched, n) : json_object();
		json_object_set_new(reply, "commandStatus", json_string(verdict));
	}
	free(matched);
	if (o.with_reason && !json_array_size(json_object_get(reply, "activityProfilersTriggered")))
		json_object_set_new(reply, "reason", json_string(jobs_request_refusal(j, &o)));
	jobs_set_others(reply, others);
	jobs_request_release(&o);
	return reply;
}
