/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Fields of CSV text (RFC 4180): one that holds a comma, a quote or a line end stands in quotes,
 * and a quote inside is written twice. */
#ifndef SONDE_BASE_TEXT_CSV_H
#define SONDE_BASE_TEXT_CSV_H

#include "base/containers/buf.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

static inline bool csv_needs_quotes(const char *s, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (s[i] == ',' || s[i] == '"' || s[i] == '\n' || s[i] == '\r')
			return true;
	return false;
}

/* Writes the inside of a quoted field at p, where there is room for 2 * n bytes; its end. */
static inline char *csv_put_doubled(char *p, const char *s, size_t n)
{
	for (const char *quote; (quote = n ? (const char *)memchr(s, '"', n) : NULL);) {
		size_t part = (size_t)(quote - s) + 1;

		memcpy(p, s, part);
		p += part;
		*p++ = '"';
		s += part;
		n -= part;
	}
	if (n)
		memcpy(p, s, n);
	return p + n;
}

void csv_add_quoted(struct buf *out, const char *s, size_t n);
/* In quotes only if it needs them. */
void csv_add_field(struct buf *out, const char *s, size_t n);
/* The same for tables that people open: what a spreadsheet would take for a formula (it begins with
 * one of = + - @, a tab or a carriage return) gets an apostrophe in front. Not for formats that
 * programs read; docs/formats.md says which is which. */
void csv_add_harmless_field(struct buf *out, const char *s, size_t n);

#endif
