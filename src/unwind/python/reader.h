/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * How the memory of the interpreter is read. One function pointer is all that separates the two
 * worlds: of another process (unwind/remote/memory.h, every read may fail), or of our
 * own (unwind/python/reader.h). Everything above works with both.
 */
#ifndef SONDE_UNWIND_PYTHON_READER_H
#define SONDE_UNWIND_PYTHON_READER_H

#include <errno.h>
#include <stddef.h>
#include <stdint.h>

struct python_reader {
	/* All n bytes, or a negative errno. */
	int (*read)(const struct python_reader *r, uint64_t addr, void *out, size_t n);
};

static inline int python_read(const struct python_reader *r, uint64_t addr, void *out, size_t n)
{
	return r->read(r, addr, out, n);
}

static inline int python_read_word(const struct python_reader *r, uint64_t addr, uint64_t *out)
{
	return r->read(r, addr, out, sizeof(*out));
}

/*
 * The interpreter of our own process, for code that runs inside of a job: the memory is simply
 * there. Only the calling thread's own stack may be walked with it, which cannot change meanwhile.
 */

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
