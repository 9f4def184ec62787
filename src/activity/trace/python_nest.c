/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Sampled calls among exact ones. A call was seen to have begun in a sample, so it has begun
 * between that and the sample before: where in between is ours to choose.
 *
 *	samples                  |     |     |     |
 *	a library's call, exact     +----------+
 *	Python, as seen                |-----------|
 *	Python, as shown            |--------------|
 *
 * All moments of one sample move together, so that calls stay nested in each other. What does not
 * fit even then (Python that a library calls, a clock that was set) is cut.
 */
#define LOG_AREA "trace"
#include "activity/trace/trace.h"
#include "base/log.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

struct slice {
	uint64_t start_ns, end_ns;
	const struct seen_call *call; /* NULL: it is exact */
	uint32_t tid;
	uint32_t depth;
};

struct slices {
	struct slice *list;
	size_t n, cap;
};

static void add_slice(struct slices *s, const struct slice *one)
{
	*XPUSH(s->list, s->n, s->cap) = *one;
}

/* By thread, then as they are nested. */
static int outer_first(const void *a, const void *b)
{
	const struct slice *x = a, *y = b;

	if (x->tid != y->tid)
		return x->tid < y->tid ? -1 : 1;
	if (x->start_ns != y->start_ns)
		return x->start_ns < y->start_ns ? -1 : 1;
	if (x->end_ns != y->end_ns)
		return x->end_ns > y->end_ns ? -1 : 1;
	return x->depth < y->depth ? -1 : x->depth > y->depth;
}

static void sort_slices(struct slices *s)
{
	if (s->n)
		qsort(s->list, s->n, sizeof(*s->list), outer_first);
}

/* --- what is exact --- */

static void add_exact(const struct trace_state *t, const struct hmap *tids, struct slices *out)
{
	for (size_t i = 0; i < t->nheld; i++) {
		const struct activity *a = &t->held[i];

		if (a->place == ACTIVITY_ON_HOST && ACTIVITY_BIT(a->kind) & ACTIVITY_APIS &&
		    hmap_get(tids, a->tid) != HMAP_NONE && trace_wanted(t, a) &&
		    trace_belongs(t, a) == TRACE_IN)
			add_slice(out, &(struct slice){a->start_ns, a->end_ns, NULL, a->tid, 0});
	}
	for (size_t i = 0; i < t->calls.n; i++) {
		const struct trace_call *c = &t->calls.list[i];

		add_slice(out, &(struct slice){c->start_ns, c->end_ns, NULL, c->tid, 0});
	}
	sort_slices(out);
}

/* Those that lie in no other. */
static void find_outermost(const struct slices *exact, struct slices *out)
{
	for (size_t i = 0; i < exact->n; i++) {
		const struct slice *s = &exact->list[i];
		const struct slice *last = out->n ? &out->list[out->n - 1] : NULL;

		if (!last || last->tid != s->tid || s->start_ns >= last->end_ns)
			add_slice(out, s);
	}
}

/* The one that is in progress at a moment; NULL: there is none. */
static const struct slice *in_progress(const struct slices *s, uint32_t tid, uint64_t ns)
{
	size_t low = 0, high = s->n;

	while (low < high) {
		size_t mid = low + (high - low) / 2;
		const struct slice *at = &s->list[mid];

		if (at->tid < tid || (at->tid == tid && at->start_ns < ns))
			low = mid + 1;
		else
			high = mid;
	}
	const struct slice *at = low ? &s->list[low - 1] : NULL;
	return at && at->tid == tid && at->end_ns > ns ? at : NULL;
}

/* --- where moments go --- */

struct nest {
	const struct trace_state *t;
	struct slices outermost;
};

/* As the wall clock has it, and cut to the steps. */
static uint64_t move_moment(const struct nest *n, uint32_t tid, const struct seen_moment *m)
{
	const struct trace_state *t = n->t;
	uint64_t to_wall = (uint64_t)t->w->wall_minus_mono_ns;
	uint64_t ns = m->ns + to_wall, after = m->after_ns ? m->after_ns + to_wall : 0;
	const struct slice *other = in_progress(&n->outermost, tid, ns);

	if (other && other->start_ns > after)
		ns = other->start_ns;
	return ns < t->from_ns ? t->from_ns : ns > t->to_ns ? t->to_ns : ns;
}

