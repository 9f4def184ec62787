/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Exports to the standard output. Writers of files go back and forth in them, so the text is made
 * in a directory of ours first, which goes afterwards.
 */
#ifndef SONDE_CLI_ACTIVITY_TO_STDOUT_H
#define SONDE_CLI_ACTIVITY_TO_STDOUT_H

#include "base/err.h"

/* `path` does not exist yet: it may become a file, or a directory with files. */
typedef int (*stdout_make_fn)(void *arg, const char *path, struct err *err);

/* Prints what was made; of a directory all files, in the order of their names. */
int activity_stdout(stdout_make_fn make, void *arg, struct err *err);

#endif
