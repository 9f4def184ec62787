/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "cli/snap/take.h"

#include <errno.h>
#include <unistd.h>

#include "base/sched_latency.h"
#include "unwind/remote/native/native.h"

#define READY_TRIES 20
#define READY_WAIT_US 50000

static void close_native(void *arg, struct target *t)
{
	(void)arg;
	native_process_close(t->user);
	t->user = NULL;
}

void snap_look_init(struct snap_look *l, const struct snap_options *o)
{
	*l = (struct snap_look){.o = o};
	stack_options_rules(&o->stack, &l->rules);
	struct targets_options t = {.rules = &l->rules,
				    .python = {.states = true, .names = true, .exact = true},
				    .on_gone = close_native};
	(void)sched_latency_lower();
	l->targets = targets_new(&t);
}

void snap_look_release(struct snap_look *l)
{
	targets_free(l->targets);
}

static const struct target *first_refused(const struct targets *s, bool foreign)
{
	for (unsigned i = 0; i < s->n; i++)
		if (s->list[i]->state != TARGET_OPEN && s->list[i]->err.code < 0 &&
		    (foreign || s->list[i]->err.code != -ENOEXEC))
			return s->list[i];
	return NULL;
}

static int nothing_found(const struct snap_look *l, struct err *err)
{
	const struct stack_options *o = &l->o->stack;
	const struct target *t = first_refused(l->targets, o->pids.n && !o->children);

	if (t)
		return err_set(err, -ESRCH, "%s%s", t->err.text,
			       t->err.code == -ENOEXEC ? "; --children looks at what it has started"
						       : "");
	const char *how = *targets_found_by(l->targets) ? targets_found_by(l->targets) : "nothing";
	if (l->rules.devices != DISCOVER_NO_DEVICE)
		return err_set(err, -ENOENT,
			       "no Python process on an NPU or GPU (%s); name it with -p, --name "
			       "or --parent, or look at all with -a",
			       how);
	return err_set(err, -ENOENT, "no Python process found by %s; -a looks at all", how);
}

int snap_look_find(struct snap_look *l, struct err *err)
{
	int r = targets_refresh(l->targets, true, err);

	for (int i = 0; r >= 0 && i < READY_TRIES && targets_waiting(l->targets); i++) {
		usleep(READY_WAIT_US);
		r = targets_refresh(l->targets, false, err);
	}
	if (r < 0)
		return r;
	return targets_open(l->targets) ? 0 : nothing_found(l, err);
}

unsigned snap_look_round(struct snap_look *l)
{
	return targets_round(l->targets, &l->skew_ns);
}

static bool is_wanted(void *arg, const struct python_thread *t)
{
	const struct snap_look *l = arg;

	return l->o->stack.all_threads || t->main;
}

/* Opened with the first look; what is known about libraries serves the next ones. */
static void open_native(struct snap_look *l, struct target *t, struct err *err)
{
	struct native_process *made = NULL;

	(void)l;
	if (!t->user && native_process_open(t->pid, &made, err) == 0)
		t->user = made;
}

static void copy_native(struct snap_look *l, struct target *t, struct err *err)
{
	if (t->user)
		native_add_copy(t->user, t->python, is_wanted, l, err);
}

static void merge_native(struct snap_look *l, struct target *t, struct err *err)
{
	(void)l;
	if (t->user)
		native_add_merge(t->user, t->python, err);
}

/* Opening and unwinding take long, copying does not: all are copied in the same moment. */
static void add_native(struct snap_look *l)
{
	void (*const steps[])(struct snap_look *, struct target *,
			      struct err *) = {open_native, copy_native, merge_native};

	l->native_err.code = 0;
	for (unsigned step = 0; step < 3; step++)
		for (unsigned i = 0; i < l->targets->n; i++) {
			struct target *t = l->targets->list[i];
			struct err err = {0};

			if (t->state == TARGET_OPEN)
				steps[step](l, t, &err);
			if (err.code < 0 && l->native_err.code == 0)
				l->native_err = err;
		}
}

struct snapshot *snap_look_take(struct snap_look *l, bool color)
{
	struct snapshot_options o = snap_options_snapshot(l->o, color);

	if (l->o->stack.native)
		add_native(l);
	return snapshot_take(l->targets, &o);
}
