/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Texts that come again and again (owners, operators), each kept once and known by a number. Number
 * 0 is the empty text. Zero-initialise and release. Not thread safe.
 */
#ifndef SONDE_MEMORY_ANALYSIS_COMMON_TEXT_NUMBERS_H
#define SONDE_MEMORY_ANALYSIS_COMMON_TEXT_NUMBERS_H

#include <stddef.h>
#include <stdint.h>

#include "base/containers/hmap.h"

struct numbered_text {
	char *text;
	size_t len;
	uint32_t own; /* the user's own, 0 at first */
};

struct text_numbers {
	struct numbered_text *list; /* the first is not used */
	size_t count, cap;
	struct hmap by_hash;
	uint32_t last; /* that was found */
};

/* The number of a text; 0 where it is new and there are `max` already. */
uint32_t text_numbers_find(struct text_numbers *l, const char *text, size_t len, uint32_t max);

/* "" for number 0. */
static inline const char *text_numbers_text(const struct text_numbers *l, uint32_t number)
{
	return number && number < l->count ? l->list[number].text : "";
}

void text_numbers_release(struct text_numbers *l);

#endif
