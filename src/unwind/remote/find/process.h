/* SPDX-License-Identifier: MulanPSL-2.0 */
/* What /proc says about a process before its memory is looked at. */
#ifndef SONDE_UNWIND_REMOTE_FIND_PROCESS_H
#define SONDE_UNWIND_REMOTE_FIND_PROCESS_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/containers/buf.h"
#include "base/err.h"
#include "unwind/remote/find/elf.h"

struct remote_process {
	char name[64]; /* as ps shows it, printable */
	char exe[PATH_MAX]; /* "" if unknown; without " (deleted)" */
};

/*
 * Adds /proc/PID/maps to `maps`, which the caller releases (also on failure). -ESRCH if there is no
 * such process or it has ended, -EPERM with words, -ENOEXEC for threads of the kernel, -EAGAIN if
 * it has no memory at this moment.
 */
int remote_process_open(pid_t pid, struct remote_process *out, struct buf *maps, struct err *err);

/* A process chooses its name: control characters become '?'. */
void remote_make_printable(char *text);

/* The lines of /proc/PID/maps, one by one. The text is borrowed. */

struct map_line {
	uint64_t start, end;
	uint64_t offset; /* in the file */
	uint64_t inode; /* 0: no file */
	uint64_t device; /* major << 32 | minor */
	bool readable, writable, executable;
	bool deleted; /* the file has no name any more */
	const char *path; /* not ended by NUL; length 0 if there is none */
	size_t path_len; /* without " (deleted)" */
};

/* Takes the next line that makes sense from [*at, end); false when there is none. */
bool maps_next(const char **at, const char *end, struct map_line *out);

#endif
