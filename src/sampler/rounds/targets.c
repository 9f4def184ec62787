/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * A target's way: NEW, then what opening it says. What is not ready is tried again, soon and then
 * less often; so is what has just begun, for between fork, exec and the loading of libpython
 * nothing shows that it will be Python. What is no Python is tried again when it runs another
 * program (a shell that ends in `exec python`), or now and then, for it may load the interpreter
 * late. A process that runs another program is another target: its old frames have ended.
 */
#include "sampler/rounds/targets.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "base/containers/hmap.h"
#include "base/mem.h"
#include "base/proc.h"
#include "sampler/rounds/process_life.h"
#include "sampler/rounds/roles.h"
#include "sampler/rounds/search.h"
#include "unwind/remote/find/find.h"

#define MS 1000000ull
#define WAIT_FIRST_NS (20 * MS) /* between two tries to open one that is not ready */
#define WAIT_LAST_NS (1000 * MS)
/* The same for one that is no Python process: it may become one. */
#define RECHECK_FIRST_NS (500 * MS)
#define RECHECK_LAST_NS (30000 * MS)
#define YOUNG_NS (700 * MS) /* what runs for less may be about to run, or to load, its Python */
#define COPY_NS (15 * MS) /* how long what fork made may be about to exec */
#define PROGRAM_NS (200 * MS) /* between two checks which program a refused one runs */
#define RETRY_EVERY_NS (10 * MS)
#define OPEN_BUDGET_NS (5 * MS)
#define MAX_FAILS 100 /* rounds in which nothing could be copied, until it is opened anew */
#define MAX_SENSELESS 5 /* times that one may make no sense: it may be between two programs */
#define IDENTIFY_FIRST_NS (500 * MS) /* between two readings of which rank it is */
#define IDENTIFY_LAST_NS (30000 * MS)

/* A target and what only this file needs of it. */
struct tracked {
	struct target t; /* first: list points to it */
	bool named; /* by its pid */
	bool reported; /* on_new */
	struct life life;
	uint64_t program;
	uint64_t program_ns; /* when to check it again */
	uint64_t young_ns; /* until when it is */
	uint64_t back_off_ns, recheck_ns;
	uint64_t identify_ns, identify_wait_ns; /* when to read again which rank it is */
	unsigned tries, fails;
};

static inline struct tracked *tracked_of(struct target *t)
{
	return (struct tracked *)t;
}

struct captured {
	struct tracked *one;
	int result;
};

struct targets_inside {
	struct targets_options o;
	struct search *search;
	bool searched; /* once */
	bool changed; /* who is open, or what is known of them: roles are to be assigned */
	char found_by[sizeof(((struct discovery *)0)->found_by)]; /* the last time */
	struct hmap by_pid; /* struct tracked, those that are not gone */
	size_t cap; /* of list */
	unsigned gone; /* in list */
	uint64_t serials;
	uint64_t retry_ns; /* when to try those again that are not open */
	struct captured *round;
	size_t round_cap;
	struct pollfd *polls;
	size_t polls_cap;
};

/* --- one target --- */

/* Takes the command line. */
static void take_facts(struct target *t, struct process_facts *f)
{
	free(t->cmdline);
	t->own = f->rank;
	t->local_rank = f->rank.local_rank;
	t->cmdline = f->cmdline ? f->cmdline : xstrdup("");
}

/* Refused with -ESRCH if it is not there. */
static struct tracked *tracked_new(const struct discovered *d)
{
	struct tracked *one = xcalloc(1, sizeof(*one));
	struct process_facts f = {.rank = {.rank = -1, .local_rank = -1, .world_size = -1}};
	struct target *t = &one->t;

