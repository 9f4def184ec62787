/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Several jobs in one trace: an order without --job-id goes to all processes of a node. */
#ifndef SONDE_ACTIVITY_STEPS_SEVERAL_H
#define SONDE_ACTIVITY_STEPS_SEVERAL_H

#include "activity/steps/job.h"

/* Ranks come more than once, or say themselves that they are of different jobs. In order of ranks.
 */
bool split_job_is_several(const struct split_job *j);

/* Makes and judges j->jobs: by what ranks say their job is, then by who has started them. There are
 * none if a rank would still come twice, or if every process of different ranks would be a job. */
void split_job_part(struct split_job *j);

#endif
