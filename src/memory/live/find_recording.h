/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Which recording is meant: by its path, or by a process that is being recorded. */
#ifndef SONDE_MEMORY_LIVE_FIND_RECORDING_H
#define SONDE_MEMORY_LIVE_FIND_RECORDING_H

#include "base/containers/buf.h"
#include "base/err.h"

/* `word` is a path as recording_resolve() takes it, or a number of which there is no file. */
int live_find(const char *word, struct buf *out_path, struct err *err);

#endif
