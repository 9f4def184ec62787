/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Marks and calls of Python functions that come as records of their own: where there is no vendor's
 * library that reports marks, and because none reports calls.
 *
 * A call is in the trace if it begins in the steps. Records of ends say what ends, since records
 * can be lost: what lies above it has lost its own end, and ends with it.
 */
#include "activity/trace/trace.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

#define MAX_OPEN 100000u /* of one thread, and ranges */
#define IS_C (1ull << 63)

static uint64_t wall_of_mono(const struct trace_state *t, uint64_t mono_ns)
{
	return mono_ns + (uint64_t)t->w->wall_minus_mono_ns;
}

/* --- marks --- */

static void end_range(struct trace_state *t, uint64_t range, uint64_t now)
{
	uint64_t at = hmap_remove(&t->open_marks, range);

	if (at != HMAP_NONE && now > t->marks[at].start_ns)
		t->marks[at].end_ns = now;
}

static void begin_mark(struct trace_state *t, const struct activity *a, bool is_range)
{
	if (t->nmarks >= TRACE_MAX_MARKS) {
		t->left_out++;
		return;
	}
	if (is_range && t->open_marks.count < MAX_OPEN)
		hmap_put(&t->open_marks, a->correlation, t->nmarks);
	*XPUSH(t->marks, t->nmarks, t->cap_marks) = *a;
}

void trace_record_mark(struct trace_state *t, uint32_t tid, const struct rec_mark *m)
{
	size_t len;
	const char *text = rec_text(&m->head, &len);
	size_t n = strnlen(text, len);
	uint64_t now = wall_of_mono(t, m->head.time_ns);
	bool is_range = m->kind == MARK_RANGE_START;

	if (m->kind == MARK_RANGE_END) {
		end_range(t, m->range, now);
		return;
	}
	if (!trace_within(t, now))
		return;
	struct activity a = {
		.start_ns = now,
		.end_ns = now,
		.correlation = m->range,
		.name = trace_text_of(t, text, n),
		.detail = n + 1 < len ? trace_text_of(t, text + n + 1, len - n - 1) : "default",
		.more = "",
		.pid = t->w->pid,
		.tid = tid,
		.device = ACTIVITY_NOWHERE,
		.stream = ACTIVITY_NOWHERE,
		.kind = ACTIVITY_MARKER,
		.place = ACTIVITY_ON_HOST,
		.flag = is_range ? ACTIVITY_MARK_START : ACTIVITY_MARK_INSTANT,
	};
	begin_mark(t, &a, is_range);
}

/* --- calls --- */

struct open_call {
	uint64_t what; /* place, or IS_C and the name */
	uint64_t at; /* in the list of calls; HMAP_NONE: it is not in the trace */
};

struct open_calls {
	struct open_call *list;
	size_t n, cap;
	size_t above; /* that did not fit */
};

/* "file(line): function" */
void trace_record_place(struct trace_state *t, const struct rec_python *r)
{
	size_t len;
	const char *name = rec_text(&r->head, &len);
	size_t n = strnlen(name, len);
	struct buf text = {0};

	if (hmap_get_ptr(&t->places, r->id))
		return;
	if (n < len)
		buf_add(&text, name + n + 1, len - n - 1);
	buf_addf(&text, "(%u): ", r->line);
	buf_add(&text, name, n);
	hmap_put_ptr(&t->places, r->id, (void *)(uintptr_t)trace_text_of(t, text.data, text.len));
	buf_release(&text);
}

static const char *place_text(const struct trace_state *t, uint64_t id)
{
	const char *text = hmap_get_ptr(&t->places, id);

	return text ? text : "?(0): ?";
}

/* Index of the new call; HMAP_NONE if it is not in the trace. */
static uint64_t begin_call(struct trace_state *t, uint32_t tid, uint64_t now, const char *text)
{
	struct trace_calls *c = &t->calls;

	if (!t->w->trace.stack || !trace_within(t, now))
		return HMAP_NONE;
	if (c->n >= TRACE_MAX_CALLS) {
		t->left_out++;
		return HMAP_NONE;
	}
	*XPUSH(c->list, c->n, c->cap) = (struct trace_call){now, TRACE_NOT_YET, text, tid, 0};
	return c->n - 1;
}

