/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * An unquoted field ends at the next comma or LF, a quoted one at a quote. Where those are is known
 * for 64 bytes at a time, as a set of bits: the end of a field is a count of zeros away.
 */
#include "memory/dump/csv_lex.h"

#include <errno.h>
#include <string.h>

#include "memory/dump/scan.h"

#define WINDOW 64

struct cursor {
	const char *p; /* the piece */
	size_t n;
	size_t at;
	size_t begin; /* of the field there */
	size_t window; /* where the bits are about; all of them are at `at` or behind */
	uint64_t separators;
};

/* Where one of the two is in the window that begins at `at`: a bit per byte. */
static inline uint64_t find_either(const struct cursor *c, size_t at, char one, char two)
{
	const char *s = c->p + at;
	char tail[WINDOW];

	if (c->n - at < WINDOW) {
		memset(tail, 0, sizeof(tail));
		memcpy(tail, s, c->n - at);
		s = tail;
	}
	return scan_either(s, one, two);
}

static inline void find_separators(struct cursor *c, size_t window)
{
	c->window = window;
	c->separators = find_either(c, window, ',', '\n');
}

static inline void add_field(struct csv_lex *lex, const char *text, size_t len)
{
	if (lex->nfields < CSV_MAX_FIELDS)
		lex->fields[lex->nfields] = (struct cell){text, len};
	lex->nfields++;
}

/* An unquoted field that ends its record: a CR there belongs to the line end. */
static void add_last(struct csv_lex *lex, const char *text, size_t len)
{
	add_field(lex, text, len - (len && text[len - 1] == '\r'));
}

/* The unquoted fields that end in the window. True: stopped at an LF, or at a quote that opens. */
static inline bool pass_window(struct csv_lex *lex, struct cursor *c)
{
	const char *window = c->p + c->window, *begin = c->p + c->begin, *end = c->p + c->n;
	const char *at = end;
	size_t nfields = lex->nfields;

	for (uint64_t bits = c->separators; bits; bits &= bits - 1) {
		const char *separator = window + __builtin_ctzll(bits);

		at = separator;
		if (*separator == '\n')
			break;
		if (nfields < CSV_MAX_FIELDS)
			lex->fields[nfields] = (struct cell){begin, (size_t)(separator - begin)};
		nfields++;
		at = begin = separator + 1;
		if (begin < end && *begin == '"')
			break;
		at = end;
	}
	lex->nfields = nfields;
	c->begin = (size_t)(begin - c->p);
	c->at = (size_t)(at - c->p);
	return at < end;
}

/* Unquoted fields, up to an LF, which ends one more, a quote that opens, or the end. */
static inline void pass_plain(struct csv_lex *lex, struct cursor *c)
{
	while (!pass_window(lex, c) && c->n - c->window > WINDOW)
		find_separators(c, c->window + WINDOW);
}

/* Inside a quoted field: goes behind the next quote, or to the end, and counts lines. */
static inline enum csv_state pass_quoted(struct csv_lex *lex, struct cursor *c)
{
	for (; c->at < c->n; c->at += WINDOW) {
		for (uint64_t bits = find_either(c, c->at, '"', '\n'); bits; bits &= bits - 1) {
			size_t at = c->at + (size_t)__builtin_ctzll(bits);

			if (c->p[at] == '"') {
				c->at = at + 1;
				return CSV_QUOTE_SEEN;
			}
			lex->lines++;
		}
	}
	c->at = c->n;
	return CSV_QUOTED;
}

/* Behind a quoted field there often are empty ones and the end: no need to look at 64 bytes. */
static inline void pass_empty(struct csv_lex *lex, struct cursor *c)
{
	for (; c->at < c->n && c->p[c->at] == ','; c->begin = ++c->at)
		add_field(lex, c->p + c->at, 0);
	if (c->at == c->n || c->p[c->at] != '\n') {
		find_separators(c, c->at);
	} else {
		c->window = c->at;
		c->separators = 1;
	}
}

static inline bool may_follow_quote(char c)
{
	return c == ',' || c == '"' || c == '\r';
}

/* At the comma, quote or CR behind a quote inside a quoted field. */
static inline enum csv_state pass_quote(struct csv_lex *lex, struct cursor *c)
{
	char next = c->p[c->at++];

	if (next == '"') {
		if (lex->nfields < CSV_MAX_FIELDS)
			lex->doubled |= 1u << lex->nfields;
		return CSV_QUOTED;
	}
	add_field(lex, c->p + c->begin, c->at - 2 - c->begin);
	c->begin = c->at;
	if (next == '\r')
		return CSV_CR_SEEN;
	pass_empty(lex, c);
	return CSV_FIELD_START;
}

static int stop_at(struct csv_lex *lex, const struct cursor *c, enum csv_state state, int answer)
{
	lex->state = state;
	lex->at = c->at;
	lex->begin = c->begin;
	return answer;
}

static int line_end(struct csv_lex *lex, size_t at)
{
	lex->state = CSV_RECORD_START;
	lex->lines++;
	lex->at = at + 1;
	return 1;
}

int csv_lex_next(struct csv_lex *lex, const char *p, size_t n)
{
	struct cursor c = {.p = p, .n = n, .at = lex->at, .begin = lex->at};
	enum csv_state state = lex->state;

	find_separators(&c, c.at);
	if (state == CSV_RECORD_START) {
		lex->nfields = 0;
		lex->doubled = 0;
		state = CSV_FIELD_START;
	}
	while (c.at < n) {
		if (state == CSV_FIELD_START && p[c.at] == '"') {
			c.begin = ++c.at;
			state = CSV_QUOTED;
		} else if (state == CSV_FIELD_START || state == CSV_PLAIN) {
			pass_plain(lex, &c);
			if (c.at < n && p[c.at] == '\n') {
				add_last(lex, p + c.begin, c.at - c.begin);
				return line_end(lex, c.at);
			}
			state = c.begin < c.at ? CSV_PLAIN : CSV_FIELD_START;
		} else if (state == CSV_QUOTED) {
			state = pass_quoted(lex, &c);
		} else if (state == CSV_QUOTE_SEEN && may_follow_quote(p[c.at])) {
			state = pass_quote(lex, &c);
		} else if (p[c.at] == '\n') {
			if (state == CSV_QUOTE_SEEN)
				add_field(lex, p + c.begin, c.at - 1 - c.begin);
			return line_end(lex, c.at);
		} else {
			return stop_at(lex, &c, state, -EBADMSG);
		}
	}
	return stop_at(lex, &c, state, 0);
}

bool csv_lex_end(struct csv_lex *lex, const char *p, size_t n)
{
	if (lex->state == CSV_QUOTED)
		return false;
	if (lex->state == CSV_QUOTE_SEEN)
		add_field(lex, p + lex->begin, n - 1 - lex->begin);
	else if (lex->state != CSV_CR_SEEN)
		add_last(lex, p + lex->begin, n - lex->begin);
	lex->state = CSV_RECORD_START;
	return true;
}

size_t csv_unquote(char *p, size_t n)
{
	char *from = p, *end = p + n, *to = p, *quote;

	while ((quote = from < end ? memchr(from, '"', (size_t)(end - from)) : NULL)) {
		size_t part = (size_t)(quote - from) + 1;

		memmove(to, from, part);
		to += part;
		from += part;
		if (from < end && *from == '"')
			from++;
	}
	memmove(to, from, (size_t)(end - from));
	return (size_t)(to - p) + (size_t)(end - from);
}
