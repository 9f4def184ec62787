/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "cli/stack/follow.h"

#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "cli/stack/messages.h"
#include "unwind/remote/native/native.h"

struct follow {
	struct python_counts last; /* already in the totals */
	struct native_process *native; /* if --native, and it can be had */
	bool native_told; /* why it cannot */
};

static void add_counts(struct stack_totals *t, struct follow *f, const struct python_process *p)
{
	const struct python_counts *now = &p->counts;

	t->retries += now->retries - f->last.retries;
	t->torn += now->torn - f->last.torn;
	t->calls += now->calls - f->last.calls;
	f->last = *now;
}

static void tell_native(struct stack_session *s, struct follow *f, const struct target *t,
			const struct err *err)
{
	if (!f->native_told)
		stack_warn(s, "no native frames of process %d (%s): %s", (int)t->pid, t->label,
			   err->text);
	f->native_told = true;
}

void stack_follow_new(void *arg, struct target *t)
{
	struct stack_session *s = arg;
	struct follow *f = xcalloc(1, sizeof(*f));
	struct err err = {0};

	t->user = f;
	s->totals.processes++;
	stack_detail(s, "sampling process %d: %s, Python %u.%u in %s", (int)t->pid, t->label,
		     t->python->place.layout.version >> 24,
		     t->python->place.layout.version >> 16 & 255, t->python->place.path);
	stack_output_new(s->output, t);
	if (s->o->native && native_process_open(t->pid, &f->native, &err) < 0)
		tell_native(s, f, t, &err);
}

void stack_follow_gone(void *arg, struct target *t)
{
	struct stack_session *s = arg;
	struct follow *f = t->user;

	if (s->end == STACK_END_NONE)
		stack_detail(s, "process %d has ended: %s", (int)t->pid, t->label);
	if (t->python)
		add_counts(&s->totals, f, t->python);
	stack_output_gone(s->output, t, s->end_ns ? s->end_ns : clock_mono_ns());
	native_process_close(f->native);
	free(f);
	t->user = NULL;
}

static bool named(const struct stack_options *o, pid_t pid)
{
	for (unsigned i = 0; i < o->pids.n; i++)
		if (o->pids.list[i] == pid)
			return true;
	return false;
}

void stack_follow_complain(struct stack_session *s)
{
	for (unsigned i = 0; i < s->targets->n; i++) {
		const struct target *t = s->targets->list[i];
		bool asked = named(s->o, t->pid);

		if (t->state != TARGET_REFUSED || hmap_put(&s->told, t->serial, 1) != HMAP_NONE)
			continue;
		if (asked && t->err.code != -ESRCH)
			s->totals.refused++;
		/* Of those that rules found, many are no Python processes at all. */
		if (asked && t->err.code == -ENOEXEC && !s->o->children)
			stack_warn(s, "%s; --children samples what it has started", t->err.text);
		else if (asked || t->err.code == -EPERM)
			stack_warn(s, "%s", t->err.text);
		else
			stack_detail(s, "%s", t->err.text);
	}
}

static void copy_native(struct stack_session *s, struct target *t)
{
	struct thread_filter wanted = thread_filter_of(t->python, s->o->all_threads);
	struct follow *f = t->user;
	struct err err = {0};
	unsigned failed = native_add_copy(f->native, t->python, thread_filter_wants, &wanted, &err);

	s->totals.native_failed += failed;
	if (failed && err.code != -ESRCH)
		tell_native(s, f, t, &err);
}

static void merge_native(struct stack_session *s, struct target *t)
{
	struct follow *f = t->user;
	struct err err = {0};
	unsigned failed = native_add_merge(f->native, t->python, &err);

	s->totals.native_failed += failed;
	if (failed && err.code != -ESRCH)
		tell_native(s, f, t, &err);
}

/* All are copied before the first is unwound, which takes long: so ranks line up. */
static void add_native(struct stack_session *s)
{
	void (*const steps[])(struct stack_session *, struct target *) = {copy_native,
									  merge_native};

	for (unsigned step = 0; step < 2; step++)
		for (unsigned i = 0; i < s->targets->n; i++) {
			struct target *t = s->targets->list[i];

			if (t->state == TARGET_OPEN && ((struct follow *)t->user)->native)
				steps[step](s, t);
		}
}

static void count(struct stack_session *s, const struct target *t)
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

void stack_follow_round(struct stack_session *s)
{
	uint64_t begin = clock_mono_ns(), at = begin, skew = 0;
	struct stack_totals *n = &s->totals;

	if (!targets_open(s->targets))
		return;
	targets_round(s->targets, &skew);
	at = stack_stage_done(&s->stages, STAGE_STACKS, at);
	n->rounds++;
	n->skew_ns += skew;
	n->skew_max_ns = skew > n->skew_max_ns ? skew : n->skew_max_ns;
	if (s->o->native) {
		add_native(s);
		at = stack_stage_done(&s->stages, STAGE_NATIVE, at);
	}
	for (unsigned i = 0; i < s->targets->n; i++) {
		struct target *t = s->targets->list[i];

		/* of one that could not be copied the stacks are old */
		if (t->state != TARGET_OPEN || t->python->time_ns < begin)
			continue;
		count(s, t);
		stack_output_sample(s->output, t);
	}
	stack_stage_done(&s->stages, STAGE_EVENTS, at);
}
