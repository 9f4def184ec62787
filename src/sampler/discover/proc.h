/* SPDX-License-Identifier: MulanPSL-2.0 */
/* What /proc says of a process. All of it is text that the process itself may have chosen. */
#ifndef SONDE_SAMPLER_DISCOVER_PROC_H
#define SONDE_SAMPLER_DISCOVER_PROC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/containers/buf.h"

struct proc_stat {
	char comm[64];
	char state;
	pid_t parent;
	uint64_t user_ticks, system_ticks;
	uint64_t start_ticks;
};

/* Reads at most cap - 1 bytes of /proc/PID/NAME, with NUL behind them. Their number, or a negative
 * errno; -ESRCH if there is no such process. */
ssize_t proc_read(pid_t pid, const char *name, char *out, size_t cap);

/* The content of /proc/PID/stat. The name in it may hold any character, brackets and new lines
 * too. -EPROTO if it is nothing of the kind. */
int proc_stat_parse(const char *text, size_t len, struct proc_stat *out);
int proc_stat_read(pid_t pid, struct proc_stat *out);

/* The bytes as text to show: control characters and what is no UTF-8 become '?'; the NULs that end
 * the words of a command line become blanks. */
void proc_add_printable(struct buf *out, const char *text, size_t len);

#endif
