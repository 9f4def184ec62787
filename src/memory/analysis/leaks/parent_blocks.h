/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The driver's blocks of a device in the order of their addresses: who is asked which of them a
 * pool has cut its block from. Zero-initialise and release.
 */
#ifndef SONDE_MEMORY_ANALYSIS_LEAKS_PARENT_BLOCKS_H
#define SONDE_MEMORY_ANALYSIS_LEAKS_PARENT_BLOCKS_H

#include "base/containers/omap.h"
#include "memory/analysis/common/blocks.h"

struct carve {
	struct omap by_ptr;
	struct block *last; /* the one that was found last */
};

void carve_add(struct carve *c, struct block *b);
void carve_remove(struct carve *c, const struct block *b);

/* The block that holds all of [ptr, ptr + bytes), or NULL. */
struct block *carve_around(struct carve *c, uint64_t ptr, uint64_t bytes);

void carve_release(struct carve *c);

#endif
