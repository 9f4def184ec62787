/* SPDX-License-Identifier: MulanPSL-2.0 */
/* A recorder that was started from inside a job keeps nothing of it. */
#ifndef SONDE_RECORDER_LEAVE_JOB_H
#define SONDE_RECORDER_LEAVE_JOB_H

#include <stdbool.h>

/*
 * Not its descriptors (but keep_fd, -1: none), not its terminal's signals, not its directory and
 * limits. Stderr stays if it is a terminal, which is told.
 */
void leave_the_job(int keep_fd, bool *out_terminal);

#endif
