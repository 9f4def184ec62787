/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The words of a dump and what they mean. There are a few dozen in millions of rows: what the table
 * of all words (row.h) said about one is kept, in a place that the word itself leads to.
 */
#ifndef SONDE_MEMORY_DUMP_WORD_CACHE_H
#define SONDE_MEMORY_DUMP_WORD_CACHE_H

#include "memory/dump/scan.h"

#define WORDS_BITS 6
#define WORDS_MAX_LEN 24 /* longer words are asked for every time */

struct words_known {
	uint64_t text[WORDS_MAX_LEN / 8]; /* zeros behind its end */
	uint32_t len;
	uint32_t answer;
};

struct words {
	unsigned (*find)(const char *text, size_t len);
	struct words_known known[1 << WORDS_BITS]; /* zero-initialise */
};

/* Eight bytes of a word, of which those behind its end are zero. */
static inline uint64_t words_part(const char *text, size_t len)
{
	uint64_t all = scan_load(text);

	return len >= 8 ? all : all & (((uint64_t)1 << 8 * len) - 1);
}

static inline bool words_same_rest(const struct words_known *known, const char *text, size_t len)
{
	return known->text[1] == words_part(text + 8, len - 8) &&
	       (len <= 16 || known->text[2] == words_part(text + 16, len - 16));
}

/* Asks the table, and keeps the answer in the place. */
unsigned words_learn(struct words *words, struct words_known *place, const char *text, size_t len);

/* What words->find() says about the text. Up to WORDS_MAX_LEN bytes behind its start are read. */
static inline unsigned words_find(struct words *words, const char *text, size_t len)
{
	if (len - 1 >= WORDS_MAX_LEN)
		return words->find(text, len);
	uint64_t start = words_part(text, len);
	struct words_known *known =
		&words->known[(start + len) * 0x9e3779b97f4a7c15u >> (64 - WORDS_BITS)];

	if (known->text[0] == start && known->len == len &&
	    (len <= 8 || words_same_rest(known, text, len)))
		return known->answer;
	return words_learn(words, known, text, len);
}

#endif
