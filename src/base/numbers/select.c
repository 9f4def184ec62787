/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "base/numbers/select.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Few numbers are not worth many counters, which have to be cleared and summed. */
static unsigned digit_bits(size_t count)
{
	return count < 1 << 14 ? 8 : count < 1 << 22 ? 11 : 16;
}

static int make_counts(struct select *s)
{
	const struct select_level *level = &s->levels[s->at];

	free(s->counts);
	s->counts = calloc((size_t)s->workers * level->slots << level->bits, sizeof(*s->counts));
	return s->counts ? 0 : -ENOMEM;
}

int select_init(struct select *s, const struct statistics_input *in, unsigned workers,
		const uint64_t *ranks, size_t nranks)
{
	unsigned left = key_bits(in->kind), digit = digit_bits(in->count);

	*s = (struct select){.workers = workers, .nranks = nranks, .wide = left > 32};
	while (left) {
		struct select_level *level = &s->levels[s->nlevels++];

		level->bits = left < digit ? left : digit;
		left -= level->bits;
		level->shift = left;
	}
	s->levels[0].slots = 1;
	for (size_t i = 0; i < nranks; i++)
		s->sought[i].rank = ranks[i];
	return make_counts(s);
}

static size_t cell(const struct select_level *level, unsigned slot, uint64_t key)
{
	return ((size_t)slot << level->bits) + (key >> level->shift & ((1u << level->bits) - 1));
}

/* At the first level there is one slot. At deeper ones most numbers leave at once: nobody seeks one
 * near them. */
#define COUNT(type)                                                                                \
	static void count_first_##type(const struct select *s, uint64_t *counts,                   \
				       const type##_t *keys, size_t n)                             \
	{                                                                                          \
		unsigned shift = s->levels[0].shift;                                               \
                                                                                                   \
		for (size_t i = 0; i < n; i++)                                                     \
			counts[keys[i] >> shift]++;                                                \
	}                                                                                          \
                                                                                                   \
	static void count_deeper_##type(const struct select *s, uint64_t *counts,                  \
					const type##_t *keys, size_t n)                            \
	{                                                                                          \
		const struct select_level *levels = s->levels, last = levels[s->at];               \
		const uint8_t *first = levels[0].lanes;                                            \
		unsigned shift = levels[0].shift, at = s->at;                                      \
                                                                                                   \
		for (size_t i = 0; i < n; i++) {                                                   \
			type##_t key = keys[i];                                                    \
			unsigned slot = first[key >> shift];                                       \
                                                                                                   \
			if (__builtin_expect(slot == SELECT_NONE, 1))                              \
				continue;                                                          \
			for (unsigned l = 1; l < at && slot != SELECT_NONE; l++)                   \
				slot = levels[l].lanes[cell(&levels[l], slot, key)];               \
			if (slot != SELECT_NONE)                                                   \
				counts[cell(&last, slot, key)]++;                                  \
		}                                                                                  \
	}

COUNT(uint32)
COUNT(uint64)

void select_count(struct select *s, unsigned worker, const union keys *keys, size_t n)
{
	const struct select_level *level = &s->levels[s->at];
	uint64_t *counts = s->counts + ((size_t)worker * level->slots << level->bits);

	if (s->wide && s->at == 0)
		count_first_uint64(s, counts, keys->wide, n);
	else if (s->wide)
		count_deeper_uint64(s, counts, keys->wide, n);
	else if (s->at == 0)
		count_first_uint32(s, counts, keys->narrow, n);
	else
		count_deeper_uint32(s, counts, keys->narrow, n);
}

static void sum_workers(struct select *s)
{
	const struct select_level *level = &s->levels[s->at];
	size_t n = (size_t)level->slots << level->bits;

	for (unsigned w = 1; w < s->workers; w++)
		for (size_t i = 0; i < n; i++)
			s->counts[i] += s->counts[w * n + i];
}

/* Finds the digit of one sought number, and takes away what is smaller than it. */
static size_t find_digit(struct select *s, size_t i)
{
	const struct select_level *level = &s->levels[s->at];
	const uint64_t *counts = s->counts + ((size_t)s->sought[i].slot << level->bits);
	size_t digit = 0, last = (1u << level->bits) - 1;

	while (digit < last && s->sought[i].rank >= counts[digit])
		s->sought[i].rank -= counts[digit++];
	s->sought[i].key |= (uint64_t)digit << level->shift;
	return digit;
}

int select_next(struct select *s)
{
	struct select_level *level = &s->levels[s->at];
	struct select_level *next = s->at + 1 < s->nlevels ? level + 1 : NULL;

	sum_workers(s);
	if (next) {
		level->lanes = malloc((size_t)level->slots << level->bits);
		if (!level->lanes)
			return -ENOMEM;
		memset(level->lanes, SELECT_NONE, (size_t)level->slots << level->bits);
	}
	for (size_t i = 0; i < s->nranks; i++) {
		size_t digit = find_digit(s, i);

		if (!next)
			continue;
		uint8_t *lane = &level->lanes[((size_t)s->sought[i].slot << level->bits) + digit];
		if (*lane == SELECT_NONE)
			*lane = (uint8_t)next->slots++;
		s->sought[i].slot = *lane;
	}
	if (!next)
		return 0;
	s->at++;
	return make_counts(s) < 0 ? -ENOMEM : 1;
}

uint64_t select_key(const struct select *s, size_t i)
{
	return s->sought[i].key;
}

void select_release(struct select *s)
{
	for (unsigned i = 0; i < s->nlevels; i++)
		free(s->levels[i].lanes);
	free(s->counts);
	*s = (struct select){0};
}
