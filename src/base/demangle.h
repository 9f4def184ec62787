/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Names of C++ as people write them. The only one who knows all of them is the runtime of C++,
 * which we do not want to need: it is used where it is. Not thread safe.
 */
#ifndef SONDE_BASE_DEMANGLE_H
#define SONDE_BASE_DEMANGLE_H

/* What a mangled name means; the caller frees it. NULL: it is none, or nobody here knows. */
char *demangle(const char *name);

#endif
