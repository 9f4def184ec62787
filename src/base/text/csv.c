/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "base/text/csv.h"

void csv_add_quoted(struct buf *out, const char *s, size_t n)
{
	char *p = buf_room(out, 2 * n + 2);

	*p++ = '"';
	p = csv_put_doubled(p, s, n);
	*p++ = '"';
	out->len = (size_t)(p - out->data);
}

void csv_add_field(struct buf *out, const char *s, size_t n)
{
	if (csv_needs_quotes(s, n))
		csv_add_quoted(out, s, n);
	else
		buf_add(out, s, n);
}

void csv_add_harmless_field(struct buf *out, const char *s, size_t n)
{
	bool quotes = csv_needs_quotes(s, n);

	if (quotes)
		buf_add_char(out, '"');
	if (n && memchr("=+-@\t\r", s[0], 6))
		buf_add_char(out, '\'');
	char *p = buf_room(out, 2 * n + 1);
	out->len = (size_t)(csv_put_doubled(p, s, n) - out->data);
	if (quotes)
		buf_add_char(out, '"');
}
