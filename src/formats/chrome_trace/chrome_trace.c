/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "formats/chrome_trace/chrome_trace.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/text/text.h"
#include "formats/chrome_trace/chrome_trace_impl.h"
#include "formats/json_value.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GZIP_WAIT_NS 1000000000u /* between members that are smaller than a batch */

int chrome_trace_new(const struct chrome_trace_options *o, struct chrome_trace **out,
		     struct err *err)
{
	if (chrome_file_in_use(o->path))
		return err_set(err, -EBUSY,
			       "'%s' is being written by another process; choose another file",
			       o->path);
	struct chrome_trace *t = xcalloc(1, sizeof(*t));
	int r = chrome_file_open(&t->file, o->path, o, 0, err);

	if (r == 0)
		r = chrome_file_publish(&t->file, err);
	if (r < 0) {
		chrome_file_release(&t->file);
		free(t);
		return r;
	}
	t->o = *o;
	t->o.path = NULL; /* the file knows it */
	t->o.other_json = o->other_json ? xstrdup(o->other_json) : NULL;
	t->begun_ns = t->written_ns = clock_mono_ns();
	if (o->rotate_bytes || o->rotate_ns)
		t->number = chrome_rotate_next_number(t->file.path);
	*out = t;
	return 0;
}

int chrome_trace_write(struct chrome_trace *t, struct err *err)
{
	/* A file that was cut is not written to: it would get a hole. The next flush begins anew.
	 */
	t->cut = t->cut || chrome_file_taken(&t->file) == CHROME_CUT;
	if (t->cut) {
		buf_clear(&t->pending);
		return 0;
	}
	int r = t->pending.len ? chrome_file_write(&t->file, &t->pending, err) : 0;

	t->failing = r < 0;
	if (r < 0)
		return r;
	buf_clear(&t->pending);
	t->written_ns = clock_mono_ns();
	return 0;
}

static bool is_worth_a_member(const struct chrome_trace *t)
{
	return t->pending.len >= CHROME_BATCH || clock_mono_ns() - t->written_ns >= GZIP_WAIT_NS;
}

int chrome_trace_flush(struct chrome_trace *t, struct err *err)
{
	int r = chrome_file_publish(&t->file, err); /* a rotation may have failed to */

	if (r == 0)
		r = chrome_begin_anew(t, err);
	if (r < 0)
		return r;
	if (!t->file.gzip || t->failing || is_worth_a_member(t))
		r = chrome_trace_write(t, err);
	if (r == 0 && chrome_rotate_due(t))
		r = chrome_rotate(t, err);
	return r;
}

uint64_t chrome_trace_events(const struct chrome_trace *t)
{
	return t->events;
}

uint64_t chrome_trace_bytes(const struct chrome_trace *t)
{
	return t->file.end + t->pending.len;
}

/* The first failure is the one that is reported. */
static void keep_first_error(int *r, int more, struct err *err, const struct err *words)
{
	if (more < 0 && *r == 0) {
		*r = more;
		if (err)
			*err = *words;
	}
}

void chrome_trace_members(const struct chrome_trace *t, struct buf *out)
{
	if (t->o.other_json)
		buf_add_str(out, t->o.other_json);
	if (!t->o.add_members)
		return;
	if (out->len)
		buf_add_char(out, ',');
	t->o.add_members(t->o.arg, out);
}

int chrome_trace_complete(struct chrome_trace *t, struct err *err)
{
	const char *other = t->o.other_json;
	struct buf members = {0};
	int r = 0;

	chrome_trace_members(t, &members);
	if (t->file.gzip || members.len <= CHROME_OTHER_MAX) {
		r = chrome_file_complete(&t->file, buf_str(&members), err);
		buf_release(&members);
		return r;
	}
	buf_release(&members);
	r = chrome_trace_replace(t, err);
	if (r == 0)
		return 0;
	/* No room for two: better without them than not at all. */
	if (other && strlen(other) > CHROME_OTHER_MAX)
		other = NULL;
	chrome_file_complete(&t->file, other, NULL);
	return r;
}

int chrome_trace_close(struct chrome_trace *t, struct err *err)
{
	struct err words;
	int r = 0;

	if (!t)
		return 0;
	keep_first_error(&r, chrome_file_publish(&t->file, &words), err, &words);
	keep_first_error(&r, chrome_begin_anew(t, &words), err, &words);
	keep_first_error(&r, chrome_trace_write(t, &words), err, &words);
	keep_first_error(&r, chrome_trace_complete(t, &words), err, &words);
	keep_first_error(&r, chrome_file_sync(&t->file, &words), err, &words);
	keep_first_error(&r, chrome_trace_copy_wait(t, &words), err, &words);
	if (r == 0 && t->lost)
		r = err_set(err, -ENOSPC, "%llu events could not be written to '%s'",
			    (unsigned long long)t->lost, t->file.path);
	chrome_file_release(&t->file);
	buf_release(&t->pending);
	buf_release(&t->scratch);
	free((char *)(uintptr_t)t->o.other_json);
	free(t);
	return r;
}

