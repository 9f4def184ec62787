/* SPDX-License-Identifier: MulanPSL-2.0 */
/* What the answers about moments have in common, as text and as JSON. */
#ifndef SONDE_MEMORY_ANALYSIS_COMMON_BREAKDOWN_TEXT_H
#define SONDE_MEMORY_ANALYSIS_COMMON_BREAKDOWN_TEXT_H

#include <jansson.h>

#include "memory/analysis/common/breakdown.h"
#include "memory/analysis/common/report.h"

struct programs; /* memory/analysis/processes/programs.h */

#define BREAKDOWN_MAX_ANSWERS 3 /* devices in the first paragraph */
#define BREAKDOWN_MAX_DEVICES 16 /* that are described; JSON has all */

/* "Device 0", or "Device 0 of process 12" where there are several; with the name of the program if
 * that process was more than one that held something. */
void breakdown_describe_device(struct breakdown *c, const struct block_device *d,
			       bool begins_sentence, struct buf *out);
/* " 3.4 s after the start, in step 3" or " at the end". */
void breakdown_describe_when(struct breakdown *c, struct block_device *d, bool at_end,
			     struct buf *out);

/* Is that what came behind the last call that ended a step, and so none of the job's steps? */
bool breakdown_is_after_steps(const struct block_process *p, uint32_t step);
/* A line about bytes that lie in no known block of the driver, if there are any. */
void breakdown_describe_outside(const struct block_device *d, const struct breakdown_shares *s,
				const struct report *r);
/* Ends the first paragraph about n devices and adds it. */
void breakdown_end_answer(size_t n, struct buf *text, const struct report *r);
/* What the reader should know about the whole, at the end. */
void breakdown_remarks(struct breakdown *c, size_t n, const struct programs *programs,
		       const struct report *r);

/* A new object: whose it is, when, and the sums. */
json_t *breakdown_device_json(struct breakdown *c, struct block_device *d,
			      const struct breakdown_shares *s);

#endif
