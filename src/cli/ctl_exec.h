/* SPDX-License-Identifier: MulanPSL-2.0 */
/* The answer of another program: squeue, scontrol, kubectl. No shell is involved. */
#ifndef SONDE_CLI_CTL_EXEC_H
#define SONDE_CLI_CTL_EXEC_H

#include "base/buf.h"
#include "base/err.h"

/* Runs argv (found by PATH) for at most timeout_s and adds what it prints to `out`. What it leaves
 * running is not waited for. Fails, with the last line of its complaint, if it cannot be run, is
 * too late, prints too much or does not exit with status 0. */
int ctl_exec(const char *const *argv, unsigned timeout_s, struct buf *out, struct err *err);

#endif
