/* SPDX-License-Identifier: MulanPSL-2.0 */
/* What /proc says about a process. All of it is text that the process itself may have chosen. */
#ifndef SONDE_BASE_PROC_H
#define SONDE_BASE_PROC_H

#include <stdbool.h>
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

/*
 * Processes beyond pid namespaces. The number of a process depends on who asks: system calls take
 * that of the caller's namespace, /proc shows that of the namespace for which it was mounted.
 */

/* The inode of the pid namespace of a process, as /proc has it ("self" or a number); 0: not known.
 */
uint64_t proc_pid_namespace(const char *pid);
/* A pidfd of the process that is `pid` in that namespace. -ESRCH: there is none in our namespace and
 * those below; another negative errno: there is one, or nobody knows. */
int proc_open_in_namespace(uint64_t pid_namespace, uint32_t pid);
/* Are the numbers in /proc those that system calls take? Not in a pid namespace that has the /proc
 * of another. */
bool proc_is_ours(void);
/* Its number in /proc; 0: it has ended, or /proc does not show it. */
pid_t proc_number(int pidfd);
/* Has the process that /proc shows as `pid` a file mapped exactly there? Also false where nobody
 * can tell. Cheap. */
bool proc_has_mapping(pid_t pid, uint64_t from, uint64_t to);
/* Has it a file of that name mapped from there on? 1, 0, or a negative errno where nobody can tell.
 * Reads the whole list. */
int proc_has_mapped(pid_t pid, uint64_t from, const char *name);

/* Is /proc mounted with hidepid, which hides the processes of others from whoever is not root? */
bool proc_hides_processes(void);

/* The bytes as text to show: control characters and what is no UTF-8 become '?'; the NULs that end
 * the words of a command line become blanks. */
void proc_add_printable(struct buf *out, const char *text, size_t len);

#endif
