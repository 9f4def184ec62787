/* SPDX-License-Identifier: MulanPSL-2.0 */
/* sonde mem compare --by: the peaks of two runs by module, call site or type. */
#ifndef SONDE_CLI_MEM_COMPARE_BY_H
#define SONDE_CLI_MEM_COMPARE_BY_H

#include "cli/mem/analysis_command.h"
#include "memory/analysis/groups/groups.h"

struct compare_by {
	const char *input[2];
	struct groups_options groups;
	unsigned pid[2]; /* 0: all */
	const char *rank; /* NULL: all */
	unsigned top, wait_s;
	bool json;
	bool fail_on_difference;
};

/* Prints the answer or what is wrong, and returns the exit status. */
int compare_by_run(const struct command *cmd, const struct compare_by *job);

#endif
