/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Who owns what at a moment: for each process and device a tree of owners (PTA over PTA@weight, …)
 * that adds up to the driver's bytes.
 */
#ifndef SONDE_MEMORY_ANALYSIS_OWNERS_OWNERS_H
#define SONDE_MEMORY_ANALYSIS_OWNERS_OWNERS_H

#include "base/err.h"
#include "memory/analysis/common/analysis.h"
#include "memory/analysis/groups/groups.h"

enum owners_when {
	OWNERS_PEAK, /* when the device held most */
	OWNERS_END,
	OWNERS_TIME, /* ns since the epoch */
	OWNERS_AFTER, /* ns after the first row */
	OWNERS_STEP, /* the highest moment of a step */
};

struct owners_at {
	enum owners_when when;
	uint64_t ns;
	uint32_t step;
};

/* peak, end, step:N, +12.5s (ns, us, ms, s, min), or nanoseconds since the epoch. -EINVAL. */
int owners_at_parse(const char *text, size_t len, struct owners_at *out, struct err *err);

struct analysis *owners_new(const struct owners_at *at); /* NULL: the peak */
/* The answer is to be by modules, lines or types; before it is asked for. */
void owners_group(struct analysis *a, const struct groups_options *o);
/* Calls fn for the groups of each process and device. */
void owners_each(struct analysis *a, void (*fn)(void *arg, uint32_t device, const struct groups *g),
		 void *arg);

/* For those who write the moment into files: what the newest row changed; and each process and device
 * that has reached it. */
struct block_change;
struct block_device;
struct breakdown;
const struct block_change *owners_change(const struct analysis *a);
struct breakdown *owners_breakdown(struct analysis *a);
void owners_each_device(struct analysis *a, void (*fn)(void *arg, struct block_device *d),
			void *arg);

/* 0, or -ENODATA and what there is instead, when no row reached the moment. */
int owners_reached(struct analysis *a, struct err *err);

#endif
