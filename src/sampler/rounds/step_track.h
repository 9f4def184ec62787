/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The steps of a process as a track of the timeline: a bar for each, between the rounds in which its
 * predecessor and itself had ended, so no more exact than the interval is. The step that runs when
 * sampling begins, and the one that runs when it ends, have no bar.
 */
#ifndef SONDE_SAMPLER_ROUNDS_STEP_TRACK_H
#define SONDE_SAMPLER_ROUNDS_STEP_TRACK_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/chrome_trace/chrome_trace.h"

/* Zero-initialise. */
struct step_track {
	bool known; /* a count was seen */
	bool bars; /* `since_ns` is known */
	bool named; /* the track is in the file */
	bool guessed; /* nobody counts them: see step_guess.h */
	int64_t ended;
	int64_t since_ns; /* ts of when that many had ended */
};

/* So many have ended: what came to an end since the last call is written. */
void step_track_add(struct step_track *s, struct chrome_trace *into, int64_t pid, int64_t ended,
		    int64_t ts_ns);
/* The name of the track once more, for another file. */
void step_track_name(const struct step_track *s, struct chrome_trace *into, int64_t pid);

#endif
