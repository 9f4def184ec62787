/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * nputrace: the trace of exactly the steps that were asked for. Everything is held until the window
 * closes, because only then it is known what belongs to it: a device works on what was launched
 * earlier, and it is reported in no order.
 *
 *	        from                      to
 *	  host   |  launch A     launch B  |  launch C
 *	  device |   ---- 0 ----   -- A -- |  -- B --   -- C --
 *
 * A and B are in the trace. 0 was launched before it, C after it. The steps' time has 0 in it all
 * the same: the summary counts it, or the device would look idle.
 */
#define LOG_AREA "trace"
#include "activity/trace/trace.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/text/text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define NS_PER_MS 1000000u
#define LAUNCHES_BEFORE 500000u /* that are remembered at least while no step has begun */
#define MAX_NOTES_BYTES 4096
#define MARK_KEY (1ull << 63) /* of a mark's id among the correlations */

size_t trace_max_activities = TRACE_MAX_ACTIVITIES;
static _Atomic size_t total_held; /* of all traces, those that are being written too */

/* --- what is held --- */

const char *trace_text_of(struct trace_state *t, const char *text, size_t len)
{
	if (t->texts.bytes > TRACE_MAX_TEXT_BYTES)
		return "(no room for more names)";
	return texts_put(&t->texts, text, len)->text;
}

const char *trace_text(struct trace_state *t, const char *theirs)
{
	const char *text = *theirs ? hmap_get_ptr(&t->known_texts, (uintptr_t)theirs) : "";

	if (!text) {
		text = trace_text_of(t, theirs, strlen(theirs));
		hmap_put_ptr(&t->known_texts, (uintptr_t)theirs, (void *)(uintptr_t)text);
	}
	return text;
}

/* Texts of the process are about to go: another may come to lie where one is now. */
static void window_forget(struct window *w)
{
	struct trace_state *t = w->state;

	hmap_release(&t->known_texts);
}

static const struct activity_owner *own_owner(struct trace_state *t,
					      const struct activity_owner *theirs)
{
	struct activity_owner *o = hmap_get_ptr(&t->owners, (uintptr_t)theirs);

	if (!theirs || o)
		return o;
	o = xcalloc(1, sizeof(*o));
	*o = (struct activity_owner){
		.model = trace_text(t, theirs->model),
		.module = trace_text(t, theirs->module),
		.module_class = trace_text(t, theirs->module_class),
		.line = trace_text(t, theirs->line),
		.backward = theirs->backward,
	};
	hmap_put_ptr(&t->owners, (uintptr_t)theirs, o);
	return o;
}

static void release_owners(struct trace_state *t)
{
	uint64_t key, value;

	for (size_t at = 0; hmap_next(&t->owners, &at, &key, &value);)
		free((void *)(uintptr_t)value);
	hmap_release(&t->owners);
}

struct activity *trace_hold(struct trace_state *t, const struct activity *a)
{
	if (t->nheld >= trace_max_activities || total_held >= TRACE_MAX_TOTAL) {
		t->left_out++;
		return NULL;
	}
	total_held++;
	struct activity *held = XPUSH(t->held, t->nheld, t->cap_held);
	*held = *a;
	held->name = trace_text(t, a->name);
	held->detail = trace_text(t, a->detail);
	held->more = trace_text(t, a->more);
	held->owner = own_owner(t, a->owner);
	return held;
}

static void keep_first(struct trace_state *t, size_t n)
{
	total_held -= t->nheld - n;
	t->nheld = n;
}

static bool is_api(const struct activity *a)
{
	return ACTIVITY_BIT(a->kind) & ACTIVITY_APIS;
}

static bool is_on_host(const struct activity *a)
{
	return a->place == ACTIVITY_ON_HOST;
}

static uint64_t launch_key(const struct activity *a)
{
	return a->correlation ^ (a->kind == ACTIVITY_MARKER ? MARK_KEY : 0);
}

