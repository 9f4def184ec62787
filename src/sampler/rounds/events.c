/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "sampler/rounds/events.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/containers/intern.h"
#include "base/mem.h"
#include "sampler/rounds/events_impl.h"

#define GC_NAME "<garbage collection>"

struct events *events_new(const struct events_options *o)
{
	struct events *e = xcalloc(1, sizeof(*e));

	e->o = *o;
	e->start_real_ns = clock_real_ns() - (int64_t)(clock_mono_ns() - o->start_ns);
	return e;
}

static void free_thread(struct thread_track *th)
{
	free(th->frames);
	free(th);
}

static void free_process(struct process_track *p)
{
	uint64_t key, value;

	for (size_t at = 0; hmap_next(&p->threads, &at, &key, &value);)
		free_thread((struct thread_track *)(uintptr_t)value);
	hmap_release(&p->threads);
	free(p->label);
	free(p);
}

void events_free(struct events *e)
{
	uint64_t key, value;

	if (!e)
		return;
	for (size_t at = 0; hmap_next(&e->processes, &at, &key, &value);)
		free_process((struct process_track *)(uintptr_t)value);
	hmap_release(&e->processes);
	free(e->old);
	free(e);
}

static struct process_track *find_process(const struct events *e, const struct target *t)
{
	return hmap_get_ptr(&e->processes, t->serial);
}

void events_process(struct events *e, struct target *t)
{
	struct process_track *p;

	if (find_process(e, t))
		return;
	p = xcalloc(1, sizeof(*p));
	p->serial = t->serial;
	p->pid = t->pid;
	p->label = xasprintf("%s (%d)", t->label ? t->label : "python", (int)t->pid);
	p->rank = t->rank;
	p->order = e->next_order++;
	hmap_put_ptr(&e->processes, t->serial, p);
	events_tell_process(e, e->o.trace, p);
}

static int64_t choose_tid(const struct process_track *p, const struct python_thread *th)
{
	if (th->tid > 0)
		return th->tid;
	if (th->inner_tid > 0)
		return th->inner_tid;
	return EVENTS_OWN_TIDS + 1 + (int64_t)p->next_order;
}

static const char *thread_title(const struct thread_track *track, const struct python_thread *th)
{
	char title[48];

	if (th->name && *th->name)
		return intern(th->name, strlen(th->name));
	int n = snprintf(title, sizeof(title), "Thread %lld", (long long)track->tid);
	return intern(title, (size_t)n);
}

/* The track of a thread that is told; made, and its name told, at first sight. */
static struct thread_track *find_thread(struct events *e, struct process_track *p,
					const struct python_thread *th)
{
	struct thread_track *track = hmap_get_ptr(&p->threads, th->serial);

	if (!track) {
		track = xcalloc(1, sizeof(*track));
		track->tid = choose_tid(p, th);
		track->main = th->main;
		track->order = p->next_order++;
		track->ts_ns = INT64_MIN;
		hmap_put_ptr(&p->threads, th->serial, track);
	}
	if (!track->name || (th->name && *th->name && strcmp(th->name, track->name) != 0)) {
		track->name = thread_title(track, th);
		events_tell_thread(e->o.trace, p, track);
	}
	return track;
}

/* --- what ended, what began --- */

static int64_t thread_ts(const struct events *e, struct thread_track *th, uint64_t time_ns)
{
	int64_t ts = (int64_t)(time_ns - e->o.start_ns);

	if (ts > th->ts_ns)
		th->ts_ns = ts;
	return th->ts_ns;
}

static void end_down_to(const struct events *e, const struct process_track *p,
			struct thread_track *th, unsigned left, int64_t ts_ns)
{
	while (th->n > left)
		events_tell_end(e->o.trace, ts_ns, p, th, &th->frames[--th->n]);
}

static void begin(const struct events *e, const struct process_track *p, struct thread_track *th,
		  const struct open_frame *f, int64_t ts_ns)
{
	th->frames = xgrow(th->frames, &th->cap, th->n + 1, sizeof(*th->frames));
	th->frames[th->n++] = *f;
	events_tell_begin(e->o.trace, ts_ns, p, th, f);
}

/*
 * How many of the open frames go on. A frame does while the reader says that it is the same call
 * and the line of its caller is the same; with `lines`, only while its own line is.
 */
