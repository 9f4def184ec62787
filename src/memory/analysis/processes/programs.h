/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Which processes an answer lists. A process is several programs, one after the other, if it calls
 * exec(): answers count it once. And shims, shells and the like hold next to nothing: beside
 * processes that do, they are helpers, which are counted in one line. Zero-initialise and release.
 */
#ifndef SONDE_MEMORY_ANALYSIS_PROCESSES_PROGRAMS_H
#define SONDE_MEMORY_ANALYSIS_PROCESSES_PROGRAMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/containers/buf.h"
#include "base/containers/hmap.h"

#define HELPER_BYTES (1ull << 20)

struct programs {
	struct hmap by_program, by_pid; /* the most bytes of each */
	size_t processes, small; /* by pid; small: with less than HELPER_BYTES */
};

/* `program` is any address that stands for it; it may be added again, with other bytes. */
void programs_add(struct programs *p, const void *program, uint32_t pid, uint64_t bytes);
/* Is it one that is not listed: a helper, or the shim that became a program that is listed? */
bool programs_is_helper(const struct programs *p, const void *program);
/* Processes that are not listed. */
size_t programs_helpers(const struct programs *p);
/* "and 3 helper processes that held less than 1.00 MiB", if there are any; did is "held". */
bool programs_describe_helpers(const struct programs *p, const char *did, struct buf *out);
void programs_release(struct programs *p);

#endif
