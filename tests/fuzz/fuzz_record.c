/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Records as a ring or a recording might hold them: one behind the other, for as long as they are
 * well formed. Every byte that a reader may touch after rec_check() is touched.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "wire/record.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static volatile unsigned char sink;

static void touch(const void *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		sink ^= ((const unsigned char *)p)[i];
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	/* Records lie at multiples of 8, and a sanitizer sees every step outside. */
	uint64_t *copy = xmalloc(size);
	const char *at = (const char *)copy, *end = at + size;

	memcpy(copy, data, size);
	while (rec_check((const struct rec *)at, (size_t)(end - at))) {
		const struct rec *r = (const struct rec *)at;
		size_t len;
		const char *text = rec_text(r, &len);
		BUG_ON(r->size < sizeof(*r) || r->size % 8 || r->size > REC_MAX_SIZE);
		BUG_ON(text && (text < at + sizeof(*r) || text + len > at + r->size));
		touch(at, r->size);
		touch(text, len);
		at += r->size;
	}
	free(copy);
	return 0;
}
