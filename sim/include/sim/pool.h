/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Memory pools as frameworks keep them: big segments from aclrtMalloc, cut into blocks, each block
 * announced through mstx in exactly the way its framework does it.
 *
 * Safe to use from several threads. A block is given back to the pool it came from.
 */
#ifndef SONDE_SIM_POOL_H
#define SONDE_SIM_POOL_H

#include <stddef.h>

enum sim_pool_kind {
	SIM_POOL_PTA, /* torch_npu's caching allocator, domain ptaCaching */
	SIM_POOL_PTA_WORKSPACE, /* torch_npu's workspace, domain ptaWorkspace, blocks only */
	SIM_POOL_MINDSPORE, /* domain mindsporeMemPool */
	SIM_POOL_ATB, /* domain atb, with handles */
};

struct sim_pool;

/* @device is the logical id; the calling thread's current device must be the same when it
 * allocates. */
struct sim_pool *sim_pool_new(enum sim_pool_kind kind, int device);
/* Gives every segment back to the device; blocks still out are not announced as freed. */
void sim_pool_free(struct sim_pool *pool);

/* NULL when the device has no memory left, after the cached segments were given back. */
void *sim_pool_alloc(struct sim_pool *pool, size_t size);
/* 0, or -1 when @ptr is not a block of this pool. */
int sim_pool_dealloc(struct sim_pool *pool, void *ptr);
/* Gives segments without a block in use back to the device. */
void sim_pool_trim(struct sim_pool *pool);

size_t sim_pool_reserved_bytes(const struct sim_pool *pool);
size_t sim_pool_used_bytes(const struct sim_pool *pool);
/* Bytes that the block at @ptr really occupies, 0 when there is none. */
size_t sim_pool_block_bytes(struct sim_pool *pool, const void *ptr);
/* Whether this process's pools announce themselves: frameworks look for the tool in LD_PRELOAD. */
int sim_pool_tool_present(void);

#endif
