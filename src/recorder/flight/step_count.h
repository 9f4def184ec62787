/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * How far a job is, for consumers that want to know while it runs: the step of the process that is
 * furthest, however it reports them. memory/track has the exact rules.
 */
#ifndef SONDE_RECORDER_FLIGHT_STEP_COUNT_H
#define SONDE_RECORDER_FLIGHT_STEP_COUNT_H

#include "base/containers/hmap.h"
#include "wire/record.h"

#include <stdbool.h>
#include <stdint.h>

#define STEPS_OF_A_JOB 2 /* before the next one a job that does nothing prepares itself */

/* Zero-initialise and release. */
struct step_count {
	uint64_t step; /* that is running, counted from 1; 0: none has been reported */
	struct hmap ranges; /* process to its ranges "step start" so far */
};

/* True: a step begins. */
bool step_count_record(struct step_count *c, uint32_t proc, const struct rec *r);
void step_count_release(struct step_count *c);

#endif
