/* SPDX-License-Identifier: MulanPSL-2.0 */
#ifndef SONDE_SAMPLER_ROUNDS_THREAD_FILTER_H
#define SONDE_SAMPLER_ROUNDS_THREAD_FILTER_H

#include "unwind/remote/python.h"

/* Which threads of a process are sampled: all, or MainThread; all, too, if none has that name. */
struct thread_filter {
	bool all;
};
/* Of those, which stacks count: when the thread has the GIL, or is on a processor or waits for one. */
struct thread_moments {
	bool gil, running; /* neither: every one */
};
struct thread_filter thread_filter_of(const struct python_process *p, bool all_threads);
bool thread_filter_wants(void *filter, const struct python_thread *t);
bool thread_moment_counts(struct thread_moments m, const struct python_thread *t);

#endif
