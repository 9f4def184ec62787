/* SPDX-License-Identifier: MulanPSL-2.0 */
/* What packing and expanding a batch must do in the same way. Nobody else includes this. */
#ifndef SONDE_RECORDER_PACK_IMPL_H
#define SONDE_RECORDER_PACK_IMPL_H

#include "recorder/pack/pack.h"
#include "wire/record.h"
#include "wire/recording.h"
#include "wire/ring.h"

#include <stdint.h>
#include <zstd.h>

enum pack_column {
	COLUMN_CODE,
	COLUMN_RUN,
	COLUMN_STACK,
	COLUMN_PC,
	COLUMN_TIME_LOW,
	COLUMN_TIME_HIGH,
	COLUMN_SIZE,
	COLUMN_ADDR,
	COLUMN_AGE,
	COLUMN_BYTES,
	COLUMNS,
};

#define PACK_SLOTS 8u

enum pack_code {
	PACK_ITEM = 0,
	PACK_RUN = 1,
	PACK_STACK = 2,
	PACK_RECORD = 3,
	PACK_ALLOC = 16,
	PACK_FREE = PACK_ALLOC + PACK_SLOTS,
	PACK_END = PACK_FREE + PACK_SLOTS,
};

struct pack_head {
	uint32_t batch_bytes;
	struct {
		uint32_t raw, stored;
	} column[COLUMNS];
};

#define SIZE_CLASSES 1024u

/* An allocation of the batch. */
struct pack_alloc {
	uint64_t addr;
	uint32_t class;
	uint32_t next; /* freed before it, of the same class; index + 1 */
};

/* What is known of the batch so far, the same on both sides. */
struct pack_state {
	uint64_t time_ns, alloc_addr, free_addr;
	struct rec_alloc alloc_slot[PACK_SLOTS];
	struct rec_free free_slot[PACK_SLOTS];
	unsigned nalloc_slots, nfree_slots; /* written so far: the next one is this, modulo */
	struct pack_alloc *allocs;
	size_t nallocs, cap_allocs;
	uint32_t freed[SIZE_CLASSES]; /* the newest of each class, index + 1 */
	uint64_t pc[ARENA_MAX_DEPTH]; /* the last stack */
	uint32_t depth;
};

struct pack {
	struct pack_state state;
	struct buf column[COLUMNS];
	struct buf batch;
	ZSTD_CCtx *compress;
	ZSTD_DCtx *expand;
	/* of packing: address → allocation that is alive */
	struct pack_known {
		uint64_t addr;
		uint32_t index; /* + 1; 0: empty */
	} * known;
	size_t nknown; /* a power of 2 */
	size_t cap_known;
};

void pack_state_reset(struct pack_state *s);
/* Where the allocator puts a block of this size next; 0: nobody knows. It is taken out. */
uint64_t pack_state_guess(struct pack_state *s, uint32_t class);
uint32_t pack_state_class(uint64_t size_bytes);
void pack_state_alloc(struct pack_state *s, uint64_t addr, uint32_t class);
void pack_state_free(struct pack_state *s, size_t index);
/* A record that is written in full. */
void pack_state_learn(struct pack_state *s, const struct rec *r);

static inline uint64_t zigzag(uint64_t now, uint64_t before)
{
	int64_t d = (int64_t)(now - before);

	return (uint64_t)d << 1 ^ (uint64_t)(d >> 63);
}

static inline uint64_t unzigzag(uint64_t v, uint64_t before)
{
	return before + (v >> 1 ^ -(v & 1));
}

#endif