	one->named = d->named;
	t->pid = d->pid;
	t->device = d->device;
	/* The facts are about the process that `life` is bound to if that has not ended after they
	 * were read. */
	int r = life_open(&one->life, d->pid);
	if (r == 0)
		r = process_facts(d->pid, NULL, &f, &t->err);
	if (r == 0 && life_over(&one->life))
		r = -ESRCH;
	bool hidden = (r == -EPERM || r == -EACCES) && proc_hides_processes();
	if (r == -ESRCH || hidden)
		remote_explain_esrch(d->pid, &t->err);
	else if (r < 0)
		err_sys(&t->err, r, "cannot read process %d", (int)d->pid);
	if (r < 0) {
		life_close(&one->life);
		t->state = TARGET_REFUSED;
	}
	if (life_age_ns(f.start_ticks) < YOUNG_NS)
		one->young_ns = clock_mono_ns() + YOUNG_NS;
	t->start_ticks = f.start_ticks;
	t->parent = f.parent;
	take_facts(t, &f);
	t->rank = t->own.rank;
	t->label = role_label(t);
	return one;
}

/* Reads rank and command line anew. */
static void tracked_describe(struct tracked *one)
{
	struct process_facts f;

	if (process_facts(one->t.pid, one->t.python, &f, NULL) == 0)
		take_facts(&one->t, &f);
}

static void tracked_free(struct tracked *one)
{
	if (!one)
		return;
	life_close(&one->life);
	free(one->t.cmdline);
	free(one->t.label);
	free(one);
}

/* --- the list --- */

static unsigned position_of(const struct targets *s, const struct tracked *one)
{
	unsigned i = s->n;

	/* Those named on the command line come first, in its order; the others by pid. */
	while (i > 0) {
		const struct tracked *before = tracked_of(s->list[i - 1]);

		if (before->named || (!one->named && before->t.pid < one->t.pid))
			break;
		i--;
	}
	return i;
}

static void insert_target(struct targets *s, struct tracked *one)
{
	unsigned at = position_of(s, one);

	s->list = xgrow(s->list, &s->inside->cap, s->n + 1, sizeof(*s->list));
	memmove(&s->list[at + 1], &s->list[at], (s->n - at) * sizeof(*s->list));
	s->list[at] = &one->t;
	s->n++;
	hmap_put_ptr(&s->inside->by_pid, (uint64_t)one->t.pid, one);
}

static void drop_gone(struct targets *s)
{
	unsigned n = 0;

	for (unsigned i = 0; i < s->n; i++) {
		struct tracked *one = tracked_of(s->list[i]);

		if (one->t.state == TARGET_GONE)
			tracked_free(one);
		else
			s->list[n++] = s->list[i];
	}
	s->n = n;
	s->inside->gone = 0;
}

static void mark_gone(struct targets *s, struct tracked *one)
{
	if (one->reported && s->inside->o.on_gone)
		s->inside->o.on_gone(s->inside->o.arg, &one->t);
	python_process_close(one->t.python);
	one->t.python = NULL;
	one->t.state = TARGET_GONE;
	s->inside->gone++;
	s->inside->changed = true;
	if (hmap_get_ptr(&s->inside->by_pid, (uint64_t)one->t.pid) == one)
		hmap_remove(&s->inside->by_pid, (uint64_t)one->t.pid);
}

/* --- opening --- */

static void postpone_open(struct tracked *one, uint64_t now_ns)
{
	one->back_off_ns = one->back_off_ns ? one->back_off_ns * 2 : WAIT_FIRST_NS;
	if (one->back_off_ns > WAIT_LAST_NS)
		one->back_off_ns = WAIT_LAST_NS;
	one->t.state = TARGET_WAITING;
	one->t.retry_ns = now_ns + one->back_off_ns;
}

static void refuse_target(struct tracked *one, uint64_t now_ns)
{
	one->t.state = TARGET_REFUSED;
	one->recheck_ns = one->recheck_ns ? one->recheck_ns * 2 : RECHECK_FIRST_NS;
	if (one->recheck_ns > RECHECK_LAST_NS)
		one->recheck_ns = RECHECK_LAST_NS;
	one->t.retry_ns = one->t.err.code == -ENOEXEC ? now_ns + one->recheck_ns : UINT64_MAX;
}

