/* SPDX-License-Identifier: MulanPSL-2.0 */
/* What is in a trace's timeline beside activities: steps, calls, memory, what the host does. */
#include "activity/files/activity.h"
#include "activity/trace/trace.h"
#include "base/mem.h"
#include "formats/chrome_trace/chrome_trace.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define TID_STEPS 999999999 /* above the numbers of threads, below those of marks */
#define TID_NAME "steps"

struct timeline {
	struct chrome_trace *trace;
	int64_t base_ns;
	int64_t pid;
};

static int64_t to_us(const struct timeline *l, uint64_t ns)
{
	return (int64_t)ns - l->base_ns;
}

static void name_track(const struct timeline *l, int64_t tid, const char *what, const char *text)
{
	const struct chrome_arg arg = {.key = "name", .type = CHROME_TEXT, .text = text};

	chrome_meta(l->trace, l->pid, tid, what, &arg, 1);
}

static void put_steps(const struct timeline *l, const struct split_rank *r)
{
	name_track(l, TID_STEPS, "thread_name", TID_NAME);
	for (size_t i = 0; i < r->nsteps; i++) {
		const struct split_step *s = &r->steps[i];
		char name[40] = "trace";

		if (s->number != SPLIT_NO_NUMBER)
			snprintf(name, sizeof(name), "ProfilerStep#%llu",
				 (unsigned long long)s->number);
		chrome_complete(l->trace, to_us(l, s->start_ns), (int64_t)(s->end_ns - s->start_ns),
				l->pid, TID_STEPS, "user_annotation", name, NULL, 0);
	}
}

static void put_calls(const struct timeline *l, const struct trace_state *t,
		      struct activity_writer *w)
{
	uint64_t tid, name;

	for (size_t at = 0; hmap_next(&t->calls.names, &at, &tid, &name);)
		activity_chrome_thread(w, l->pid, (int64_t)tid, (const char *)(uintptr_t)name);
	for (size_t i = 0; i < t->calls.n; i++) {
		const struct trace_call *c = &t->calls.list[i];
		const struct chrome_arg from = {
			.key = "caller line", .type = CHROME_INT, .i = c->caller_line};

		chrome_complete(l->trace, to_us(l, c->start_ns), (int64_t)(c->end_ns - c->start_ns),
				l->pid, c->tid, "python_function", c->text, &from,
				c->caller_line > 0);
	}
}

static void put_counter(const struct timeline *l, uint64_t ns, const char *name, const char *key,
			double value)
{
	const struct chrome_arg arg = {.key = key, .type = CHROME_FLOAT, .f = value};

	chrome_counter(l->trace, to_us(l, ns), l->pid, name, NULL, &arg, 1);
}

static void put_memory(const struct timeline *l, const struct trace_state *t)
{
	for (size_t i = 0; i < t->memory.n; i++) {
		const struct trace_block *b = &t->memory.list[i];
		char name[64];

		if (!b->known)
			continue;
		if (b->device < DEV_NONE)
			snprintf(name, sizeof(name), "memory %s, device %u",
				 trace_pool_name(b->pool), b->device);
		else
			snprintf(name, sizeof(name), "memory %s", trace_pool_name(b->pool));
		put_counter(l, b->ns, name, "bytes", (double)b->held_bytes);
	}
}

/* --- the host --- */

/* The timelines of the host and of the process. */
struct host_timelines {
	const struct timeline *host, *own;
};

static void put_host_counter(void *arg, const struct trace_counter *c)
{
	const struct host_timelines *l = arg;

	put_counter(c->own ? l->own : l->host, c->ns, c->name, c->unit, c->value);
}

static void put_host(const struct timeline *own, const struct trace_state *t)
{
	struct timeline host = *own;
	struct host_timelines both = {&host, own};

	if (t->samples.n < 2)
		return;
	host.pid = CHROME_PID_HOST;
	name_track(&host, 0, "process_name", "host");
	trace_host_each(t, put_host_counter, &both);
}

int trace_timeline(const struct trace_state *t, struct activity_writer *w,
		   const struct split_rank *rank, struct err *err)
{
	struct timeline l = {.pid = t->w->pid};
	char *about = trace_about(t, rank), name[64];

	if (!about)
		return err_set(err, -ENOMEM, "out of memory");
	activity_chrome_about(w, about);
	free(about);
	l.trace = activity_chrome_trace(w, &l.base_ns, err);
	if (!l.trace)
		return err && err->code ? err->code : -EIO;
	if (rank->rank >= 0)
		snprintf(name, sizeof(name), "process %u, rank %d", rank->pid, rank->rank);
	else
		snprintf(name, sizeof(name), "process %u", rank->pid);
	name_track(&l, 0, "process_name", name);
	put_steps(&l, rank);
	put_calls(&l, t, w);
	put_memory(&l, t);
	put_host(&l, t);
	return 0;
}
