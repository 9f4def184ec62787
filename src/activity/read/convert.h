/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Files of activities into another form. A timeline, a workbook and a table hold those of all
 * processes; a DB and Jsonl are of one process each, so every process gets its own.
 */
#ifndef SONDE_ACTIVITY_READ_CONVERT_H
#define SONDE_ACTIVITY_READ_CONVERT_H

#include <stddef.h>
#include <stdint.h>

#include "activity/files/activity.h"
#include "base/err.h"

/* What was written. Zero-initialise, and free the path. */
struct converted {
	uint64_t activities;
	size_t processes;
	char *path; /* of the newest file; "": there was nothing to write */
};

/* `output` is the file, of DB and Jsonl the directory. `out` may be filled in part on failure. */
int activity_convert(char *const *paths, size_t npaths, const struct activity_writer_ops *ops,
		     const char *output, struct converted *out, struct err *err);

#endif
