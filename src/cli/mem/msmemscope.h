/* SPDX-License-Identifier: MulanPSL-2.0 */
/* What msmemscope and `sonde mem record` share: all but what is written. */
#ifndef SONDE_CLI_MEM_MSMEMSCOPE_H
#define SONDE_CLI_MEM_MSMEMSCOPE_H

#include "cli/command.h"

int msmemscope_run(const struct command *cmd, int argc, char **argv);

#endif
