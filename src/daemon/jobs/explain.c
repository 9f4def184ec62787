/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Why a request would reach whom it reaches, in plain words. */
#include <stdlib.h>
#include <string.h>

#include "daemon/jobs/jobs_impl.h"

/* Why a request of this kind is not for such a client. */
static const char *reason_wrong_kind(const struct jobs_request *o, const struct jobs_process *p)
{
	if (p->guest)
		return o->kind == CONFIG_KINETO
			       ? "has sonde's monitor but not PyTorch's own profiler: use "
				 "'dyno nputrace', or start it with KINETO_USE_DAEMON=1"
			       : "leaves this to the NPU framework in the same process";
	return o->kind == CONFIG_KINETO
		       ? "is an NPU framework: use 'dyno nputrace'"
		       : "is PyTorch's own profiler, not an NPU framework: use 'dyno gputrace'";
}

/* Why one process would not get it; NULL: it would. */
static const char *reason_refused(const struct jobs_request *o, const struct hmap *by_user,
				  const struct jobs_process *p)
{
	struct jobs_aggregate of_user = jobs_of_user(by_user, p->uid);

	if (p->job_id != o->target.job_id)
		return "belongs to another job";
	if (!(p->received & JOBS_RECEIVED_REQUEST))
		return "reports its state but does not ask for work itself";
	if (!jobs_target_matches(&o->target, p))
		return "neither it nor an ancestor is among the pids";
	if (!jobs_request_understood(o, p))
		return reason_wrong_kind(o, p);
	if (jobs_is_silent(p, o->now_ms))
		return "has not asked for work for two minutes";
	if (!jobs_gate_open(o->kind, of_user))
		return jobs_gate_reason(o->kind, of_user);
	if (p->pending)
		return "has not yet fetched the previous request";
	return NULL;
}

/* What happens when it takes it. */
static const char *describe_outcome(const struct jobs *j, const struct jobs_request *o,
				    const struct jobs_process *p)
{
	const char *waits = jobs_arbiter_reason(j, p, o->kind);

	if (!waits)
		waits = jobs_trace_effect(o, p);
	if (waits)
		return waits;
	return p->guest ? "takes it at once" : "takes it at its next poll";
}

struct tally {
	size_t known, in_job, matched, ready, pending;
	size_t others; /* match, but belong to other users */
	size_t limited; /* of those that are ready, such as the limit counts */
	size_t other_kind; /* ask for work, but of the other kind */
	size_t guests; /* of them libraries of ours */
	size_t only_report; /* do not ask for work */
	const char *gated; /* why those that match have to wait; NULL: none has to */
};

static void count_process(struct tally *t, const struct jobs_request *o,
			  const struct jobs_process *p, const struct hmap *by_user,
			  const char *reason)
{
	struct jobs_aggregate of_user = jobs_of_user(by_user, p->uid);

	t->known++;
	if (p->job_id != o->target.job_id)
		return;
	t->in_job++;
	t->only_report += !(p->received & JOBS_RECEIVED_REQUEST);
	bool other = p->received & JOBS_RECEIVED_REQUEST && !jobs_request_understood(o, p) &&
		     jobs_target_matches(&o->target, p);
	t->other_kind += other;
	t->guests += other && p->guest;
	if (!jobs_request_wants(p, o))
		return;
	t->matched++;
	t->ready += !reason;
	t->limited += !reason && (!p->guest || !o->each_guest);
	if (!jobs_gate_open(o->kind, of_user))
		t->gated = jobs_gate_reason(o->kind, of_user);
	else
		t->pending += !!p->pending;
}

static json_t *explain_each(const struct jobs *j, const struct jobs_request *o, json_t *matched,
			    struct tally *t)
{
	json_t *each = json_array();
	struct hmap by_user;
	size_t n;
	struct jobs_process **all = jobs_collect(j, o->who, NULL, NULL, jobs_by_pids, &n);

