/* SPDX-License-Identifier: MulanPSL-2.0 */
/* How frames, names and counters are written into a trace. */
#include <stdio.h>

#include "formats/frame_label.h"
#include "sampler/rounds/events_impl.h"

void events_tell_begin(struct chrome_trace *into, int64_t ts_ns, const struct process_track *p,
		       const struct thread_track *th, const struct open_frame *f)
{
	char label[FRAME_LABEL_BYTES];
	struct chrome_arg args[] = {
		{.key = "thread", .type = CHROME_TEXT, .text = th->name},
		{.key = "function", .type = CHROME_TEXT, .text = f->name},
		{.key = "file", .type = CHROME_TEXT, .text = f->file},
		{.key = "line", .type = CHROME_INT, .i = f->line},
	};

	frame_label(label, f->name, f->file, f->label_line);
	chrome_begin(into, ts_ns, p->pid, th->tid, label, args, 4);
}

void events_tell_end(struct chrome_trace *into, int64_t ts_ns, const struct process_track *p,
		     const struct thread_track *th, const struct open_frame *f)
{
	char label[FRAME_LABEL_BYTES];
	struct chrome_arg line = {.key = "line", .type = CHROME_INT, .i = f->line};

	frame_label(label, f->name, f->file, f->label_line);
	chrome_end(into, ts_ns, p->pid, th->tid, label, &line, f->line > 0);
}

static void tell_number(struct chrome_trace *into, int64_t pid, int64_t tid, const char *what,
			int64_t number)
{
	struct chrome_arg arg = {.key = "sort_index", .type = CHROME_INT, .i = number};

	chrome_meta(into, pid, tid, what, &arg, 1);
}

void events_tell_process(const struct events *e, struct chrome_trace *into,
			 const struct process_track *p)
{
	struct chrome_arg args[] = {
		{.key = "name", .type = CHROME_TEXT, .text = p->label},
		{.key = "start_time_unix_ns", .type = CHROME_INT, .i = e->start_real_ns},
	};

	chrome_meta(into, p->pid, 0, "process_name", args, 2);
	tell_number(into, p->pid, 0, "process_sort_index",
		    p->rank >= 0 ? p->rank : EVENTS_OWN_TIDS + (int64_t)p->order);
}

void events_tell_thread(struct chrome_trace *into, const struct process_track *p,
			const struct thread_track *th)
{
	struct chrome_arg name = {.key = "name", .type = CHROME_TEXT, .text = th->name};

	chrome_meta(into, p->pid, th->tid, "thread_name", &name, 1);
	tell_number(into, p->pid, th->tid, "thread_sort_index", th->main ? -1 : (int64_t)th->order);
}

/* --- everything that is open, into a file --- */

static int64_t not_before(int64_t ts_ns, const struct thread_track *th)
{
	return ts_ns > th->ts_ns ? ts_ns : th->ts_ns;
}

static void end_thread(struct chrome_trace *into, int64_t ts_ns, const struct process_track *p,
		       const struct thread_track *th)
{
	for (unsigned i = th->n; i > 0; i--)
		events_tell_end(into, not_before(ts_ns, th), p, th, &th->frames[i - 1]);
}

static void begin_thread(struct chrome_trace *into, int64_t ts_ns, const struct process_track *p,
			 const struct thread_track *th)
{
	events_tell_thread(into, p, th);
	for (unsigned i = 0; i < th->n; i++)
		events_tell_begin(into, not_before(ts_ns, th), p, th, &th->frames[i]);
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
			    end_thread);
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

static void tell_device(struct chrome_trace *into, unsigned track)
{
	struct chrome_arg name = {.key = "name", .type = CHROME_TEXT, .text = devices[track].name};

	chrome_meta(into, devices[track].pid, 0, "process_name", &name, 1);
	/* Above the processes. */
	tell_number(into, devices[track].pid, 0, "process_sort_index", (int64_t)track - 3);
}

void events_counter(struct events *e, const struct counter *c)
{
	struct chrome_arg args[sizeof(c->values) / sizeof(c->values[0])];
	char id[16];

	if (c->track > COUNTER_PROCESS || c->n > sizeof(args) / sizeof(args[0]))
		return;
	if (c->track != COUNTER_PROCESS && !e->told_device[c->track]) {
		e->told_device[c->track] = true;
		tell_device(e->o.trace, c->track);
	}
	for (unsigned i = 0; i < c->n; i++)
		args[i] = (struct chrome_arg){
			.key = c->values[i].key, .type = CHROME_FLOAT, .f = c->values[i].value};
	/* Viewers tell tracks apart by process, name and id; the name stays the one that is
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
		if (e->told_device[i])
			tell_device(into, i);
	for (size_t at = 0; hmap_next(&e->processes, &at, &key, &value);) {
		const struct process_track *p = (const struct process_track *)(uintptr_t)value;

		events_tell_process(e, into, p);
		each_thread(p, into, ts_ns, begin_thread);
	}
}
