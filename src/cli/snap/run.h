/* SPDX-License-Identifier: MulanPSL-2.0 */
/* The ways in which `sonde snap` keeps looking. Each returns the exit status. */
#ifndef SONDE_CLI_SNAP_RUN_H
#define SONDE_CLI_SNAP_RUN_H

#include "cli/command.h"
#include "cli/snap/take.h"

int snap_watch(const struct command *cmd, struct snap_look *l);
int snap_hang(const struct command *cmd, struct snap_look *l);

#endif
