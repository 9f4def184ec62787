/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * A stream is a queue and one thread that works it off in order. Time on the device is a clock per
 * stream: a task begins when its predecessor ended, or now if the stream was idle, and lasts its
 * nominal duration times SIM_NPU_TIME_SCALE. The thread sleeps only when that clock runs ahead of
 * the real one by more than a millisecond, so short kernels do not cost a timer each.
 */
#ifndef SONDE_SIM_STREAM_H
#define SONDE_SIM_STREAM_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "sim/kernel.h"

/* Not part of any interface: other libraries of a process may use the same names. */
#pragma GCC visibility push(hidden)

/* The body of a function of the runtime: it is told as a call of its own. */
#define RT_CALL(expression) SIM_CALL(MSPTI_ACTIVITY_KIND_RUNTIME_API, expression)

struct sim_kernel {
	char name[120];
	uint64_t duration_ns;
	sim_kernel_fn fn;
	sim_timed_fn timed;
	_Atomic uint32_t permille; /* of the duration; 0: all of it */
};

enum work_kind { WORK_KERNEL, WORK_COPY, WORK_MARK };

/* What is queued, with what libmspti may want to know about it. */
struct work {
	enum work_kind kind;
	uint16_t task; /* not for marks */
	int32_t detail; /* copy: its kind; mark: its flag */
	const struct sim_kernel *kernel;
	const char *type; /* of a kernel */
	uint64_t correlation;
	uint64_t number; /* copy: bytes; mark: its id */
};

struct stream;

/* NULL means the device's default stream, made at its first use. NULL when there is none. */
struct stream *stream_resolve(void *handle);
int stream_id(const struct stream *s);
int stream_device(const struct stream *s); /* physical */
/* Reserves the number of the next task; the caller submits it right after. */
uint16_t stream_next_task(struct stream *s);
/* Copies @args; blocks while the queue is full. */
int stream_submit(struct stream *s, const struct work *w, const void *args, size_t size);

const struct sim_kernel *kernel_from_handle(const void *handle);
const struct sim_kernel *kernel_from_name(const char *name);
uint64_t kernel_duration(const struct sim_kernel *k);

/* tell.c: what libmspti is told. A task that ran from @begin to @end: */
void feed_task(const struct stream *s, const struct work *w, uint64_t begin, uint64_t end);
/* The same for what the host does at once: 0 when nobody wants @kind, else when it began. */
uint64_t feed_begin(int32_t kind);
void feed_memory(int32_t operation, const void *ptr, uint64_t bytes, uint64_t begin);
void feed_memcpy(int32_t kind, uint64_t bytes, uint64_t begin);
void tell_memset(uint32_t value, uint64_t bytes, uint64_t begin);

/* memory.c: the copy itself. */
void memory_copy(void *dst, const void *src, uint64_t n);

#pragma GCC visibility pop

#endif
