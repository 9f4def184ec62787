/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * A target's way: NEW, then what opening it says. What is not ready is tried again, soon and then
 * less often; so is what has just begun, for between fork, exec and the loading of libpython
 * nothing tells that it will be Python. What is no Python is looked at again when it runs another
 * program (a shell that ends in `exec python`), or now and then, for it may load the interpreter
 * late. A process that runs another program is another target: its old frames have ended.
 */
#include "sampler/rounds/targets.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "base/mem.h"
#include "sampler/rounds/targets_impl.h"

/* --- the list --- */

static unsigned place_of(const struct targets *s, const struct tracked *one)
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

static void insert(struct targets *s, struct tracked *one)
{
	unsigned at = place_of(s, one);

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

static void gone(struct targets *s, struct tracked *one)
{
	if (one->told && s->inside->o.on_gone)
		s->inside->o.on_gone(s->inside->o.arg, &one->t);
	python_process_close(one->t.python);
	one->t.python = NULL;
	one->t.state = TARGET_GONE;
	s->inside->gone++;
	if (hmap_get_ptr(&s->inside->by_pid, (uint64_t)one->t.pid) == one)
		hmap_remove(&s->inside->by_pid, (uint64_t)one->t.pid);
}

/* --- opening --- */

static void wait_for_it(struct tracked *one, uint64_t now_ns)
{
	one->back_off_ns = one->back_off_ns ? one->back_off_ns * 2 : WAIT_FIRST_NS;
	if (one->back_off_ns > WAIT_LAST_NS)
		one->back_off_ns = WAIT_LAST_NS;
	one->t.state = TARGET_WAITING;
	one->t.retry_ns = now_ns + one->back_off_ns;
}

static void refuse(struct tracked *one, uint64_t now_ns)
{
	one->t.state = TARGET_REFUSED;
	one->look_ns = one->look_ns ? one->look_ns * 2 : LOOK_FIRST_NS;
	if (one->look_ns > LOOK_LAST_NS)
		one->look_ns = LOOK_LAST_NS;
	one->t.retry_ns = one->t.err.code == -ENOEXEC ? now_ns + one->look_ns : UINT64_MAX;
}

static void opened(struct targets *s, struct tracked *one, struct python_process *p)
{
	one->t.python = p;
	one->t.state = TARGET_OPEN;
	one->t.err = (struct err){0};
	one->t.retry_ns = UINT64_MAX;
	one->back_off_ns = 0;
	one->tries = 0;
	/* It may have become another program since it was found. */
	if (!one->told)
		tracked_describe(one);
	if (!one->told && s->inside->o.on_new)
		s->inside->o.on_new(s->inside->o.arg, &one->t);
	one->told = true;
}

/* Whoever starts a program is twice there for a moment: what is Python in the second is the first,
 * and will be gone with exec. */
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
		wait_for_it(one, now_ns);
		return;
	}
	int r = python_process_open(one->t.pid, &s->inside->o.python, &p, &one->t.err);
	if (life_over(&one->life)) {
		python_process_close(p);
		gone(s, one);
	} else if (r == 0) {
		opened(s, one, p);
	} else if (r == -EAGAIN || (r == -EPROTO && ++one->tries < MAX_SENSELESS) ||
		   (r == -ENOEXEC && now_ns < one->young_ns)) {
		wait_for_it(one, now_ns);
	} else {
		one->t.err.code = r;
		refuse(one, now_ns);
	}
}

/* --- coming and going --- */

/* NULL if it has ended. */
static struct tracked *add(struct targets *s, const struct discovered *d)
{
	struct tracked *one = tracked_new(d);

	one->t.serial = ++s->inside->serials;
	/* Of those that have ended since they were found, nothing is said; of those that somebody
	 * named and that were never there, it is. */
	if (one->t.state != TARGET_REFUSED || (one->named && !s->inside->searched)) {
		insert(s, one);
		return one;
	}
	tracked_free(one);
	return NULL;
}

