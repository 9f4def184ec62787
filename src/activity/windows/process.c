/* SPDX-License-Identifier: MulanPSL-2.0 */
#define LOG_AREA "activity"
#include "activity/windows/process.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/text/text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAX_AHEAD_BYTES (4u << 20)
#define ABSURD_NS (600 * 1000000000ull) /* nothing is reported so long before it ends */

/* --- life --- */

/* Reads the request; points into the text of the window. */
static int read_request(struct window *w, struct err *err)
{
	const char *wrong;

	w->kind = request_kind(w->text, w->text_len);
	if (w->kind == REQUEST_MONITOR)
		wrong = monitor_request_read(w->text, w->text_len, &w->monitor);
	else if (w->kind == REQUEST_TRACE)
		wrong = trace_request_read(w->text, w->text_len, &w->trace);
	else
		return err_set(err, -EINVAL,
			       "the request is neither for a monitor nor for a trace");
	if (wrong)
		return err_set(err, -EINVAL, "its request has no good value for %s", wrong);
	return 0;
}

static void set_text(struct window *w, const struct buf *request)
{
	w->text = xstrndup(request->len ? request->data : "", request->len);
	w->text_len = request->len;
}

static const struct window_ops *find_ops(const struct window *w)
{
	if (w->kind == REQUEST_TRACE)
		return &window_trace;
	if (w->monitor.record)
		return &window_recorded;
	return w->monitor.format == REQUEST_METRICS ? &window_metrics : &window_file;
}

/* What it wants of what comes. A trace sorts out by itself. */
static void set_filter(struct open_window *f)
{
	bool trace = f->w.kind == REQUEST_TRACE;

	f->attributes = trace ? f->w.trace.attribute : f->w.monitor.attribute;
	f->kinds = trace ? UINT32_MAX : f->w.monitor.kinds;
	f->filter = trace ? (struct request_text){"", 0} : f->w.monitor.filter;
	open_window_reset_filter(f);
}

/* Where it is sent stays if the daemon that a change names cannot be reached. */
static void set_daemon(const struct process *p, struct window *w)
{
	struct sender *to = senders_find(p->senders, &w->monitor.daemon);

	if (to)
		w->to = to;
}

static void set_groups(struct process *p, struct window *w)
{
	struct buf scratch = {0};
	size_t len = p->groups.len;

	free(w->groups);
	w->groups = NULL;
	if (!len)
		return;
	const char *text = text_clean(p->groups.data, &len, &scratch);
	w->groups = xstrndup(text, len);
	buf_release(&scratch);
}

static void replay_places(const struct process *p, struct window *w)
{
	for (size_t at = 0; at < p->places.len;) {
		const struct rec *r = (const struct rec *)(p->places.data + at);

		w->ops->record(w, 0, r);
		at += r->size;
	}
}

void process_open_window(struct process *p, const struct window *w)
{
	struct open_window *f = xcalloc(1, sizeof(*f));
	struct err err = {0};

	f->w = *w;
	set_text(&f->w, &p->request);
	set_groups(p, &f->w);
	f->next = p->windows;
	p->windows = f;
	p->nwindows++;
	int r = read_request(&f->w, &err);
	if (r == 0 && p->reader && !f->w.monitor.record)
		r = -ENOTSUP;
	if (r == 0) {
		f->w.ops = p->reader ? p->reader : find_ops(&f->w);
		f->w.state = p->reader_arg;
		set_filter(f);
		r = f->w.ops->open(&f->w, &err);
	}
	if (r == 0 && f->w.kind == REQUEST_MONITOR && !p->reader) {
		set_daemon(p, &f->w);
		f->top = top_new(&f->w);
	}
	f->failed = r < 0;
	if (!f->failed && f->w.ops->record)
		replay_places(p, &f->w);
	if (f->failed && !p->reader && !p->refused++)
		log_err("process %u: a window of its monitor writes nothing: %s", p->pid, err.text);
}

