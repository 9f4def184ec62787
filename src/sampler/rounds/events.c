/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "sampler/rounds/events.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/containers/hmap.h"
#include "base/containers/intern.h"
#include "base/mem.h"
#include "formats/profile/profile.h"
#include "sampler/rounds/step_track.h"
#include "sampler/rounds/thread_filter.h"

#define GC_NAME "<garbage collection>"
#define OWN_TIDS (1 << 22) /* Linux gives smaller ones */

/* A frame that has begun and not ended. Texts are interned. */
struct open_frame {
	const char *name, *file;
	int32_t first_line;
	int32_t line; /* the last one seen */
	int32_t label_line; /* in its label; 0: none */
};

struct thread_track {
	int64_t tid; /* in the trace */
	const char *name; /* as written; interned */
	bool main;
	unsigned order; /* in which threads of the process were seen */
	uint64_t round; /* of the process in which it was last there */
	int64_t ts_ns; /* of its last event: time never goes back */
	struct open_frame *frames; /* outermost first; the collector may be the innermost */
	size_t cap;
	unsigned n;
	bool gc;
};

struct process_track {
	struct events *events; /* that it belongs to */
	uint64_t serial;
	int64_t pid;
	char *label;
	int rank;
	unsigned order;
	uint64_t round;
	uint64_t time_ns; /* of the copy that was written last */
	unsigned next_order;
	struct step_track steps;
	struct hmap threads; /* serial to struct thread_track */
};

struct events {
	struct events_options o;
	int64_t start_real_ns;
	unsigned next_order;
	struct hmap processes; /* serial to struct process_track */
	uint64_t *old; /* serials of threads that are to be dropped */
	size_t old_cap;
	bool device_named[COUNTER_PROCESS]; /* npu, gpu, host: have their names */
	int64_t minute; /* since 1970, of which abs_time is the text */
	char abs_time[32];
};

/* --- how frames and names are written --- */

/* The time of day to the minute, in the local time zone: one text for all events of a minute. */
static struct chrome_arg abs_time_arg(struct events *e, int64_t ts_ns)
{
	int64_t minute = (e->start_real_ns + ts_ns) / 60000000000;
	struct tm tm;

	if (!*e->abs_time || minute != e->minute) {
		time_t s = (time_t)(minute * 60);

		localtime_r(&s, &tm);
		strftime(e->abs_time, sizeof(e->abs_time), "%Y-%m-%d %H:%M", &tm);
		e->minute = minute;
	}
	return (struct chrome_arg){.key = "abs_time", .type = CHROME_TEXT, .text = e->abs_time};
}

static struct chrome_arg abs_time_now(struct events *e)
{
	return abs_time_arg(e, (int64_t)(clock_mono_ns() - e->o.start_ns));
}

static void write_begin(struct chrome_trace *into, int64_t ts_ns, const struct process_track *p,
			const struct thread_track *th, const struct open_frame *f)
{
	char label[FRAME_LABEL_BYTES];
	struct chrome_arg args[] = {
		{.key = "thread", .type = CHROME_TEXT, .text = th->name},
		{.key = "function", .type = CHROME_TEXT, .text = f->name},
		{.key = "file", .type = CHROME_TEXT, .text = f->file},
		{.key = "line", .type = CHROME_INT, .i = f->line},
		abs_time_arg(p->events, ts_ns),
	};

	frame_label(label, f->name, f->file, f->label_line);
	chrome_begin(into, ts_ns, p->pid, th->tid, "python_function", label, args, 5);
}

static void write_end(struct chrome_trace *into, int64_t ts_ns, const struct process_track *p,
		      const struct thread_track *th, const struct open_frame *f)
{
	char label[FRAME_LABEL_BYTES];
	struct chrome_arg args[] = {
		abs_time_arg(p->events, ts_ns),
		{.key = "line", .type = CHROME_INT, .i = f->line},
	};

	frame_label(label, f->name, f->file, f->label_line);
	chrome_end(into, ts_ns, p->pid, th->tid, label, args, f->line > 0 ? 2 : 1);
}

static void write_sort_index(struct events *e, struct chrome_trace *into, int64_t pid, int64_t tid,
			     const char *what, int64_t number)
{
	struct chrome_arg args[] = {{.key = "sort_index", .type = CHROME_INT, .i = number},
				    abs_time_now(e)};

	chrome_meta(into, pid, tid, what, args, 2);
}

static void write_process_names(struct events *e, struct chrome_trace *into,
				const struct process_track *p)
{
	struct chrome_arg args[] = {
		{.key = "name", .type = CHROME_TEXT, .text = p->label},
		{.key = "start_time_unix_ns", .type = CHROME_INT, .i = e->start_real_ns},
		abs_time_now(e),
	};

	chrome_meta(into, p->pid, 0, "process_name", args, 3);
	write_sort_index(e, into, p->pid, 0, "process_sort_index",
			 p->rank >= 0 ? p->rank : OWN_TIDS + (int64_t)p->order);
}

