/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Recordings of `sonde record` whose recorder was killed, before they are read. */
#ifndef SONDE_CLI_RECORD_FINISH_H
#define SONDE_CLI_RECORD_FINISH_H

#include "cli/command.h"

/*
 * What the buffers of its processes still hold goes into a recording first, as `sonde mem recover`
 * brings it there; of recordings at or below the path that are the user's own and of which nobody lives.
 * Says so on stderr, or why not.
 */
void record_finish_killed(const struct command *cmd, const char *path);

#endif
