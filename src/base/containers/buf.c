/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "base/containers/buf.h"

#include "base/mem.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

char *buf_room(struct buf *b, size_t n)
{
	b->data = xgrow(b->data, &b->cap, b->len + n, 1);
	return b->data + b->len;
}

void buf_add(struct buf *b, const void *data, size_t n)
{
	if (!n)
		return;
	memcpy(buf_room(b, n), data, n);
	b->len += n;
}

void buf_add_str(struct buf *b, const char *s)
{
	buf_add(b, s, strlen(s));
}

void buf_add_char(struct buf *b, char c)
{
	*buf_room(b, 1) = c;
	b->len++;
}

void buf_add_u64(struct buf *b, uint64_t v)
{
	char tmp[20];
	char *p = tmp + sizeof(tmp);

	do {
		*--p = (char)('0' + v % 10);
		v /= 10;
	} while (v);
	buf_add(b, p, (size_t)(tmp + sizeof(tmp) - p));
}

void buf_add_addr(struct buf *b, uint64_t v)
{
	char *p = buf_room(b, 18);

	p[0] = '0';
	p[1] = 'x';
	for (int i = 0; i < 16; i++)
		p[2 + i] = "0123456789abcdef"[v >> (60 - 4 * i) & 15];
	b->len += 18;
}

void buf_addv(struct buf *b, const char *fmt, va_list ap)
{
	va_list again;

	va_copy(again, ap);
	int n = vsnprintf(NULL, 0, fmt, ap);
	if (n > 0) {
		vsnprintf(buf_room(b, (size_t)n + 1), (size_t)n + 1, fmt, again);
		b->len += (size_t)n;
	}
	va_end(again);
}

void buf_addf(struct buf *b, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	buf_addv(b, fmt, ap);
	va_end(ap);
}

const char *buf_str(struct buf *b)
{
	*buf_room(b, 1) = '\0';
	return b->data;
}

void buf_clear(struct buf *b)
{
	b->len = 0;
}

void buf_release(struct buf *b)
{
	free(b->data);
	*b = (struct buf){0};
}
