/* SPDX-License-Identifier: MulanPSL-2.0 */
/* How long a mangled name of C++ may become when it is demangled. */
#ifndef SONDE_UNWIND_SYMBOLS_DEMANGLED_SIZE_H
#define SONDE_UNWIND_SYMBOLS_DEMANGLED_SIZE_H

#include <stdint.h>

#define DEMANGLED_MOST (4u << 20)

/* An upper bound of its bytes, DEMANGLED_MOST for that many or more. The name begins with "_Z". */
uint64_t demangled_size(const char *name);

#endif
