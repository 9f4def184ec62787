/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "export/csv_lex.h"

#include <errno.h>
#include <string.h>

/* Bytes to the closing quote, or all n; counts the line ends passed. */
static size_t quoted_len(const char *p, size_t n, uint64_t *lines)
{
	const char *quote = memchr(p, '"', n);
	size_t len = quote ? (size_t)(quote - p) : n;

	for (const char *q = p; (q = memchr(q, '\n', len - (size_t)(q - p))); q++)
		++*lines;
	return len;
}

static int line_end(struct csv_lex *lex)
{
	lex->state = CSV_FIELD_START;
	lex->lines++;
	lex->at++;
	return 1;
}

int csv_lex_next(struct csv_lex *lex, const char *p, size_t n)
{
	while (lex->at < n) {
		char c = p[lex->at];

		switch (lex->state) {
		case CSV_QUOTED:
			lex->at += quoted_len(p + lex->at, n - lex->at, &lex->lines);
			if (lex->at == n)
				return 0;
			lex->state = CSV_QUOTE_SEEN;
			break;
		case CSV_QUOTE_SEEN:
			if (c == '\n')
				return line_end(lex);
			if (c != ',' && c != '"' && c != '\r')
				return -EBADMSG;
			lex->state = c == ','	? CSV_FIELD_START
				     : c == '"' ? CSV_QUOTED
						: CSV_CR_SEEN;
			break;
		case CSV_CR_SEEN:
			if (c != '\n')
				return -EBADMSG;
			return line_end(lex);
		case CSV_FIELD_START:
		case CSV_PLAIN:
			if (c == '\n')
				return line_end(lex);
			if (c == '"' && lex->state == CSV_FIELD_START)
				lex->state = CSV_QUOTED;
			else
				lex->state = c == ',' ? CSV_FIELD_START : CSV_PLAIN;
			break;
		}
		lex->at++;
	}
	return 0;
}

/* The field behind the quote at p; gives what comes behind its closing quote. */
static char *quoted_field(char *p, char *end, struct csv_field *f)
{
	char *quote;

	p++;
	*f = (struct csv_field){p, (size_t)(end - p), true};
	while (p < end && (quote = memchr(p, '"', (size_t)(end - p)))) {
		p = quote + 1;
		if (p == end || *p != '"') {
			f->len = (size_t)(quote - f->text);
			return p;
		}
		p++;
	}
	return end;
}

void csv_unquote(struct csv_field *f)
{
	char *from = f->text, *end = f->text + f->len, *quote;
	char *to = from;

	if (!f->quoted)
		return;
	while ((quote = from < end ? memchr(from, '"', (size_t)(end - from)) : NULL)) {
		size_t part = (size_t)(quote - from) + 1;

		memmove(to, from, part);
		to += part;
		from += part;
		if (from < end && *from == '"')
			from++;
	}
	memmove(to, from, (size_t)(end - from));
	f->len = (size_t)(to - f->text) + (size_t)(end - from);
	f->quoted = false;
}

static size_t without_line_end(const char *p, size_t n)
{
	if (n && p[n - 1] == '\n')
		n--;
	if (n && p[n - 1] == '\r')
		n--;
	return n;
}

size_t csv_split(char *p, size_t n, struct csv_field *out, size_t max)
{
	char *end = p + without_line_end(p, n);
	size_t count = 0;

	for (;;) {
		struct csv_field f = {p, 0, false};

		if (p < end && *p == '"')
			p = quoted_field(p, end, &f);
		char *comma = p < end ? memchr(p, ',', (size_t)(end - p)) : NULL;
		char *stop = comma ? comma : end;
		if (!f.quoted)
			f.len = (size_t)(stop - p);
		if (count < max)
			out[count] = f;
		count++;
		if (!comma)
			return count;
		p = comma + 1;
	}
}
