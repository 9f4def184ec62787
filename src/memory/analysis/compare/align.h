/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Which elements of two sequences belong together: a shortest edit script, found by the greedy
 * forward search of Myers' O(ND) algorithm, with its choices between equally short scripts:
 *
 *	x counts the elements of `base` that are consumed, y = x - k those of `compare`.
 *	For d = 0, 1, … and k = -d, -d + 2, …, d:
 *	  if k == -d, or k != d and x[k - 1] < x[k + 1]:  x = x[k + 1]      (compare-only element)
 *	  else                                            x = x[k - 1] + 1  (base-only element)
 *	  then as far as the elements are equal.
 *
 * The result is exactly that of the algorithm as it stands there; only time and memory are less.
 * With D edits it takes about D * D / 2 steps (half of that where the edits are spread evenly),
 * several of them at once by vector instructions, and memory for D^1.5 numbers at most, never more
 * than a fixed amount.
 */
#ifndef SONDE_MEMORY_ANALYSIS_COMPARE_ALIGN_H
#define SONDE_MEMORY_ANALYSIS_COMPARE_ALIGN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ALIGN_MAX_VALUE (UINT32_MAX - 2) /* of an element */
#define ALIGN_MAX_LENGTH (INT32_MAX / 4) /* of a sequence */

struct align_pair {
	const uint32_t *base; /* borrowed */
	const uint32_t *compare;
	size_t base_len;
	size_t compare_len;
};

/* Zeroed: the best way. The numbers are for tests. */
struct align_options {
	uint32_t block_steps; /* between two checkpoints at first; they move apart as it grows */
	size_t max_words; /* of all checkpoints */
	uint32_t band; /* diagonals of the first estimate */
	bool plain; /* no vector instructions */
	/* Called now and then; optional. */
	void (*progress)(void *arg, uint64_t done, uint64_t total);
	void *arg;
};

struct align {
	struct align_pair pair;
	uint32_t edits;
	uint64_t *moves; /* a bit for each edit: 1 is a compare-only element */
};

/* Fills *out, to be released. Lengths and values must be within the limits above. */
void align_init(struct align *out, const struct align_pair *pair,
		const struct align_options *options);
void align_release(struct align *a);

enum align_kind { ALIGN_END, ALIGN_BOTH, ALIGN_BASE, ALIGN_COMPARE };

/* The elements in order: zero-initialise, set `align`, call align_next() until ALIGN_END. */
struct align_walk {
	const struct align *align;
	size_t x, y; /* of the element that align_next() gave; meaningful where it has one */
	size_t next_x, next_y;
	uint32_t edit;
};
enum align_kind align_next(struct align_walk *w);

#endif