/* Several calls may have one correlation, one inside the other: the outermost counts. */
static void note_launch(struct trace_state *t, const struct activity *a)
{
	uint64_t key = launch_key(a);

	if (!a->correlation)
		return;
	if (t->from_ns == TRACE_NOT_YET && t->launches[0].count >= LAUNCHES_BEFORE) {
		hmap_release(&t->launches[1]);
		t->launches[1] = t->launches[0];
		t->launches[0] = (struct hmap){0};
	}
	if (t->launches[0].count >= TRACE_MAX_ACTIVITIES)
		return; /* its work counts by its own time */
	uint64_t was = hmap_get(&t->launches[0], key);
	if (was == HMAP_NONE || a->start_ns < was)
		hmap_put(&t->launches[0], key, a->start_ns);
}

static uint64_t launched_at(const struct trace_state *t, const struct activity *a)
{
	uint64_t key = launch_key(a), at;

	if (!a->correlation)
		return HMAP_NONE;
	at = hmap_get(&t->launches[0], key);
	return at != HMAP_NONE ? at : hmap_get(&t->launches[1], key);
}

enum trace_belongs trace_belongs(const struct trace_state *t, const struct activity *a)
{
	uint64_t at = is_on_host(a) ? a->start_ns : launched_at(t, a);

	if (trace_within(t, at == HMAP_NONE ? a->start_ns : at))
		return TRACE_IN;
	return !is_on_host(a) && a->end_ns > t->from_ns && a->start_ns < t->to_ns ? TRACE_BEFORE
										  : TRACE_OUT;
}

/* --- what was asked for --- */

bool trace_is_gc(const struct activity *a)
{
	return !strcmp(a->name, TRACE_GC_MARK) && !strcmp(a->detail, TRACE_GC_DOMAIN);
}

static bool is_long_gc(const struct trace_request *o, const struct activity *a)
{
	return o->gc_ms >= 0 && trace_is_gc(a) && a->end_ns > a->start_ns &&
	       (double)(a->end_ns - a->start_ns) >= o->gc_ms * NS_PER_MS;
}

static bool mark_wanted(const struct trace_request *o, const struct activity *a)
{
	size_t len = strlen(a->detail);

	if (is_long_gc(o, a))
		return true;
	if (!o->marks)
		return false;
	if (o->domain_include.len)
		return request_lists(&o->domain_include, a->detail, len);
	return !o->domain_exclude.len || !request_lists(&o->domain_exclude, a->detail, len);
}

/* Marks of records are all there is, or twice what the source reports: except those of Python. */
bool trace_needs_mark(const struct trace_state *t, const struct activity *a)
{
	return !t->source_marks || trace_is_gc(a);
}

bool trace_wanted(const struct trace_state *t, const struct activity *a)
{
	const struct trace_request *o = &t->w->trace;

	if (a->kind == ACTIVITY_MARKER)
		return mark_wanted(o, a);
	if (a->kind == ACTIVITY_MEMORY)
		return o->memory;
	return o->activities & (is_on_host(a) ? REQUEST_CPU : REQUEST_DEVICE);
}

/* --- steps --- */

/* What had ended before the first step began is not in it. */
static void forget_before(struct trace_state *t)
{
	size_t n = 0;

	for (size_t i = 0; i < t->nheld; i++)
		if (t->held[i].end_ns > t->from_ns)
			t->held[n++] = t->held[i];
	keep_first(t, n);
}

static uint64_t first_step(const struct trace_state *t)
{
	return t->w->trace.start_step < 0 ? 0 : (uint64_t)t->w->trace.start_step;
}

static void add_bound(struct trace_state *t, uint64_t number, uint64_t ns)
{
	if (t->nbounds >= TRACE_MAX_BOUNDS)
		return;
	*XPUSH(t->bounds, t->nbounds, t->cap_bounds) = (struct trace_bound){number, ns};
}

static uint64_t mono_of(const struct trace_state *t, uint64_t wall_ns)
{
	return wall_ns == TRACE_NOT_YET ? wall_ns : wall_ns - (uint64_t)t->w->wall_minus_mono_ns;
}

static void begin_at(struct trace_state *t, uint64_t ns)
{
	t->from_ns = ns;
	forget_before(t);
}

