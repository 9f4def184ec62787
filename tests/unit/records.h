/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Records and frames as the real writers make them, appended to a buffer. */
#ifndef SONDE_TESTS_UNIT_RECORDS_H
#define SONDE_TESTS_UNIT_RECORDS_H

#include "base/containers/buf.h"
#include "wire/record.h"
#include "wire/recording.h"

#include <stdint.h>
#include <string.h>

/* RECORD(&b, REC_ALLOC, rec_alloc, 10, .addr = 1, .pool = POOL_HAL) */
#define RECORD(buf, type_, struct_, ns_, ...)                                                      \
	buf_add(buf,                                                                               \
		&(struct struct_){                                                                 \
			.head = {.type = type_, .size = sizeof(struct struct_), .time_ns = ns_},   \
			__VA_ARGS__},                                                              \
		sizeof(struct struct_))

/* The same for a type with text: TEXT_RECORD(&b, REC_MARK, rec_mark, 10, "hi", 2, .kind = 1) */
#define TEXT_RECORD(buf, type_, struct_, ns_, text_, n_, ...)                                      \
	do {                                                                                       \
		uint16_t size_ = rec_size(sizeof(struct struct_), n_);                             \
		buf_add(buf,                                                                       \
			&(struct struct_){.head = {.type = type_, .size = size_, .time_ns = ns_},  \
					  .len = (uint16_t)(n_),                                   \
					  __VA_ARGS__},                                            \
			sizeof(struct struct_));                                                   \
		buf_add(buf, text_, n_);                                                           \
		buf_add(buf, "\0\0\0\0\0\0\0", size_ - sizeof(struct struct_) - (n_));             \
	} while (0)

#define MARK_RECORD(buf, ns_, kind_, range_, text_)                                                \
	TEXT_RECORD(buf, REC_MARK, rec_mark, ns_, text_, strlen(text_), .kind = kind_,             \
		    .range = range_)

static inline void add_alloc(struct buf *b, uint64_t ns, uint64_t addr, uint64_t size, uint8_t pool)
{
	RECORD(b, REC_ALLOC, rec_alloc, ns, .addr = addr, .size_bytes = size, .pool = pool,
	       .kind = pool > POOL_HOST ? ALLOC_REGION : ALLOC_PLAIN,
	       .device = pool == POOL_HOST ? DEV_HOST : 0, .module = MODULE_NONE);
}

static inline void add_free(struct buf *b, uint64_t ns, uint64_t addr, uint8_t pool)
{
	RECORD(b, REC_FREE, rec_free, ns, .addr = addr, .pool = pool, .device = DEV_NONE);
}

/* Items of a batch. */
static inline void add_run(struct buf *batch, uint32_t proc, uint32_t tid, const struct buf *recs)
{
	struct batch_item it = {BATCH_RUN, (uint32_t)(sizeof(it) + recs->len), proc, tid};

	buf_add(batch, &it, sizeof(it));
	buf_add(batch, recs->data, recs->len);
}

static inline void add_stack(struct buf *batch, uint32_t proc, uint32_t id, const uint64_t *pc,
			     uint32_t depth)
{
	struct batch_stack s = {.head = {BATCH_STACK, (uint32_t)(sizeof(s) + depth * 8), proc, 0},
				.id = id,
				.depth = depth};

	buf_add(batch, &s, sizeof(s));
	buf_add(batch, pc, depth * 8);
}

static inline void add_cursor(struct buf *batch, uint32_t proc, uint32_t ring, uint64_t seq,
			      uint32_t offset)
{
	struct batch_cursor c = {.head = {BATCH_CURSOR, sizeof(c), proc, 0},
				 .ring = ring,
				 .offset = offset,
				 .seq = seq};

	buf_add(batch, &c, sizeof(c));
}

#endif
