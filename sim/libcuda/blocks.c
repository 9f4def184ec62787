/* SPDX-License-Identifier: MulanPSL-2.0 */
/* What is allocated, by address; and addresses, which are handed out again as a real driver does. */
#include "driver.h"

#include <stdlib.h>

#define FIRST_ADDRESS 0x700000000000ull
#define ALIGN 512u
#define KEPT 64 /* addresses that were given back, of each size class */

static struct block *table;
static size_t size, used; /* a power of two; cells that are or were in use */
static uint64_t next_address = FIRST_ADDRESS;

static struct {
	uint64_t addr[KEPT], bytes[KEPT];
	unsigned n;
} kept[64];

static size_t slot_of(uint64_t addr)
{
	return (size_t)((addr >> 4) * 0x9e3779b97f4a7c15ull >> 20) & (size - 1);
}

static void put(struct block b)
{
	size_t i = slot_of(b.addr);

	while (table[i].addr)
		i = (i + 1) & (size - 1);
	table[i] = b;
}

static void grow(void)
{
	struct block *old = table;
	size_t n = size;

	size = size ? size * 2 : 1024;
	table = calloc(size, sizeof(*table));
	for (size_t i = 0; i < n; i++)
		if (old[i].addr)
			put(old[i]);
	free(old);
}

struct block *sim_block_add(uint64_t addr, uint64_t bytes, enum block_kind kind)
{
	if (2 * (used + 1) > size)
		grow();
	put((struct block){.addr = addr, .bytes = bytes, .kind = kind});
	used++;
	return sim_block_find(addr);
}

struct block *sim_block_find(uint64_t addr)
{
	for (size_t i = addr && size ? slot_of(addr) : 0; size && addr && table[i].addr;
	     i = (i + 1) & (size - 1))
		if (table[i].addr == addr)
			return &table[i];
	return NULL;
}

/* Those behind it that would not be found any more are moved up. */
void sim_block_remove(struct block *b)
{
	size_t hole = (size_t)(b - table);

	used--;
	for (size_t i = (hole + 1) & (size - 1); table[i].addr; i = (i + 1) & (size - 1)) {
		size_t home = slot_of(table[i].addr);
		if (((i - home) & (size - 1)) >= ((i - hole) & (size - 1))) {
			table[hole] = table[i];
			hole = i;
		}
	}
	table[hole] = (struct block){0};
}

void sim_blocks_end(CUcontext ctx)
{
	for (size_t i = 0; i < size;) {
		struct block b = table[i];
		if (!b.addr || b.ctx != ctx) {
			i++;
			continue;
		}
		if (b.kind == BLOCK_PLAIN)
			sim_give(b.device, b.bytes);
		if (b.kind == BLOCK_HOST && !b.registered)
			free((void *)(uintptr_t)b.addr);
		sim_block_remove(&table[i]);
	}
}

static unsigned class_of(uint64_t bytes)
{
	return bytes > 1 ? 63u - (unsigned)__builtin_clzll(bytes) : 0;
}

uint64_t sim_address(uint64_t bytes)
{
	unsigned c = class_of(bytes);
	uint64_t whole = (bytes + ALIGN - 1) / ALIGN * ALIGN;

	if (kept[c].n && kept[c].bytes[kept[c].n - 1] == whole)
		return kept[c].addr[--kept[c].n];
	uint64_t addr = next_address;
	next_address += whole;
	return addr;
}

void sim_address_back(uint64_t addr, uint64_t bytes)
{
	unsigned c = class_of(bytes);

	if (kept[c].n == KEPT)
		kept[c].n = 0;
	kept[c].addr[kept[c].n] = addr;
	kept[c].bytes[kept[c].n++] = (bytes + ALIGN - 1) / ALIGN * ALIGN;
}