/* Instead of steps there is one, 0, when all is ready: from then on the time counts. */
static void step_of_time(struct trace_state *t, uint64_t step, uint64_t ns)
{
	if (step || t->nbounds)
		return;
	add_bound(t, step, ns);
	begin_at(t, ns);
	t->to_ns = ns + t->w->trace.duration_ms * NS_PER_MS;
}

static void step_of_steps(struct trace_state *t, uint64_t step, uint64_t wall_ns)
{
	const struct window *w = t->w;

	/* Steps only go on; another order is a mistake of the job. */
	if (t->to_ns <= wall_ns || step < first_step(t) ||
	    (t->nbounds &&
	     (step <= t->bounds[t->nbounds - 1].number || wall_ns < t->bounds[t->nbounds - 1].ns)))
		return;
	if (wall_ns > t->last_ns)
		t->last_ns = wall_ns;
	add_bound(t, step, wall_ns);
	if (t->from_ns == TRACE_NOT_YET)
		begin_at(t, wall_ns);
	uint64_t first = w->trace.start_step < 0 ? t->bounds[0].number : first_step(t);
	if (step - first >= w->trace.steps) {
		t->to_ns = wall_ns;
		t->ended = false; /* it was all over by then */
	}
}

static void window_step(struct window *w, uint64_t step, uint64_t wall_ns)
{
	struct trace_state *t = w->state;

	if (w->trace.steps)
		step_of_steps(t, step, wall_ns);
	else
		step_of_time(t, step, wall_ns);
	trace_python_steps(t->python, mono_of(t, t->from_ns), mono_of(t, t->to_ns));
}

/* Threads report in no order: a step may have begun since, and been reported before. */
static void window_end(struct window *w, uint64_t wall_ns)
{
	struct trace_state *t = w->state;

	if (t->from_ns == TRACE_NOT_YET || wall_ns <= t->from_ns || wall_ns >= t->to_ns)
		return;
	while (t->nbounds && t->bounds[t->nbounds - 1].ns >= wall_ns)
		t->nbounds--;
	t->to_ns = wall_ns;
	if (wall_ns > t->last_ns)
		t->last_ns = wall_ns;
	t->ended = true;
	trace_python_steps(t->python, mono_of(t, t->from_ns), mono_of(t, t->to_ns));
}

/* --- what comes --- */

static void window_activity(struct window *w, const struct activity *a)
{
	struct trace_state *t = w->state;

	if (a->end_ns > t->last_ns && is_on_host(a))
		t->last_ns = a->end_ns;
	if (is_on_host(a) && (is_api(a) || a->kind == ACTIVITY_MARKER))
		note_launch(t, a);
	if (a->kind == ACTIVITY_MARKER && is_on_host(a) && !trace_is_gc(a))
		t->source_marks = true;
	if (a->kind == ACTIVITY_MEMORY && w->trace.memory)
		trace_memory_activity(t, a);
	if (t->from_ns == TRACE_NOT_YET) {
		/* It has ended, so it is of before; clocks may differ by a little. */
		if (t->nheld >= LAUNCHES_BEFORE)
			keep_first(t, 0);
	} else if (is_on_host(a) ? !trace_within(t, a->start_ns) : a->end_ns <= t->from_ns) {
		return;
	}
	/* Nobody needs a host's activity that was not asked for; a device's is for the summary. */
	if (!is_on_host(a) || trace_wanted(t, a))
		trace_hold(t, a);
}

static void window_record(struct window *w, uint32_t tid, const struct rec *r)
{
	struct trace_state *t = w->state;

	switch (r->type) {
	case REC_MARK:
		trace_record_mark(t, tid, (const struct rec_mark *)r);
		break;
	case REC_PYTHON:
		trace_record_place(t, (const struct rec_python *)r);
		break;
	case REC_CALL:
		trace_record_call(t, tid, (const struct rec_call *)r);
		break;
	case REC_ALLOC:
	case REC_FREE:
	case REC_HEAP:
		if (w->trace.memory)
			trace_memory_record(t, tid, r);
		break;
	default:
		break;
	}
}

