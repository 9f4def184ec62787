/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Fills the device with a pool's blocks, gives every second one back, and asks for a large one:
 * half of the pool is free, and no piece of it is large enough.
 */
#include <stdio.h>
#include <stdlib.h>

#include "acl/acl.h"
#include "sim/pool.h"

#define MB (1u << 20)
#define BLOCK (2u * MB)
#define PER_SEGMENT 10 /* of 20 MB */
#define SEGMENT_COST (22u * MB) /* the runtime adds a header, the driver whole pages */
#define LARGE (32u * MB)

static __attribute__((noinline)) void **fill_the_device(struct sim_pool *pool, size_t n)
{
	void **blocks = calloc(n, sizeof(*blocks));

	for (size_t i = 0; blocks && i < n; i++)
		blocks[i] = sim_pool_alloc(pool, BLOCK);
	return blocks;
}

static __attribute__((noinline)) void *ask_for_a_large_one(struct sim_pool *pool)
{
	void *p = sim_pool_alloc(pool, LARGE);

	__asm__ volatile("" ::: "memory"); /* no tail call: the stack is to name us */
	return p;
}

int main(void)
{
	size_t unused = 0, total = 0;

	if (aclInit(NULL) || aclrtSetDevice(0) || aclrtGetMemInfo(ACL_HBM_MEM, &unused, &total))
		return 1;
	struct sim_pool *pool = sim_pool_new(SIM_POOL_PTA, 0);
	size_t n = unused / SEGMENT_COST * PER_SEGMENT;
	void **blocks = fill_the_device(pool, n);
	if (!blocks || !n || !blocks[n - 1])
		return 1;
	for (size_t i = 0; i < n; i += 2)
		sim_pool_dealloc(pool, blocks[i]);
	void *large = ask_for_a_large_one(pool);
	printf("%zu of %zu bytes in use, large block %s\n", sim_pool_used_bytes(pool),
	       sim_pool_reserved_bytes(pool), large ? "granted" : "refused");
	free(blocks);
	sim_pool_free(pool);
	aclFinalize();
	return 0;
}
