/* SPDX-License-Identifier: MulanPSL-2.0 */
/* The processes of a session: searching, following, sampling, and messages about each. */
#include "sampler/session/session.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/proc.h"
#include "base/sched_latency.h"
#include "sampler/rounds/thread_filter.h"
#include "unwind/remote/job_steps.h"
#include "unwind/remote/native/native.h"

#define EXACT_NS 5000000u /* between samples: less often than that, each is proved */

/* What is kept of each process. */
struct follow {
	struct python_counts last; /* already in the totals */
	struct native_process *native; /* if --native, and it is available */
	bool native_reported; /* why it is not */
	struct job_steps steps; /* of a timeline */
	bool counted; /* somebody counts them */
	struct step_guess guess; /* else */
};

static void add_counts(struct stack_totals *t, struct follow *f, const struct python_process *p)
{
	const struct python_counts *now = &p->counts;

	t->retries += now->retries - f->last.retries;
	t->torn += now->torn - f->last.torn;
	t->calls += now->calls - f->last.calls;
	f->last = *now;
}

static void report_native(struct stack_session *s, struct follow *f, const struct target *t,
			  const struct err *err)
{
	if (!f->native_reported)
		stack_session_notice(s, STACK_WARNING, "no native frames of process %d (%s): %s",
				     (int)t->pid, t->label, err->text);
	f->native_reported = true;
}

static void begin_process(void *arg, struct target *t)
{
	struct stack_session *s = arg;
	struct follow *f = xcalloc(1, sizeof(*f));
	struct err err = {0};

	t->user = f;
	s->totals.processes++;
	stack_session_notice(s, STACK_DETAIL, "sampling process %d: %s, Python %u.%u in %s",
			     (int)t->pid, t->label, t->python->place.layout.version >> 24,
			     t->python->place.layout.version >> 16 & 255, t->python->place.path);
	stack_output_new(s->output, t);
	if (s->o->native && native_process_open(t->pid, &f->native, &err) < 0)
		report_native(s, f, t, &err);
}

static void rename_process(void *arg, struct target *t)
{
	struct stack_session *s = arg;

	stack_session_notice(s, STACK_DETAIL, "process %d is %s", (int)t->pid, t->label);
	stack_output_renamed(s->output, t);
}

static void keep_guess(struct stack_session *s, const struct target *t, struct follow *f)
{
	step_guess_release(&f->guess);
	if (!f->counted && f->guess.uses_framework)
		*XPUSH(s->steps, s->nsteps, s->cap_steps) =
			(struct stack_steps){t->pid, t->rank, f->guess};
}

static void end_process(void *arg, struct target *t)
{
	struct stack_session *s = arg;
	struct follow *f = t->user;

	if (s->end == STACK_END_NONE)
		stack_session_notice(s, STACK_DETAIL, "process %d has ended: %s", (int)t->pid,
				     t->label);
	if (t->python)
		add_counts(&s->totals, f, t->python);
	stack_output_gone(s->output, t, s->end_ns ? s->end_ns : clock_mono_ns());
	native_process_close(f->native);
	keep_guess(s, t, f);
	free(f);
	t->user = NULL;
}

static bool is_named(const struct stack_options *o, pid_t pid)
{
	for (unsigned i = 0; i < o->pids.n; i++)
		if (o->pids.list[i] == pid)
			return true;
	return false;
}

/* Why processes that were named, or are forbidden, cannot be read: once each. */
static void report_refused(struct stack_session *s)
{
	for (unsigned i = 0; i < s->targets->n; i++) {
		const struct target *t = s->targets->list[i];
		bool asked = is_named(s->o, t->pid);

		if (t->state != TARGET_REFUSED ||
		    hmap_put(&s->complained, t->serial, 1) != HMAP_NONE)
			continue;
		if (asked && t->err.code != -ESRCH)
			s->totals.refused++;
		/* Of those that rules found, many are no Python processes at all. */
		bool hint = asked && t->err.code == -ENOEXEC && !s->o->children;
		stack_session_notice(
			s, asked || t->err.code == -EPERM ? STACK_WARNING : STACK_DETAIL, "%s%s",
			t->err.text,
			hint ? "; --children samples the processes that it started" : "");
	}
}

