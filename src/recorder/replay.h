/* SPDX-License-Identifier: MulanPSL-2.0 */
/* From a recording back to files: what `sonde mem export` and the last step of recovery do. */
#ifndef SONDE_RECORDER_REPLAY_H
#define SONDE_RECORDER_REPLAY_H

#include "base/buf.h"
#include "base/err.h"
#include "export/row.h"
#include "recorder/track.h"

/* The recording meant by a path: the file itself, or the one in a recording's directory. */
int replay_find(const char *path, struct buf *out_file, struct err *err);

/* Feeds the whole recording to a sink. Processes without an end in it are ended at its end. */
int replay_recording(const char *file, struct track *t, bool *out_torn, struct err *err);

/* Writes the dumps of a recording below out_dir, in the given format (csv, db). */
int export_recording(const char *path, const char *format, const char *out_dir,
		     enum row_compat compat, struct err *err);

#endif
