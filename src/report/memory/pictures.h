/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * What the pictures of memory are drawn from: for every site (call stack, owner, module and pool of a
 * device) what it allocated and freed over time, on a grid; the level of each device; which addresses
 * were in use; steps, and requests that were refused. An analysis that stands on that of owners, so that
 * the peak and the end are exactly what `sonde mem owners` says.
 *
 * Memory is bounded, whatever the number of rows: the grid becomes coarser, and the smallest sites
 * become one, "others", of their pool; how many and how much they were is counted.
 */
#ifndef SONDE_REPORT_MEMORY_PICTURES_H
#define SONDE_REPORT_MEMORY_PICTURES_H

#include "memory/analysis/owners/owners.h"
#include "report/memory/address_map.h"
#include "report/memory/series.h"

#define PICTURES_NO_STACK_KEPT UINT32_MAX /* of a site that stands for others */

struct picture_site {
	const struct block_pool *pool;
	uint32_t scope, stack, owner, layer;
	uint32_t folded; /* its number + 1: what it would have is counted there */
	uint8_t type; /* of struct group_types */
	bool created; /* driver memory without an address: pools may lie in it */
	bool before; /* was there when recording began */
	struct series series;
	uint64_t live_bytes, live_blocks, most_bytes;
	uint64_t allocated_bytes, allocations;
	uint64_t stands_for; /* sites that were folded into it */
	uint32_t out; /* its number in the report + 1 */
};

struct picture_level {
	bool set;
	uint64_t least, most, last;
};

/* What a process holds of a device. */
struct picture_scope {
	struct block_device *device;
	struct picture_level *levels; /* by bucket */
	size_t nlevels, cap_levels;
	uint64_t left_driver, left_pool; /* of blocks that nobody freed */
	bool has_pool; /* one that cuts from the driver's blocks */
};

struct picture_step {
	const struct block_process *process;
	uint32_t number;
	uint64_t start_ns, end_ns; /* end_ns 0: has not ended */
};

struct picture_oom {
	const struct block_process *process;
	uint32_t device;
	uint64_t time_ns, bytes;
};

struct pictures {
	struct analysis base;
	struct analysis *owners;
	struct grid grid;
	struct picture_site *sites;
	size_t nsites, cap_sites;
	struct hmap site_of;
	struct picture_scope *scopes;
	size_t nscopes, cap_scopes;
	struct address_map **maps; /* by number of the pool; NULL where there is none */
	size_t nmaps, cap_maps, maps_made;
	size_t map_entries;
	struct picture_step *steps;
	size_t nsteps, cap_steps;
	uint64_t more_steps; /* that there was no room for */
	struct picture_oom *ooms;
	size_t nooms, cap_ooms;
	uint64_t folded; /* sites that are in others now */
	uint64_t first_ns, last_ns;
	bool finished;
};

struct pictures *pictures_new(void);
/* When the rows have ended, and before it is written. */
void pictures_finish(struct pictures *p);
/* The site of a block, made if it is new; its number. */
uint32_t pictures_site(struct pictures *p, const struct block *b);
/* Makes the grid coarser once. */
void pictures_halve(struct pictures *p);
/* Folds the smallest sites until there are at most so many, and their series have at most so many
 * entries. */
void pictures_limit(struct pictures *p, size_t sites, size_t entries);
/* The site itself or the one that it is folded into. */
uint32_t pictures_resolve(const struct pictures *p, uint32_t site);

#endif
