/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Calls of functions: from the records of beginnings and ends to rows of calls. Each thread has a
 * stack of those that have not ended; a row is made when one ends.
 *
 * Ends say what ends, since records can be lost: what lies above it in the stack has lost its own
 * end, and what is not in the stack has lost its beginning. Spans that the program names lie in a
 * list of their own: they may begin in one function and end in another, even in another thread.
 */
#include "memory/track/track_impl.h"

#include "base/mem.h"
#include "memory/dump/calls.h"

#include <stdlib.h>
#include <string.h>

#define MAX_OPEN (1u << 18) /* calls of one thread; deeper ones have no row */
#define LOOK_BACK 4096 /* calls that may have lost their ends at once */
#define MAX_NOTES 65536
#define IS_C (1ull << 63) /* of what: the rest is a name, not a place */

struct call {
	uint64_t what; /* place, or IS_C and the name */
	uint64_t name; /* what it is called; 0: as its place */
	uint64_t start_ns;
	bool opened; /* it ran already when tracing began */
	bool wanted; /* it is to have a row, wherever it ends */
};

struct call_stack {
	struct call *calls;
	size_t n, cap;
	size_t above; /* that did not fit */
	bool own; /* the thread itself has reported something: others report its first calls */
};

struct note {
	char *text;
	uint64_t start_ns;
	uint32_t tid;
	bool wanted;
};

static struct call_stack *stack_of(struct proc *p, uint32_t tid)
{
	struct call_stack *s = omap_get(&p->calls, tid);

	if (!s) {
		s = xcalloc(1, sizeof(*s));
		omap_put(&p->calls, tid, s);
	}
	return s;
}

static uint64_t wall_time(const struct proc *p, uint64_t mono_ns)
{
	return mono_ns ? mono_ns + (uint64_t)p->track->wall_minus_mono_ns : 0;
}

/* "file(line): function", without the line end that stacks have; or a name. */
static const char *text_of(const struct proc *p, uint64_t what, uint64_t name, size_t *out_len)
{
	const char *text = name ? omap_get(&p->names, name) : omap_get(&p->places, what);

	if (!text)
		text = name ? "?" : "?(0): ?";
	size_t n = strlen(text);
	*out_len = n && text[n - 1] == '\n' ? n - 1 : n;
	return text;
}

/* Fills in the rest of a row, whose times are of CLOCK_MONOTONIC. */
static void emit_row(struct proc *p, struct trace_row *row)
{
	const struct track_sink *sink = &p->track->sink;

	row->start_ns = wall_time(p, row->start_ns);
	row->end_ns = wall_time(p, row->end_ns);
	row->pid = p->info.pid;
	sink->call(sink->arg, p->info.proc, row);
}

static void put_row(struct proc *p, const struct call *c, uint32_t tid, const char *prefix,
		    uint64_t start_ns, uint64_t end_ns)
{
	struct trace_row row = {prefix, "", 0, start_ns, end_ns, tid, 0};

	if (!p->track->sink.call || !(c->wanted || p->window))
		return;
	row.text = text_of(p, c->what, c->name, &row.text_len);
	emit_row(p, &row);
}

static void put_end(struct proc *p, const struct call *c, uint32_t tid, uint64_t end_ns)
{
	put_row(p, c, tid, c->opened ? "start: " : "", c->start_ns, end_ns);
}

static void free_stack(void *value)
{
	free(((struct call_stack *)value)->calls);
	free(value);
}

/* --- calls --- */

static void begin_call(struct proc *p, uint32_t tid, const struct rec_call *r, uint64_t what,
		       uint64_t name, bool opened)
{
	struct call_stack *s = stack_of(p, tid);

	s->own = s->own || !opened;
	if (s->n >= MAX_OPEN) {
		s->above++;
		return;
	}
	s->calls = xgrow(s->calls, &s->cap, s->n + 1, sizeof(*s->calls));
	s->calls[s->n++] = (struct call){
		.what = what,
		.name = name,
		.start_ns = r->head.time_ns,
		.opened = opened,
		.wanted = p->window,
	};
}

static void end_call(struct proc *p, uint32_t tid, const struct rec_call *r, uint64_t what,
		     uint64_t name)
{
	struct call_stack *s = stack_of(p, tid);
	size_t at = s->n, least = s->n > LOOK_BACK ? s->n - LOOK_BACK : 0;

	s->own = true;
	if (s->above) {
		s->above--;
		return;
	}
	while (at > least && s->calls[at - 1].what != what)
		at--;
	if (at == least) {
		struct call unseen = {.what = what, .name = name};

		put_row(p, &unseen, tid, "", 0, r->head.time_ns);
	} else {
		for (; s->n > at; s->n--)
			put_end(p, &s->calls[s->n - 1], tid, 0);
		put_end(p, &s->calls[--s->n], tid, r->head.time_ns);
	}
	/* Most threads whose last function has ended have ended, too. */
	if (!s->n)
		free_stack(omap_remove(&p->calls, tid));
}

/* What has not ended will not: with a stop, where it was then has a row as well. */
struct leaving {
	struct proc *p;
	uint64_t stop_ns; /* 0: it just ended */
};

