/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "recorder/flight/step_count.h"

#include <string.h>

static bool is_step_range(const struct rec_mark *r)
{
	static const char message[] = "step start";
	size_t len;
	const char *text = rec_text(&r->head, &len);

	return r->kind == MARK_RANGE_START && len >= sizeof(message) - 1 &&
	       !memcmp(text, message, sizeof(message) - 1) &&
	       (len == sizeof(message) - 1 || !text[sizeof(message) - 1]);
}

bool step_count_record(struct step_count *c, uint32_t proc, const struct rec *r)
{
	const struct rec_monitor *monitor = (const struct rec_monitor *)r;
	const struct rec_system *system = (const struct rec_system *)r;
	uint64_t step = 0;

	if (r->type == REC_SYSTEM &&
	    (system->kind == SYSTEM_STEP || system->kind == SYSTEM_DETECTED_STEP)) {
		step = system->value + 1;
	} else if (r->type == REC_MONITOR && monitor->kind == MONITOR_STEP) {
		step = monitor->value + 1;
	} else if (r->type == REC_MARK && is_step_range((const struct rec_mark *)r)) {
		uint64_t before = hmap_get(&c->ranges, proc);

		step = (before == HMAP_NONE ? 0 : before) + 1;
		hmap_put(&c->ranges, proc, step);
	}
	if (step > c->step)
		c->step = step;
	return step != 0;
}

void step_count_release(struct step_count *c)
{
	hmap_release(&c->ranges);
}
