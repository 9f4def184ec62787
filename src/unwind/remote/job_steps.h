/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * How many steps of a job have ended, as its own process has counted them: where it is recorded, or its
 * monitor is on, the head of its arena says so (wire/ring.h). It is memory of a foreign process: a
 * number that may be anything.
 */
#ifndef SONDE_UNWIND_REMOTE_JOB_STEPS_H
#define SONDE_UNWIND_REMOTE_JOB_STEPS_H

#include <stdint.h>
#include <sys/types.h>

/* -1: nobody counts them, or none has ended. */
int64_t job_steps_read(pid_t pid);

#endif
