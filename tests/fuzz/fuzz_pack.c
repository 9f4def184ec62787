/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Packed batches of a recording that somebody sent us. The first of 8 bytes says what the others are:
 * 0 a packed batch, 2 one of version 2, else a batch. What can be expanded is packed again, and is the same afterwards.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "recorder/pack/pack.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_batch(const char *batch, size_t bytes)
{
	struct pack *other = pack_new();
	struct buf packed = {0};
	const char *again;
	size_t n;

	if (pack_batch(other, batch, bytes, &packed)) {
		BUG_ON(pack_expand(other, packed.data, packed.len, &again, &n) < 0);
		BUG_ON(n != bytes || memcmp(again, batch, n) != 0);
	}
	pack_free(other);
	buf_release(&packed);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size < 8)
		return 0;
	/* Batches lie at multiples of 8, and a sanitizer sees every step outside. */
	uint64_t *copy = xmalloc(size - 8);
	struct pack *p = pack_new();
	const char *batch;
	size_t n;

	memcpy(copy, data + 8, size - 8);
	if (data[0] && data[0] != 2)
		check_batch((const char *)copy, size - 8);
	else if ((data[0] ? pack_expand_v2 : pack_expand)(p, (const char *)copy, size - 8, &batch,
							  &n) == 0)
		check_batch(batch, n);
	pack_free(p);
	free(copy);
	return 0;
}
