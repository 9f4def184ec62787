/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The frames of the thread that asks, in the interpreter of this process. They stand still while a
 * hook runs, so that nothing has to be locked.
 */
#ifndef SONDE_GUEST_RUNTIME_PYTHON_FRAMES_H
#define SONDE_GUEST_RUNTIME_PYTHON_FRAMES_H

#include <stdbool.h>
#include <stdint.h>

#include "unwind/python/frame.h"
#include "unwind/python/layout.h"

struct guest_frames {
	struct python_walk w;
	uint64_t tstate;
	bool from_stack; /* the address of what is next was read from the C stack */
	bool on_stack; /* or what is next may lie there itself */
};

extern struct python_layout guest_frames_layout; /* once it is ready */

/* Whether there is an interpreter, and how its frames lie is known. Decided once per process: a thread
 * that comes while another decides goes without Python frames rather than wait. */
bool guest_frames_ready(void);

/* The frames of this thread, innermost first, shims among them; false if there are none. */
bool guest_frames_begin(struct guest_frames *w);
/* False at the end, or at something that is no frame. */
bool guest_frames_next(struct guest_frames *w, struct python_raw_frame *f);

/* Where the instructions begin that the frame executes: threads may have copies of their own. */
uint64_t guest_frames_instructions(const struct python_raw_frame *f);

#endif