	jobs_take_turns(all, n);
	t->others = jobs_count_others(j, o->who, jobs_request_wants, o);
	jobs_by_user(j, &by_user);
	for (size_t i = 0; i < n; i++) {
		const struct jobs_process *p = all[i];
		const char *reason = reason_refused(o, &by_user, p);
		bool match = jobs_request_wants(p, o);

		count_process(t, o, p, &by_user, reason);
		if (match)
			json_array_append_new(matched, json_integer(p->pid));
		if (i < 256)
			json_array_append_new(
				each, json_pack("{s:i,s:I,s:b,s:s}", "pid", p->pid, "job_id",
						(json_int_t)p->job_id, "matched", match, "reason",
						reason ? reason : describe_outcome(j, o, p)));
	}
	hmap_release(&by_user);
	free(all);
	return each;
}

static const char *reason_none_matches(const struct jobs *j, const struct jobs_request *o,
				       const struct tally *t)
{
	struct jobs_aggregate all = jobs_aggregate(j, o->who);

	if (t->others)
		return "the processes that match belong to other users: ask as one of them, as "
		       "root, or as a member of the daemon's --admin-group";
	if (!t->known && j->counts.processes)
		return "no process of yours has registered with this daemon, only those of other "
		       "users: start the job as the same user, with KINETO_USE_DAEMON=1 (PyTorch), "
		       "MSMONITOR_USE_DAEMON=1 (torch_npu, MindSpore) or 'sonde monitor'";
	if (!t->known)
		return "no process has registered with this daemon: start the daemon first, then "
		       "the job with KINETO_USE_DAEMON=1 (PyTorch), MSMONITOR_USE_DAEMON=1 "
		       "(torch_npu, MindSpore) or 'sonde monitor'";
	if (!t->in_job)
		return "processes are registered, but none with this job id: see 'dyno ps', and "
		       "give --job-id";
	if (t->other_kind && t->guests == t->other_kind && o->kind == CONFIG_KINETO)
		return "these processes have sonde's monitor but not PyTorch's own profiler: use "
		       "'dyno nputrace', or start them with KINETO_USE_DAEMON=1";
	if (t->other_kind && o->by_time)
		return "a trace by time is made by sonde's own monitor alone: give --iterations "
		       "for torch_npu and MindSpore, use 'dyno gputrace' for PyTorch's own "
		       "profiler, or "
		       "start the job with 'sonde monitor'";
	if (t->other_kind)
		return o->kind == CONFIG_KINETO
			       ? "these processes belong to an NPU framework: use 'dyno nputrace'"
			       : "these processes have PyTorch's own profiler: use 'dyno gputrace'";
	if (t->only_report && t->only_report == t->in_job)
		return "these processes report what they do but do not ask for work: they were "
		       "started before this daemon, and must be started again";
	if (!o->target.all)
		return "no registered process has one of these pids or a descendant of them: see "
		       "'dyno ps'";
	if (!jobs_gate_open(o->kind, all))
		return jobs_gate_reason(o->kind, all);
	return "the processes of this job do not ask for work any more";
}

static const char *explain_all(const struct jobs *j, const struct jobs_request *o,
			       const struct tally *t)
{
	if (!t->matched)
		return reason_none_matches(j, o, t);
	if (!t->ready && t->pending)
		return "no process that matches has fetched the previous request yet: try "
		       "again after the next poll";
	if (!t->ready && t->gated)
		return t->gated;
	if ((int64_t)t->limited > o->limit)
		return "more processes match than --process-limit allows";
	/* the caller asks for the reason afterwards, and by then it may be over */
	return "nothing is in its way now, it is taken at the next poll of each process: if it was "
	       "refused a moment ago, try again";
}

const char *jobs_request_refusal(const struct jobs *j, const struct jobs_request *o)
{
	json_t *matched = json_array();
	struct tally t = {0};

	json_decref(explain_each(j, o, matched, &t));
	json_decref(matched);
	return explain_all(j, o, &t);
}

json_t *jobs_explain(struct jobs *j, const struct access_grant *who, const json_t *request)
{
	struct tally t = {0};
	json_t *reply = NULL;
	struct jobs_request o;

	if (!jobs_request_read(j, who, request, &o, &reply))
		return reply;
	json_t *matched = json_array();
	json_t *each = explain_each(j, &o, matched, &t);
	reply = json_pack("{s:o,s:o,s:s}", "matched", matched, "processes", each, "reason",
			  explain_all(j, &o, &t));
	jobs_set_others(reply, t.others);
	jobs_request_release(&o);
	return reply;
}
