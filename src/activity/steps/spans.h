/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Sets of moments: half-open spans [start, end) of time, and what they have in common. All results
 * are exact. Zero-initialise, add in any order, spans_tidy(), then ask; what is asked must be tidy,
 * and results are.
 */
#ifndef SONDE_ACTIVITY_STEPS_SPANS_H
#define SONDE_ACTIVITY_STEPS_SPANS_H

#include <stddef.h>
#include <stdint.h>

struct span {
	uint64_t start, end;
};

struct spans {
	struct span *at;
	size_t n, cap;
	size_t tidy; /* the first ones, which are in order and do not touch */
};

void spans_grow(struct spans *s); /* of this file alone */

/* Nothing is added of a span that is empty or ends before it begins. */
static inline void spans_add(struct spans *s, uint64_t start, uint64_t end)
{
	if (start >= end)
		return;
	if (s->n == s->cap)
		spans_grow(s);
	s->at[s->n++] = (struct span){start, end};
}

/* In order, no two of them touching. Costs n log n of what was added since the last time, n if that
 * was in order, and what it reaches back to. */
void spans_tidy(struct spans *s);

/* out (which is emptied first, and is neither a nor b): in a or in b; in a and not in b. */
void spans_union(const struct spans *a, const struct spans *b, struct spans *out);
void spans_minus(const struct spans *a, const struct spans *b, struct spans *out);

uint64_t spans_length(const struct spans *s);

/*
 * How much of [from, to) is in s. `at` goes along with calls whose `from` never gets smaller: then
 * all of them together read every span once. Begin with *at = 0.
 */
uint64_t spans_within(const struct spans *s, uint64_t from, uint64_t to, size_t *at);

/* The length of the first n, and without them. */
uint64_t spans_length_of_first(const struct spans *s, size_t n);
void spans_drop_first(struct spans *s, size_t n);

void spans_release(struct spans *s);

#endif
