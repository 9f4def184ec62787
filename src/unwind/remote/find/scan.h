/* SPDX-License-Identifier: MulanPSL-2.0 */
/* The writable memory of a binary, searched for what has no symbol. */
#ifndef SONDE_UNWIND_REMOTE_FIND_SCAN_H
#define SONDE_UNWIND_REMOTE_FIND_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "unwind/remote/find/elf.h"

/* Blocks overlap by so much: nothing shorter is cut by the end of one. A multiple of 8. */
#define SCAN_OVERLAP 1024

/* Calls fn for all bytes, block by block, until it returns true. Then true. */
typedef bool (*scan_fn)(void *arg, uint64_t addr, const char *bytes, size_t n);
bool scan_image(const struct elf_image *image, scan_fn fn, void *arg);

/* The version that sys.version names. */
bool scan_version(const struct elf_image *image, uint32_t *out);

#endif
