/* SPDX-License-Identifier: MulanPSL-2.0 */
/* What stands behind a function of a preload library; see next.c. */
#ifndef SONDE_GUEST_INTERPOSE_NEXT_H
#define SONDE_GUEST_INTERPOSE_NEXT_H

#include <stdbool.h>

/* Where this library begins and its code ends. */
extern const char __ehdr_start[] __attribute__((visibility("hidden")));
extern const char etext[] __attribute__((visibility("hidden")));

static inline bool is_own_code(const void *fn)
{
	return (const char *)fn >= __ehdr_start && (const char *)fn < etext;
}

/* NULL: there is none. */
void *next_function(const char *name);
void *next_function_of(const char *name, const char *version);

/* Those of the C library itself, whoever stands before them; NULL where they are not found. */
typedef void *(*dlsym_fn)(void *handle, const char *name);
typedef void *(*dlvsym_fn)(void *handle, const char *name, const char *version);
struct loader_calls {
	dlsym_fn dlsym;
	dlvsym_fn dlvsym;
};
struct loader_calls loader_calls_find(void);

#endif
