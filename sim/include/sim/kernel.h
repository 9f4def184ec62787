/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Kernels of the simulated device: a name, a nominal duration and, where the bytes matter, a C
 * function that reads and writes its tensors. Not part of the vendor's interface.
 */
#ifndef SONDE_SIM_KERNEL_H
#define SONDE_SIM_KERNEL_H

#include <stddef.h>
#include <stdint.h>

/* Runs on the stream's thread with a copy of the launch's arguments. */
typedef void (*sim_kernel_fn)(const void *args, size_t size);

/*
 * Returns what every launch function takes as its function, stub or kernel handle; the same name
 * gives the same handle. @fn may be NULL. NULL when the table (256 kernels) is full.
 */
void *sim_kernel_register(const char *name, uint64_t duration_ns, sim_kernel_fn fn);

/* Where and when a kernel runs that keeps its own time. */
struct sim_running {
	uint64_t begin_ns; /* CLOCK_MONOTONIC: its predecessor has ended */
	uint64_t correlation; /* of the call that launched it; 0: nobody wanted to know */
	double scale; /* of all durations */
	int device; /* physical */
	int stream;
	int error; /* may be set: what synchronising this stream returns from now on */
};

/* Returns when it ended, not before begin_ns. It may wait, and tells libmspti about itself. */
typedef uint64_t (*sim_timed_fn)(struct sim_running *at, const void *args, size_t size);

void *sim_kernel_register_timed(const char *name, sim_timed_fn fn);

/* From now on the kernel of this name takes @factor times its nominal duration. */
void sim_kernel_slow(const char *name, double factor);
/* From now on every kernel on this stream does; not those that keep their own time. */
void sim_stream_slow(void *stream, double factor);

/* What the launch functions accept as their opaque argument handle. */
struct sim_launch_args {
	const void *data;
	size_t size;
};

#endif
