/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Which part of a stack may be read: a range of pages proved readable, growing upwards as a walk
 * needs it. The kernel is asked once per page; for the thread's own stack the answer is kept in
 * the thread, for all others (fibers, alternate signal stacks: they can be unmapped) it is asked
 * in every capture.
 */
#ifndef SONDE_UNWIND_NATIVE_SPAN_H
#define SONDE_UNWIND_NATIVE_SPAN_H

#include <stdbool.h>
#include <stdint.h>

struct span {
	uint64_t lo; /* [lo, hi) can be read */
	uint64_t hi;
};

/* Can the 8 bytes at addr be read? Asks the kernel. */
bool span_readable(uint64_t addr);

/* Nobody may ask the kernel: what is not known to be readable is not. What the calling thread will
 * need of its own stack is asked for first. */
void span_seal(bool on);
bool span_is_sealed(void);

/* The end of the thread's own stack if sp is on it, as far as is known without asking; else 0. */
uint64_t span_home_end(uint64_t sp);

/* The span around a stack pointer in use. */
struct span span_enter(uint64_t sp);

/* Makes everything below end readable; false if it is not, or is absurdly far away. */
bool span_grow(struct span *s, uint64_t end);

/* Keeps what was learnt, if sp is on the thread's own stack. */
void span_keep(const struct span *s, uint64_t sp);

#endif
