/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The memory of another process, read without stopping it: process_vm_readv. Every byte that comes
 * back may be from a different moment.
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
