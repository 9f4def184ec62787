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

/* The same again and again, for a system call each: where the count is, is searched for now and then
 * only. Zero-initialise, for one process. */
struct job_steps {
	uint64_t address; /* of the head of its arena; 0: none has been found */
	uint64_t look_ns; /* when to search again */
	uint64_t wait_ns; /* how long after the last search that was */
	uint32_t own_pid; /* what the process calls itself; 0: not read yet */
};

int64_t job_steps_follow(struct job_steps *s, pid_t pid, uint64_t now_ns);

#endif
