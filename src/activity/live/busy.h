/* SPDX-License-Identifier: MulanPSL-2.0 */
#ifndef SONDE_ACTIVITY_LIVE_BUSY_H
#define SONDE_ACTIVITY_LIVE_BUSY_H

#include <stdint.h>

#include "activity/steps/spans.h"

/*
 * How long something was busy, overlaps counted once: a set of spans that is reported and forgotten
 * piece by piece, while activities still come. busy_take() returns the part of it up to a moment, which is never
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
