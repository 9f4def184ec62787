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
