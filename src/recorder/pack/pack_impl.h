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
	COLUMNS_V2,
	COLUMN_TIME = COLUMNS_V2,
	COLUMN_NEW,
	COLUMN_FREED,
	COLUMNS,
};

#define PACK_SLOTS 8u
#define TIME_EXACT 255u

/* Places of an allocation: so many steps down the freed blocks of its class, and others. */
enum pack_place {
	PLACE_CLASS = 0,
	PLACE_BEHIND = 8,
	PLACE_FREED = 9,
	PLACE_ANY = 30,
	PLACE_ALIGNED = 31,
	PLACES,
};

#define RECENT (PLACE_ANY - PLACE_FREED)

enum pack_code {
	PACK_ITEM = 0,
	PACK_RUN = 1,
	PACK_STACK = 2,
	PACK_RECORD = 3,
	PACK_ALLOC_AS = 4,
	PACK_FREE_AS = PACK_ALLOC_AS + PACK_SLOTS,
	PACK_ALLOC = PACK_FREE_AS + PACK_SLOTS,
	PACK_FREE = PACK_ALLOC + PLACES,
	PACK_FREE_ANY = 254,
	PACK_FREE_OLD = 255,
};

enum pack_code_v2 {
	PACK_V2_ALLOC = 16,
	PACK_V2_FREE = PACK_V2_ALLOC + PACK_SLOTS,
	PACK_V2_END = PACK_V2_FREE + PACK_SLOTS,
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
	uint64_t time_ns;
	uint64_t alloc_addr; /* the last one; in version 2 alone */
	uint64_t behind; /* the end of the block that was cut off the heap last */
	uint64_t free_addr; /* the last one of a block that is not in the batch */
	uint64_t recent[RECENT]; /* freed; the next one is nrecent modulo RECENT */
	uint32_t nrecent;
	struct rec_alloc alloc_slot[PACK_SLOTS];
	struct rec_free free_slot[PACK_SLOTS];
	unsigned nalloc_slots, nfree_slots; /* written so far: the next one is this, modulo */
	unsigned alloc_as, free_as; /* the slots in use */
	struct pack_alloc *allocs;
	size_t nallocs, cap_allocs;
	uint32_t freed[SIZE_CLASSES]; /* the newest of each class, index + 1 */
	uint64_t pc[ARENA_MAX_DEPTH]; /* the last stack */
	uint32_t depth, stack;
	bool stack_is_new; /* no record has named it */
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
uint32_t pack_state_class(uint64_t size_bytes);
/* The address at this place, which is not PLACE_ANY or PLACE_ALIGNED; false: there is none. A block
 * of its class is taken out. */
bool pack_state_take(struct pack_state *s, uint32_t class, unsigned place, uint64_t *out_addr);
/* As in version 2: the newest of the class is taken out; 0: there is none. */
uint64_t pack_state_guess(struct pack_state *s, uint32_t class);
void pack_state_alloc(struct pack_state *s, uint64_t addr, uint64_t size_bytes, unsigned place);
/* A block of the batch, by its index, or another by its address. */
void pack_state_free(struct pack_state *s, size_t index);
void pack_state_free_other(struct pack_state *s, uint64_t addr);
/* A record that is written in full. */
void pack_state_learn(struct pack_state *s, const struct rec *r);
void pack_state_stack(struct pack_state *s, const struct batch_stack *stack);

/* When the n-th step after the last record begins, or that record, if it is later. */
static inline uint64_t pack_state_tick(const struct pack_state *s, uint64_t n)
{
	return n ? s->time_ns - s->time_ns % PACK_TICK_NS + n * PACK_TICK_NS : s->time_ns;
}

static inline uint32_t pack_state_next_stack(const struct pack_state *s)
{
	return s->stack + 1 + s->depth;
}

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
