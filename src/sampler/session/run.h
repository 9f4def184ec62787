/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * A sampling from its start to its end, with the job that it starts, if there is one, and with the
 * process in front that waits for it, if it is in the background.
 */
#ifndef SONDE_SAMPLER_SESSION_RUN_H
#define SONDE_SAMPLER_SESSION_RUN_H

#include "sampler/session/session.h"

enum stack_outcome {
	STACK_DONE,
	STACK_NOT_FOUND, /* the job's program */
	STACK_NOT_EXECUTABLE,
	STACK_FAILED,
};

/* What an error of looking for the job's program, or of starting it, means. */
enum stack_outcome stack_job_outcome(int code);

struct stack_run {
	/* set by the caller */
	struct stack_session session;
	struct stack_options *o;
	char **words; /* of the job; NULL: there is none */
	bool detached;
	int ready; /* of stack_background_start(), to the process in front; -1: there is none */
	const char *pid_file; /* of a sampler in the background */
	/* zeroed */
	struct stack_job job;
	bool opened;
};

/* Opens the output, starts the job, samples, completes the output, and waits for the job. */
enum stack_outcome stack_run_sample(struct stack_run *r, struct err *err);
/* After the last message. */
void stack_run_end(struct stack_run *r);

#endif
