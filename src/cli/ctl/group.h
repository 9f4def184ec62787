/* SPDX-License-Identifier: MulanPSL-2.0 */
/* What the groups `ctl` and `dyno` consist of, for the list in commands.c. */
#ifndef SONDE_CLI_CTL_GROUP_H
#define SONDE_CLI_CTL_GROUP_H

#include "cli/command.h"

extern const char *const ctl_usage[];
extern const struct opt ctl_options[]; /* the common ones alone */
extern const struct args_section ctl_sections[], dyno_sections[];
extern const struct args_example ctl_examples[], dyno_examples[];

/* Finds and runs the command of the group, whose common options may come before its name. */
int ctl_run(const struct command_group *group, int argc, char **argv);

#endif
