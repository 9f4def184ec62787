/* SPDX-License-Identifier: MulanPSL-2.0 */
/* The inside of the text about steps: text.c has the sentences, tables.c the tables. */
#ifndef SONDE_ACTIVITY_STEPS_TEXT_IMPL_H
#define SONDE_ACTIVITY_STEPS_TEXT_IMPL_H

#include "activity/steps/job_summary.h"

#define SPLIT_NAME_COLUMNS 60

/* Numbers of steps that any rank has. The next step, if that was asked for, need not be the same one
 * for all: then `same` is false. */
struct split_range {
	uint64_t first, last;
	bool same;
};

struct split_range split_steps_of(const struct split_job *j); /* of a job that has some */
/* The rank with the most steps. */
const struct split_rank *split_longest(const struct split_job *j);

static inline double split_percent(uint64_t part, uint64_t whole)
{
	return whole ? 100.0 * (double)part / (double)whole : 0;
}

/* Of the ranks, the steps and the kernels. */
void split_tables(const struct split_job *j, unsigned top, struct buf *out);

#endif
