/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The steps by which a launcher turns itself into the recorded program: find the program and our
 * libraries, make the recording's directory, set the environment. No step changes anything that
 * the program could notice besides its environment: not the pid, files, signals or limits.
 */
#ifndef SONDE_CLI_MEM_PRELOAD_H
#define SONDE_CLI_MEM_PRELOAD_H

#include <stdbool.h>

#include "base/containers/buf.h"
#include "base/err.h"
#include "base/text/args.h"

#define ASAN_ENV "ASAN_OPTIONS"

/* Looks for the program as execvp() will and adds where it is to out. -ENOENT, or -EACCES if what
 * was found cannot be run. */
int launch_find_program(const char *name, struct buf *out, struct err *err);

/* Where the libraries to preload are: $LD_PRELOAD_PATH, or lib or lib64 beside our own bin. */
int launch_lib_dir(struct buf *out, struct err *err);

/* The value of LD_PRELOAD: ours, in their order, then what was there. Libraries that are missing
 * are left out with a notice, as the loader would complain in every process of the job. */
int launch_preload(const char *lib_dir, bool host_memory, struct args *a, struct buf *out,
		   struct err *err);

/* Makes <output>/recording_<pid>_<time>, with a suffix if that is taken, and adds its path. */
int launch_make_dir(const char *output, struct buf *out, struct err *err);

/*
 * ASan ends a program before which another library is preloaded, unless it is told not to look. The
 * value of ASAN_OPTIONS that says so, with what was set before; NULL: what was set says it already.
 */
char *launch_asan_options(void);

/* Sets what the libraries and their users look for. */
int launch_set_environment(const char *dir, const char *preload, struct err *err);

#endif
