/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Shared by the census*.c files; nobody else includes this. */
#ifndef SONDE_MEMORY_ANALYSIS_COMMON_BREAKDOWN_IMPL_H
#define SONDE_MEMORY_ANALYSIS_COMMON_BREAKDOWN_IMPL_H

#include "base/containers/omap.h"
#include "memory/analysis/common/breakdown.h"

/* What struct block's own[] is used for. */
enum census_own {
	OWN_CARVED, /* of a driver block: the struct block_pool that cut from it first */
	OWN_CREATED, /* of a driver block: it has a handle in place of an address */
	OWN_LEFT, /* rows until it was LEFT, and one; 0 before */
};

/* What is known of a device besides; in own[0] of struct block_device. */
struct census_device {
	struct census_moment moment;
	bool indexed; /* there are pools: driver blocks are kept by address */
	struct omap driver; /* may hold blocks that have ended: surrounds() looks */
	struct block *last; /* driver block of the newest pool block */
	uint64_t last_row; /* the how manyth was its newest, made-up frees aside */
};

struct census {
	struct blocks *blocks;
	struct census_device **devices;
	size_t ndevices, cap_devices;
	uint64_t rows;
	uint64_t row_ns; /* time of the newest */
};

static inline struct block_pool *block_carved_by(const struct block *b)
{
	return (struct block_pool *)(uintptr_t)b->own[OWN_CARVED];
}

static inline uint64_t block_end(const struct block *b)
{
	return b->ptr + b->bytes < b->ptr ? UINT64_MAX : b->ptr + b->bytes;
}

/* Was it alive at the moment? Asked of blocks that were held for it, or are in the table. */
bool census_was_alive(const struct census_moment *m, const struct block *b);

#endif
