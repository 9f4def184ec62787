/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Why the devices of a job idle, in words. Of a job that is judged; nothing if nobody has looked at
 * its hosts. */
#ifndef SONDE_ACTIVITY_STEPS_IDLE_TEXT_H
#define SONDE_ACTIVITY_STEPS_IDLE_TEXT_H

#include "activity/steps/job_summary.h"

/* The reasons with the most time; what is not known. */
void split_idle_describe(const struct split_job *j, struct buf *out);
/* Why the host of the slowest rank does not launch in time, if that is what it is slow in. */
void split_idle_describe_slowest(const struct split_job *j, struct buf *out);
void split_idle_table(const struct split_job *j, unsigned top, struct buf *out);
json_t *split_idle_job_json(const struct split_job *j); /* new; null: nobody has looked */

/* What the slowest rank does for longer than the others in a step; NULL. */
const struct idle_reason *split_idle_slowest(const struct split_job *j, uint64_t *out_ns,
					     uint64_t *out_others_ns);

#endif
