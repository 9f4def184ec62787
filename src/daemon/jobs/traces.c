/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Traces by nputrace: which requests replace or drop one that waits, and stopTrace.
 *
 * stopTrace ends traces that nobody wants to wait for any more: their steps do not come, because
 * the job hangs. A request that was not fetched is withdrawn. A guest gets the stop in any case:
 * what we know of it may be older than the request that it has just fetched; it replies with the
 * outcome. Frameworks have no such request; those that trace are named.
 */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "daemon/jobs/jobs_impl.h"
#include "wire/request.h"

struct stop {
	struct jobs *j;
	struct jobs_request o;
	struct jobs_config *config;
	json_t *matched, *sent, *dropped, *others;
};

static struct jobs_config *make_stop(struct jobs *j)
{
	uint64_t id = jobs_trace_id(j);
	char *text =
		xasprintf("SONDE_TRACE_STOP=true\nREQUEST_TRACE_ID=%llu", (unsigned long long)id);
	struct jobs_config *c = jobs_config_new(text);

	c->id = id;
	free(text);
	return c;
}

static bool withdraw_trace(struct jobs_process *p)
{
	struct jobs_config **c = p->after ? &p->after : &p->pending;

	if (!*c || !(*c)->is_npu_trace)
		return false;
	jobs_config_release(*c);
	*c = NULL;
	return true;
}

static void add_pid(json_t *list, const struct jobs_process *p)
{
	json_array_append_new(list, json_integer(p->pid));
}

static void send_stop(struct stop *s, struct jobs_process *p)
{
	jobs_config_release(p->guest->stop);
	p->guest->stop = s->config;
	s->config->refs++;
	jobs_expect_reply(p, s->config);
	p->guest->stop_id = p->guest->trace_id ? s->config->id : 0;
	jobs_notify(s->j, p);
	add_pid(s->sent, p);
}

/* Why the trace of a framework goes on; NULL: there is none. A rank that hangs does not report, so
 * what it reported last counts, however long ago that was. */
static const char *reason_it_goes_on(const struct stop *s, const struct jobs_process *p)
{
	if (p->trace == FABRIC_RUNNING || p->trace == FABRIC_READY)
		return "its trace is taken by the framework's own profiler (torch_npu, MindSpore), "
		       "which cannot be asked to end it";
	if (jobs_tracer_is_busy(p, s->o.now_ms))
		return "its trace is taken by PyTorch's own profiler, which cannot be asked to end "
		       "it";
	return NULL;
}

/* Of a framework one process polls and another one reports states; either may be named. */
static bool is_target(const struct jobs_process *p, const void *request)
{
	const struct jobs_target *t = &((const struct jobs_request *)request)->target;

	return p->job_id == t->job_id &&
	       (jobs_target_matches(t, p) || jobs_target_names(t, p->pid));
}

static void stop_guest(struct stop *s, struct jobs_process *p)
{
	if (!jobs_request_wants(p, &s->o))
		return; /* or the framework in the same process is who traces */
	add_pid(s->matched, p);
	if (withdraw_trace(p))
		add_pid(s->dropped, p);
	send_stop(s, p);
}

static void stop_framework(struct stop *s, struct jobs_process *p)
{
	const char *why = is_target(p, &s->o) ? reason_it_goes_on(s, p) : NULL;
	bool dropped = is_target(p, &s->o) && withdraw_trace(p);

	if (!why && !dropped && !jobs_request_wants(p, &s->o))
		return;
	add_pid(s->matched, p);
	if (dropped)
		add_pid(s->dropped, p);
	if (why)
		json_array_append_new(s->others,
				      json_pack("{siss}", "pid", (int)p->pid, "why", why));
}

json_t *jobs_stop_trace(struct jobs *j, const struct access_grant *who, const json_t *request)
{
	struct stop s = {.j = j,
			 .o = {.who = who, .kind = CONFIG_NPU_TRACE, .now_ms = jobs_now_ms()}};
	json_t *reply = NULL;
	size_t n;

	if (!jobs_request_read_target(j, request, &s.o, &reply))
		return reply;
	s.config = make_stop(j);
	s.config->asker = jobs_asker(who);
	s.matched = json_array();
	s.sent = json_array();
	s.dropped = json_array();
	s.others = json_array();
	struct jobs_process **all = jobs_collect(j, who, NULL, NULL, jobs_by_pids, &n);
	for (size_t i = 0; i < n; i++)
		if (all[i]->guest)
			stop_guest(&s, all[i]);
		else
			stop_framework(&s, all[i]);
	free(all);
	reply = json_pack("{sosososo}", "processesMatched", s.matched, "activityProfilersTriggered",
			  s.sent, "tracesDropped", s.dropped, "notStopped", s.others);
	if (json_array_size(s.sent))
		json_object_set_new(reply, "requestTraceId",
				    json_sprintf("%llu", (unsigned long long)s.config->id));
	jobs_set_others(reply, jobs_count_others(j, who, is_target, &s.o));
	jobs_config_release(s.config);
	jobs_request_release(&s.o);
	return reply;
}

/* --- what a request means for a trace that waits in a guest, and whether one would ever begin ---
 */

/* With the guest, until its first step, or still with us. */
static bool trace_waits(const struct jobs_process *p)
{
	return p->trace == FABRIC_READY || (p->pending && !p->pending->is_monitor);
}

/* A trace of steps, of a process that has reported none so far. */
static bool lacks_steps(const struct jobs_request *o, const struct jobs_process *p)
{
	struct trace_request trace;

	return o->kind == CONFIG_NPU_TRACE && p->current_step < 0 &&
	       !trace_request_read(o->config, strlen(o->config), &trace) && trace.steps;
}

static void add_effect(json_t *out, const char *key, const struct jobs_process *p)
{
	json_t *list = json_object_get(out, key);

	if (!list) {
		list = json_array();
		json_object_set_new(out, key, list);
	}
	json_array_append_new(list, json_integer(p->pid));
}

void jobs_add_trace_effects(const struct jobs_request *o, const struct jobs_config *c,
			    const struct jobs_process *p, json_t *out)
{
	if (!p->guest)
		return;
	if (trace_waits(p) && o->kind == CONFIG_NPU_TRACE)
		add_effect(out, "tracesReplaced", p);
	if (trace_waits(p) && c->is_monitor && (c->starts || c->stops))
		add_effect(out, "tracesDropped", p);
	if (lacks_steps(o, p))
		add_effect(out, "stepsUnknown", p);
}

const char *jobs_trace_effect(const struct jobs_request *o, const struct jobs_process *p)
{
	bool switches = config_is_true(o->config, "NPU_MONITOR_START") ||
			config_is_true(o->config, "NPU_MONITOR_STOP");

	if (!p->guest || o->kind == CONFIG_KINETO)
		return NULL;
	if (trace_waits(p) && o->kind == CONFIG_NPU_MONITOR && switches)
		return "takes it at once; the trace that waits for its first step there is dropped";
	if (trace_waits(p) && o->kind == CONFIG_NPU_TRACE)
		return "takes it at once; it replaces the trace that waits for its first step "
		       "there";
	if (lacks_steps(o, p))
		return "takes it at once, and begins when the job reports steps, which it has not "
		       "done yet";
	return NULL;
}
