/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Windows of the monitors of all processes. Nothing that a process says is trusted: its pieces of
 * orders may never end, its windows may never close, its activities may be of any kind and time.
 *
 * Per activity: which windows want the kind; the texts behind its hashes; the filter, decided once
 * for each kind and name; the clock of the wall. Marks are put together first
 * (activity/windows/marks.h).
 */
#define LOG_AREA "activity"
#include "activity/windows/windows.h"

#include "activity/windows/process.h"
#include "base/containers/hmap.h"
#include "base/log.h"
#include "base/mem.h"
#include "unwind/remote/rank.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define MAX_PLACES_BYTES (16u << 20)
#define MAX_REQUEST_BYTES (REQUEST_MAX_BYTES + 2048u) /* what the guest adds included */
#define FLUSH_NS 20000000ull

struct activities {
	int64_t wall_minus_mono_ns;
	struct hmap procs; /* number -> struct process */
	struct process *first; /* the same as a list */
	struct process *last_used;
	struct senders *senders; /* NULL: a recording is read, for */
	const struct window_ops *reader;
	void *reader_arg;
	uint64_t seen;
};

struct activities *activities_new(void)
{
	struct activities *a = xcalloc(1, sizeof(*a));

	a->senders = senders_new();
	return a;
}

struct activities *activities_new_reader(const struct window_ops *ops, void *arg)
{
	struct activities *a = xcalloc(1, sizeof(*a));

	a->reader = ops;
	a->reader_arg = arg;
	return a;
}

static struct process *find_proc(struct activities *a, uint32_t number)
{
	if (a->last_used && a->last_used->number == number)
		return a->last_used;
	struct process *p = hmap_get_ptr(&a->procs, number);
	if (p)
		a->last_used = p;
	return p;
}

/* --- whose work it is --- */

#define HELD_NS 2000000000ull /* longer than the monitor takes to fetch what the vendor has noted */
#define MAX_HELD_BYTES (8u << 20)

static void deliver_activity(struct activities *a, struct process *p, const struct rec_activity *r,
			     const struct activity_owner *owner)
{
	for (struct open_window *f = p->windows; f; f = f->next)
		open_window_add(f, r, owner);
	a->seen++;
}

/* Those whose launches are known by now, and those that were reported before `ns`. */
static void deliver_held(struct activities *a, struct process *p, uint64_t ns)
{
	const struct activity_owner *owner;
	size_t kept = 0;

	for (size_t at = 0; at < p->held.len;) {
		struct rec_activity r;
		memcpy(&r, p->held.data + at, sizeof(r));
		at += sizeof(r);
		if (attribution_find(p->attribution, r.correlation, &owner) ||
		    r.head.time_ns < ns) {
			deliver_activity(a, p, &r, owner);
			continue;
		}
		memmove(p->held.data + kept, &r, sizeof(r));
		kept += sizeof(r);
	}
	p->held.len = kept;
}

static void on_activity(struct activities *a, struct process *p, const struct rec_activity *r)
{
	const struct activity_owner *owner = NULL;
	bool waits = p->attribution && r->place == ACTIVITY_ON_DEVICE && r->correlation &&
		     r->kind != ACTIVITY_MARKER &&
		     !attribution_find(p->attribution, r->correlation, &owner);

	if (!waits) {
		deliver_activity(a, p, r, owner);
		return;
	}
	if (p->held.len + sizeof(*r) > MAX_HELD_BYTES)
		deliver_held(a, p,
			     r->head.time_ns > HELD_NS / 4 ? r->head.time_ns - HELD_NS / 4 : 0);
	if (p->held.len + sizeof(*r) > MAX_HELD_BYTES)
		deliver_held(a, p, UINT64_MAX);
	buf_add(&p->held, r, sizeof(*r));
}

/* From the first window on that wants it: places of Python that were reported before count, too. */
static void begin_attribution(struct process *p)
{
	p->attribution = attribution_new();
	for (size_t at = 0; at < p->places.len;) {
		const struct rec *r = (const struct rec *)(p->places.data + at);
		attribution_place(p->attribution, (const struct rec_python *)r);
		at += r->size;
	}
}

static bool wants_attribution(const struct process *p)
{
	for (const struct open_window *f = p->windows; f; f = f->next)
		if (!f->failed && f->attributes)
			return true;
	return false;
}

