/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "memory/dump/calls.h"

#include "base/text/text.h"

#include <stdbool.h>
#include <string.h>

static bool needs_quotes(const char *s, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (s[i] == ',' || s[i] == '"' || s[i] == '\n' || s[i] == '\r')
			return true;
	return false;
}

static char *put_doubled(char *p, const char *s, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (s[i] == '"')
			*p++ = '"';
		*p++ = s[i];
	}
	return p;
}

static char *put_time(char *p, uint64_t ns)
{
	return ns ? put_u64(p, ns) : put_bytes(p, "N/A", 3);
}

void trace_csv_add(struct buf *out, const struct trace_row *row, struct buf *scratch)
{
	size_t n = row->text_len, prefix = strlen(row->prefix);
	const char *s = text_clean(row->text, &n, scratch);
	char *begin = buf_room(out, prefix + 2 * n + 2 + 4 * (PUT_U64_MAX + 1) + 1), *p = begin;
	bool quotes = needs_quotes(s, n);

	if (quotes)
		*p++ = '"';
	p = put_bytes(p, row->prefix, prefix);
	p = quotes ? put_doubled(p, s, n) : put_bytes(p, s, n);
	if (quotes)
		*p++ = '"';
	*p++ = ',';
	p = put_time(p, row->start_ns);
	*p++ = ',';
	p = put_time(p, row->end_ns);
	*p++ = ',';
	p = put_u64(p, row->tid);
	*p++ = ',';
	p = put_u64(p, row->pid);
	*p++ = '\n';
	out->len += (size_t)(p - begin);
}