static void write_thread_names(struct chrome_trace *into, const struct process_track *p,
			       const struct thread_track *th)
{
	struct chrome_arg args[] = {{.key = "name", .type = CHROME_TEXT, .text = th->name},
				    abs_time_now(p->events)};

	chrome_meta(into, p->pid, th->tid, "thread_name", args, 2);
	write_sort_index(p->events, into, p->pid, th->tid, "thread_sort_index",
			 th->main ? -1 : (int64_t)th->order);
}

/* --- processes and threads --- */

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

/* Viewers take the last name. Ranks come first, in their order. */
static void name_process(struct events *e, struct process_track *p, const struct target *t)
{
	free(p->label);
	p->label = xasprintf("%s (%d)", t->label ? t->label : "python", (int)t->pid);
	p->rank = t->role == ROLE_RANK ? t->rank : -1;
	write_process_names(e, e->o.trace, p);
}

void events_process(struct events *e, struct target *t)
{
	struct process_track *p;

	if (find_process(e, t))
		return;
	p = xcalloc(1, sizeof(*p));
	p->events = e;
	p->serial = t->serial;
	p->pid = t->pid;
	p->order = e->next_order++;
	hmap_put_ptr(&e->processes, t->serial, p);
	name_process(e, p, t);
}

void events_renamed(struct events *e, const struct target *t)
{
	struct process_track *p = find_process(e, t);

	if (p)
		name_process(e, p, t);
}

static int64_t choose_tid(const struct process_track *p, const struct python_thread *th)
{
	if (th->tid > 0)
		return th->tid;
	if (th->inner_tid > 0)
		return th->inner_tid;
	return OWN_TIDS + 1 + (int64_t)p->next_order;
}

static const char *thread_title(const struct thread_track *track, const struct python_thread *th)
{
	char title[48];

	if (th->name && *th->name)
		return intern(th->name, strlen(th->name));
	int n = snprintf(title, sizeof(title), "Thread %lld", (long long)track->tid);
	return intern(title, (size_t)n);
}

/* The track of a thread; made, and its name written, at first sight. */
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
		write_thread_names(e->o.trace, p, track);
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

static void end_frames(const struct events *e, const struct process_track *p,
		       struct thread_track *th, unsigned left, int64_t ts_ns)
{
	while (th->n > left)
		write_end(e->o.trace, ts_ns, p, th, &th->frames[--th->n]);
}

static void begin_frame(const struct events *e, const struct process_track *p,
			struct thread_track *th, const struct open_frame *f, int64_t ts_ns)
{
	th->frames = xgrow(th->frames, &th->cap, th->n + 1, sizeof(*th->frames));
	th->frames[th->n++] = *f;
	write_begin(e->o.trace, ts_ns, p, th, f);
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
		end_frames(e, p, track, stay, ts);
		track->gc = false;
	}
	for (unsigned i = stay; i < th->nframes; i++) {
		const struct stack_frame *f = &th->frames[i];
		struct open_frame open = {.name = f->name,
					  .file = f->file,
					  .first_line = f->first_line,
					  .line = f->line,
					  .label_line = e->o.lines ? f->line : f->first_line};

		begin_frame(e, p, track, &open, ts);
	}
	if (th->gc && !gc_stays) {
		struct open_frame collector = {.name = GC_NAME, .file = ""};

		begin_frame(e, p, track, &collector, ts);
		track->gc = true;
	}
}

static void end_thread(struct events *e, const struct process_track *p, struct thread_track *th,
		       uint64_t time_ns)
{
	end_frames(e, p, th, 0, thread_ts(e, th, time_ns));
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
	/* A round that failed leaves the stacks of the one before, already written. */
	if (python->time_ns == p->time_ns)
		return;
	p->time_ns = python->time_ns;
	p->round++;
	struct thread_filter wanted = thread_filter_of(python, e->o.all_threads);
	unsigned seen = 0;
	for (unsigned i = 0; i < python->nthreads; i++) {
		const struct python_thread *th = &python->threads[i];

		if (!thread_filter_wants(&wanted, th))
			continue;
		struct thread_track *track = find_thread(e, p, th);
		track->round = p->round;
		seen++;
		if (!thread_moment_counts(e->o.moments, th))
			end_thread(e, p, track, th->time_ns);
		else if (!th->missed)
			sample_thread(e, p, track, th);
	}
	if (seen != p->threads.count)
		drop_old_threads(e, p);
}

