/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * To run when it is time to. A sampler that waits until a busy thread leaves its processor sees
 * that thread only where it rests: functions that compute would seem to take no time.
 */
#ifndef SONDE_BASE_SCHED_LATENCY_H
#define SONDE_BASE_SCHED_LATENCY_H

#include <stdbool.h>
#include <stdint.h>

/* How the calling thread is scheduled, as the kernel has it. */
struct hurry_state {
	uint32_t size, policy;
	uint64_t flags;
	int32_t nice;
	uint32_t priority;
	uint64_t runtime, deadline, period;
};

bool hurry_save(struct hurry_state *out);
void hurry_restore(struct hurry_state *s);

/*
 * From here on the calling thread is let in front of others, for which it has to be content with
 * short turns. Needs no permission; kernels before 6.12 take no notice, and other policies than the
 * usual one stay. Threads and processes that it starts do not inherit it. Returns whether it will
 * run when it is time to: by this, or because it may go first where it must.
 */
bool hurry(void);

#endif
