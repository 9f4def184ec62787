/* SPDX-License-Identifier: MulanPSL-2.0 */
/* What the answers about moments say in the same way. */
#ifndef SONDE_MEMORY_ANALYSIS_COMMON_BREAKDOWN_TEXT_H
#define SONDE_MEMORY_ANALYSIS_COMMON_BREAKDOWN_TEXT_H

#include <jansson.h>

#include "memory/analysis/common/breakdown.h"
#include "memory/analysis/common/report.h"

/* "Device 0", or "Device 0 of process 12" where there are several. */
void census_say_device(struct census *c, const struct block_device *d, bool begins_sentence,
		       struct buf *out);
/* " 3.4 s after the start, in step 3" or " at the end". */
void census_say_when(struct census *c, struct block_device *d, bool at_end, struct buf *out);

/* Is that what came behind the last call that ended a step, and so none of the job's steps? */
bool census_is_after_steps(const struct block_process *p, uint32_t step);
/* A line about bytes that lie in no known block of the driver, if there are any. */
void census_say_outside(const struct block_device *d, const struct census_shares *s,
			const struct page *g);
/* What the reader should know about the whole. */
void census_doubts(struct census *c, bool any, const struct page *g);

/* A new object: whose it is, when, and the sums. */
json_t *census_device_json(struct census *c, struct block_device *d, const struct census_shares *s);

#endif
