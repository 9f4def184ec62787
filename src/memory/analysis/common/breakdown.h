/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Who held what at a moment of a device: the rows, followed so that any moment of the past that was
 * chosen while it was the present (breakdown_take()) can be counted when the answer is wanted.
 *
 * The count adds up. The driver's bytes are divided into shares: driver blocks that pools cut
 * their blocks from are divided among those blocks, the rest of them being free inside the pool;
 * other driver blocks are shares themselves. Pools do not cut out of one another twice: a byte
 * belongs to the innermost block around it.
 *
 * A pool that maps its memory (halMemCreate) cannot be found by addresses, since the driver's
 * block has a handle in their place: its blocks are charged to such memory by their sizes.
 */
#ifndef SONDE_MEMORY_ANALYSIS_COMMON_BREAKDOWN_H
#define SONDE_MEMORY_ANALYSIS_COMMON_BREAKDOWN_H

#include "memory/analysis/common/blocks.h"

/* Others only read `blocks`. */
struct breakdown {
	struct blocks *blocks;
	struct breakdown_device **devices;
	size_t ndevices, cap_devices;
	uint64_t rows;
	uint64_t row_ns; /* time of the newest */
	struct block *carved; /* the driver block that a pool cut from for the first time in it */
};

/* The attributes that breakdown_row() reads. */
#define BREAKDOWN_ATTRS BLOCKS_ATTRS

/* A pool at the moment. */
struct breakdown_pool {
	struct block_pool *pool;
	uint64_t live_bytes, live_blocks;
	uint64_t reserved; /* from the driver, as its rows say; 0 where they do not */
};

struct breakdown_moment {
	bool taken;
	bool at_end; /* what is alive when the rows end, not what was held */
	uint64_t time_ns;
	uint64_t rows; /* up to it */
	uint32_t step; /* that ran or ran last, 0 before the first */
	bool in_step;
	uint64_t driver_bytes, pool_bytes;
	struct breakdown_pool *pools;
	size_t npools, cap_pools;
};

/* A part of the bytes: those of a block, or those free inside a pool (block is NULL). */
struct breakdown_share {
	struct block *block;
	struct block_pool *pool;
	uint64_t bytes;
};

struct breakdown_shares {
	struct breakdown_share *list;
	size_t n, cap;
	uint64_t bytes; /* of all of them */
	uint64_t outside_bytes; /* of those: in no driver block that is known */
};

struct breakdown *breakdown_new(void);
void breakdown_free(struct breakdown *c); /* c may be NULL */

/* blocks_add() and what else has to be noted. */
enum block_what breakdown_row(struct breakdown *c, const struct row *row, struct block_change *out);

/* The moment of a device; taken is false before the first breakdown_take(). */
struct breakdown_moment *breakdown_moment(struct breakdown *c, struct block_device *d);

/* Is the device fuller now than at its moment: by the driver's bytes, then by those of pools? */
bool breakdown_is_higher(const struct block_device *d, const struct breakdown_moment *m);

/* Makes this moment the one to count. */
void breakdown_take(struct breakdown *c, struct block_device *d);
/* The same for the end of the rows; only when they have ended. */
void breakdown_take_end(struct breakdown *c, struct block_device *d);
void breakdown_forget(struct breakdown *c, struct block_device *d);

/* Counts the device's moment. Release the result. */
void breakdown_count(struct breakdown *c, struct block_device *d, struct breakdown_shares *out);
void breakdown_shares_release(struct breakdown_shares *s);

/* The blocks that were alive at the moment, driver blocks and those of pools; free() out->at. */
void breakdown_alive(struct breakdown *c, struct block_device *d, struct block_list *out);
/* Has a pool cut blocks from this driver block? */
bool breakdown_is_carved(const struct block *b);
/* Has it a handle in place of an address? Of a driver block. */
bool breakdown_is_created(const struct block *b);

/* What stands for an owner where none was recorded: PTA, CANN, host, … */
const char *breakdown_source(enum row_type type);

/* Did any row have an owner? */
bool breakdown_has_owners(struct breakdown *c);

#endif
