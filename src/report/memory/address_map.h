/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Which addresses of a pool were in use when: for every piece of the address space how many of its
 * bytes blocks covered, bucket by bucket, of all blocks; and the largest and longest blocks by
 * themselves. Buckets of its own become longer, and pieces larger, as there are more of them.
 *
 * Kept are differences in both directions: a row has what it covers more than the row before it, an
 * entry what changes in its bucket. So a block costs four entries at most, whatever its size, and
 * adding up along both gives the map.
 */
#ifndef SONDE_REPORT_MEMORY_ADDRESS_MAP_H
#define SONDE_REPORT_MEMORY_ADDRESS_MAP_H

#include "base/containers/hmap.h"
#include "memory/analysis/common/blocks.h"
#include "report/memory/series.h"

#define ADDRESS_MAP_MOST_ROWS 2048u
#define ADDRESS_MAP_MOST_ENTRIES 400000u
#define ADDRESS_MAP_FEWEST_BUCKETS 1500u
#define ADDRESS_MAP_MOST_BLOCKS 3000u

struct map_row {
	uint64_t piece; /* address >> shift */
	struct series series;
};

struct map_block {
	double area; /* bytes times how long it lived */
	uint64_t ptr, bytes, start_ns, end_ns, key, row;
	uint32_t site;
	bool left; /* nobody freed it */
};

struct address_map {
	const struct block_pool *pool;
	unsigned shift;
	unsigned time_shift; /* a bucket of it is 2^time_shift of the grid */
	struct map_row *rows;
	size_t nrows, cap_rows;
	struct hmap row_of; /* by piece */
	size_t entries;
	struct map_block *blocks; /* a heap, that with the smallest area first */
	size_t nblocks, cap_blocks;
	uint64_t others; /* blocks that are in the rows alone */
};

struct address_map *address_map_new(const struct block_pool *pool);
void address_map_free(struct address_map *m);

/* Blocks come in the bucket of their beginning, and go in that of their end. */
void address_map_change(struct address_map *m, struct grid *g, const struct block *b,
			uint32_t bucket, bool comes);
void address_map_ended(struct address_map *m, const struct block *b, uint32_t site, uint64_t end_ns,
		       bool left);
void address_map_halve(struct address_map *m, struct grid *g); /* its series */
/* Makes buckets longer and pieces larger until it has no more entries than that. */
void address_map_shrink(struct address_map *m, struct grid *g, size_t most);
void address_map_sort(struct address_map *m); /* rows by address, blocks by size; at the end */

#endif