static void mark_open(struct targets *s, struct tracked *one, struct python_process *p)
{
	one->t.python = p;
	one->t.state = TARGET_OPEN;
	one->t.err = (struct err){0};
	one->t.retry_ns = UINT64_MAX;
	one->back_off_ns = 0;
	one->tries = 0;
	/* It may have become another program since it was found. */
	if (!one->reported)
		tracked_describe(one);
	one->identify_wait_ns = IDENTIFY_FIRST_NS;
	one->identify_ns = clock_mono_ns() + IDENTIFY_FIRST_NS;
	s->inside->changed = true;
}

/* Between fork and exec a process is a copy of its parent: the Python in it is the parent's, and
 * goes with exec. */
static bool about_to_exec(const struct tracked *one, uint64_t now_ns)
{
	if (now_ns >= one->young_ns)
		return false;
	if (life_is_in_parent(one->t.pid, one->t.parent))
		return true;
	return !one->named && one->young_ns - now_ns > YOUNG_NS - COPY_NS &&
	       one->program == life_program(one->t.parent);
}

static void try_open(struct targets *s, struct tracked *one, uint64_t now_ns)
{
	struct python_process *p = NULL;

	one->program = life_program(one->t.pid);
	if (about_to_exec(one, now_ns)) {
		postpone_open(one, now_ns);
		return;
	}
	int r = python_process_open(one->t.pid, &s->inside->o.python, &p, &one->t.err);
	if (life_over(&one->life)) {
		python_process_close(p);
		mark_gone(s, one);
	} else if (r == 0) {
		mark_open(s, one, p);
	} else if (r == -EAGAIN || (r == -EPROTO && ++one->tries < MAX_SENSELESS) ||
		   (r == -ENOEXEC && now_ns < one->young_ns)) {
		postpone_open(one, now_ns);
	} else {
		one->t.err.code = r;
		refuse_target(one, now_ns);
	}
}

/* --- coming and going --- */

/* NULL if it has ended. */
static struct tracked *add_target(struct targets *s, const struct discovered *d)
{
	struct tracked *one = tracked_new(d);

	one->t.serial = ++s->inside->serials;
	/* Of those that have ended since they were found, nothing is reported; those that were
	 * named and were never there are. */
	if (one->t.state != TARGET_REFUSED || (one->named && !s->inside->searched)) {
		insert_target(s, one);
		return one;
	}
	tracked_free(one);
	return NULL;
}

static void apply_discovery(struct targets *s, const struct discovery *found)
{
	for (unsigned i = 0; i < found->n; i++) {
		const struct discovered *d = &found->list[i];
		struct tracked *one = hmap_get_ptr(&s->inside->by_pid, (uint64_t)d->pid);

		if (one && one->life.known && life_over(&one->life)) {
			mark_gone(s, one);
			one = NULL;
		}
		if (!one)
			one = add_target(s, d);
		else if (d->device >= 0)
			one->t.device = d->device;
		if (one)
			search_follow(s->inside->search, one->t.pid, one->t.start_ticks);
	}
	s->inside->searched = true;
	memcpy(s->inside->found_by, found->found_by, sizeof(found->found_by));
}

/* The same process with another program: a target of its own. */
static void replace_target(struct targets *s, struct tracked *one)
{
	struct discovered d = {one->t.pid, one->t.device, UINT64_MAX, one->named};

	mark_gone(s, one);
	one = add_target(s, &d);
	if (one)
		one->young_ns = clock_mono_ns() + YOUNG_NS;
}

static void try_target(struct targets *s, struct tracked *one, uint64_t now_ns)
{
	bool refused = one->t.state == TARGET_REFUSED;

	if (one->t.state == TARGET_OPEN || one->t.state == TARGET_GONE || !one->life.known)
		return;
	if (one->t.state != TARGET_NEW && now_ns < one->t.retry_ns &&
	    (!refused || now_ns < one->program_ns))
		return;
	one->program_ns = now_ns + PROGRAM_NS;
	if (life_over(&one->life))
		mark_gone(s, one);
	else if (refused && life_program(one->t.pid) != one->program)
		replace_target(s, one);
	else if (!refused || now_ns >= one->t.retry_ns)
		try_open(s, one, now_ns);
}

