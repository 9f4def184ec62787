/* SPDX-License-Identifier: MulanPSL-2.0 */
/* A sampler in the background: going there, asking after it, ending it. */
#ifndef SONDE_CLI_STACK_DETACH_H
#define SONDE_CLI_STACK_DETACH_H

#include "cli/command.h"
#include "sampler/session/options.h"

/*
 * Forks. The one in the background returns with *out_ready set; it has no terminal, and writes to
 * the log. The one in front waits until the other calls stack_detach_ready(), and does not return
 * -1 but the exit status.
 */
int stack_detach(const struct command *cmd, const struct stack_options *o, int *out_ready);

/* Writes the file of pids and lets the one in front go. job: 0 if there is none. */
int stack_detach_ready(const struct stack_options *o, int ready, pid_t job, struct err *err);
/* Lets it go with the status and the message. */
void stack_detach_failed(int ready, int status, const struct err *err);

/* --status and --stop: the exit status. */
int stack_detach_status(const struct command *cmd, const struct stack_options *o);
int stack_detach_stop(const struct command *cmd, const struct stack_options *o);

#endif
