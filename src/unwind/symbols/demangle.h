/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Names as people read them: of C++ demangled, of anybody made printable. The one place where
 * either happens, for recordings, live stacks, activities and the commands that show them.
 *
 * Names of C++ as people write them. The only one who knows all of them is the runtime of C++,
 * which we do not want to need: it is used where it is. Not thread safe.
 */
#ifndef SONDE_UNWIND_SYMBOLS_DEMANGLE_H
#define SONDE_UNWIND_SYMBOLS_DEMANGLE_H

#include "base/containers/buf.h"

#include <stddef.h>

/* What a mangled name means; the caller frees it. NULL: it is none, nobody here knows, or
 * it is longer than anybody reads. */
char *demangle(const char *name);
/* Adds the name, as people write it if it is one of C++; of more than `max` bytes the first, and
 * "...".
 */
void demangle_add_name(struct buf *out, const char *name, size_t max);

/* --- as stacks show them: interned, printable, cut at 400 bytes --- */

const char *symbol_text(const char *text, size_t len);
/* A function: of C++ as people write it; without the version that a library's symbol may carry
 * (clock_nanosleep@GLIBC_2.2.5). */
const char *symbol_name(const char *name);

#endif