static void window_note(struct window *w, const char *text, size_t len)
{
	struct trace_state *t = w->state;
	struct buf scratch = {0};

	if (t->notes.len > MAX_NOTES_BYTES || !len || memchr(text, '\0', len))
		return;
	text = text_clean(text, &len, &scratch);
	buf_add(&t->notes, text, len);
	buf_add_char(&t->notes, '\0');
	buf_release(&scratch);
}

static void window_tick(struct window *w, uint64_t now_mono_ns)
{
	struct trace_state *t = w->state;

	if (w->trace.host_sys)
		trace_host_sample(t, now_mono_ns);
}

/* --- beginning and end --- */

/* It becomes part of the name of a file. */
static char *request_of(const struct window *w)
{
	struct request_text id;
	struct buf out = {0};

	if (!request_find(w->text, w->text_len, "REQUEST_TRACE_ID", &id))
		id.len = 0;
	for (size_t i = 0; i < id.len && i < 64; i++) {
		char c = id.at[i];
		bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
			     (c >= 'A' && c <= 'Z') || c == '-' || c == '_';
		buf_add_char(&out, plain ? c : '_');
	}
	return out.len ? (buf_add_char(&out, '\0'), out.data) : xstrdup("0");
}

static int window_open(struct window *w, struct err *err)
{
	const struct trace_request *o = &w->trace;

	if (!o->log_file.len || o->log_file.at[0] != '/')
		return err_set(
			err, -EINVAL,
			"ACTIVITIES_LOG_FILE '%.*s' is no absolute path: give --log-file one",
			(int)o->log_file.len, o->log_file.at);
	if (memchr(o->log_file.at, '\0', o->log_file.len))
		return err_set(err, -EINVAL, "ACTIVITIES_LOG_FILE has a NUL in it");
	struct trace_state *t = xcalloc(1, sizeof(*t));
	t->w = w;
	t->parent = xstrndup(o->log_file.at, o->log_file.len);
	t->request = request_of(w);
	t->job = trace_job_of(w->shown_pid);
	t->started_by = trace_parent_of(w->shown_pid);
	trace_world_of(w->shown_pid, &t->world, &t->local_world);
	t->from_ns = t->to_ns = TRACE_NOT_YET;
	t->last_ns = w->start_ns;
	if (w->process)
		t->process = *w->process;
	if (!o->steps) {
		t->from_ns = w->start_ns;
		t->to_ns = w->start_ns + o->duration_ms * NS_PER_MS;
	}
	if (o->stack)
		t->python = trace_python_start(w->shown_pid, w->pid);
	w->state = t;
	return 0;
}

void trace_free(struct trace_state *t)
{
	keep_first(t, 0);
	trace_python_free(t->python);
	free(t->unseen);
	buf_release(&t->notes);
	free(t->own.text);
	free(t->own.groups);
	free(t->parent);
	free(t->request);
	free(t->job);
	free(t->started_by);
	free(t->bounds);
	free(t->held);
	free(t->marks);
	hmap_release(&t->launches[0]);
	hmap_release(&t->launches[1]);
	hmap_release(&t->places);
	hmap_release(&t->known_texts);
	hmap_release(&t->open_marks);
	release_owners(t);
	texts_release(&t->texts);
	trace_calls_release(&t->calls);
	trace_memory_release(&t->memory);
	free(t->samples.list);
	free(t);
}

static void window_close(struct window *w)
{
	struct trace_state *t = w->state;

	w->state = NULL;
	trace_python_stop(t->python);
	if (t->from_ns != TRACE_NOT_YET && t->from_ns != t->to_ns) {
		trace_writer_add(t);
		return;
	}
	log_warn("process %u: the trace of request %s has nothing in it: its first step %s", w->pid,
		 t->request, t->nbounds ? "was not reported" : "has not begun");
	trace_report_to_daemon(t, NULL, "nothing was traced: its first step has not begun");
	trace_free(t);
}

const struct window_ops window_trace = {
	.open = window_open,
	.activity = window_activity,
	.step = window_step,
	.end = window_end,
	.note = window_note,
	.record = window_record,
	.tick = window_tick,
	.forget = window_forget,
	.close = window_close,
};