/* All are copied before the first is unwound, which takes long: so ranks line up. */
static void add_native(struct stack_session *s)
{
	for (unsigned i = 0; i < 2 * s->targets->n; i++) {
		struct target *t = s->targets->list[i % s->targets->n];
		struct follow *f = t->user;
		struct err err = {0};
		unsigned failed;

		if (t->state != TARGET_OPEN || !f->native)
			continue;
		if (i < s->targets->n) {
			struct thread_filter wanted =
				thread_filter_of(t->python, s->o->all_threads);

			failed = native_add_copy(f->native, t->python, thread_filter_wants, &wanted,
						 &err);
		} else {
			failed = native_add_merge(f->native, t->python, &err);
		}
		s->totals.native_failed += failed;
		if (failed && err.code != -ESRCH)
			report_native(s, f, t, &err);
	}
}

static void count_samples(struct stack_session *s, const struct target *t)
{
	struct thread_filter wanted = thread_filter_of(t->python, s->o->all_threads);
	struct stack_totals *n = &s->totals;

	n->captures++;
	for (unsigned i = 0; i < t->python->nthreads; i++) {
		const struct python_thread *th = &t->python->threads[i];

		if (!thread_filter_wants(&wanted, th))
			continue;
		n->samples += !th->missed;
		n->missed += th->missed;
	}
	add_counts(n, t->user, t->python);
}

/* Nobody counts them: what the stacks of the main thread show. */
static void guess_steps(struct stack_session *s, struct target *t)
{
	struct follow *f = t->user;

	for (unsigned i = 0; i < t->python->nthreads; i++) {
		const struct python_thread *th = &t->python->threads[i];

		if (th->main && !th->missed &&
		    step_guess_add(&f->guess, th->frames, th->nframes, th->time_ns))
			stack_output_guessed_steps(s->output, t, (int64_t)f->guess.seen,
						   th->time_ns);
	}
}

/* Of a job that is recorded or monitored a timeline has its steps, too. */
static void add_steps(struct stack_session *s, struct target *t)
{
	struct follow *f = t->user;
	uint64_t now_ns = clock_mono_ns();

	if (s->o->format != STACK_CHROME)
		return;
	int64_t ended = job_steps_follow(&f->steps, t->pid, now_ns);
	f->counted |= ended >= 0;
	if (ended >= 0)
		stack_output_steps(s->output, t, ended, now_ns);
	else if (!f->counted)
		guess_steps(s, t);
}

void stack_processes_sample(struct stack_session *s)
{
	uint64_t begin = clock_mono_ns(), at = begin, skew = 0;
	struct stack_totals *n = &s->totals;

	if (!targets_open(s->targets))
		return;
	targets_round(s->targets, &skew);
	at = stack_stage_done(s, STAGE_STACKS, at);
	n->rounds++;
	n->skew_ns += skew;
	n->skew_max_ns = skew > n->skew_max_ns ? skew : n->skew_max_ns;
	if (s->o->native) {
		add_native(s);
		at = stack_stage_done(s, STAGE_NATIVE, at);
	}
	for (unsigned i = 0; i < s->targets->n; i++) {
		struct target *t = s->targets->list[i];

		/* of one that could not be copied the stacks are old */
		if (t->state != TARGET_OPEN || t->python->time_ns < begin)
			continue;
		count_samples(s, t);
		stack_output_sample(s->output, t);
		add_steps(s, t);
	}
	stack_stage_done(s, STAGE_EVENTS, at);
}

/* --- searching --- */

/* --debug-pid-discovery: where was searched, when that has changed */
static void report_sources(struct stack_session *s)
{
	const char *sources = targets_found_by(s->targets);

	if (!strcmp(sources, s->found_by))
		return;
	snprintf(s->found_by, sizeof(s->found_by), "%s", sources);
	stack_session_notice(s, STACK_INFO, "searched: %s", sources);
}

