/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * How the memory of the interpreter is read: of another process (unwind/remote/memory.h), or of our
 * own (unwind/python/local.h). Everything above works with both.
 */
#ifndef SONDE_UNWIND_PYTHON_READER_H
#define SONDE_UNWIND_PYTHON_READER_H

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

#endif