/* Opening a process takes milliseconds, in which no sample is taken: not too many at once. */
static void try_targets(struct targets *s, bool all, uint64_t now_ns)
{
	uint64_t until_ns = clock_mono_ns() + OPEN_BUDGET_NS;

	s->inside->retry_ns = now_ns + RETRY_EVERY_NS;
	for (unsigned i = 0; i < s->n; i++) {
		try_target(s, tracked_of(s->list[i]), now_ns);
		if (!all && i + 1 < s->n && clock_mono_ns() > until_ns) {
			s->inside->retry_ns = 0;
			break;
		}
	}
}

/* --- who they are --- */

/* A process group stays, and so does what a DataLoader has started; all else may get a rank. */
static bool may_change(const struct tracked *one)
{
	return one->t.state == TARGET_OPEN && one->t.own.source != RANK_FROM_GROUP &&
	       !one->t.own.loader;
}

/* One at a time: it takes a millisecond or two, in which no sample is taken. */
static void identify_due(struct targets *s, uint64_t now_ns)
{
	for (unsigned i = 0; i < s->n; i++) {
		struct tracked *one = tracked_of(s->list[i]);

		if (!may_change(one) || now_ns < one->identify_ns)
			continue;
		one->identify_wait_ns = one->identify_wait_ns * 2 < IDENTIFY_LAST_NS
						? one->identify_wait_ns * 2
						: IDENTIFY_LAST_NS;
		one->identify_ns = now_ns + one->identify_wait_ns;
		tracked_describe(one);
		s->inside->changed = true;
		return;
	}
}

static bool has_new_label(struct target *t)
{
	char *label = role_label(t);
	bool differs = !t->label || strcmp(label, t->label) != 0;

	free(t->label);
	t->label = label;
	return differs;
}

static void report_roles(struct targets *s)
{
	const struct targets_options *o = &s->inside->o;

	if (!s->inside->changed)
		return;
	s->inside->changed = false;
	roles_assign(s);
	for (unsigned i = 0; i < s->n; i++) {
		struct tracked *one = tracked_of(s->list[i]);
		bool renamed = has_new_label(&one->t);

		if (one->t.state != TARGET_OPEN)
			continue;
		if (!one->reported && o->on_new)
			o->on_new(o->arg, &one->t);
		else if (one->reported && renamed && o->on_renamed)
			o->on_renamed(o->arg, &one->t);
		one->reported = true;
	}
}

void targets_identify(struct targets *s)
{
	for (unsigned i = 0; i < s->n; i++)
		if (may_change(tracked_of(s->list[i])))
			tracked_describe(tracked_of(s->list[i]));
	s->inside->changed = true;
	report_roles(s);
}

int targets_refresh(struct targets *s, bool now, struct err *err)
{
	struct targets_inside *in = s->inside;
	struct discovery found = {0};
	uint64_t now_ns = clock_mono_ns();

	if (in->gone)
		drop_gone(s);
	int r = search_take(in->search, now, s->n - in->gone == 0, &found, err);
	if (r > 0)
		apply_discovery(s, &found);
	if (r > 0 || now || now_ns >= in->retry_ns) {
		try_targets(s, now, now_ns);
		identify_due(s, now_ns);
		report_roles(s);
	}
	discovery_release(&found);
	return r < 0 ? r : 0;
}

/* --- rounds --- */

static void handle_failure(struct targets *s, struct tracked *one, int r)
{
	if (r == -ESRCH || life_over(&one->life))
		mark_gone(s, one);
	else if (life_program(one->t.pid) != one->program || ++one->fails == MAX_FAILS)
		replace_target(s, one);
	else /* the stacks are those of before */
		for (unsigned i = 0; i < one->t.python->nthreads; i++)
			one->t.python->threads[i].missed = true;
}

