/* SPDX-License-Identifier: MulanPSL-2.0 */
/* What /proc says about a process. All of it is text that the process itself may have chosen. */
#ifndef SONDE_BASE_PROC_H
#define SONDE_BASE_PROC_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/containers/buf.h"
#include "wire/proc_stat.h"

/* Reads at most cap - 1 bytes of /proc/PID/NAME, with NUL behind them. Their number, or a negative
 * errno; -ESRCH if there is no such process. */
ssize_t proc_read(pid_t pid, const char *name, char *out, size_t cap);

/* What /proc/PID/stat says; a negative errno as above, -EPROTO if it is no such line. */
int proc_stat_read(pid_t pid, struct proc_stat *out);

/* The bytes as text to show: control characters and what is no UTF-8 become '?'; the NULs that end
 * the words of a command line become blanks. */
void proc_add_printable(struct buf *out, const char *text, size_t len);

#endif