/*
 * Events as text, put together by hand: a few hundred of nanoseconds each, because a timeline has
 * millions. An event is made where it will lie in the buffer; only if it would cross a page of the
 * file it is moved behind the blanks that fill it.
 */

#define INSTANT_CATEGORY "cpu_instant_event" /* as PyTorch's profiler has it */
#define FLOW_CATEGORY "ac2g" /* as PyTorch's profiler calls arrows from calls to kernels */
#define NAME_MAX_BYTES 2048 /* half a page: names of templates differ at their end */
#define TEXT_MAX_BYTES 400
#define KEY_MAX_BYTES 56
#define ARG_MAX_BYTES (TEXT_MAX_BYTES + KEY_MAX_BYTES + 24) /* with punctuation */
#define CLOSING_BYTES 2 /* what must still fit into the page behind an event */

#define PUT(p, literal) put_bytes(p, literal, sizeof(literal) - 1)

struct event {
	char phase;
	bool timed;
	int64_t ts_ns;
	int64_t dur_ns; /* phase X */
	int64_t pid, tid;
	const char *name;
	const char *category; /* NULL: none */
	const char *id;
};

static char *put_i64(char *p, int64_t v)
{
	if (v < 0)
		*p++ = '-';
	return put_u64(p, v < 0 ? -(uint64_t)v : (uint64_t)v);
}

/* Nanoseconds as microseconds with three digits behind the point. */
static char *put_us(char *p, int64_t ns)
{
	uint64_t v = ns < 0 ? -(uint64_t)ns : (uint64_t)ns;
	unsigned rest = (unsigned)(v % 1000);

	if (ns < 0)
		*p++ = '-';
	p = put_u64(p, v / 1000);
	*p++ = '.';
	*p++ = (char)('0' + rest / 100);
	*p++ = (char)('0' + rest / 10 % 10);
	*p++ = (char)('0' + rest % 10);
	return p;
}

static char *put_float(char *p, double v)
{
	/* Whole numbers as such: bytes of memory need all their digits. */
	if (v == floor(v) && fabs(v) < 9e15)
		return put_i64(p, (int64_t)v);
	return p + snprintf(p, 32, "%.15g", v);
}

static bool is_written(const struct chrome_arg *a)
{
	return a->type == CHROME_TEXT ? a->text != NULL : a->type == CHROME_INT || isfinite(a->f);
}

static char *put_args(char *p, const char *end, const struct chrome_arg *args, unsigned n,
		      struct buf *scratch)
{
	bool some = false;

	p = PUT(p, ",\"args\":{");
	for (unsigned i = 0; i < n; i++) {
		const struct chrome_arg *a = &args[i];

		if (!is_written(a) || p + ARG_MAX_BYTES > end)
			continue;
		if (some)
			*p++ = ',';
		some = true;
		p = put_json_text(p, a->key, KEY_MAX_BYTES, scratch);
		*p++ = ':';
		if (a->type == CHROME_TEXT)
			p = put_json_text(p, a->text, TEXT_MAX_BYTES, scratch);
		else if (a->type == CHROME_INT)
			p = put_i64(p, a->i);
		else
			p = put_float(p, a->f);
	}
	*p++ = '}';
	return p;
}

static char *put_event(char *p, const char *end, const struct event *e,
		       const struct chrome_arg *args, unsigned n, struct buf *scratch)
{
	p = PUT(p, "{\"name\":");
	p = put_json_text(p, e->name, NAME_MAX_BYTES, scratch);
	p = PUT(p, ",\"ph\":\"");
	*p++ = e->phase;
	*p++ = '"';
	if (e->timed) {
		p = PUT(p, ",\"ts\":");
		p = put_us(p, e->ts_ns);
	}
	if (e->phase == 'X') {
		p = PUT(p, ",\"dur\":");
		p = put_us(p, e->dur_ns);
	}
	if (e->phase == 'i')
		p = PUT(p, ",\"s\":\"t\"");
	if (e->category) {
		p = PUT(p, ",\"cat\":");
		p = put_json_text(p, e->category, 64, scratch);
	}
	if (e->phase == 'f')
		p = PUT(p, ",\"bp\":\"e\"");
	p = PUT(p, ",\"pid\":");
	p = put_i64(p, e->pid);
	p = PUT(p, ",\"tid\":");
	p = put_i64(p, e->tid);
	if (e->id) {
		p = PUT(p, ",\"id\":");
		p = put_json_text(p, e->id, 64, scratch);
	}
	if (n)
		p = put_args(p, end, args, n, scratch);
	*p++ = '}';
	return p;
}

