/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Texts: their ends, and what the dump writers need. A dump is always valid UTF-8 without NUL bytes,
 * whatever the job called its kernels: one bad byte would make Python refuse the whole file.
 *
 * The put_* functions write at `p` without a check and return the end; the caller has made room.
 */
#ifndef SONDE_BASE_TEXT_TEXT_H
#define SONDE_BASE_TEXT_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/containers/buf.h"

static inline bool text_ends_with(const char *text, const char *end)
{
	size_t n = strlen(text), k = strlen(end);

	return n >= k && !memcmp(text + n - k, end, k);
}

#define PUT_U64_MAX 20
#define PUT_ADDR_LEN 18

/* No room is ever needed for more than this many bytes per byte that is cleaned. */
#define TEXT_CLEAN_GROWTH 3

/*
 * The text with every ill-formed byte as U+FFFD and without NULs: the argument itself when there
 * was nothing to do, else a copy in `scratch` (cleared first). *len is updated.
 */
const char *text_clean(const char *s, size_t *len, struct buf *scratch);

/* Bytes of the well-formed character at the start (Unicode table 3-7), 0 for none or NUL. n > 0. */
size_t text_sequence_len(const char *text, size_t n);

char *put_u64(char *p, uint64_t v);
char *put_addr(char *p, uint64_t v); /* 0x and 16 digits */

static inline char *put_bytes(char *p, const void *s, size_t n)
{
	memcpy(p, s, n);
	return p + n;
}

#endif