void process_change_window(struct process *p, struct open_window *f)
{
	struct window next = f->w;
	struct err err = {0};

	if (f->failed || f->w.kind != REQUEST_MONITOR)
		return;
	set_text(&next, &p->request);
	int r = read_request(&next, &err);
	if (r == 0 && next.kind != REQUEST_MONITOR)
		r = err_set(&err, -EINVAL, "its request is for something else");
	if (r < 0) {
		if (!p->unread++)
			log_err("process %u: its monitor goes on as before: %s", p->pid, err.text);
		free(next.text);
		return;
	}
	if (!next.monitor.interval_s)
		next.monitor.interval_s = f->w.monitor.interval_s;
	free(f->w.text);
	f->w = next;
	if (!p->reader)
		set_daemon(p, &f->w);
	set_filter(f);
	if (f->w.ops->change)
		f->w.ops->change(&f->w);
}

static void log_counts(const struct open_window *f)
{
	log_info("process %u, window %llu: %llu activities; not wanted %llu, filtered %llu, before "
		 "it began %llu, with impossible times %llu, incomplete marks %llu, lost %llu",
		 f->w.pid, (unsigned long long)f->w.id, (unsigned long long)f->received,
		 (unsigned long long)f->unwanted, (unsigned long long)f->filtered,
		 (unsigned long long)f->early, (unsigned long long)(f->absurd + f->marks.malformed),
		 (unsigned long long)f->marks.dropped, (unsigned long long)f->w.lost);
}

void process_close_window(struct process *p, struct open_window *f, bool killed)
{
	struct open_window **at = &p->windows;

	while (*at != f)
		at = &(*at)->next;
	*at = f->next;
	p->nwindows--;
	f->w.killed = killed;
	marks_clear(&f->marks);
	f->w.incomplete = f->marks.dropped + f->marks.malformed;
	if (!f->failed) {
		set_groups(p, &f->w);
		f->w.ops->close(&f->w);
		if (f->top)
			top_end(f->top, clock_mono_ns(), f->w.to);
		top_free(f->top);
	}
	if (!p->reader)
		log_counts(f);
	marks_release(&f->marks);
	open_window_reset_filter(f);
	free(f->w.text);
	free(f->w.groups);
	free(f);
}

/* --- the filter --- */

void open_window_reset_filter(struct open_window *f)
{
	for (uint32_t i = 0; i < ACTIVITY_KIND_END; i++) {
		free(f->answers[i].by_id);
		f->answers[i] = (struct filter_answers){0};
	}
}

static bool ask_filter(struct open_window *f, uint8_t kind, const struct name *name)
{
	struct filter_answers *a = &f->answers[kind];

	if (name->id >= a->n) {
		size_t old = a->n;

		a->by_id = xgrow(a->by_id, &a->n, name->id + 1u, 1);
		memset(a->by_id + old, FILTER_UNKNOWN, a->n - old);
	}
	bool keep = request_filter(&f->filter, kind, name->text, name->len);
	a->by_id[name->id] = keep ? FILTER_KEEP : FILTER_DROP;
	return keep;
}

static inline bool passes_filter(struct open_window *f, uint8_t kind, const struct name *name)
{
	const struct filter_answers *a = &f->answers[kind];

	if (!f->filter.len)
		return true;
	if (name->id < a->n && a->by_id[name->id] != FILTER_UNKNOWN)
		return a->by_id[name->id] == FILTER_KEEP;
	return ask_filter(f, kind, name);
}

/* --- activities --- */

/* False: these are no times at all. What the vendor did not fill in is 0. */
static inline bool set_times(struct open_window *f, const struct rec_activity *r,
			     struct activity *a)
{
	if (r->end_ns > r->head.time_ns + ABSURD_NS || r->end_ns > INT64_MAX)
		return false;
	a->end_ns = wall_of(r->end_ns, f->w.wall_minus_mono_ns);
	a->start_ns = r->start_ns && r->start_ns < r->end_ns
			      ? wall_of(r->start_ns, f->w.wall_minus_mono_ns)
			      : a->end_ns;
	return true;
}

