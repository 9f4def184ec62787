/* SPDX-License-Identifier: MulanPSL-2.0 */
/* From a recording back to files: what `sonde mem export` and the last step of recovery do. */
#ifndef SONDE_MEMORY_OUTPUTS_REPLAY_H
#define SONDE_MEMORY_OUTPUTS_REPLAY_H

#include "base/containers/buf.h"
#include "base/err.h"
#include "memory/dump/row.h"
#include "memory/track/track.h"

/* Feeds the whole recording to a sink. Processes without an end in it are ended at its end. */
int replay_recording(const char *file, struct track *t, bool *out_torn, struct err *err);

/* Writes the dumps of a recording. */
struct export_order {
	const char *format; /* csv, db */
	const char *output_dir;
	enum row_compat compat;
	bool as_recorded; /* processes that chose another format or place have it */
};
int export_recording(const char *path, const struct export_order *order, struct err *err);

#endif
