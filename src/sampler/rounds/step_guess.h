/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Steps of training where nobody counts them, as samples show them: a thread is in the step() of an
 * optimizer in some samples and in others not. Each time that it has left it, a step has ended.
 *
 * What begins and ends between two samples is not seen. So the answer says how sure it is: if each
 * stay inside and each time outside was longer than the time between any two samples, and all steps
 * took about as long, none was missed. Where several lines of the program call optimizers, or one
 * line calls several, a step is not what is seen, and the answer is not sure either.
 */
#ifndef SONDE_SAMPLER_ROUNDS_STEP_GUESS_H
#define SONDE_SAMPLER_ROUNDS_STEP_GUESS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/containers/hmap.h"
#include "unwind/remote/python.h"

/* Of a process. Zero-initialise and release. */
struct step_guess {
	uint64_t seen; /* that have ended */
	bool uses_framework; /* PyTorch or MindSpore is among its functions */
	struct stack_frame line; /* of the program, which calls the optimizer; texts are interned */
	bool several_lines;
	/* private: */
	bool inside, cut; /* cut: it began before the first sample */
	uint64_t samples, last_ns, began_ns, left_ns; /* left_ns: the last one ended */
	uint64_t first_left_ns;
	uint64_t shortest_in_ns, shortest_out_ns, longest_gap_ns;
	uint64_t least_ns, most_ns; /* from the end of one to that of the next */
	struct hmap functions; /* hash of the addresses of name and file to what it is */
};

/* The stack of its main thread, outermost first. True: a step has ended since the last one. */
bool step_guess_add(struct step_guess *g, const struct stack_frame *frames, unsigned n,
		    uint64_t time_ns);
/* Time of a step in the middle; 0: fewer than two have ended. */
uint64_t step_guess_mean_ns(const struct step_guess *g);
bool step_guess_is_sure(const struct step_guess *g);
void step_guess_release(struct step_guess *g);

#endif
