/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "base/containers/chains.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/mem.h"

#define PIECE 8

/* The number of a piece is its place in the words: there stands how long it is, and what comes next. */
static uint32_t put_piece(struct chains *c, const uint64_t *words, size_t n, uint32_t next)
{
	uint64_t head = (uint64_t)next << 32 | n, found;
	uint64_t hash = XXH3_64bits_withSeed(words, n * sizeof(words[0]), head);

	for (; (found = hmap_get(&c->by_hash, hash)) != HMAP_NONE; hash++)
		if (c->words[found] == head &&
		    !memcmp(c->words + found + 1, words, n * sizeof(words[0])))
			return (uint32_t)found;
	c->n += !c->n; /* number 0 is none */
	BUG_ON(c->n > UINT32_MAX);
	c->words = xgrow(c->words, &c->cap, c->n + 1 + n, sizeof(c->words[0]));
	c->words[c->n] = head;
	memcpy(c->words + c->n + 1, words, n * sizeof(words[0]));
	hmap_put(&c->by_hash, hash, c->n);
	c->n += 1 + n;
	return (uint32_t)(c->n - 1 - n);
}

uint32_t chains_put(struct chains *c, const uint64_t *words, size_t n)
{
	uint32_t number = 0;

	while (n) {
		size_t some = n < PIECE ? n : PIECE;

		n -= some;
		number = put_piece(c, words + n, some, number);
	}
	return number;
}

const uint64_t *chains_next(const struct chains *c, uint32_t *at, size_t *out_n)
{
	if (!*at)
		return NULL;
	const uint64_t *piece = c->words + *at;
	*out_n = (uint32_t)*piece;
	*at = (uint32_t)(*piece >> 32);
	return piece + 1;
}

void chains_release(struct chains *c)
{
	free(c->words);
	hmap_release(&c->by_hash);
	*c = (struct chains){0};
}
