/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Writes to files by threads, while the caller makes the next bytes. The kernel's part of a large
 * dump takes longer than ours. The threads are shared by all files of the process and made when
 * they are needed; a file has one write under way at most, so that it has no holes after a failure.
 */
#ifndef SONDE_MEMORY_DUMP_WRITE_BEHIND_H
#define SONDE_MEMORY_DUMP_WRITE_BEHIND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A write. What is not said to be an outcome belongs to the caller, but not to be changed before
 * write_behind_wait(). */
struct write_behind {
	int fd;
	const char *data;
	size_t len;
	uint64_t at;
	int result; /* outcome: 0 or a negative errno, */
	size_t done; /* and the bytes that are in the file */
	bool waiting;
	struct write_behind *next;
};

/* Sets the outcome before it returns if no thread can do it. */
void write_behind_start(struct write_behind *w);
/* Returns when there is an outcome. */
void write_behind_wait(struct write_behind *w);

#endif