void stack_processes_refresh(struct stack_session *s, bool now)
{
	uint64_t at = clock_mono_ns();
	struct err err = {0};

	if (targets_refresh(s->targets, now, &err) < 0 && strcmp(err.text, s->search_err.text)) {
		s->search_err = err;
		stack_session_notice(s, STACK_WARNING, "cannot search for processes: %s", err.text);
	}
	stack_stage_done(s, STAGE_DISCOVER, at);
	if (s->o->debug_discovery)
		report_sources(s);
	report_refused(s);
}

/* --debug-pid-discovery */
static void report_discovery(struct stack_session *s)
{
	struct discovery found = {0};
	struct err err = {0};

	if (discover(&s->rules, &found, &err) < 0)
		stack_session_notice(s, STACK_WARNING, "cannot search for processes: %s", err.text);
	else
		stack_session_notice(s, STACK_INFO, "found %u by %s", found.n,
				     *found.found_by ? found.found_by : "nothing");
	memcpy(s->found_by, found.found_by, sizeof(s->found_by));
	for (unsigned i = 0; i < found.n; i++) {
		const struct discovered *d = &found.list[i];

		if (d->device < 0)
			stack_session_notice(s, STACK_INFO, "  process %d", (int)d->pid);
		else if (d->device_mb == UINT64_MAX)
			stack_session_notice(s, STACK_INFO, "  process %d on card %d", (int)d->pid,
					     d->device);
		else
			stack_session_notice(s, STACK_INFO,
					     "  process %d on card %d with %" PRIu64 " MB",
					     (int)d->pid, d->device, d->device_mb);
	}
	discovery_release(&found);
}

/* No process is there yet: what is waited for, and what to do if none comes. */
static void report_empty(struct stack_session *s)
{
	const struct stack_options *o = s->o;
	struct buf line = {0};

	if (s->job || stack_options_fixed(o) || targets_open(s->targets) ||
	    targets_waiting(s->targets))
		return;
	if (s->rules.devices == DISCOVER_NO_DEVICE)
		buf_add_str(&line, "no such Python process yet: waiting for one");
	else if (s->rules.min_npu_mb)
		buf_addf(&line,
			 "no Python process with %u MB on an NPU (--min-hbm-usage-mb), none on a "
			 "GPU: waiting for one",
			 s->rules.min_npu_mb);
	else
		buf_add_str(&line, "no Python process on an NPU or GPU: waiting for one");
	if (o->empty_exit_ns)
		buf_addf(&line, " for %g s", (double)o->empty_exit_ns / 1e9);
	if (s->rules.devices != DISCOVER_NO_DEVICE)
		buf_add_str(&line, "; -p, --name and --parent name others");
	if (geteuid() != 0 && proc_hides_processes())
		buf_add_str(&line, "; /proc is mounted with hidepid: those of other users are seen "
				   "by root alone");
	stack_session_notice(s, STACK_INFO, "%s", buf_str(&line));
	buf_release(&line);
}

bool stack_processes_left(const struct stack_session *s)
{
	if (targets_open(s->targets) || targets_waiting(s->targets))
		return true;
	for (unsigned i = 0; i < s->targets->n && s->rules.refresh_ms; i++) {
		const struct target *t = s->targets->list[i];

		if (t->state == TARGET_REFUSED && t->err.code != -ESRCH)
			return true;
	}
	return false;
}

/* Where it costs the job next to nothing, or is asked for. Not where we would have to wait until
 * a thread that computes leaves its processor to us. */
static bool is_exact(const struct stack_options *o)
{
	bool in_time = sched_latency_lower();

	return o->exact || (!o->fast && in_time && o->interval_ns >= EXACT_NS);
}

void stack_processes_open(struct stack_session *s)
{
	stack_options_rules(s->o, &s->rules);
	s->targets =
		targets_new(&(struct targets_options){.rules = &s->rules,
						      .python = {.states = s->o->moments.running,
								 .names = true,
								 .exact = is_exact(s->o),
								 .main_only = !s->o->all_threads},
						      .on_new = begin_process,
						      .on_renamed = rename_process,
						      .on_gone = end_process,
						      .arg = s});
	if (s->o->debug_discovery)
		report_discovery(s);
	stack_processes_refresh(s, true);
	report_empty(s);
}