static void settle_attribution(struct activities *a, struct process *p)
{
	bool wanted = wants_attribution(p);

	if (wanted && !p->attribution)
		begin_attribution(p);
	if (wanted || !p->attribution)
		return;
	deliver_held(a, p, UINT64_MAX);
	for (struct open_window *f = p->windows; f; f = f->next)
		if (f->top)
			top_drop_owners(f->top);
	attribution_free(p->attribution);
	p->attribution = NULL;
}

static void forget_proc(struct activities *a, struct process *p)
{
	struct process **at = &a->first;

	while (*at != p)
		at = &(*at)->next;
	*at = p->next;
	hmap_remove(&a->procs, p->number);
	if (a->last_used == p)
		a->last_used = NULL;
	deliver_held(a, p, UINT64_MAX);
	while (p->windows)
		process_close_window(p, p->windows, true);
	texts_release(&p->names);
	buf_release(&p->request);
	buf_release(&p->groups);
	buf_release(&p->places);
	buf_release(&p->ahead);
	buf_release(&p->held);
	attribution_free(p->attribution);
	free(p);
}

void activities_free(struct activities *a)
{
	if (!a)
		return;
	while (a->first)
		forget_proc(a, a->first);
	hmap_release(&a->procs);
	if (a->senders) {
		window_trace_wait();
		senders_free(a->senders);
	}
	free(a);
}

bool activities_are_writing(const struct activities *a)
{
	(void)a;
	return window_trace_writes();
}

bool activities_are_tracing(const struct activities *a)
{
	for (const struct process *p = a->first; p; p = p->next)
		for (const struct open_window *f = p->windows; f; f = f->next)
			if (!f->failed && f->w.kind == REQUEST_TRACE)
				return true;
	return false;
}

/* --- texts --- */

const char *window_name(struct window *w, uint64_t hash)
{
	return texts_find(w->names, hash)->text;
}

static void keep_text(void *arg, const char *text)
{
	texts_put(arg, text, strlen(text));
}

static bool can_forget(const struct process *p)
{
	for (const struct open_window *f = p->windows; f; f = f->next)
		if (!f->failed && !f->w.ops->forget)
			return false;
	return texts_may_forget(&p->names);
}

static void forget_names(struct process *p)
{
	for (struct open_window *f = p->windows; f; f = f->next) {
		if (!f->failed)
			f->w.ops->forget(&f->w);
		if (f->top)
			top_hold(f->top);
		marks_texts(&f->marks, keep_text, &p->names);
		open_window_reset_filter(f); /* ids have another meaning now */
	}
	texts_forget(&p->names);
}

static void on_name(struct process *p, const struct rec_name *r)
{
	size_t len;
	const char *text = rec_text(&r->head, &len);

	if (texts_add(&p->names, r->hash, text, len))
		return;
	if (can_forget(p)) {
		forget_names(p);
		if (texts_add(&p->names, r->hash, text, len))
			return;
	}
	if (!p->names.refused)
		log_warn("process %u has reported more than %u names: further ones are \"…other\"",
			 p->pid, NAMES_MAX);
	p->names.refused++;
}

/* --- what the monitor says --- */

static struct open_window *find_window(struct process *p, uint64_t id)
{
	struct open_window *f = p->windows;

	while (f && f->w.id != id)
		f = f->next;
	return f;
}

static void add_request(struct process *p, const char *text, size_t len)
{
	if (p->request.len + len > MAX_REQUEST_BYTES)
		p->request_too_long = true;
	else
		buf_add(&p->request, text, len);
}

/* A piece that is not full is the last one of its text. */
static void add_groups(struct process *p, const char *text, size_t len)
{
	if (p->groups_whole)
		buf_clear(&p->groups);
	p->groups_whole = len < REC_MAX_TEXT;
	if (p->groups.len + len <= MAX_GROUPS_BYTES)
		buf_add(&p->groups, text, len);
}

/* The process says what its environment says; its process group counts more, and may be all that
 * there is. */
static int32_t rank_of(const struct process *p, int32_t said)
{
	struct process_rank found;

	if (!p->shown_pid)
		return said;
	process_rank_find((pid_t)p->shown_pid, &found);
	return found.source == RANK_FROM_GROUP ? found.rank : said;
}

