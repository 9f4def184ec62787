/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The job that `sonde stack run` starts, and what signals mean to a sampler.
 *
 * The job is our child, with our files, terminal and process group, so that it notices nothing.
 * What it leaves behind when it ends becomes our child, too, and can be followed.
 *
 * Without a job SIGINT, SIGTERM and SIGHUP end the sampler in good order, a second one at once.
 * With a job they are the job's: what was sent to us alone is passed on, and the sampler ends with
 * the job. SIGUSR1 asks for a snapshot. One set per process.
 */
#ifndef SONDE_SAMPLER_SESSION_JOB_H
#define SONDE_SAMPLER_SESSION_JOB_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/err.h"

enum stack_signals_flags {
	STACK_SIGNALS_JOB = 1 << 0, /* there will be a job: pass signals on */
	STACK_SIGNALS_DETACHED = 1 << 1, /* SIGINT ends the sampling, not the job */
};

void stack_signals_install(unsigned flags);
/* The signal that asks us to end; 0: none did. */
int stack_signals_stop(void);
/* True once for each request. */
bool stack_signals_take_snapshot(void);

struct stack_job {
	pid_t pid;
	bool ended;
	int status; /* exit status as a shell reports it, if ended: 128 + signal if it was killed */
};

/* -ENOENT, -EACCES and so on if it cannot be run. */
int stack_job_start(char **argv, struct stack_job *out, struct err *err);
/* Whether it has ended; reaps all children that have. */
bool stack_job_ended(struct stack_job *job);
void stack_job_wait(struct stack_job *job);

#endif
