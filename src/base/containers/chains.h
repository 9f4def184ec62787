/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Sequences of words, each kept once; those that end alike share their ends. Call stacks are such:
 * many differ in their innermost frames alone. Zero-initialise and release.
 *
 *	number -> | 3, next | a b c |  ->  | 8, next | … |  ->  | 8, 0 | … |	cut from the end on
 */
#ifndef SONDE_BASE_CONTAINERS_CHAINS_H
#define SONDE_BASE_CONTAINERS_CHAINS_H

#include <stddef.h>
#include <stdint.h>

#include "base/containers/hmap.h"

struct chains {
	uint64_t *words;
	size_t n, cap;
	struct hmap by_hash;
};

/* The number of the sequence; equal ones have one. 0: it is empty. */
uint32_t chains_put(struct chains *c, const uint64_t *words, size_t n);

/* The next words of a sequence, and how many; NULL at its end. Start with its number in *at. They are
 * good until the next chains_put(). */
const uint64_t *chains_next(const struct chains *c, uint32_t *at, size_t *out_n);

void chains_release(struct chains *c);

#endif
