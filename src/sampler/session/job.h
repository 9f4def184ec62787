/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The job that `sonde stack run` starts: our child, with our files, terminal and process group, so
 * that it notices nothing. What it leaves behind when it ends becomes our child, too, and can be
 * followed.
 */
#ifndef SONDE_SAMPLER_SESSION_JOB_H
#define SONDE_SAMPLER_SESSION_JOB_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/err.h"

struct stack_job {
	pid_t pid;
	bool ended;
	int status; /* exit status as a shell tells it, if ended: 128 + signal if it was killed */
};

/* -ENOENT, -EACCES and so on if it cannot be run. */
int stack_job_start(char **argv, struct stack_job *out, struct err *err);
/* Whether it has ended; reaps all children that have. */
bool stack_job_ended(struct stack_job *job);
void stack_job_wait(struct stack_job *job);

#endif
