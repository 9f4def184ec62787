/* SPDX-License-Identifier: MulanPSL-2.0 */
/* The splits of ranks out of recordings of `sonde record`: every step that is in them from its
 * beginning to its end. */
#ifndef SONDE_ACTIVITY_STEPS_FROM_RECORDINGS_H
#define SONDE_ACTIVITY_STEPS_FROM_RECORDINGS_H

#include "activity/steps/job_summary.h"

/* Adds the ranks of the recordings at or below `dir`. -ENOENT: there is none with device time. */
int split_job_read_recorded(struct split_job *j, const char *dir, struct err *err);

#endif
