/* SPDX-License-Identifier: MulanPSL-2.0 */
/* sonde record --dump: asks the recorder of a recording for a copy. */
#ifndef SONDE_CLI_RECORD_DUMP_H
#define SONDE_CLI_RECORD_DUMP_H

#include "cli/command.h"

/* The first word of a names it: a process of the job, or a directory; none: the newest in output. */
int record_dump(const struct command *cmd, struct args *a, const char *output);

#endif
