/* SPDX-License-Identifier: MulanPSL-2.0 */
/* What msmemscope and `sonde mem record` share: all but what is written. */
#ifndef SONDE_CLI_MEM_MSMEMSCOPE_H
#define SONDE_CLI_MEM_MSMEMSCOPE_H

#include "cli/command.h"

/* The section about exit statuses; how_ is added to the first sentence. */
#define MSMEMSCOPE_STATUS_SECTION(how_)                                                            \
	{                                                                                          \
		"EXIT STATUS", "That of the program" how_                                          \
			       ". 1 if it could not be recorded (then it is not run), 2 for a "    \
			       "mistake in the options, 127 if the program was not found and 126 " \
			       "if it could not be run."                                           \
	}

int msmemscope_run(const struct command *cmd, int argc, char **argv);

#endif
