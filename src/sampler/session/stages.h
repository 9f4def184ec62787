/* SPDX-License-Identifier: MulanPSL-2.0 */
/* How long each kind of work took, for the summary at the end of the log. */
#ifndef SONDE_SAMPLER_SESSION_STAGES_H
#define SONDE_SAMPLER_SESSION_STAGES_H

#include <stdint.h>

#include "base/containers/buf.h"

enum stack_stage {
	STAGE_DISCOVER,
	STAGE_STACKS,
	STAGE_NATIVE,
	STAGE_EVENTS,
	STAGE_COUNTERS,
	STAGE_FLUSH,
	STAGE_AUTOSAVE,
	STAGE_SNAPSHOT,
	STAGE_LOOP,
	STAGE_SLEEP,
	STAGE_FINAL,
	STAGES,
};

struct stack_stages {
	struct {
		uint64_t count, total_ns, min_ns, max_ns;
	} of[STAGES];
};

/* Notes that the work which began at `from_ns` is done; returns the time now. */
uint64_t stack_stage_done(struct stack_stages *s, enum stack_stage stage, uint64_t from_ns);

/* A line for each that happened: "name: count=… avg=…ms min=…ms max=…ms total=…s\n" */
void stack_stages_text(const struct stack_stages *s, struct buf *out);

#endif