static void start_window(struct activities *a, struct process *p, const struct rec_monitor *r)
{
	struct open_window *old = find_window(p, r->window);
	struct window w = {
		.proc = p->number,
		.pid = p->pid,
		.shown_pid = p->shown_pid,
		.process = &p->frame,
		.rank = rank_of(p, r->rank),
		.id = r->window,
		.start_ns = wall_of(r->head.time_ns, a->wall_minus_mono_ns),
		.since_ns = wall_of(r->value ? r->value : r->head.time_ns, a->wall_minus_mono_ns),
		.wall_minus_mono_ns = a->wall_minus_mono_ns,
		.names = &p->names,
		.seen = &a->seen,
		.written = r->value && p->ahead.len ? p->seen_before : a->seen,
	};

	if (old)
		process_close_window(p, old, true);
	if (!p->request_too_long && p->nwindows < MAX_WINDOWS) {
		process_open_window(p, &w);
		process_replay_ahead(p, r->value != 0);
		return;
	}
	if (!p->refused++)
		log_err("process %u: a window is not opened: its request has more than %u bytes, "
			"or %u are open",
			p->pid, MAX_REQUEST_BYTES, MAX_WINDOWS);
}

static void on_lost(struct process *p, const struct rec_monitor *r)
{
	for (struct open_window *f = p->windows; f; f = f->next)
		if (!r->window || f->w.id == r->window)
			f->w.lost += r->value;
}

/* Those of another trace are none of a trace's business; a monitor takes what it can get. */
static void on_step(struct process *p, const struct rec_monitor *r)
{
	for (struct open_window *f = p->windows; f; f = f->next) {
		uint64_t ns = wall_of(r->head.time_ns, f->w.wall_minus_mono_ns);

		if (f->top)
			top_step(f->top, ns);
		else if (!f->failed && f->w.ops->step && (!r->window || f->w.id == r->window))
			f->w.ops->step(&f->w, r->value, ns);
	}
}

static void on_monitor(struct activities *a, struct process *p, const struct rec_monitor *r)
{
	struct open_window *f = find_window(p, r->window);
	const struct window_ops *ops = f && !f->failed ? f->w.ops : &(struct window_ops){0};
	size_t len;
	const char *text = rec_text(&r->head, &len);

	switch (r->kind) {
	case MONITOR_REQUEST:
		add_request(p, text, len);
		return;
	case MONITOR_GROUPS:
		add_groups(p, text, len);
		return;
	case MONITOR_START:
	case MONITOR_CHANGE:
		add_request(p, text, len);
		if (r->kind == MONITOR_START)
			start_window(a, p, r);
		else if (f && !p->request_too_long)
			process_change_window(p, f);
		settle_attribution(a, p);
		buf_clear(&p->request);
		p->request_too_long = false;
		p->groups_whole = true;
		return;
	case MONITOR_STOP:
		if (len)
			add_groups(p, text, len);
		p->groups_whole = true;
		deliver_held(a, p, UINT64_MAX);
		if (f)
			process_close_window(p, f, false);
		settle_attribution(a, p);
		return;
	case MONITOR_LOST:
		on_lost(p, r);
		return;
	case MONITOR_STEP:
		on_step(p, r);
		return;
	case MONITOR_NOTE:
		if (ops->note)
			ops->note(&f->w, text, len);
		return;
	case MONITOR_END:
		if (ops->end)
			ops->end(&f->w, wall_of(r->head.time_ns, f->w.wall_minus_mono_ns));
		return;
	}
}

/* --- the stream --- */

static void on_session(void *arg, const char *json, size_t len)
{
	struct activities *a = arg;
	json_error_t why;
	json_t *root = json_loadb(json, len, 0, &why);

	if (json_is_integer(json_object_get(root, "wallMinusMono")))
		a->wall_minus_mono_ns = json_integer_value(json_object_get(root, "wallMinusMono"));
	json_decref(root);
}

static void on_proc(void *arg, const struct frame_proc *frame)
{
	struct activities *a = arg;
	struct process *old = find_proc(a, frame->proc);

	if (old)
		forget_proc(a, old);
	struct process *p = xcalloc(1, sizeof(*p));
	p->number = frame->proc;
	p->pid = frame->pid;
	p->frame = *frame;
	p->shown_pid = a->reader ? 0 : frame->shown_pid;
	p->groups_whole = true;
	p->senders = a->senders;
	p->reader = a->reader;
	p->reader_arg = a->reader_arg;
	p->next = a->first;
	a->first = p;
	hmap_put_ptr(&a->procs, p->number, p);
}

