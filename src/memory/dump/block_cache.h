/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Reads records of a file in an order that is not the file's, but near it: some places go on from
 * where they were, and the reader jumps between them. Blocks of the file are kept in a table, one
 * place for every so many. A block comes in when it is asked for a second time in a row at its
 * place; a record that is alone where it lies costs one read of its own size.
 *
 * Not a mapping of the file: whoever makes the file shorter meanwhile must not kill us.
 */
#ifndef SONDE_MEMORY_DUMP_BLOCK_CACHE_H
#define SONDE_MEMORY_DUMP_BLOCK_CACHE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/containers/buf.h"

#define BLOCK_CACHE_SLOTS 256

struct block_slot {
	uint64_t asked; /* number of the block that was asked for last, counted from 1 */
	uint64_t number; /* of the block in `bytes`, 0 for none */
	struct buf bytes; /* with what begins in the block and ends behind it */
};

struct block_cache {
	/* Reads up to n bytes; how many, or a negative errno. */
	ssize_t (*read)(void *arg, char *to, size_t n, uint64_t offset);
	void *arg;
	size_t slack; /* bytes behind what is given that may be read too */
	struct buf single;
	struct block_slot slots[BLOCK_CACHE_SLOTS];
};

/*
 * The n bytes at the offset, good until the next call; the caller may change them, but then must
 * not ask again. 0, a negative errno, or -ENODATA where the file is shorter.
 */
int block_cache_get(struct block_cache *c, uint64_t offset, size_t n, char **out);
void block_cache_release(struct block_cache *c);

#endif
