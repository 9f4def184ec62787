/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * What signals mean to a sampler. Without a job: SIGINT, SIGTERM and SIGHUP end it in good order, a
 * second one at once. With a job they are the job's: what was sent to us alone is passed on, and
 * the sampler ends with the job. SIGUSR1 asks for a snapshot. One set per process.
 */
#ifndef SONDE_SAMPLER_SESSION_SIGNALS_H
#define SONDE_SAMPLER_SESSION_SIGNALS_H

#include <stdbool.h>
#include <sys/types.h>

enum stack_signals_flags {
	STACK_SIGNALS_JOB = 1 << 0, /* there will be a job: pass signals on */
	STACK_SIGNALS_DETACHED = 1 << 1, /* SIGINT ends the sampling, not the job */
};

void stack_signals_install(unsigned flags);
/* Whom signals are passed on to; 0: nobody any more. */
void stack_signals_job(pid_t pid);
/* In a child before exec: signals that were ignored before are again. */
void stack_signals_forget(void);
/* The signal that asks us to end; 0: none did. */
int stack_signals_stop(void);
/* True once for each request. */
bool stack_signals_take_snapshot(void);

#endif