/* Places in Python code are reported once: a trace that begins later needs them, too. */
static void keep_place(struct process *p, const struct rec *r)
{
	if (p->places.len + r->size <= MAX_PLACES_BYTES)
		buf_add(&p->places, r, r->size);
}

static void on_attribution(struct process *p, uint32_t tid, const struct rec *r)
{
	if (!p->attribution)
		return;
	if (r->type == REC_WORK)
		attribution_work(p->attribution, tid, (const struct rec_work *)r, &p->names);
	else
		attribution_launch(p->attribution, (const struct rec_launch *)r);
}

static void on_record(void *arg, uint32_t proc, uint32_t tid, const struct rec *r)
{
	struct activities *a = arg;
	struct process *p = find_proc(a, proc);

	if (!p)
		return;
	if (r->type == REC_ACTIVITY) {
		if (p->windows)
			on_activity(a, p, (const struct rec_activity *)r);
		else
			process_keep_ahead(p, r, a->seen++);
		return;
	}
	if (r->type == REC_WORK || r->type == REC_LAUNCH) {
		on_attribution(p, tid, r);
		return;
	}
	if (r->type == REC_MONITOR) {
		on_monitor(a, p, (const struct rec_monitor *)r);
		return;
	}
	if (r->type == REC_NAME)
		on_name(p, (const struct rec_name *)r);
	else if (r->type == REC_PYTHON)
		keep_place(p, r);
	if (r->type == REC_PYTHON && p->attribution)
		attribution_place(p->attribution, (const struct rec_python *)r);
	for (struct open_window *f = p->windows; f; f = f->next)
		if (!f->failed && f->w.ops->record)
			f->w.ops->record(&f->w, tid, r);
}

/* A guest may take a loss back: it has found room after all. */
static void set_lost(struct process *p, uint64_t lost)
{
	for (struct open_window *f = p->windows; f; f = f->next)
		if (lost >= p->lost)
			f->w.lost += lost - p->lost;
		else
			f->w.lost -= f->w.lost < p->lost - lost ? f->w.lost : p->lost - lost;
	p->lost = lost;
}

/* Events of a process are lost while it runs: to every window that is open then. */
static void on_count(void *arg, const struct batch_count *c)
{
	struct process *p = find_proc(arg, c->head.proc);

	if (!p)
		return;
	p->counted = true;
	set_lost(p, c->lost_events);
}

static void on_proc_end(void *arg, const struct frame_proc_end *e)
{
	struct activities *a = arg;
	struct process *p = find_proc(a, e->proc);

	if (!p)
		return;
	/* Of one that was counted it has nothing new but what the recording, not we, did not get. */
	if (!p->counted)
		set_lost(p, e->lost_events);
	forget_proc(a, p);
}

static void on_end(void *arg)
{
	activities_flush(arg);
}

const struct stream_ops activities_stream = {
	.session = on_session,
	.proc = on_proc,
	.record = on_record,
	.count = on_count,
	.proc_end = on_proc_end,
	.end = on_end,
};

void activities_tick(struct activities *a, uint64_t now_ns)
{
	for (struct process *p = a->first; p; p = p->next) {
		if (p->held.len)
			deliver_held(a, p, now_ns > HELD_NS ? now_ns - HELD_NS : 0);
		for (struct open_window *f = p->windows; f; f = f->next) {
			if (!f->failed && f->w.ops->tick)
				f->w.ops->tick(&f->w, now_ns);
			if (f->top)
				top_tick(f->top, now_ns, f->w.to);
		}
	}
	senders_tick(a->senders, now_ns);
}

/* What waits for its window is in no file: it is lost with the recorder. */
uint64_t activities_written(const struct activities *a)
{
	uint64_t least = a->seen;

	for (const struct process *p = a->first; p; p = p->next) {
		least = p->ahead.len && p->seen_before < least ? p->seen_before : least;
		for (const struct open_window *f = p->windows; f; f = f->next)
			if (!f->failed && f->w.written < least)
				least = f->w.written;
	}
	return least;
}

void activities_flush(struct activities *a)
{
	for (struct process *p = a->first; p; p = p->next)
		for (struct open_window *f = p->windows; f; f = f->next)
			if (!f->failed && f->w.ops->flush)
				f->w.ops->flush(&f->w);
	if (a->senders)
		senders_flush(a->senders, FLUSH_NS);
}
