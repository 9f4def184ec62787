/* SPDX-License-Identifier: MulanPSL-2.0 */
/* How a recorder comes to be: a launcher starts it, and it leaves the job that it came from. */
#ifndef SONDE_RECORDER_START_H
#define SONDE_RECORDER_START_H

#include "base/err.h"
#include "wire/control_page.h"

#include <stdbool.h>

/* Where rings lie that cannot lie beside the output: <TMPDIR>/<prefix>XXXXXX, with a file that holds
 * the path of their recording. */
#define RINGS_PREFIX "sonde-rings-"
#define RINGS_OWNER_FILE "recording"
/* If nothing but that file is in it. */
void remove_ring_dir(const char *rings);

/*
 * For a launcher that is about to become the job: starts a recorder for the session in `dir`, whose
 * page is mapped and configured, and waits until it is ready. The recorder is nobody's child and
 * shares nothing with the job.
 */
int recorder_start(const char *dir, struct control_page *page, struct err *err);

/* In the recorder: where its launcher waits for it, -1 for one that a process of the job called. */
int recorder_ready_fd(void);
/* Lets the launcher go on: 0, or what is wrong. Closes fd. */
void recorder_ready(int fd, int result, const struct err *err);

/*
 * In the recorder: keeps nothing of the job. Not its descriptors (but keep_fd, -1: none), not its
 * terminal's signals, not its directory and limits. Stderr stays if it is a terminal; then
 * *out_terminal is true.
 */
void recorder_leave_job(int keep_fd, bool *out_terminal);

#endif
