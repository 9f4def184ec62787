/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Records of a checkpoint (wire/recording.h): what was alive where the recording begins. */
#ifndef SONDE_WIRE_RECORD_CHECKPOINT_H
#define SONDE_WIRE_RECORD_CHECKPOINT_H

#include "wire/record.h"

enum rec_block_flags {
	BLOCK_WRITTEN = 1 << 0, /* it has a MALLOC row */
	BLOCK_SHADOW = 1 << 1, /* which says that nobody knows when it was allocated */
	BLOCK_ARENA = 1 << 2, /* a mapping that objects of Python were cut from */
	BLOCK_ALONE = 1 << 3, /* an object of Python that is host memory itself */
	BLOCK_LABELLED_LATE = 1 << 4, /* after that row */
};

#define BLOCK_LEVELS 8 /* of labels */

/*
 * A block that is alive where a recording begins, since what came before was dropped. head has the
 * time and the call stack of its allocation. Text: the lengths of its labels, a byte for each
 * level, then the labels; or nothing.
 */
struct rec_block {
	struct rec head;
	uint64_t addr;
	uint64_t size_bytes;
	uint64_t id; /* allocation_id */
	uint32_t step; /* in which it was allocated */
	uint16_t device; /* the driver's number */
	uint16_t len;
	uint8_t pool;
	uint8_t kind; /* enum rec_alloc_kind, BLOCK_OF_MALLOC */
	uint8_t page;
	uint8_t module;
	uint16_t flags; /* enum rec_block_flags */
	uint8_t cut_by; /* the pool that has cut blocks from it first; 0: none */
	uint8_t context; /* as in rec_alloc */
	char text[];
};

#define BLOCK_OF_MALLOC 64 /* a mapping that malloc has served blocks from */

enum rec_state_kind {
	STATE_BEGIN = 0, /* the checkpoint of a process; flags: STATE_TRACING, STATE_WINDOW */
	/* device, pool; value: bytes of the pool, most bytes of blocks, most of the pool, when */
	STATE_USAGE = 1,
	STATE_OWED = 2, /* pool; value: address, time, frees that are to come, thread */
	STATE_MOVING = 3, /* value: thread that is inside mremap(), kind of the mapping and one */
	STATE_THREAD = 4, /* value: thread, operators of torch that run in it */
	/* device; value: when the framework showed a refusal, whether one waits for a sample; of
	 * the process: when blocks were listed for one, how many of them so far */
	STATE_REFUSED = 5,
	STATE_END = 6, /* value: rows and blocks so far, step, id of its range, first step */
	/* of the block that follows; value: layer, address and bytes of its tensors, forward pass
	 * */
	STATE_LAYER = 7,
	STATE_FORWARDS = 8, /* value: thread, forward passes that have begun in it */
	STATE_KIND_END,
};

enum rec_state_flags {
	STATE_TRACING = 1 << 0,
	STATE_WINDOW = 1 << 1, /* rows are being written */
	STATE_BY_RANGE = 1 << 2, /* steps are ranges … */
	STATE_BY_CALL = 1 << 3, /* … or calls … */
	STATE_BY_OPTIMIZER =
		1 << 4, /* … or were detected; STATE_BEGIN's value[3]: SYSTEM_STEP_NAME */
	STATE_BY_FORWARD = 1 << 5,
};

struct rec_state {
	struct rec head;
	uint64_t value[5]; /* meaning by `kind` */
	uint16_t device;
	uint8_t kind;
	uint8_t pool;
	uint32_t flags; /* enum rec_state_flags */
};

_Static_assert(sizeof(struct rec_block) == 56, "rec_block changed size");
_Static_assert(sizeof(struct rec_state) == 64, "rec_state changed size");

#endif
