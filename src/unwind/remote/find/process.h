/* SPDX-License-Identifier: MulanPSL-2.0 */
/* What /proc says about a process before its memory is looked at. */
#ifndef SONDE_UNWIND_REMOTE_FIND_PROCESS_H
#define SONDE_UNWIND_REMOTE_FIND_PROCESS_H

#include <limits.h>
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

#endif
