/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The line of /proc/PID/stat, and one of /proc/PID/status, for both worlds: pure code, no heap, no
 *stdio.
 *
 *	4711 (python3 train.py) S 4700 … 4194304 … 530 12 … 8812345 … 93824992231424 …
 *	1    2                  3 4      9         14  15   22        26, 28
 *	pid  name           state parent flags     user     start     start of code and of
 *	                                           system             stack
 *
 * The process chooses its own name: blanks, brackets and new lines may stand in it. Fields
 * therefore count from the last closing bracket of the line. Reading the file is the caller's:
 * base/proc.h in our own processes, guest_read_file() inside a job.
 */
#ifndef SONDE_WIRE_PROC_STAT_H
#define SONDE_WIRE_PROC_STAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PROC_STAT_BYTES 1024 /* the longest line that a kernel writes is shorter */

struct proc_stat {
	char name[64]; /* as the process wrote it; cut, NUL-terminated */
	char state; /* R running, S and D asleep, T stopped, Z and X ended, … */
	uint32_t parent;
	uint64_t flags;
	uint64_t user_ticks, system_ticks; /* processor time */
	uint64_t start_ticks; /* since the machine was started; with the pid, the identity */
	uint64_t start_code, start_stack; /* change with every exec(); 0: hidden from us */
};

/* False: the text is no such line; *out is untouched then. */
bool proc_stat_parse(const char *text, size_t len, struct proc_stat *out);

/*
 * From the text of /proc/PID/status: how many filters of system calls (seccomp) the process has.
 * Kernels before 5.9 say only whether there are any: 1.
 */
uint32_t proc_status_filters(const char *text, size_t len);
/* From the same text: the most memory (RSS) that its program has had, in KiB; 0: not known. */
uint32_t proc_status_peak_kib(const char *text, size_t len);

/* A zombie: its first thread has ended. Others may still run; only a pidfd can say. */
static inline bool proc_stat_ended(const struct proc_stat *s)
{
	return s->state == 'Z' || s->state == 'X' || s->state == 'x';
}

#endif
