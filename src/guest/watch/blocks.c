/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Where the blocks of pools end, by where they begin: a free names only the beginning, and a
 * watched tensor may lie in the middle. A table of fixed size; a block that finds no place in it is
 * known by its beginning alone.
 */
#include "guest/watch/watch.h"

#define BUCKETS 16384u
#define WAYS 4u

static struct {
	_Atomic uint64_t key, bytes;
} blocks[BUCKETS][WAYS];

static uint64_t block_key(uint8_t pool, uint64_t addr)
{
	return addr ^ (uint64_t)pool << 56;
}

static uint64_t bucket_of(uint64_t key)
{
	return (key * 0x9e3779b97f4a7c15ull) >> 50;
}

_Static_assert(BUCKETS == 1u << (64 - 50), "bucket_of() gives a bucket");

void watch_blocks_put(uint8_t pool, uint64_t addr, uint64_t bytes)
{
	uint64_t key = block_key(pool, addr), b = bucket_of(key);

	for (uint32_t i = 0; i < WAYS; i++) {
		uint64_t seen = 0;
		if (atomic_compare_exchange_strong(&blocks[b][i].key, &seen, key) || seen == key) {
			atomic_store(&blocks[b][i].bytes, bytes);
			return;
		}
	}
}

uint64_t watch_blocks_take(uint8_t pool, uint64_t addr)
{
	uint64_t key = block_key(pool, addr), b = bucket_of(key);

	for (uint32_t i = 0; i < WAYS; i++) {
		uint64_t seen = key, bytes = atomic_load(&blocks[b][i].bytes);
		if (atomic_compare_exchange_strong(&blocks[b][i].key, &seen, 0))
			return bytes;
	}
	return 0;
}
