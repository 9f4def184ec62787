/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "memory/dump/block_cache.h"

#include <errno.h>
#include <string.h>

#define BLOCK (32u << 10)
#define OVERLAP (8u << 10) /* of the next block, for what lies across the border */

/* Fills the buffer with up to n bytes at the offset, fewer at the end of the file. */
static int load(struct block_cache *c, struct buf *b, size_t n, uint64_t offset)
{
	buf_clear(b);
	buf_room(b, n + c->slack);
	while (b->len < n) {
		ssize_t got = c->read(c->arg, b->data + b->len, n - b->len, offset + b->len);

		if (got < 0)
			return (int)got;
		if (got == 0)
			break;
		b->len += (size_t)got;
	}
	memset(b->data + b->len, 0, c->slack);
	return 0;
}

/* 1: the block is in its slot. 0: it is not worth it yet. */
static int want_block(struct block_cache *c, struct block_slot *slot, uint64_t number)
{
	if (slot->number == number)
		return 1;
	if (slot->asked != number) {
		slot->asked = number;
		return 0;
	}
	slot->number = 0;
	int r = load(c, &slot->bytes, BLOCK + OVERLAP, (number - 1) * BLOCK);
	if (r < 0)
		return r;
	slot->number = number;
	return 1;
}

int block_cache_get(struct block_cache *c, uint64_t offset, size_t n, char **out)
{
	uint64_t number = offset / BLOCK + 1;
	size_t at = offset % BLOCK;
	struct block_slot *slot = &c->slots[number % BLOCK_CACHE_SLOTS];
	int r = at + n <= BLOCK + OVERLAP ? want_block(c, slot, number) : 0;

	if (r > 0 && at + n <= slot->bytes.len) {
		*out = slot->bytes.data + at;
		return 0;
	}
	if (r >= 0)
		r = load(c, &c->single, n, offset);
	if (r < 0)
		return r;
	*out = c->single.data;
	return c->single.len == n ? 0 : -ENODATA;
}

void block_cache_release(struct block_cache *c)
{
	for (size_t i = 0; i < BLOCK_CACHE_SLOTS; i++)
		buf_release(&c->slots[i].bytes);
	buf_release(&c->single);
}
