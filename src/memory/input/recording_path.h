/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Which recording the user means, and whether it is finished. */
#ifndef SONDE_MEMORY_INPUT_RECORDING_PATH_H
#define SONDE_MEMORY_INPUT_RECORDING_PATH_H

#include "base/containers/buf.h"
#include "base/err.h"

/* A recording, a dump file or any other file stands for itself; a directory that holds recordings
 * (an output path) stands for the newest of them. Adds the path to out. */
int recording_resolve(const char *path, struct buf *out, struct err *err);

/* The words for a path that is not there, or (error: errno) cannot be looked at. */
int recording_not_found(const char *path, int error, struct err *err);

/* When the job of this recording has ended but its recorder is still at work: waits for it, at
 * most `seconds`. Returns whether it is still at work. Does not wait for a running job. */
int recording_wait(const char *path, unsigned seconds);

#endif
