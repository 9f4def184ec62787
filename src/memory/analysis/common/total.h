/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The sum of what several processes hold of a device, and its highest moment. Rows of one process
 * come in order of time, but those of a process that has just appeared, or ended, come a little
 * later than those of the others. So changes wait, the newest TOTAL_WINDOW of them at most, and
 * are added up in order. Zero-initialise and release.
 */
#ifndef SONDE_MEMORY_ANALYSIS_COMMON_TOTAL_H
#define SONDE_MEMORY_ANALYSIS_COMMON_TOTAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/numbers/bin_course.h"

#define TOTAL_WINDOW (1u << 17)

struct total_change {
	uint64_t time_ns;
	uint64_t bytes; /* to be added, modulo 2^64 */
};

struct total_peak {
	uint64_t live_bytes; /* now */
	uint64_t bytes, time_ns; /* at the highest moment */
	bool late; /* a change came after younger ones had been added up: it is not exact */
};

struct total {
	struct total_peak sum; /* of all changes that wait no more */
	uint64_t added_ns; /* time of the newest of them */
	struct total_change *waiting;
	size_t n, cap;
	bool unsorted;
	struct timed_course *course; /* of the sum; NULL: not kept */
};

/* Before anything is added: that the course of the sum is kept. */
void total_keep_course(struct total *t);
void total_add(struct total *t, uint64_t time_ns, uint64_t bytes);
static inline void total_take(struct total *t, uint64_t time_ns, uint64_t bytes)
{
	total_add(t, time_ns, -bytes);
}

/* With those that wait. More may come afterwards. */
struct total_peak total_peak(struct total *t);
/* The course with those that wait, up to the newest; only if it is kept. */
struct timed_course total_course(struct total *t);
void total_release(struct total *t);

#endif