static void apply(struct targets *s, const struct discovery *found)
{
	for (unsigned i = 0; i < found->n; i++) {
		const struct discovered *d = &found->list[i];
		struct tracked *one = hmap_get_ptr(&s->inside->by_pid, (uint64_t)d->pid);

		if (one && one->life.known && life_over(&one->life)) {
			gone(s, one);
			one = NULL;
		}
		if (!one)
			one = add(s, d);
		else if (d->device >= 0)
			one->t.device = d->device;
		if (one)
			search_follow(s->inside->search, one->t.pid, one->t.start_ticks);
	}
	s->inside->searched = true;
	memcpy(s->inside->how, found->how, sizeof(found->how));
}

/* The same process with another program: a target of its own. */
static void replace(struct targets *s, struct tracked *one)
{
	struct discovered d = {one->t.pid, one->t.device, UINT64_MAX, one->named};

	gone(s, one);
	one = add(s, &d);
	if (one)
		one->young_ns = clock_mono_ns() + YOUNG_NS;
}

static void look_after(struct targets *s, struct tracked *one, uint64_t now_ns)
{
	bool refused = one->t.state == TARGET_REFUSED;

	if (one->t.state == TARGET_OPEN || one->t.state == TARGET_GONE || !one->life.known)
		return;
	if (one->t.state != TARGET_NEW && now_ns < one->t.retry_ns &&
	    (!refused || now_ns < one->program_ns))
		return;
	one->program_ns = now_ns + PROGRAM_NS;
	if (life_over(&one->life))
		gone(s, one);
	else if (refused && life_program(one->t.pid) != one->program)
		replace(s, one);
	else if (!refused || now_ns >= one->t.retry_ns)
		try_open(s, one, now_ns);
}

/* Opening a process takes milliseconds, in which no sample is taken: not too many at once. */
static void look_after_all(struct targets *s, bool all, uint64_t now_ns)
{
	uint64_t until_ns = clock_mono_ns() + OPEN_BUDGET_NS;

	s->inside->look_ns = now_ns + LOOK_EVERY_NS;
	for (unsigned i = 0; i < s->n; i++) {
		look_after(s, tracked_of(s->list[i]), now_ns);
		if (!all && i + 1 < s->n && clock_mono_ns() > until_ns) {
			s->inside->look_ns = 0;
			break;
		}
	}
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
		apply(s, &found);
	if (r > 0 || now || now_ns >= in->look_ns)
		look_after_all(s, now, now_ns);
	discovery_release(&found);
	return r < 0 ? r : 0;
}

/* --- rounds --- */

static void failed(struct targets *s, struct tracked *one, int r)
{
	if (r == -ESRCH || life_over(&one->life))
		gone(s, one);
	else if (life_program(one->t.pid) != one->program || ++one->fails == MAX_FAILS)
		replace(s, one);
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

unsigned targets_round(struct targets *s, uint64_t *out_skew_ns)
{
	struct targets_inside *in = s->inside;
	unsigned good = 0;

	in->round = xgrow(in->round, &in->round_cap, s->n + 1, sizeof(*in->round));
	unsigned n = capture_all(s, out_skew_ns);
	for (unsigned i = 0; i < n; i++)
		if (in->round[i].result == 0)
			python_prove(in->round[i].one->t.python);
	lives_check(in, n);
	for (unsigned i = 0; i < n; i++) {
		struct captured *c = &in->round[i];

		if (c->result == 0)
			c->result = python_resolve(c->one->t.python, &c->one->t.err);
		if (c->result < 0)
			failed(s, c->one, c->result);
		else
			good++, c->one->fails = 0;
	}
	return good;
}

/* --- life --- */

const char *targets_how(const struct targets *s)
{
	return s->inside->how;
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
			gone(s, tracked_of(s->list[i]));
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
