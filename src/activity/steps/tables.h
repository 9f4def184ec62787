/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Inside activity/steps: the tables behind the words. Of a job with ranks, that is judged. */
#ifndef SONDE_ACTIVITY_STEPS_TABLES_H
#define SONDE_ACTIVITY_STEPS_TABLES_H

#include "activity/steps/job_summary.h"

void split_job_tables(const struct split_job *j, unsigned top, struct buf *out);

/* The rank with the most steps. */
const struct split_rank *split_longest(const struct split_job *j);

/* Numbers of steps that any rank has. The next step, if that was asked for, need not be the same one
 * for all: then `same` is false. */
struct step_range {
	uint64_t first, last;
	bool same;
};

struct step_range split_step_range(const struct split_job *j);

#endif
