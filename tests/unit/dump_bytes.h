/* SPDX-License-Identifier: MulanPSL-2.0 */
/* A CSV dump out of bytes in memory, for tests and fuzzers. */
#ifndef SONDE_TESTS_UNIT_DUMP_BYTES_H
#define SONDE_TESTS_UNIT_DUMP_BYTES_H

#include <sys/mman.h>

#include "base/fs.h"
#include "base/mem.h"
#include "memory/input/reader.h"
#include "memory/input/reader_impl.h"

static inline int dump_open_bytes(const void *data, size_t len, unsigned flags, struct dump **out,
				  struct err *err)
{
	int fd = memfd_create("dump", MFD_CLOEXEC);

	BUG_ON(fd < 0 || fs_write_all(fd, data, len, 0, NULL) < 0);
	return dump_open_csv(fd, "(memory)", flags, out, err);
}

#endif
