/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Which step of a process runs, for blocks.c. */
#ifndef SONDE_MEMORY_ANALYSIS_COMMON_BLOCK_STEPS_H
#define SONDE_MEMORY_ANALYSIS_COMMON_BLOCK_STEPS_H

#include "memory/analysis/common/blocks.h"

/* By ranges named "step start" or by the step call; the first source that is seen counts. */
enum step_source { STEPS_UNKNOWN, STEPS_BY_RANGE, STEPS_BY_CALL };

struct block_steps {
	enum step_source source;
	uint64_t range_starts; /* seen so far */
	uint64_t range_offset; /* what has to be added to that for the id of a range */
	uint64_t step_start; /* the how manyth start the step's is */
	uint64_t step_range; /* id of the step's range where rows have it, else 0 */
};

/* A row that begins or ends a range. Sets the process' step, and of the change what it did. */
void block_steps_range(struct block_steps *s, struct block_process *p, const struct row *row,
		       struct block_change *c);
/* The call that ends step n, which begins step n + 1. */
void block_steps_call(struct block_steps *s, struct block_process *p, const struct row *row,
		      struct block_change *c);

#endif