static void add_seen(const struct nest *n, const struct seen *s, struct slices *out)
{
	for (size_t i = 0; i < s->n; i++) {
		const struct seen_call *c = &s->calls[i];
		uint64_t start = move_moment(n, c->tid, &c->start),
			 end = move_moment(n, c->tid, &c->end);

		if (start < end)
			add_slice(out, &(struct slice){start, end, c, c->tid, c->depth});
	}
}

/* --- what does not fit --- */

struct stack {
	struct slice **list;
	size_t n, cap;
};

static void leave_ended(struct stack *open, const struct slice *next)
{
	while (open->n && (open->list[open->n - 1]->tid != next->tid ||
			   open->list[open->n - 1]->end_ns <= next->start_ns))
		open->n--;
}

/* An exact call lasts longer than the sampled ones around it: those at the end of the steps go on,
 * others end before it. */
static void make_way(struct stack *open, const struct slice *exact, uint64_t to_ns)
{
	for (size_t i = 0; i < open->n; i++) {
		struct slice *s = open->list[i];

		if (s->call && s->end_ns < exact->end_ns)
			s->end_ns = s->end_ns >= to_ns ? exact->end_ns : exact->start_ns;
	}
	leave_ended(open, exact);
}

static void cut_overlaps(struct slices *all, uint64_t to_ns)
{
	struct stack open = {0};

	for (size_t i = 0; i < all->n; i++) {
		struct slice *s = &all->list[i];

		leave_ended(&open, s);
		const struct slice *around = open.n ? open.list[open.n - 1] : NULL;
		if (around && s->end_ns > around->end_ns) {
			if (s->call)
				s->end_ns = around->end_ns;
			else
				make_way(&open, s, to_ns);
		}
		*XPUSH(open.list, open.n, open.cap) = s;
	}
	free(open.list);
}

/* --- */

static const char *text_of(struct trace_state *t, const struct seen_call *c)
{
	struct buf text = {0};

	if (*c->file)
		buf_addf(&text, "%s(%d): %s", c->file, c->line, c->name);
	else
		buf_add_str(&text, c->name);
	const char *kept = trace_text_of(t, text.data ? text.data : "", text.len);
	buf_release(&text);
	return kept;
}

static void keep_calls(struct trace_state *t, const struct slices *all)
{
	struct trace_calls *c = &t->calls;

	for (size_t i = 0; i < all->n; i++) {
		const struct slice *s = &all->list[i];

		if (!s->call || s->start_ns >= s->end_ns)
			continue;
		*XPUSH(c->list, c->n, c->cap) = (struct trace_call){
			s->start_ns, s->end_ns, text_of(t, s->call), s->tid, s->call->caller_line};
	}
}

void seen_nest(struct trace_state *t, const struct seen *s)
{
	struct nest n = {.t = t};
	struct slices all = {0};
	struct hmap tids = {0};
	uint64_t key, value;

	for (size_t i = 0; i < s->n; i++)
		hmap_put(&tids, s->calls[i].tid, 1);
	add_exact(t, &tids, &all);
	find_outermost(&all, &n.outermost);
	add_seen(&n, s, &all);
	sort_slices(&all);
	cut_overlaps(&all, t->to_ns);
	keep_calls(t, &all);
	for (size_t at = 0; hmap_next(&s->names, &at, &key, &value);)
		hmap_put(&t->calls.names, key, value);
	free(n.outermost.list);
	free(all.list);
	hmap_release(&tids);
}

void trace_python_finish(struct trace_state *t)
{
	const char *why;

	if (!t->python)
		return;
	const struct seen *s = trace_python_wait(t->python, &why);
	if (s->first_ns && !t->calls.exact) {
		seen_nest(t, s);
		t->left_out += s->left_out;
	}
	if (s->first_ns)
		t->first_sample_ns = s->first_ns + (uint64_t)t->w->wall_minus_mono_ns;
	else
		t->unseen = xstrdup(why);
	log_info("process %u: %llu samples of its Python, %llu stacks, %zu calls", t->w->pid,
		 (unsigned long long)s->round, (unsigned long long)s->samples, s->n);
	trace_python_free(t->python);
	t->python = NULL;
}
