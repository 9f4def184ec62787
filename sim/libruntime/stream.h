/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * A stream is a queue and one thread that works it off in order. Time on the device is a clock per
 * stream: a task begins when its predecessor ended, or now if the stream was idle, and lasts its
 * nominal duration times SIM_NPU_TIME_SCALE. The thread sleeps only when that clock runs ahead of
 * the real one by more than a millisecond, so short kernels do not cost a timer each.
 */
#ifndef SONDE_SIM_STREAM_H
#define SONDE_SIM_STREAM_H

#include <stddef.h>
#include <stdint.h>

#include "sim/kernel.h"

/* Not part of any interface: other libraries of a process may use the same names. */
#pragma GCC visibility push(hidden)

struct sim_kernel {
	char name[120];
	uint64_t duration_ns;
	sim_kernel_fn fn;
};

struct stream;

/* NULL means the device's default stream, made at its first use. NULL when there is none. */
struct stream *stream_resolve(void *handle);
int stream_id(const struct stream *s);
int stream_device(const struct stream *s); /* physical */
/* Reserves the number of the next task; the caller submits it right after. */
uint16_t stream_next_task(struct stream *s);
/* Copies @args; blocks while the queue is full. */
int stream_submit(struct stream *s, const struct sim_kernel *k, uint16_t task, const void *args,
		  size_t size);

const struct sim_kernel *kernel_from_handle(const void *handle);
const struct sim_kernel *kernel_from_name(const char *name);

#pragma GCC visibility pop

#endif
