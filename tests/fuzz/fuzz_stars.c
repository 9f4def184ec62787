/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Records of the STARS channel, as the driver hands them over. First byte: bit 0 short records,
 * bit 1 expanded ids, bit 2 launch every task before it begins. What is found must be consistent.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "device/ascend/hooks/stars.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct state {
	struct stars_tasks *tasks;
	struct stars_clock clock;
	bool launches;
	size_t events;
	uint64_t last;
};

static void on_event(void *arg, const struct stars_event *e)
{
	struct state *s = arg;
	uint64_t ns = stars_time(&s->clock, e->counter);
	struct stars_launch l = {.name_hash = 1,
				 .launch_ns = ns / 2,
				 .device = 3,
				 .stream = e->stream,
				 .task = e->task};

	s->events++;
	if (s->launches && !e->ends)
		stars_tasks_put(s->tasks, &l);
	if (stars_tasks_match(s->tasks, 3, e, ns, &l)) {
		BUG_ON(l.task != e->task || l.name_hash != 1);
		BUG_ON(!e->ends && l.start_ns < l.launch_ns);
	}
	s->last = ns;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct stars_tasks tasks;
	uint8_t flags = size ? data[0] : 0;
	enum stars_format format = flags & 1 ? STARS_SHORT : STARS_LONG;
	struct state s = {.tasks = &tasks, .launches = flags & 4};
	int64_t khz = 0;

	if (size < 17)
		return 0;
	memcpy(&s.clock.counter0, data + 1, 8);
	memcpy(&khz, data + 9, 8);
	s.clock.khz = stars_khz(khz);
	s.clock.mono0_ns = (uint64_t)khz;
	tasks.by_task = flags & 1;
	memset(tasks.slot, 0, sizeof(tasks.slot));
	size_t len = size - 17, done = stars_each(data + 17, len, format, flags & 2, on_event, &s);
	BUG_ON(done > len || len - done >= (size_t)format);
	BUG_ON(s.events > done / (size_t)format);
	return 0;
}