static void leave_thread(uint64_t tid, void *value, void *arg)
{
	const struct leaving *l = arg;
	struct call_stack *s = value;

	for (size_t i = 0; i < s->n; i++)
		put_end(l->p, &s->calls[i], (uint32_t)tid, 0);
	for (size_t i = 0; l->stop_ns && i < s->n; i++)
		put_row(l->p, &s->calls[i], (uint32_t)tid, "stop: ", 0, l->stop_ns);
	s->n = s->above = 0;
	s->own = false;
}

static void leave_calls(struct proc *p, uint64_t stop_ns)
{
	struct leaving l = {p, stop_ns};

	omap_each(&p->calls, leave_thread, &l);
	omap_release_values(&p->calls, free_stack);
}

void trace_thread_begins(struct proc *p, uint32_t tid)
{
	struct leaving l = {p, 0};
	struct call_stack *s = p->calls.count ? omap_get(&p->calls, tid) : NULL;

	if (s && s->own)
		leave_thread(tid, s, &l);
}

/* --- spans --- */

static void put_note(struct proc *p, const struct note *n, uint64_t end_ns)
{
	struct trace_row row = {"", n->text, strlen(n->text), n->start_ns, end_ns, n->tid, 0};

	if (p->track->sink.call && (n->wanted || p->window))
		emit_row(p, &row);
}

static void free_note(void *value)
{
	free(((struct note *)value)->text);
	free(value);
}

static void note_begin(struct proc *p, uint32_t tid, const struct rec_call *r)
{
	char *text = omap_remove(&p->names, r->name); /* no other has it */

	if (!text)
		text = xstrdup("?");
	if (p->notes.count >= MAX_NOTES || omap_get(&p->notes, r->name)) {
		free(text);
		return;
	}
	struct note *n = xcalloc(1, sizeof(*n));
	*n = (struct note){text, r->head.time_ns, tid, p->window};
	omap_put(&p->notes, r->name, n);
}

static void note_end(struct proc *p, const struct rec_call *r)
{
	struct note *n = omap_remove(&p->notes, r->name);

	if (!n)
		return; /* begun before it was stopped: its row is out */
	put_note(p, n, r->head.time_ns);
	free_note(n);
}

static void leave_note(uint64_t key, void *value, void *arg)
{
	(void)key;
	put_note(arg, value, 0);
}

/* --- from outside --- */

void trace_record(struct proc *p, uint32_t tid, const struct rec_call *r)
{
	switch (r->kind) {
	case CALL_PYTHON:
		begin_call(p, tid, r, r->place, r->name, false);
		break;
	case CALL_C:
		begin_call(p, tid, r, r->name | IS_C, r->name, false);
		break;
	case CALL_RETURN:
		end_call(p, tid, r, r->place, 0);
		break;
	case CALL_C_RETURN:
		end_call(p, tid, r, r->name | IS_C, r->name);
		break;
	case CALL_OPEN:
		begin_call(p, r->name ? (uint32_t)r->name : tid, r, r->place, 0, true);
		break;
	case CALL_STOP:
		leave_calls(p, r->head.time_ns);
		break;
	case CALL_NOTE:
		note_begin(p, tid, r);
		break;
	case CALL_NOTE_END:
		note_end(p, r);
		break;
	default:
		break;
	}
}

static void write_call(struct checkpoint_writing *w, uint32_t tid, const struct call *c)
{
	struct rec_call r = {.head = {.type = REC_CALL, .size = sizeof(r), .time_ns = c->start_ns},
			     .kind = CALL_PYTHON,
			     .name = c->name};

	if (c->what & IS_C)
		r.kind = CALL_C;
	else
		r.place = (uint32_t)c->what;
	if (c->opened) {
		r.kind = CALL_OPEN;
		r.name = tid;
	}
	checkpoint_put(w, tid, &r, NULL, 0);
}

static void write_calls(uint64_t tid, void *value, void *arg)
{
	const struct call_stack *s = value;

	for (size_t i = 0; i < s->n; i++)
		write_call(arg, (uint32_t)tid, &s->calls[i]);
}

static void write_note(uint64_t hash, void *value, void *arg)
{
	const struct note *n = value;
	struct rec_name name = {.head = {.type = REC_NAME, .time_ns = n->start_ns},
				.hash = hash,
				.len = (uint16_t)strnlen(n->text, REC_MAX_NAME)};
	struct rec_call r = {.head = {.type = REC_CALL, .size = sizeof(r), .time_ns = n->start_ns},
			     .kind = CALL_NOTE,
			     .name = hash};

	name.head.size = sizeof(name);
	checkpoint_put(arg, n->tid, &name, n->text, name.len);
	checkpoint_put(arg, n->tid, &r, NULL, 0);
}

void trace_write(struct proc *p, struct checkpoint_writing *w)
{
	omap_each(&p->calls, write_calls, w);
	omap_each(&p->notes, write_note, w);
}

void trace_leave(struct proc *p, uint64_t stop_ns)
{
	const struct track_sink *sink = &p->track->sink;

	leave_calls(p, stop_ns);
	omap_each(&p->notes, leave_note, p);
	omap_release_values(&p->notes, free_note);
	if (sink->call)
		sink->call(sink->arg, p->info.proc, NULL);
}

void trace_release(struct proc *p)
{
	omap_release_values(&p->calls, free_stack);
	omap_release_values(&p->notes, free_note);
}
