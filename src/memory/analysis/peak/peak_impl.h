/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Shared by the peak*.c files; nobody else includes this. */
#ifndef SONDE_MEMORY_ANALYSIS_PEAK_PEAK_IMPL_H
#define SONDE_MEMORY_ANALYSIS_PEAK_PEAK_IMPL_H

#include "memory/analysis/common/breakdown.h"
#include "memory/analysis/owners/tree.h"
#include "memory/analysis/peak/peak.h"

/* How full a device was. */
struct height {
	uint64_t driver_bytes, pool_bytes;
	uint32_t step; /* 0: outside of steps */
	bool known;
};

/* The highest moments of a device by step; in own[1] of struct block_device. */
struct heights {
	struct height now; /* of the step that runs, or of the time between two */
	struct height first, second; /* of steps that have ended */
};

struct peak {
	struct analysis base;
	struct peak_options options;
	struct census *census;
	struct heights **heights;
	size_t nheights, cap_heights;
	bool has_steps;
};

/* Bytes of one call stack. */
struct peak_place {
	uint32_t stack;
	bool before; /* no call stack, since they were there when recording began */
	uint64_t bytes, blocks;
};

/* Everything about the peak of a device. */
struct peak_device {
	struct block_device *device;
	struct census_moment *moment;
	struct census_shares shares; /* blocks, the largest first; then what is free */
	size_t nblocks; /* of them */
	struct owner_tree tree;
	struct peak_place *places; /* the largest first */
	size_t nplaces;
	struct height next; /* the highest of the other steps */
};

/* All devices with a peak, the highest first. */
struct peak_device *peak_devices(struct peak *p, size_t *out_n);
void peak_devices_free(struct peak_device *list, size_t n);

uint64_t peak_height(const struct peak_device *d); /* what the limit is about */
bool peak_is_above(const struct peak *p, const struct peak_device *d);
/* What can be won by lowering this peak alone: what the next highest is below it. */
uint64_t peak_gain(const struct peak_device *d);
/* How long the block had lived at the peak, and how long it lived on. */
uint64_t peak_age(const struct peak_device *d, const struct block *b);
uint64_t peak_lived_on(const struct peak_device *d, const struct block *b);

void peak_text(struct analysis *a, const struct analysis_style *style, struct buf *out);
json_t *peak_json(struct analysis *a, unsigned top);

#endif
