/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Functions for qsort() and bsearch() over arrays of structs, by one member that is a number. */
#ifndef SONDE_BASE_COMPARE_H
#define SONDE_BASE_COMPARE_H

#define COMPARE(x, y) (((x) > (y)) - ((x) < (y)))

/* COMPARE_BY(by_start, struct span, start) */
#define COMPARE_BY(name, type, member)                                                             \
	static int name(const void *a, const void *b)                                              \
	{                                                                                          \
		const type *x = a, *y = b;                                                         \
		return COMPARE(x->member, y->member);                                              \
	}

/* The largest first. */
#define COMPARE_BY_MOST(name, type, member)                                                        \
	static int name(const void *a, const void *b)                                              \
	{                                                                                          \
		const type *x = a, *y = b;                                                         \
		return COMPARE(y->member, x->member);                                              \
	}

/* Of numbers. */
#define COMPARE_VALUES(name, type)                                                                 \
	static int name(const void *a, const void *b)                                              \
	{                                                                                          \
		const type *x = a, *y = b;                                                         \
		return COMPARE(*x, *y);                                                            \
	}

#endif