static void add_steps(struct events *e, const struct target *t, int64_t ended, uint64_t time_ns,
		      bool guessed)
{
	struct process_track *p = find_process(e, t);

	if (!p)
		return;
	if (guessed != p->steps.guessed)
		p->steps = (struct step_track){.guessed = guessed};
	step_track_add(&p->steps, e->o.trace, p->pid, ended, (int64_t)(time_ns - e->o.start_ns));
}

void events_steps(struct events *e, const struct target *t, int64_t ended, uint64_t time_ns)
{
	add_steps(e, t, ended, time_ns, false);
}

void events_guessed_steps(struct events *e, const struct target *t, int64_t ended, uint64_t time_ns)
{
	add_steps(e, t, ended, time_ns, true);
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

/* --- everything that is open, into a file --- */

static int64_t not_before(int64_t ts_ns, const struct thread_track *th)
{
	return ts_ns > th->ts_ns ? ts_ns : th->ts_ns;
}

static void write_thread_end(struct chrome_trace *into, int64_t ts_ns,
			     const struct process_track *p, const struct thread_track *th)
{
	for (unsigned i = th->n; i > 0; i--)
		write_end(into, not_before(ts_ns, th), p, th, &th->frames[i - 1]);
}

static void write_thread_begin(struct chrome_trace *into, int64_t ts_ns,
			       const struct process_track *p, const struct thread_track *th)
{
	write_thread_names(into, p, th);
	for (unsigned i = 0; i < th->n; i++)
		write_begin(into, not_before(ts_ns, th), p, th, &th->frames[i]);
}

static void each_thread(const struct process_track *p, struct chrome_trace *into, int64_t ts_ns,
			void (*fn)(struct chrome_trace *into, int64_t ts_ns,
				   const struct process_track *p, const struct thread_track *th))
{
	uint64_t key, value;

	for (size_t at = 0; hmap_next(&p->threads, &at, &key, &value);)
		fn(into, ts_ns, p, (const struct thread_track *)(uintptr_t)value);
}

void events_end_open(struct events *e, struct chrome_trace *into, uint64_t time_ns)
{
	int64_t ts_ns = (int64_t)(time_ns - e->o.start_ns);
	uint64_t key, value;

	for (size_t at = 0; hmap_next(&e->processes, &at, &key, &value);)
		each_thread((const struct process_track *)(uintptr_t)value, into, ts_ns,
			    write_thread_end);
}

/* --- counters --- */

static const struct {
	const char *name;
	int64_t pid;
} devices[COUNTER_PROCESS] = {
	[COUNTER_NPU] = {"npu", CHROME_PID_NPU},
	[COUNTER_GPU] = {"gpu", CHROME_PID_GPU},
	[COUNTER_HOST] = {"cpu", CHROME_PID_HOST},
};

static void write_device_names(struct events *e, struct chrome_trace *into, unsigned track)
{
	struct chrome_arg args[] = {
		{.key = "name", .type = CHROME_TEXT, .text = devices[track].name}, abs_time_now(e)};

	chrome_meta(into, devices[track].pid, 0, "process_name", args, 2);
	/* Above the processes. */
	write_sort_index(e, into, devices[track].pid, 0, "process_sort_index", (int64_t)track - 3);
}

void events_counter(struct events *e, const struct counter *c)
{
	struct chrome_arg args[sizeof(c->values) / sizeof(c->values[0])];
	char id[16];

	if (c->track > COUNTER_PROCESS || !c->n || c->n > sizeof(args) / sizeof(args[0]))
		return;
	if (c->track != COUNTER_PROCESS && !e->device_named[c->track]) {
		e->device_named[c->track] = true;
		write_device_names(e, e->o.trace, c->track);
	}
	for (unsigned i = 0; i < c->n; i++)
		args[i] = (struct chrome_arg){
			.key = c->values[i].key, .type = CHROME_FLOAT, .f = c->values[i].value};
	/* Viewers distinguish tracks by process, name and id; the name stays the one that is
	 * documented, whatever the number of cards. */
	snprintf(id, sizeof(id), "%d", c->card);
	chrome_counter(e->o.trace, (int64_t)(c->time_ns - e->o.start_ns),
		       c->track == COUNTER_PROCESS ? c->pid : devices[c->track].pid, c->name,
		       c->card >= 0 ? id : NULL, args, c->n);
}

void events_begin_again(struct events *e, struct chrome_trace *into, uint64_t time_ns)
{
	int64_t ts_ns = (int64_t)(time_ns - e->o.start_ns);
	uint64_t key, value;

	for (unsigned i = 0; i < COUNTER_PROCESS; i++)
		if (e->device_named[i])
			write_device_names(e, into, i);
	for (size_t at = 0; hmap_next(&e->processes, &at, &key, &value);) {
		const struct process_track *p = (const struct process_track *)(uintptr_t)value;

		write_process_names(e, into, p);
		step_track_name(&p->steps, into, p->pid);
		each_thread(p, into, ts_ns, write_thread_begin);
	}
}
