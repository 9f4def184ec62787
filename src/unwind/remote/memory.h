/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The memory of another process, read without stopping it: process_vm_readv. Every byte that comes
 * back may be from a different moment.
 *
 * What can be relied on: the kernel copies the spans of one call in their order, and each from its
 * first byte to its last. Two spans of the same place therefore show it before and after everything
 * that lies between them in the list; the walk is built on that (walk.h). What cannot: that a span
 * is of one moment, or that an aligned word is not torn by a copy of bytes. (It is copied by words
 * in practice; nothing here depends on it, a torn word is a word that changed.)
 *
 * A call ends at the first page that is not there. It is not an error: how many spans came whole is
 * the answer. Not thread-safe: one struct remote per thread that reads.
 */
#ifndef SONDE_UNWIND_REMOTE_MEMORY_H
#define SONDE_UNWIND_REMOTE_MEMORY_H

#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "unwind/python/reader.h"

struct remote {
	struct python_reader reader; /* first: a struct remote is one */
	pid_t pid;
	uint64_t calls; /* system calls made */
};

struct remote_span {
	uint64_t addr;
	void *out;
	size_t n;
};

#define REMOTE_SPANS 512 /* most in one call */

void remote_init(struct remote *r, pid_t pid);

int remote_read(struct remote *r, uint64_t addr, void *out, size_t n);

/*
 * Several places in one call, in this order. Returns how many spans came whole: less than n if one
 * of them could not be read. Negative if the process is gone (-ESRCH) or not ours to read (-EPERM).
 */
int remote_readv(struct remote *r, const struct remote_span *spans, unsigned n);

#endif