/* Fills the page with blanks where the event at the end of the buffer would cross it. */
static void keep_in_page(struct chrome_trace *t, size_t n)
{
	struct buf *b = &t->pending;
	size_t room = CHROME_PAGE - (t->file.end + b->len) % CHROME_PAGE;

	if (n + CLOSING_BYTES <= room)
		return;
	memmove(b->data + b->len + room, b->data + b->len, n);
	memset(b->data + b->len, ' ', room);
	b->len += room;
}

static void add_event(struct chrome_trace *t, const struct event *e, const struct chrome_arg *args,
		      unsigned n)
{
	if (t->pending.len > CHROME_PENDING_MAX) {
		t->lost++;
		return;
	}
	char *start = buf_room(&t->pending, CHROME_PAGE + CHROME_EVENT_MAX + CLOSING_BYTES);
	char *p = start;

	if (t->file.has_events)
		*p++ = ',';
	*p++ = '\n';
	p = put_event(p, start + CHROME_EVENT_MAX - 8, e, args, n, &t->scratch);
	size_t len = (size_t)(p - start);
	if (!t->file.gzip)
		keep_in_page(t, len);
	t->pending.len += len;
	t->file.has_events = true;
	t->events++;
	/* Its failure is reported by the next flush, which tries again. */
	if (t->pending.len >= CHROME_BATCH && !t->failing)
		chrome_trace_write(t, NULL);
}

static void add_timed(struct chrome_trace *t, char phase, int64_t ts_ns, int64_t pid, int64_t tid,
		      const char *category, const char *name, const struct chrome_arg *args,
		      unsigned n)
{
	struct event e = {.phase = phase,
			  .category = category,
			  .timed = true,
			  .ts_ns = ts_ns,
			  .pid = pid,
			  .tid = tid,
			  .name = name};

	add_event(t, &e, args, n);
}

void chrome_begin(struct chrome_trace *t, int64_t ts_ns, int64_t pid, int64_t tid,
		  const char *category, const char *name, const struct chrome_arg *args, unsigned n)
{
	add_timed(t, 'B', ts_ns, pid, tid, category, name, args, n);
}

void chrome_end(struct chrome_trace *t, int64_t ts_ns, int64_t pid, int64_t tid, const char *name,
		const struct chrome_arg *args, unsigned n)
{
	add_timed(t, 'E', ts_ns, pid, tid, NULL, name, args, n);
}

void chrome_complete(struct chrome_trace *t, int64_t ts_ns, int64_t dur_ns, int64_t pid,
		     int64_t tid, const char *category, const char *name,
		     const struct chrome_arg *args, unsigned n)
{
	struct event e = {.phase = 'X',
			  .category = category,
			  .timed = true,
			  .ts_ns = ts_ns,
			  .dur_ns = dur_ns,
			  .pid = pid,
			  .tid = tid,
			  .name = name};

	add_event(t, &e, args, n);
}

void chrome_instant(struct chrome_trace *t, int64_t ts_ns, int64_t pid, int64_t tid,
		    const char *name, const struct chrome_arg *args, unsigned n)
{
	add_timed(t, 'i', ts_ns, pid, tid, INSTANT_CATEGORY, name, args, n);
}

void chrome_flow(struct chrome_trace *t, bool end, int64_t ts_ns, int64_t pid, int64_t tid,
		 const char *name, uint64_t id)
{
	char text[PUT_U64_MAX + 1];
	struct event e = {.phase = end ? 'f' : 's',
			  .category = FLOW_CATEGORY,
			  .timed = true,
			  .ts_ns = ts_ns,
			  .pid = pid,
			  .tid = tid,
			  .name = name,
			  .id = text};

	*put_u64(text, id) = '\0';
	add_event(t, &e, NULL, 0);
}

void chrome_counter(struct chrome_trace *t, int64_t ts_ns, int64_t pid, const char *name,
		    const char *id, const struct chrome_arg *args, unsigned n)
{
	struct event e = {
		.phase = 'C', .timed = true, .ts_ns = ts_ns, .pid = pid, .name = name, .id = id};

	add_event(t, &e, args, n);
}

void chrome_meta(struct chrome_trace *t, int64_t pid, int64_t tid, const char *what,
		 const struct chrome_arg *args, unsigned n)
{
	struct event e = {.phase = 'M', .pid = pid, .tid = tid, .name = what};

	add_event(t, &e, args, n);
}
