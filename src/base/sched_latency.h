/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Lower scheduling latency. A sampler that waits until a busy thread leaves its processor sees that
 * thread only where it blocks: functions that compute would seem to take no time.
 */
#ifndef SONDE_BASE_SCHED_LATENCY_H
#define SONDE_BASE_SCHED_LATENCY_H

#include <stdbool.h>
#include <stdint.h>

/* How the calling thread is scheduled, as the kernel has it. */
struct sched_latency {
	uint32_t size, policy;
	uint64_t flags;
	int32_t nice;
	uint32_t priority;
	uint64_t runtime, deadline, period;
};

bool sched_latency_save(struct sched_latency *out);
void sched_latency_restore(struct sched_latency *s);

/*
 * Asks the kernel to run the calling thread before others, in exchange for short time slices. Needs
 * no permission; kernels before 6.12 ignore it, and policies other than the usual one stay. Threads
 * and processes that it starts do not inherit it. Returns whether the thread will run in time: by
 * this, or because it has the permission to use a real-time policy where it must.
 */
bool sched_latency_lower(void);

#endif