static void end_call(struct trace_state *t, uint64_t at, uint64_t now)
{
	struct trace_call *c = at == HMAP_NONE ? NULL : &t->calls.list[at];

	if (c)
		c->end_ns = now > c->start_ns ? now : c->start_ns;
}

static struct open_calls *thread_of(struct trace_state *t, uint32_t tid)
{
	struct open_calls *o = hmap_get_ptr(&t->calls.threads, tid);

	if (!o) {
		o = xcalloc(1, sizeof(*o));
		hmap_put_ptr(&t->calls.threads, tid, o);
	}
	return o;
}

static void push_call(struct trace_state *t, uint32_t tid, uint64_t what, uint64_t at)
{
	struct open_calls *o = thread_of(t, tid);

	if (o->n >= MAX_OPEN) {
		o->above++;
		return;
	}
	*XPUSH(o->list, o->n, o->cap) = (struct open_call){what, at};
}

static void pop_call(struct trace_state *t, uint32_t tid, uint64_t what, uint64_t now)
{
	struct open_calls *o = thread_of(t, tid);
	size_t at = o->n;

	if (o->above) {
		o->above--;
		return;
	}
	while (at && o->list[at - 1].what != what)
		at--;
	if (!at)
		return; /* began before the trace */
	while (o->n >= at)
		end_call(t, o->list[--o->n].at, now);
}

static void begin_note(struct trace_state *t, uint32_t tid, uint64_t name, uint64_t now)
{
	uint64_t at = begin_call(t, tid, now, trace_text(t, window_name(t->w, name)));

	if (at != HMAP_NONE && t->calls.notes.count < MAX_OPEN)
		hmap_put(&t->calls.notes, name, at);
}

void trace_calls_end(struct trace_state *t)
{
	for (size_t i = 0; i < t->calls.n; i++) {
		struct trace_call *c = &t->calls.list[i];

		if (c->end_ns == TRACE_NOT_YET)
			c->end_ns = t->last_ns > c->start_ns ? t->last_ns : c->start_ns;
	}
}

static void forget_threads(struct trace_calls *c)
{
	uint64_t key, value;

	for (size_t at = 0; hmap_next(&c->threads, &at, &key, &value);) {
		struct open_calls *o = (struct open_calls *)(uintptr_t)value;

		free(o->list);
		free(o);
	}
	hmap_release(&c->threads);
}

void trace_record_call(struct trace_state *t, uint32_t tid, const struct rec_call *r)
{
	uint64_t now = wall_of_mono(t, r->head.time_ns);

	if (!t->w->trace.stack)
		return;
	if (now > t->last_ns)
		t->last_ns = now;
	if (r->kind == CALL_PYTHON || r->kind == CALL_C) {
		/* All of them, and exactly: nobody needs to sample them from outside. */
		t->calls.exact = true;
		trace_python_stop(t->python);
	}
	switch (r->kind) {
	case CALL_PYTHON:
		push_call(t, tid, r->place,
			  begin_call(t, tid, now,
				     r->name ? trace_text(t, window_name(t->w, r->name))
					     : place_text(t, r->place)));
		break;
	case CALL_C:
		push_call(t, tid, r->name | IS_C,
			  begin_call(t, tid, now, trace_text(t, window_name(t->w, r->name))));
		break;
	case CALL_RETURN:
		pop_call(t, tid, r->place, now);
		break;
	case CALL_C_RETURN:
		pop_call(t, tid, r->name | IS_C, now);
		break;
	case CALL_STOP:
		trace_calls_end(t);
		forget_threads(&t->calls);
		break;
	case CALL_NOTE:
		begin_note(t, tid, r->name, now);
		break;
	case CALL_NOTE_END:
		end_call(t, hmap_remove(&t->calls.notes, r->name), now);
		break;
	default:
		break; /* CALL_OPEN: began before the trace */
	}
}

void trace_calls_release(struct trace_calls *c)
{
	forget_threads(c);
	hmap_release(&c->notes);
	hmap_release(&c->names);
	free(c->list);
}
