/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Steps of the job: by step() of our API, or by ranges with the message "step start", of mstx or of
 * NVTX. Whichever comes first counts. Those that were detected (Python's sonde._steps) count until
 * then.
 */
#include "guest/monitor/monitor_impl.h"

#include "device/ascend/hooks/real.h"
#include "guest/collect/collect.h"

#include <string.h>

static _Atomic uint64_t ranges; /* begun */
static _Atomic bool by_range;

static void begin_step(uint64_t step)
{
	monitor_wake();
	trace_step(step);
	control_step(step);
}

static void on_step(uint64_t ended)
{
	if (!atomic_load(&by_range))
		begin_step(ended);
}

/* The job begins a range; the message "step start" makes it a step. */
static void note_range(const char *message)
{
	if (!message || strcmp(message, ACTIVITY_STEP_MESSAGE) != 0)
		return;
	if (!atomic_load(&by_range)) {
		if (collect_steps_reported())
			return;
		atomic_store(&ranges, collect_steps());
		atomic_store(&by_range, true);
	}
	uint64_t ended = atomic_fetch_add(&ranges, 1);
	collect_show_steps(ended);
	begin_step(ended);
}

__attribute__((constructor)) static void listen_to_steps(void)
{
	collect_on_step(on_step);
	nvtx_on_range(note_range);
}

int64_t steps_now(void)
{
	if (atomic_load(&by_range))
		return (int64_t)atomic_load(&ranges) - 1;
	uint64_t ended = collect_steps();
	return ended ? (int64_t)ended : -1;
}

/* --- mstx --- */

uint64_t mstxRangeStartA(const char *message, void *stream);

__attribute__((visibility("default"))) uint64_t mstxRangeStartA(const char *message, void *stream)
{
	static const char *const libs[] = {"libms_tools_ext.so", NULL};
	__typeof__(&mstxRangeStartA) real = REAL(mstxRangeStartA, NULL, libs);

	note_range(message);
	return real ? real(message, stream) : 0;
}
