/* SPDX-License-Identifier: MulanPSL-2.0 */
/* From stacks to calls: what ended and what began between two looks. */
#include "activity/trace/python.h"

#include "base/mem.h"
#include "unwind/remote/python.h"

#include <stdlib.h>
#include <string.h>

#define GC_NAME "<garbage collection>"

struct seen_open {
	const char *name, *file;
	int32_t first_line;
	int32_t line; /* the last one seen */
	struct seen_moment start;
};

/* --- calls that have ended --- */

/* Those that ended before the steps are of no use; while none has begun, those of long ago. */
static void make_room(struct seen *s, uint64_t now_ns)
{
	uint64_t before = s->from_ns != SEEN_NEVER ? s->from_ns : now_ns - SEEN_KEPT_NS;
	size_t n = 0;

	for (size_t i = 0; i < s->n; i++)
		if (s->calls[i].end.ns > before)
			s->calls[n++] = s->calls[i];
	/* Steps that have begun do not begin again: there will be no more room. */
	s->full = s->from_ns != SEEN_NEVER && n > SEEN_MAX_CALLS / 2;
	s->n = n;
}

static void add_call(struct seen *s, const struct seen_thread *th, const struct seen_open *o,
		     uint32_t depth, struct seen_moment end)
{
	if (s->from_ns != SEEN_NEVER && end.ns <= s->from_ns)
		return;
	if (s->n >= SEEN_MAX_CALLS && !s->full)
		make_room(s, end.ns);
	if (s->n >= SEEN_MAX_CALLS) {
		s->left_out++;
		return;
	}
	s->calls = xgrow(s->calls, &s->cap, s->n + 1, sizeof(*s->calls));
	s->calls[s->n++] = (struct seen_call){
		.start = o->start,
		.end = end,
		.name = o->name,
		.file = o->file,
		.line = o->first_line,
		.tid = th->tid,
		.depth = depth,
	};
}

/* --- threads --- */

static void end_down_to(struct seen *s, struct seen_thread *th, size_t left, struct seen_moment now)
{
	while (th->n > left) {
		th->n--;
		add_call(s, th, &th->open[th->n], (uint32_t)th->n, now);
	}
}

static void begin(struct seen_thread *th, const struct seen_open *o)
{
	th->open = xgrow(th->open, &th->cap, th->n + 1, sizeof(*th->open));
	th->open[th->n++] = *o;
}

/* How many go on: what the reader says is the same call, as long as the line of its caller is. */
static size_t that_stay(struct seen_thread *th, const struct python_thread *is)
{
	size_t most = th->n - th->gc, i = 0;

	if (is->nframes < most)
		most = is->nframes;
	if (is->kept < most)
		most = is->kept;
	while (i < most) {
		struct seen_open *o = &th->open[i];
		const struct stack_frame *f = &is->frames[i];
		bool same_line = o->line == f->line;

		if (o->name != f->name || o->file != f->file || o->first_line != f->first_line)
			break;
		o->line = f->line;
		i++;
		if (!same_line)
			break;
	}
	return i;
}

static void look_at(struct seen *s, struct seen_thread *th, const struct python_thread *is)
{
	struct seen_moment now = {is->time_ns > th->ns ? is->time_ns : th->ns, th->ns};
	size_t stay = that_stay(th, is);
	bool gc_stays = th->gc && is->gc && stay == is->nframes && stay + 1 == th->n;

	th->ns = now.ns;
	s->samples++;
	if (!gc_stays) {
		end_down_to(s, th, stay, now);
		th->gc = false;
	}
	for (size_t i = stay; i < is->nframes; i++) {
		const struct stack_frame *f = &is->frames[i];

		begin(th, &(struct seen_open){f->name, f->file, f->first_line, f->line, now});
	}
	if (is->gc && !gc_stays) {
		begin(th, &(struct seen_open){GC_NAME, "", 0, 0, now});
		th->gc = true;
	}
}

/* The number that the process itself has for it: as activities have it. */
static uint32_t tid_of(const struct python_thread *is)
{
	return (uint32_t)(is->inner_tid > 0 ? is->inner_tid : is->tid > 0 ? is->tid : 0);
}

static struct seen_thread *thread_of(struct seen *s, const struct python_thread *is)
{
	struct seen_thread *th = hmap_get_ptr(&s->threads, is->serial);

	if (!th) {
		th = xcalloc(1, sizeof(*th));
		hmap_put_ptr(&s->threads, is->serial, th);
	}
	if (!th->tid)
		th->tid = tid_of(is);
	if (th->tid && is->name && *is->name && is->name != th->name) {
		th->name = is->name;
		hmap_put_ptr(&s->names, th->tid, (void *)(uintptr_t)is->name);
	}
	return th;
}

static void free_thread(struct seen_thread *th)
{
	free(th->open);
	free(th);
}

/* Threads that were not there have ended. */
static void drop_old(struct seen *s, uint64_t now_ns)
{
	uint64_t key, value;
	size_t n = 0;

	for (size_t at = 0; hmap_next(&s->threads, &at, &key, &value);) {
		if (((struct seen_thread *)(uintptr_t)value)->round == s->round)
			continue;
		s->old = xgrow(s->old, &s->old_cap, n + 1, sizeof(*s->old));
		s->old[n++] = key;
	}
	while (n > 0) {
		struct seen_thread *th = hmap_get_ptr(&s->threads, s->old[--n]);

		end_down_to(s, th, 0,
			    (struct seen_moment){now_ns > th->ns ? now_ns : th->ns, th->ns});
		hmap_remove(&s->threads, s->old[n]);
		free_thread(th);
	}
}

void seen_look(struct seen *s, const struct python_process *p)
{
	size_t there = 0;

	s->round++;
	if (!s->first_ns)
		s->first_ns = p->time_ns;
	s->last_ns = p->time_ns;
	for (unsigned i = 0; i < p->nthreads; i++) {
		const struct python_thread *is = &p->threads[i];
		struct seen_thread *th = thread_of(s, is);

		th->round = s->round;
		there++;
		if (!is->missed)
			look_at(s, th, is);
	}
	if (there != s->threads.count)
		drop_old(s, p->time_ns);
}

void seen_end(struct seen *s)
{
	uint64_t key, value;

	for (size_t at = 0; hmap_next(&s->threads, &at, &key, &value);) {
		struct seen_thread *th = (struct seen_thread *)(uintptr_t)value;
		uint64_t ns = s->last_ns > th->ns ? s->last_ns : th->ns;

		end_down_to(s, th, 0, (struct seen_moment){ns, ns});
		free_thread(th);
	}
	hmap_release(&s->threads);
}

void seen_release(struct seen *s)
{
	seen_end(s);
	hmap_release(&s->names);
	free(s->calls);
	free(s->old);
}
