/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Which step of a process runs, for blocks.c; and how steps are known, for answers. */
#ifndef SONDE_MEMORY_ANALYSIS_COMMON_BLOCK_STEPS_H
#define SONDE_MEMORY_ANALYSIS_COMMON_BLOCK_STEPS_H

#include "memory/analysis/common/blocks.h"

struct block_steps {
	uint64_t range_starts; /* seen so far */
	uint64_t range_offset; /* what has to be added to that for the id of a range */
	uint64_t step_start; /* the how manyth start the step's is */
	uint64_t step_range; /* id of the step's range where rows have it, else 0 */
};

/* A row that begins or ends a range. Sets the process' step, and of the change what it did. */
void block_steps_range(struct block_steps *s, struct block_process *p, const struct row *row,
		       struct block_change *c);
/* The call that ends step n, which begins step n + 1; or a step that was detected. */
void block_steps_call(struct block_process *p, const struct row *row, struct block_change *c);

/* " Steps were detected from the optimizer (AdamW).", of the process that has the most of them;
 * nothing where the program reports them. */
void steps_describe(const struct blocks *b, struct buf *out);
/* {source: "explicit", "range", "optimizer" or "forward", name}; null: no step has ended. */
json_t *steps_json(const struct blocks *b);
json_t *steps_json_of(const struct block_process *p);

static inline bool steps_are_detected(enum step_source by)
{
	return by == STEPS_BY_OPTIMIZER || by == STEPS_BY_FORWARD;
}

#endif
