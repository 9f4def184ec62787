/* SPDX-License-Identifier: MulanPSL-2.0 */
/* The program that a launcher becomes, and the libraries of ours that are preloaded into it. */
#ifndef SONDE_LAUNCH_PROGRAM_H
#define SONDE_LAUNCH_PROGRAM_H

#include <stdbool.h>

#include "base/containers/buf.h"
#include "base/err.h"

#define ASAN_ENV "ASAN_OPTIONS"
#define LAUNCH_KERNEL_HOOK "libascend_kernel_hook.so" /* one that every installation has */

/* Looks for the program as execvp() will and adds where it is to out. -ENOENT, or -EACCES if what
 * was found cannot be run. */
int launch_find_program(const char *name, struct buf *out, struct err *err);

/* Where the libraries to preload are: $LD_PRELOAD_PATH, or lib or lib64 beside our own bin. */
int launch_lib_dir(struct buf *out, struct err *err);
bool launch_has_library(const char *dir, const char *name);

/*
 * ASan ends a program before which another library is preloaded, unless an option switches that
 * check off. The value of ASAN_OPTIONS that does, with what was set before; NULL: what was set has
 * the option already.
 */
char *launch_asan_options(void);

#endif
