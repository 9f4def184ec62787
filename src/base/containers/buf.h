/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * A growing byte buffer. Zero-initialise it, add, and release. `data` is not NUL-terminated
 * unless buf_str() was called.
 */
#ifndef SONDE_BASE_CONTAINERS_BUF_H
#define SONDE_BASE_CONTAINERS_BUF_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct buf {
	char *data;
	size_t len;
	size_t cap;
};

/* Makes room for `n` more bytes and returns where they go; the caller adds to len itself. */
char *buf_room(struct buf *b, size_t n);
void buf_add(struct buf *b, const void *data, size_t n);
void buf_add_str(struct buf *b, const char *s);
void buf_add_char(struct buf *b, char c);
void buf_add_u64(struct buf *b, uint64_t v);
/* `0x` and 16 lower-case digits, as addresses are written in every export. */
void buf_add_addr(struct buf *b, uint64_t v);
__attribute__((format(printf, 2, 3))) void buf_addf(struct buf *b, const char *fmt, ...);
__attribute__((format(printf, 2, 0))) void buf_addv(struct buf *b, const char *fmt, va_list ap);
/* The content as a C string, valid until the next change. */
const char *buf_str(struct buf *b);
void buf_clear(struct buf *b); /* empty, keeps the memory */
void buf_release(struct buf *b);

#endif