static inline void set_place(const struct rec_activity *r, struct activity *a)
{
	bool host = r->place == ACTIVITY_ON_HOST;

	a->place = r->place;
	a->pid = host ? r->where[0] : 0;
	a->tid = host ? r->where[1] : 0;
	a->device = host ? ACTIVITY_NOWHERE : r->where[0];
	a->stream = host ? ACTIVITY_NOWHERE : r->where[1];
}

static void write_activity(struct open_window *f, const struct activity *a)
{
	if (f->top)
		top_add(f->top, a);
	f->w.ops->activity(&f->w, a);
}

/* A range or an instant that is complete. */
static void on_mark(void *arg, const struct activity *a)
{
	struct open_window *f = arg;

	if (a->end_ns < f->w.since_ns)
		f->early++;
	else
		write_activity(f, a);
}

static void add_mark(struct open_window *f, const struct rec_activity *r, struct activity *a,
		     const struct name *name)
{
	bool opens = mark_opens(a), keep = true;

	if (opens)
		keep = passes_filter(f, ACTIVITY_MARKER, name);
	if (!keep)
		f->filtered++;
	a->start_ns = a->end_ns;
	if (opens && !r->detail)
		a->detail = f->w.names->domain->text;
	marks_add(&f->marks, a, keep, on_mark, f);
	f->w.incomplete = f->marks.dropped + f->marks.malformed;
}

void open_window_add(struct open_window *f, const struct rec_activity *r,
		     const struct activity_owner *owner)
{
	struct texts *names = f->w.names;
	struct activity a;

	if (f->failed || !f->w.ops->activity)
		return;
	f->received++;
	if (!activity_kind_name(r->kind) || !(f->kinds & ACTIVITY_BIT(r->kind)) ||
	    r->place > ACTIVITY_ON_DEVICE) {
		f->unwanted++;
		return;
	}
	if (!set_times(f, r, &a)) {
		f->absurd++;
		return;
	}
	const struct name *name = texts_find(names, r->name);
	a.name = name->text;
	a.detail = texts_find(names, r->detail)->text;
	a.more = "";
	a.number = r->more;
	a.correlation = r->correlation;
	a.amount = r->amount;
	a.kind = r->kind;
	a.flag = r->flag;
	a.async = r->async;
	a.data_type = r->data_type;
	a.attributed = f->attributes && r->place == ACTIVITY_ON_DEVICE;
	a.owner = f->attributes ? owner : NULL;
	set_place(r, &a);
	if (r->kind == ACTIVITY_COMMUNICATION) {
		a.more = texts_find(names, r->more)->text;
		a.number = 0;
	}
	if (r->kind == ACTIVITY_MARKER)
		add_mark(f, r, &a, name);
	else if (a.end_ns < f->w.since_ns)
		f->early++;
	else if (!passes_filter(f, r->kind, name))
		f->filtered++;
	else
		write_activity(f, &a);
}

/* --- before its window --- */

void process_keep_ahead(struct process *p, const struct rec *r, uint64_t seen)
{
	if (!p->ahead.len)
		p->seen_before = seen;
	if (p->ahead.len + r->size <= MAX_AHEAD_BYTES)
		buf_add(&p->ahead, r, r->size);
	else
		p->too_many_ahead++;
}

void process_replay_ahead(struct process *p, bool goes_on)
{
	struct open_window *f = p->windows;

	for (size_t at = 0; goes_on && at < p->ahead.len;) {
		const struct rec *r = (const struct rec *)(p->ahead.data + at);
		open_window_add(f, (const struct rec_activity *)r, NULL);
		at += r->size;
	}
	if (goes_on)
		f->w.lost += p->too_many_ahead;
	buf_release(&p->ahead);
	p->ahead = (struct buf){0};
	p->too_many_ahead = 0;
}
