/* SPDX-License-Identifier: MulanPSL-2.0 */
/* The one way behind `msmemscope --compare` and `sonde mem compare`. */
#ifndef SONDE_CLI_MEM_COMPARE_RUN_H
#define SONDE_CLI_MEM_COMPARE_RUN_H

#include "cli/command.h"
#include "memory/input/input.h"

struct compare_job {
	const char *input[2];
	const char *output_dir; /* the result goes to compare/ in it */
	unsigned level; /* enum compare_level; 0: operators, or call sites where there are none */
	unsigned top;
	unsigned wait_s; /* for a recorder that is still finishing its files */
	struct input_choice choice[2]; /* of processes, of each input */
	bool json;
	bool fail_on_difference;
};

/* Prints the answer or what is wrong, and returns the exit status. */
int compare_run(const struct command *cmd, struct compare_job *job);

#endif
