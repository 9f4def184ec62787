/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The call stacks of blocks as frames with a name, a file and a line, for formats of other viewers.
 * Each stack is taken apart once. Zero-initialise and release.
 */
#ifndef SONDE_MEMORY_EXPORT_BLOCK_FRAMES_H
#define SONDE_MEMORY_EXPORT_BLOCK_FRAMES_H

#include "formats/profile/profile.h"
#include "memory/analysis/common/blocks.h"

struct stack_frames {
	struct profile_frame *list; /* innermost first; texts are interned */
	unsigned n;
};

struct block_frames {
	struct stack_frames *list; /* by number of the stack */
	size_t n, cap;
	struct stack_frames made_up; /* of a block without a call stack */
};

/*
 * The frames of a stack; none for number 0. They are valid until block_frames_release().
 */
const struct stack_frames *block_frames_stack(struct block_frames *f, const struct stacks *stacks,
					      uint32_t stack);
/* Those of a block. Without a call stack: the parts of its owner, or why there is none; such ones are
 * valid until the next call. */
const struct stack_frames *block_frames_of(struct block_frames *f, const struct blocks *blocks,
					   const struct block *b);
void block_frames_release(struct block_frames *f);

#endif
