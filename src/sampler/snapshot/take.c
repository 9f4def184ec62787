/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "sampler/snapshot/take.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/proc.h"
#include "base/sched_latency.h"
#include "sampler/session/job.h"
#include "unwind/remote/native/native.h"

#define READY_TRIES 20
#define READY_WAIT_US 50000
#define HANG_INTERVAL_NS 50000000ull /* 20 rounds per second */
#define HANG_SPREAD_NS 20000000u /* more or less, at random */
#define GRACE_MAX_NS 2000000000ull

static void close_native(void *arg, struct target *t)
{
	(void)arg;
	native_process_close(t->user);
	t->user = NULL;
}

void snap_sampler_init(struct snap_sampler *s, const struct stack_options *o)
{
	snap_sampler_init_as(
		s, o, &(struct python_options){.states = true, .names = true, .exact = true});
}

void snap_sampler_init_as(struct snap_sampler *s, const struct stack_options *o,
			  const struct python_options *python)
{
	*s = (struct snap_sampler){.o = o};
	stack_options_rules(o, &s->rules);
	struct targets_options t = {.rules = &s->rules, .python = *python, .on_gone = close_native};
	(void)sched_latency_lower();
	s->targets = targets_new(&t);
}

void snap_sampler_release(struct snap_sampler *s)
{
	targets_free(s->targets);
}

static const struct target *first_refused(const struct targets *t, bool foreign)
{
	for (unsigned i = 0; i < t->n; i++)
		if (t->list[i]->state != TARGET_OPEN && t->list[i]->err.code < 0 &&
		    (foreign || t->list[i]->err.code != -ENOEXEC))
			return t->list[i];
	return NULL;
}

static int explain_empty(const struct snap_sampler *s, struct err *err)
{
	const struct stack_options *o = s->o;
	const struct target *t = first_refused(s->targets, o->pids.n && !o->children);

	if (t)
		return err_set(err, -ESRCH, "%s%s", t->err.text,
			       t->err.code == -ENOEXEC
				       ? "; --children samples the processes that it started"
				       : "");
	const char *sources =
		*targets_found_by(s->targets) ? targets_found_by(s->targets) : "nothing";
	if (geteuid() != 0 && proc_hides_processes())
		return err_set(err, -ENOENT,
			       "no Python process found (searched: %s), but /proc is mounted with "
			       "hidepid and hides those of other users; do this as root, or as "
			       "the user of the job",
			       sources);
	if (s->rules.devices != DISCOVER_NO_DEVICE)
		return err_set(err, -ENOENT,
			       "no Python process on an NPU or GPU (%s); name it with -p, --name "
			       "or --parent, or sample all with -a",
			       sources);
	return err_set(err, -ENOENT, "no Python process found (searched: %s); -a samples all",
		       sources);
}

int snap_sampler_find(struct snap_sampler *s, struct err *err)
{
	int r = targets_refresh(s->targets, true, err);

	for (int i = 0; r >= 0 && i < READY_TRIES && targets_waiting(s->targets); i++) {
		usleep(READY_WAIT_US);
		r = targets_refresh(s->targets, false, err);
	}
	if (r < 0)
		return r;
	return targets_open(s->targets) ? 0 : explain_empty(s, err);
}

unsigned snap_sampler_round(struct snap_sampler *s)
{
	return targets_round(s->targets, &s->skew_ns);
}

static bool is_wanted(void *arg, const struct python_thread *t)
{
	const struct snap_sampler *s = arg;

	return s->o->all_threads || t->main;
}

/* Opened once; what is known about libraries serves the next snapshots. */
static void open_native(struct target *t, struct err *err)
{
	struct native_process *made = NULL;

	if (!t->user && native_process_open(t->pid, &made, err) == 0)
		t->user = made;
}

/* Opening and unwinding take long, copying does not: all are copied in the same moment. */
static void add_native(struct snap_sampler *s)
{
	enum { OPEN, COPY, MERGE, STEPS };

	s->native_err.code = 0;
	for (unsigned step = 0; step < STEPS; step++)
		for (unsigned i = 0; i < s->targets->n; i++) {
			struct target *t = s->targets->list[i];
			struct err err = {0};

			if (t->state != TARGET_OPEN)
				continue;
			if (step == OPEN)
				open_native(t, &err);
			else if (t->user && step == COPY)
				native_add_copy(t->user, t->python, is_wanted, s, &err);
			else if (t->user)
				native_add_merge(t->user, t->python, &err);
			if (err.code < 0 && s->native_err.code == 0)
				s->native_err = err;
		}
}

struct snapshot *snap_sampler_take(struct snap_sampler *s, const struct snapshot_options *o)
{
	if (s->o->native)
		add_native(s);
	return snapshot_take(s->targets, o);
}

/* Whether the processes have ended, the time is up, or a signal asked to stop. */
static bool is_over(const struct snap_sampler *s)
{
	if (!targets_open(s->targets) && !targets_waiting(s->targets))
		return true;
	return stack_signals_stop() || (s->end_ns && clock_mono_ns() >= s->end_ns);
}

/* Sleeps until *next_ns, which becomes now if that is past, and follows the processes. */
static void wait_for_round(struct snap_sampler *s, uint64_t *next_ns)
{
	uint64_t now_ns = clock_mono_ns();

	if (*next_ns < now_ns)
		*next_ns = now_ns; /* behind: no rounds are made up for */
	struct timespec t = {.tv_sec = (time_t)(*next_ns / 1000000000u),
			     .tv_nsec = (long)(*next_ns % 1000000000u)};
	while (!stack_signals_stop() &&
	       clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR)
		;
	targets_refresh(s->targets, false, NULL);
}

void snap_sampler_watch(struct snap_sampler *s, const struct snapshot_options *o,
			uint64_t interval_ns,
			bool (*show)(void *arg, const struct snapshot *s, bool changed), void *arg)
{
	uint64_t next_ns = clock_mono_ns(), before = 0;
	bool more = true;

	while (more && !is_over(s)) {
		if (snap_sampler_round(s)) {
			struct snapshot *taken = snap_sampler_take(s, o);
			uint64_t hash = snapshot_hash(taken);

			more = show(arg, taken, hash != before);
			before = hash;
			snapshot_free(taken);
		}
		next_ns += interval_ns;
		wait_for_round(s, &next_ns);
	}
}

/*
 * When the first process has not moved for long enough, the others of the job get a little time to
 * run into their waits: then all of them are reported together.
 */
bool snap_sampler_find_hang(struct snap_sampler *s, struct hang *h, uint64_t hang_ns,
			    uint64_t *out_now_ns)
{
	uint64_t next_ns = clock_mono_ns(), found_ns = 0;
	uint64_t grace_ns = hang_ns / 4 < GRACE_MAX_NS ? hang_ns / 4 : GRACE_MAX_NS;

	for (;;) {
		snap_sampler_round(s);
		if (is_over(s))
			return false;
		uint64_t now_ns = *out_now_ns = clock_mono_ns();
		hang_round(h, s->targets, now_ns);
		if (!hang_count(h, hang_ns, now_ns)) {
			found_ns = 0;
		} else if (!found_ns) {
			found_ns = now_ns;
			targets_identify(s->targets); /* what the next rounds find is reported */
		}
		if (found_ns && now_ns - found_ns >= grace_ns)
			return true;
		/* Not in step with the job: else it would always be found at the same call site. */
		next_ns += HANG_INTERVAL_NS - HANG_SPREAD_NS +
			   (uint64_t)random() % (2 * HANG_SPREAD_NS);
		wait_for_round(s, &next_ns);
	}
}
