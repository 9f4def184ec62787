/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * How long something was busy: the length of the union of intervals that overlap and come late and
 * in no order. busy_take() gives what has become covered since it was last called, so that the sum
 * of all answers is right whenever an interval came. Memory is bounded: what lies before the newest
 * BUSY_SPANS gaps counts as covered.
 */
#ifndef SONDE_RECORDER_ACTIVITY_BUSY_H
#define SONDE_RECORDER_ACTIVITY_BUSY_H

#include <stddef.h>
#include <stdint.h>

#define BUSY_SPANS 32768u
#define BUSY_PENDING 2048u

struct busy_span {
	uint64_t from, to;
};

/* Zero-initialise and release. */
struct busy {
	struct busy_span *spans; /* ascending, apart from one another */
	size_t n, cap;
	struct busy_span *pending; /* not yet in spans */
	size_t npending;
	uint64_t floor; /* everything before it counts as covered */
	uint64_t covered; /* since busy_take() */
};

void busy_merge(struct busy *b); /* of this file alone */

static inline void busy_add(struct busy *b, uint64_t from, uint64_t to)
{
	if (!b->pending || b->npending == BUSY_PENDING)
		busy_merge(b);
	b->pending[b->npending++] = (struct busy_span){from, to};
}

uint64_t busy_take(struct busy *b);
void busy_release(struct busy *b);

#endif
