/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Which Python it is, from texts. Versions are PY_VERSION_HEX. */
#ifndef SONDE_UNWIND_REMOTE_FIND_VERSION_H
#define SONDE_UNWIND_REMOTE_FIND_VERSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "unwind/remote/find/elf.h"

#define VERSION_MAJOR(v) ((v) >> 24)
#define VERSION_MINOR(v) ((v) >> 16 & 0xff)
#define VERSION_SERIES(v) ((v) >> 16) /* 0x0307: 3.7 and what came before its first release */

/* Longest text of sys.version that is looked for. */
#define VERSION_TEXT 320

/*
 * Looks in the memory of an interpreter for sys.version ("3.9.18 (main, Jan 1 2024, 12:00:00)
 * [GCC 12.2.0]"), which it keeps in a variable of its own once sys is there.
 */
bool version_find(const char *bytes, size_t n, uint32_t *out);

/* The writable memory of a binary, searched for what has no symbol. */

/* Blocks overlap by so much: nothing shorter is cut by the end of one. A multiple of 8. */
#define SCAN_OVERLAP 1024

/* Calls fn for all bytes, block by block, until it returns true. Then true. */
typedef bool (*scan_fn)(void *arg, uint64_t addr, const char *bytes, size_t n);
bool scan_image(const struct elf_image *image, scan_fn fn, void *arg);

/* The version that sys.version names. */
bool scan_version(const struct elf_image *image, uint32_t *out);

#endif
