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

/* What the launch functions accept as their opaque argument handle. */
struct sim_launch_args {
	const void *data;
	size_t size;
};

#endif
