/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The end of traces that nobody wants to wait for any more: their steps do not come, because the
 * job hangs. An order that still lies here is taken back. A guest is told in any case: what we know
 * of it may be older than the order that it has just fetched; it says what became of its trace.
 * Frameworks have no such order; those that trace are named.
 */
#include <stdlib.h>

#include "base/mem.h"
#include "daemon/jobs/jobs_impl.h"

struct stop {
	struct jobs *j;
	struct jobs_order o;
	struct jobs_config *config;
	json_t *matched, *told, *dropped, *others;
};

static struct jobs_config *make_config(struct jobs *j)
{
	uint64_t id = jobs_trace_id(j);
	char *text =
		xasprintf("SONDE_TRACE_STOP=true\nREQUEST_TRACE_ID=%llu", (unsigned long long)id);
	struct jobs_config *c = jobs_config_new(text);

	c->id = id;
	free(text);
	return c;
}

static bool take_back(struct jobs_process *p)
{
	if (!p->pending || !p->pending->is_npu_trace)
		return false;
	jobs_config_release(p->pending);
	p->pending = NULL;
	return true;
}

static void add_pid(json_t *list, const struct jobs_process *p)
{
	json_array_append_new(list, json_integer(p->pid));
}

static void tell(struct stop *s, struct jobs_process *p)
{
	jobs_config_release(p->guest->stop);
	p->guest->stop = s->config;
	s->config->refs++;
	jobs_asked(p, s->config->id);
	jobs_poke(s->j, p);
	add_pid(s->told, p);
}

/* Why the trace of a framework goes on; NULL: there is none. A rank that hangs does not report, so
 * what it said last counts, however long ago that was. */
static const char *goes_on(const struct stop *s, const struct jobs_process *p)
{
	if (p->trace == FABRIC_RUNNING || p->trace == FABRIC_READY)
		return "its trace is taken by the framework's own profiler (torch_npu, MindSpore), "
		       "which cannot be told to end it";
	if (jobs_tracer_is_busy(p, s->o.now_ms))
		return "its trace is taken by PyTorch's own profiler, which cannot be told to end "
		       "it";
	return NULL;
}

/* Of a framework one process asks for work and another one tells states; either may be named. */
static bool is_meant(const struct stop *s, const struct jobs_process *p)
{
	const struct jobs_target *t = &s->o.target;

	return p->job_id == t->job_id &&
	       (jobs_target_matches(t, p) || jobs_target_names(t, p->pid));
}

static void stop_guest(struct stop *s, struct jobs_process *p)
{
	if (!jobs_order_wants(p, &s->o))
		return; /* or the framework in the same process is who traces */
	add_pid(s->matched, p);
	if (take_back(p))
		add_pid(s->dropped, p);
	tell(s, p);
}

static void stop_framework(struct stop *s, struct jobs_process *p)
{
	const char *why = is_meant(s, p) ? goes_on(s, p) : NULL;
	bool dropped = is_meant(s, p) && take_back(p);

	if (!why && !dropped && !jobs_order_wants(p, &s->o))
		return;
	add_pid(s->matched, p);
	if (dropped)
		add_pid(s->dropped, p);
	if (why)
		json_array_append_new(s->others,
				      json_pack("{siss}", "pid", (int)p->pid, "why", why));
}

static json_t *reply_of(const struct stop *s)
{
	json_t *reply = json_pack("{sOsOsOsO}", "processesMatched", s->matched,
				  "activityProfilersTriggered", s->told, "tracesDropped",
				  s->dropped, "notStopped", s->others);

	if (json_array_size(s->told))
		json_object_set_new(reply, "requestTraceId",
				    json_sprintf("%llu", (unsigned long long)s->config->id));
	return reply;
}

json_t *jobs_stop_trace(struct jobs *j, const json_t *request)
{
	struct stop s = {.j = j, .o = {.kind = CONFIG_NPU_TRACE, .now_ms = jobs_now_ms()}};
	json_t *reply = NULL;
	size_t n;

	if (!jobs_order_aim(j, request, &s.o, &reply))
		return reply;
	s.config = make_config(j);
	s.matched = json_array();
	s.told = json_array();
	s.dropped = json_array();
	s.others = json_array();
	struct jobs_process **all = jobs_collect(j, NULL, NULL, jobs_by_pids, &n);
	for (size_t i = 0; i < n; i++)
		if (all[i]->guest)
			stop_guest(&s, all[i]);
		else
			stop_framework(&s, all[i]);
	free(all);
	reply = reply_of(&s);
	json_decref(s.matched);
	json_decref(s.told);
	json_decref(s.dropped);
	json_decref(s.others);
	jobs_config_release(s.config);
	jobs_order_release(&s.o);
	return reply;
}
