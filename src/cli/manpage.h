/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Manual pages (man(7) macros) from the tables of the commands. */
#ifndef SONDE_CLI_MANPAGE_H
#define SONDE_CLI_MANPAGE_H

#include "base/text/args.h"
#include "cli/command.h"

/* The page of one command with its options. */
void manpage_command(const char *page, const struct args_spec *spec, struct buf *out);

/* The page of a group: its own words, then each of its commands with its options. */
void manpage_group(const struct command_group *group, struct buf *out);

#endif
