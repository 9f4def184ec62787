/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * How long something was busy: the length of the union of intervals that overlap and come in no
 * order. busy_take() gives the part of it up to a moment, which is never more than the time that
 * has passed since the moment before; what comes for a time that has been told is nobody's. Memory
 * is bounded: of more than BUSY_SPANS gaps the older half is summed up early.
 */
#ifndef SONDE_ACTIVITY_LIVE_BUSY_H
#define SONDE_ACTIVITY_LIVE_BUSY_H

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
	uint64_t floor; /* everything before it has been told, or summed up */
	uint64_t covered; /* summed up, and not told */
};

void busy_merge(struct busy *b); /* of this file alone */

static inline void busy_add(struct busy *b, uint64_t from, uint64_t to)
{
	if (!b->pending || b->npending == BUSY_PENDING)
		busy_merge(b);
	b->pending[b->npending++] = (struct busy_span){from, to};
}

/* What is before it does not count. Of one that is new. */
static inline void busy_begin(struct busy *b, uint64_t from)
{
	b->floor = from;
}

/* From the end of what was told before up to `to`, which is not before that. */
uint64_t busy_take(struct busy *b, uint64_t to);
void busy_release(struct busy *b);

#endif