static unsigned capture_all(struct targets *s, uint64_t *out_skew_ns)
{
	struct targets_inside *in = s->inside;
	const struct python_process *first = NULL, *last = NULL;
	unsigned n = 0;

	for (unsigned i = 0; i < s->n; i++) {
		struct target *t = s->list[i];

		if (t->state != TARGET_OPEN)
			continue;
		in->round[n].one = tracked_of(t);
		in->round[n].result = python_capture(t->python, &t->err);
		last = t->python;
		first = first ? first : last;
		n++;
	}
	if (out_skew_ns)
		*out_skew_ns = first ? last->time_ns - first->time_ns : 0;
	return n;
}

/* Marks those of the first n of `round` that have ended with -ESRCH: what was copied may be of
 * another process. */
static void mark_ended(struct targets_inside *in, unsigned n)
{
	in->polls = xgrow(in->polls, &in->polls_cap, n + 1, sizeof(*in->polls));
	for (unsigned i = 0; i < n; i++)
		in->polls[i] =
			(struct pollfd){.fd = in->round[i].one->life.pidfd, .events = POLLIN};
	int ended = poll(in->polls, n, 0);
	for (unsigned i = 0; i < n; i++) {
		const struct life *l = &in->round[i].one->life;

		if ((ended > 0 && in->polls[i].revents) || (l->pidfd < 0 && life_stat_over(l)))
			in->round[i].result = -ESRCH;
	}
}

unsigned targets_round(struct targets *s, uint64_t *out_skew_ns)
{
	struct targets_inside *in = s->inside;
	unsigned good = 0;

	in->round = xgrow(in->round, &in->round_cap, s->n + 1, sizeof(*in->round));
	unsigned n = capture_all(s, out_skew_ns);
	for (unsigned i = 0; i < n; i++)
		if (in->round[i].result == 0)
			python_prove(in->round[i].one->t.python);
	mark_ended(in, n);
	for (unsigned i = 0; i < n; i++) {
		struct captured *c = &in->round[i];

		if (c->result == 0)
			c->result = python_resolve(c->one->t.python, &c->one->t.err);
		if (c->result < 0)
			handle_failure(s, c->one, c->result);
		else
			good++, c->one->fails = 0;
	}
	return good;
}

/* --- life --- */

const char *targets_found_by(const struct targets *s)
{
	return s->inside->found_by;
}

unsigned targets_open(const struct targets *s)
{
	unsigned n = 0;

	for (unsigned i = 0; i < s->n; i++)
		n += s->list[i]->state == TARGET_OPEN;
	return n;
}

unsigned targets_waiting(const struct targets *s)
{
	unsigned n = 0;

	for (unsigned i = 0; i < s->n; i++)
		n += s->list[i]->state == TARGET_NEW || s->list[i]->state == TARGET_WAITING;
	return n;
}

/* Each process takes a descriptor or two: as many as we may have, not as many as is usual. */
static void allow_descriptors(void)
{
	struct rlimit l;

	if (getrlimit(RLIMIT_NOFILE, &l) == 0 && l.rlim_cur < l.rlim_max) {
		l.rlim_cur = l.rlim_max;
		setrlimit(RLIMIT_NOFILE, &l);
	}
}

struct targets *targets_new(const struct targets_options *o)
{
	struct targets *s = xcalloc(1, sizeof(*s));

	allow_descriptors();
	s->inside = xcalloc(1, sizeof(*s->inside));
	s->inside->o = *o;
	s->inside->search = search_new(o->rules);
	return s;
}

void targets_free(struct targets *s)
{
	if (!s)
		return;
	for (unsigned i = 0; i < s->n; i++) {
		if (s->list[i]->state != TARGET_GONE)
			mark_gone(s, tracked_of(s->list[i]));
		tracked_free(tracked_of(s->list[i]));
	}
	search_free(s->inside->search);
	hmap_release(&s->inside->by_pid);
	free(s->inside->round);
	free(s->inside->polls);
	free(s->inside);
	free(s->list);
	free(s);
}
