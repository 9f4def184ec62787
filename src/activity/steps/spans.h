/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Sets of moments: half-open spans [start, end) of time, and what they have in common. All results
 * are exact. Zero-initialise, add in any order, spans_tidy(), then ask; what is asked must be tidy,
 * and results are.
 *
 * struct busy is such a set that is reported and forgotten piece by piece, while activities still
 * come.
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

void spans_release(struct spans *s);

/*
 * How long something was busy. busy_take() returns the part of it up to a moment, which is never
 * more than the time that has passed since the moment before; what comes for a time that has been
 * reported is ignored. Memory is bounded: of more than BUSY_SPANS gaps the older half is summed up
 * early.
 */
#define BUSY_SPANS 32768u
#define BUSY_PENDING 2048u

/* Zero-initialise and release. */
struct busy {
	struct spans spans; /* behind `floor` */
	uint64_t floor; /* everything before it has been reported, or summed up */
	uint64_t covered; /* summed up, and not reported */
};

void busy_tidy(struct busy *b); /* of this file alone */

/* What is before it does not count. Of one that is new. */
static inline void busy_begin(struct busy *b, uint64_t from)
{
	b->floor = from;
}

static inline void busy_add(struct busy *b, uint64_t from, uint64_t to)
{
	spans_add(&b->spans, from > b->floor ? from : b->floor, to);
	if (b->spans.n - b->spans.tidy == BUSY_PENDING)
		busy_tidy(b);
}

/* From the end of what was reported before up to `to`, which is not before that. */
uint64_t busy_take(struct busy *b, uint64_t to);
void busy_release(struct busy *b);

#endif
