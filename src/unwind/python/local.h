/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The interpreter of our own process, for code that runs inside of a job: the memory is simply
 * there. Only the calling thread's own stack may be walked with it, which cannot change meanwhile.
 */
#ifndef SONDE_UNWIND_PYTHON_LOCAL_H
#define SONDE_UNWIND_PYTHON_LOCAL_H

#include <errno.h>

#include "unwind/python/reader.h"

static inline int python_local_read(const struct python_reader *r, uint64_t addr, void *out,
				    size_t n)
{
	(void)r;
	/* Never an address of a user's memory. */
	if (addr < 4096 || addr >> 56)
		return -EFAULT;
	__builtin_memcpy(out, (const void *)(uintptr_t)addr, n);
	return 0;
}

#define PYTHON_LOCAL_READER                                                                        \
	{                                                                                          \
		python_local_read                                                                  \
	}

#endif
