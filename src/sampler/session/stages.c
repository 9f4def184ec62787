/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "sampler/session/stages.h"

#include <inttypes.h>

#include "base/clock.h"

/* Those that scripts look for keep their names. */
static const char *const names[STAGES] = {
	[STAGE_DISCOVER] = "discover",
	[STAGE_STACKS] = "stacks",
	[STAGE_NATIVE] = "native_stacks",
	[STAGE_EVENTS] = "events",
	[STAGE_COUNTERS] = "counters",
	[STAGE_FLUSH] = "flush",
	[STAGE_AUTOSAVE] = "autosave_write_json",
	[STAGE_SNAPSHOT] = "autosave_snapshot_write_json",
	[STAGE_LOOP] = "loop_total",
	[STAGE_SLEEP] = "loop_sleep",
	[STAGE_FINAL] = "final_write_json",
};

uint64_t stack_stage_done(struct stack_stages *s, enum stack_stage stage, uint64_t from_ns)
{
	uint64_t now = clock_mono_ns(), took = now - from_ns;

	s->of[stage].total_ns += took;
	if (!s->of[stage].count++ || took < s->of[stage].min_ns)
		s->of[stage].min_ns = took;
	if (took > s->of[stage].max_ns)
		s->of[stage].max_ns = took;
	return now;
}

void stack_stages_text(const struct stack_stages *s, struct buf *out)
{
	for (int i = 0; i < STAGES; i++) {
		uint64_t n = s->of[i].count;

		if (n)
			buf_addf(out,
				 "%s: count=%" PRIu64 " avg=%.3fms min=%.3fms max=%.3fms "
				 "total=%.3fs\n",
				 names[i], n, (double)s->of[i].total_ns / (double)n / 1e6,
				 (double)s->of[i].min_ns / 1e6, (double)s->of[i].max_ns / 1e6,
				 (double)s->of[i].total_ns / 1e9);
	}
}
