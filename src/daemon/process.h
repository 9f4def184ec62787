/* SPDX-License-Identifier: MulanPSL-2.0 */
/* What the daemon's process needs before and beside its loop. */
#ifndef SONDE_DAEMON_PROCESS_H
#define SONDE_DAEMON_PROCESS_H

/* First of all: standard files that are open, memory that stays small. */
void process_prepare(void);

/*
 * The duties of process 1, for a container whose only program is the daemon: the kernel gives it
 * every orphan to wait for, and delivers only signals that it handles. Does nothing unless this is
 * process 1. Then it goes on in a child only: the caller's process passes signals on to the child,
 * waits for every process that ends, and ends with the child, with its status. To be called before
 * there are threads.
 */
void process_become_init(void);

/* Releases what only starting took: free heap, and pages of the program and its libraries that were
 * read once (relocation, symbol tables). What is needed again comes back from the page cache. */
void process_release_startup_memory(void);

#endif
