/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Ranks that should have left a trace and have not: stopped, hung where nobody could end it, or
 * killed with who recorded it. They are known from the numbers of the others and from how many the
 * job has; not if the order was for some of them, or a process does not know which it is.
 */
#ifndef SONDE_ACTIVITY_STEPS_MISSING_H
#define SONDE_ACTIVITY_STEPS_MISSING_H

#include "activity/steps/job.h"

/* Ranks [from, to) are missing. Begin with zeros; of a job that is judged. */
struct split_gap {
	uint32_t from, to;
	size_t at;
};
bool split_gap_next(const struct split_job *j, struct split_gap *gap);

/* Who is missing, and where the others stand; nothing if nobody is. */
void split_missing_say(const struct split_job *j, struct buf *out);

#endif
