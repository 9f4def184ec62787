/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * A batch in a few bytes for each event: what follows from the records before is left out, and what
 * is left is put into columns, numbers of one meaning each, which compress well. A packed batch needs
 * nothing outside of itself to be read.
 *
 *	u32 bytes of the batch | u32 raw, stored of column 0 … | column 0 | column 1 | …
 *
 * A column is compressed (zstd) if stored < raw. PACK_CODE has a byte for each item of the batch and
 * each record of a run; what it stands for takes its numbers (LEB128) from the other columns, in
 * order:
 *
 *	PACK_RUN	a BATCH_RUN begins	RUN: proc, tid
 *	PACK_STACK	a BATCH_STACK		RUN: proc; STACK: id, depth, and how many of the
 *			outermost words are those of the stack before; PC: the others, each as the
 *			difference to the one before
 *	PACK_ITEM	another item		RUN: its length / 8; BYTES: the item
 *	PACK_RECORD	any record		RUN: its length / 8; TIME; BYTES: all but time_ns
 *	PACK_ALLOC + s	as the REC_ALLOC in slot s but for	TIME; STACK; SIZE; ADDR
 *	PACK_FREE + s	as the REC_FREE in slot s but for	TIME; STACK; AGE, and ADDR if that is 0
 *
 * TIME is the difference to the record before: its lowest byte in one column, the rest in another.
 * AGE counts the allocations of the batch from the one that is freed. ADDR of an allocation is 0 if
 * it is that of the block of its size that was freed last, as allocators do; else the difference to
 * the allocation before. A PACK_RECORD that is a REC_ALLOC or REC_FREE goes into the next slot.
 */
#ifndef SONDE_RECORDER_PACK_H
#define SONDE_RECORDER_PACK_H

#include "base/containers/buf.h"

#include <stdbool.h>
#include <stddef.h>

/* Buffers of one after the other; zero-initialise. */
struct pack;
struct pack *pack_new(void);
void pack_free(struct pack *p);

/* Adds the packed form of a well-formed batch to out. False: it has none that is smaller. */
bool pack_batch(struct pack *p, const char *batch, size_t bytes, struct buf *out);

/* The batch again, borrowed until the next call. -EINVAL: this is none; *out_bytes is what it cost. */
int pack_expand(struct pack *p, const char *packed, size_t bytes, const char **out_batch,
		size_t *out_bytes);

#endif