static unsigned frames_that_stay(const struct events *e, struct thread_track *track,
				 const struct python_thread *th)
{
	unsigned open = track->n - track->gc;
	unsigned most = open < th->nframes ? open : th->nframes;
	unsigned i = 0;

	if (th->kept < most)
		most = th->kept;
	while (i < most) {
		struct open_frame *was = &track->frames[i];
		const struct stack_frame *is = &th->frames[i];
		bool same_line = was->line == is->line;

		if (was->name != is->name || was->file != is->file ||
		    was->first_line != is->first_line || (e->o.lines && !same_line))
			break;
		was->line = is->line;
		i++;
		if (!same_line)
			break;
	}
	return i;
}

static void sample_thread(struct events *e, const struct process_track *p,
			  struct thread_track *track, const struct python_thread *th)
{
	int64_t ts = thread_ts(e, track, th->time_ns);
	unsigned stay = frames_that_stay(e, track, th);
	bool gc_stays = track->gc && th->gc && stay == th->nframes && stay + 1 == track->n;

	if (!gc_stays) {
		end_down_to(e, p, track, stay, ts);
		track->gc = false;
	}
	for (unsigned i = stay; i < th->nframes; i++) {
		const struct stack_frame *f = &th->frames[i];
		struct open_frame open = {.name = f->name,
					  .file = f->file,
					  .first_line = f->first_line,
					  .line = f->line,
					  .label_line = e->o.lines ? f->line : f->first_line};

		begin(e, p, track, &open, ts);
	}
	if (th->gc && !gc_stays) {
		struct open_frame collector = {.name = GC_NAME, .file = ""};

		begin(e, p, track, &collector, ts);
		track->gc = true;
	}
}

static bool is_named_main(const struct python_thread *th)
{
	return th->name && !strcmp(th->name, "MainThread");
}

static bool has_main_thread(const struct python_process *python)
{
	for (unsigned i = 0; i < python->nthreads; i++)
		if (is_named_main(&python->threads[i]))
			return true;
	return false;
}

static void end_thread(struct events *e, const struct process_track *p, struct thread_track *th,
		       uint64_t time_ns)
{
	end_down_to(e, p, th, 0, thread_ts(e, th, time_ns));
	th->gc = false;
}

/* Threads that were not there in this round have ended, or are no longer wanted. */
static void drop_old_threads(struct events *e, struct process_track *p)
{
	uint64_t key, value;
	size_t n = 0;

	/* The map may not change while it is walked. */
	for (size_t at = 0; hmap_next(&p->threads, &at, &key, &value);) {
		if (((struct thread_track *)(uintptr_t)value)->round == p->round)
			continue;
		e->old = xgrow(e->old, &e->old_cap, n + 1, sizeof(*e->old));
		e->old[n++] = key;
	}
	while (n > 0) {
		key = e->old[--n];
		struct thread_track *th = hmap_get_ptr(&p->threads, key);
		end_thread(e, p, th, p->time_ns);
		hmap_remove(&p->threads, key);
		free_thread(th);
	}
}

void events_sample(struct events *e, struct target *t)
{
	const struct python_process *python = t->python;
	struct process_track *p;

	if (!python)
		return;
	events_process(e, t);
	p = find_process(e, t);
	/* A round that failed leaves the stacks of the one before, already told. */
	if (python->time_ns == p->time_ns)
		return;
	p->time_ns = python->time_ns;
	p->round++;
	bool only_main = !e->o.all_threads && has_main_thread(python);
	unsigned told = 0;
	for (unsigned i = 0; i < python->nthreads; i++) {
		const struct python_thread *th = &python->threads[i];

		if (only_main && !is_named_main(th))
			continue;
		struct thread_track *track = find_thread(e, p, th);
		track->round = p->round;
		told++;
		if (!th->missed)
			sample_thread(e, p, track, th);
	}
	if (told != p->threads.count)
		drop_old_threads(e, p);
}

static void end_process(struct events *e, struct process_track *p, uint64_t time_ns)
{
	uint64_t key, value;

	for (size_t at = 0; hmap_next(&p->threads, &at, &key, &value);)
		end_thread(e, p, (struct thread_track *)(uintptr_t)value, time_ns);
}

void events_gone(struct events *e, struct target *t, uint64_t time_ns)
{
	struct process_track *p = find_process(e, t);

	if (!p)
		return;
	end_process(e, p, time_ns);
	hmap_remove(&e->processes, p->serial);
	free_process(p);
}

void events_close_all(struct events *e, uint64_t time_ns)
{
	uint64_t key, value;

	for (size_t at = 0; hmap_next(&e->processes, &at, &key, &value);)
		end_process(e, (struct process_track *)(uintptr_t)value, time_ns);
}
