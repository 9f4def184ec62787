/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Only brackets and strings are looked at. In an object events are the objects at depth 2 below the key
 * "traceEvents"; in an array those at depth 1.
 */
#include "formats/chrome_trace/scan.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/containers/buf.h"

#define CHUNK (256u << 10)

enum taken { TAKE_NOTHING, TAKE_EVENT, TAKE_KEY, TAKE_MEMBER };

struct scan {
	const struct chrome_scan_sink *sink;
	struct chrome_scan_result *out;
	bool array; /* the file is an array of events */
	bool in_string, escaped, in_events, key_done;
	unsigned depth;
	enum taken taking;
	struct buf text, key; /* what is taken now; the key before it */
	uint64_t offset, start; /* of the byte that is read; of the text that is taken */
	bool too_long;
};

static void take_from(struct scan *s, enum taken what)
{
	s->taking = what;
	s->start = s->offset;
	s->too_long = false;
	buf_clear(&s->text);
}

static void take_byte(struct scan *s, char c)
{
	if (s->taking == TAKE_NOTHING)
		return;
	if (s->text.len < CHROME_SCAN_EVENT_BYTES)
		buf_add_char(&s->text, c);
	else
		s->too_long = true;
}

static int end_taking(struct scan *s)
{
	enum taken what = s->taking;

	s->taking = TAKE_NOTHING;
	s->out->skipped += what == TAKE_EVENT && s->too_long;
	if (s->too_long)
		return 0;
	if (what == TAKE_EVENT) {
		s->out->events++;
		return s->sink->event(s->sink->arg, s->start, s->text.data, s->text.len);
	}
	if (what == TAKE_MEMBER && s->sink->member)
		return s->sink->member(s->sink->arg, s->key.data, s->key.len, s->text.data,
				       s->text.len);
	return 0;
}

static void end_key(struct scan *s)
{
	buf_clear(&s->key);
	if (s->text.len > 1)
		buf_add(&s->key, s->text.data + 1, s->text.len - 1); /* without its quote */
	s->taking = TAKE_NOTHING;
	s->key_done = true;
}

static int read_string_byte(struct scan *s, char c)
{
	if (!s->escaped && c == '"') {
		s->in_string = false;
		if (s->taking == TAKE_KEY) {
			end_key(s);
			return 0;
		}
	}
	s->escaped = !s->escaped && c == '\\';
	take_byte(s, c);
	return 0;
}

static bool is_event_depth(const struct scan *s)
{
	return s->array ? s->depth == 1 : s->in_events && s->depth == 2;
}

static int open_bracket(struct scan *s, char c)
{
	if (!s->depth)
		s->array = c == '[';
	if (c == '{' && is_event_depth(s))
		take_from(s, TAKE_EVENT);
	if (!s->array && s->depth == 1 && c == '[' && s->key.len == 11 &&
	    !memcmp(s->key.data, "traceEvents", 11)) {
		s->in_events = true;
		s->taking = TAKE_NOTHING;
	}
	s->depth++;
	take_byte(s, c);
	return s->depth > 1000 ? -EBADMSG : 0;
}

static int close_bracket(struct scan *s, char c)
{
	int r = 0;

	if (!s->depth)
		return -EBADMSG;
	s->depth--;
	if (!s->array && !s->depth)
		r = end_taking(s);
	take_byte(s, c);
	if (s->taking == TAKE_EVENT && is_event_depth(s))
		r = end_taking(s);
	if (s->in_events && s->depth == 1)
		s->in_events = false;
	return r;
}

/* A byte outside of strings. */
static int read_byte(struct scan *s, char c)
{
	bool top = !s->array && s->depth == 1;

	switch (c) {
	case '"':
		if (top && s->taking == TAKE_NOTHING && !s->key_done)
			take_from(s, TAKE_KEY);
		s->in_string = true;
		break;
	case '{':
	case '[':
		return open_bracket(s, c);
	case '}':
	case ']':
		return close_bracket(s, c);
	case ':':
		if (top && s->key_done) {
			take_from(s, TAKE_MEMBER);
			return 0;
		}
		break;
	case ',':
		if (top) {
			s->key_done = false;
			return end_taking(s);
		}
		break;
	default:
		if (!s->depth && !strchr(" \t\r\n", c))
			return -EBADMSG;
	}
	take_byte(s, c);
	return 0;
}

static int read_chunk(struct scan *s, const char *data, size_t n)
{
	int r = 0;

	for (size_t i = 0; i < n && r == 0; i++, s->offset++)
		r = s->in_string ? read_string_byte(s, data[i]) : read_byte(s, data[i]);
	return r;
}

int chrome_scan(int fd, const struct chrome_scan_sink *sink, struct chrome_scan_result *out,
		struct err *err)
{
	struct scan s = {.sink = sink, .out = out};
	struct buf chunk = {0};
	ssize_t n;
	int r = 0;

	*out = (struct chrome_scan_result){0};
	while (r == 0 && (n = read(fd, buf_room(&chunk, CHUNK), CHUNK)) != 0) {
		if (n < 0 && errno == EINTR)
			continue;
		r = n < 0 ? -errno : read_chunk(&s, chunk.data, (size_t)n);
	}
	out->cut = s.depth != 0;
	if (r == -EBADMSG)
		err_set(err, r, "it is no trace: neither an object nor an array of events");
	else if (r < 0 && err && !err->code)
		err_sys(err, r, "cannot read it");
	buf_release(&chunk);
	buf_release(&s.text);
	buf_release(&s.key);
	return r;
}
