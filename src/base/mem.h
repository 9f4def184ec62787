/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Allocation for our own processes. The x* family never returns NULL: it ends the process with a
 * message. Sizes that come from input are checked against a cap by the caller first.
 */
#ifndef SONDE_BASE_MEM_H
#define SONDE_BASE_MEM_H

#include <stddef.h>

__attribute__((malloc, returns_nonnull)) void *xmalloc(size_t size);
__attribute__((malloc, returns_nonnull)) void *xcalloc(size_t n, size_t size);
/*
 * Zeroed memory that has its cache lines for itself. What one thread writes all the time must not
 * lie beside what another reads: that costs more than all the work (memory/input/read_ahead.c).
 */
__attribute__((malloc, returns_nonnull)) void *xcalloc_apart(size_t size);
#define MEM_APART 128 /* two lines: processors fetch them in pairs */
__attribute__((returns_nonnull)) void *xrealloc(void *p, size_t size);
__attribute__((malloc, returns_nonnull)) char *xstrdup(const char *s);
__attribute__((malloc, returns_nonnull)) char *xstrndup(const char *s, size_t n);
__attribute__((malloc, returns_nonnull, format(printf, 1, 2))) char *xasprintf(const char *fmt,
									       ...);

/* Grows an array of `size`-byte elements so that index `need - 1` exists; doubles. */
void *xgrow(void *p, size_t *cap, size_t need, size_t size);

/* A new last element of an array that has `n` of them, and its address: *XPUSH(list, n, cap) = v.
 */
#define XPUSH(list, n, cap)                                                                        \
	({                                                                                         \
		(list) = xgrow((list), &(cap), (size_t)(n) + 1, sizeof(*(list)));                  \
		&(list)[(n)++];                                                                    \
	})

/* For our own mistakes, never for input: always compiled in, aborts with file and line. */
#define BUG_ON(cond)                                                                               \
	do {                                                                                       \
		if (__builtin_expect(!!(cond), 0))                                                 \
			bug_report(__FILE__, __LINE__, #cond);                                     \
	} while (0)

__attribute__((noreturn)) void bug_report(const char *file, int line, const char *what);

#endif
