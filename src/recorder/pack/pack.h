/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * A batch in a few bytes for each event: what follows from the records before is left out, and what
 * is left is put into columns, numbers of one meaning each, which compress well. A packed batch needs
 * nothing outside of itself to be read.
 *
 *	bytes of the batch | raw, stored of column 0 … | column 0 | column 1 | …
 *
 * Numbers are LEB128; `stored` is missing where `raw` is 0. A column is compressed (zstd) if stored <
 * raw. PACK_CODE has a byte for each item of the batch and each record of a run; what it stands for
 * takes its numbers from the other columns, in order:
 *
 *	PACK_RUN	a BATCH_RUN begins	RUN: proc, tid
 *	PACK_STACK	a BATCH_STACK		RUN: proc; NEW: id, as the difference to the one that
 *			comes after the stack before, depth, and how many of the outermost words are
 *			those of the stack before; PC: the others, each as the difference to the one
 *			before
 *	PACK_ITEM	another item		RUN: its length / 8; BYTES: the item
 *	PACK_RECORD	any record		RUN: its length / 8; TIME; BYTES: all but time_ns
 *	PACK_ALLOC_AS + s, PACK_FREE_AS + s	from now on records are as the one in slot s but for …
 *	PACK_ALLOC + p	a REC_ALLOC		TIME; STACK; SIZE; ADDR if nothing gives its place p
 *	PACK_FREE + a	a REC_FREE of the allocation that is a steps back	TIME; STACK
 *	PACK_FREE, PACK_FREE_ANY	of one that is not in the batch		TIME; STACK; FREED
 *	PACK_FREE_OLD	of one that is many steps back	TIME; STACK; AGE: how many
 *
 * A PACK_RECORD that is a REC_ALLOC or REC_FREE goes into the next slot.
 *
 * TIME is how many steps of PACK_TICK_NS further it is, if the record has the time at which that step
 * begins, or the time of the record before. Else it is TIME_EXACT, and the difference follows: its
 * lowest byte in TIME_LOW, the rest in TIME_HIGH. STACK is 0 for none, 1 for the first record that
 * names the stack that came last, else id + 1.
 *
 * The place of an allocation is what an allocator is likely to do: the block of its size that was
 * freed last, or one of those before it; behind the block that was cut off the heap last; one that
 * was freed a few steps ago, whatever its size. Else ADDR is the difference to the end of the block
 * that was cut off last, FREED that to the last such free; of PLACE_ALIGNED and PACK_FREE both in
 * units of 16 bytes.
 *
 * In version 2 of recordings, CODE is PACK_ALLOC + slot or PACK_FREE + slot, every time is exact,
 * the last three columns are in others, and numbers before the columns have 4 bytes.
 */
#ifndef SONDE_RECORDER_PACK_H
#define SONDE_RECORDER_PACK_H

#include "base/containers/buf.h"

#include <stdbool.h>
#include <stddef.h>

/* Times at the beginning of such a step take less space than others. */
#define PACK_TICK_NS 128u

/* Buffers of one after the other; zero-initialise. */
struct pack;
struct pack *pack_new(void);
void pack_free(struct pack *p);

/* Adds the packed form of a well-formed batch to out. False: it has none that is smaller. */
bool pack_batch(struct pack *p, const char *batch, size_t bytes, struct buf *out);

/* The batch again, borrowed until the next call. -EINVAL: this is none; *out_bytes is what it cost. */
int pack_expand(struct pack *p, const char *packed, size_t bytes, const char **out_batch,
		size_t *out_bytes);
/* The same for one of version 2. */
int pack_expand_v2(struct pack *p, const char *packed, size_t bytes, const char **out_batch,
		   size_t *out_bytes);

#endif
