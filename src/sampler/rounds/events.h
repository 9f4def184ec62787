/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * From stacks to the timeline: what ended and what began between two rounds becomes E and B events
 * of a Chrome trace. A frame is the same call as long as its function, its place in the stack and
 * the line of its caller stay: a new line inside of it does not split it.
 *
 * One thread uses it. The trace is the caller's; names in it are interned and never freed.
 */
#ifndef SONDE_SAMPLER_ROUNDS_EVENTS_H
#define SONDE_SAMPLER_ROUNDS_EVENTS_H

#include "formats/chrome_trace/chrome_trace.h"
#include "sampler/counters/counters.h"
#include "sampler/rounds/targets.h"
#include "sampler/rounds/thread_filter.h"

struct events;

struct events_options {
	struct chrome_trace *trace;
	uint64_t start_ns; /* CLOCK_MONOTONIC that is ts 0 */
	/* Else MainThread only, or all threads of a process in which none has that name. */
	bool all_threads;
	struct thread_moments moments; /* at others a thread is shown as if it ran nothing */
	bool lines; /* the label has the line, and a line change splits the frame */
};

struct events *events_new(const struct events_options *o);
void events_free(struct events *e);

void events_process(struct events *e, struct target *t); /* first sight: names */
/* Its label or its rank has changed. */
void events_renamed(struct events *e, const struct target *t);
/* After every round: `kept` of threads speaks of the round before. */
void events_sample(struct events *e, struct target *t);
/* How many steps of it have ended, as often as that is known. */
void events_steps(struct events *e, const struct target *t, int64_t ended, uint64_t time_ns);
/* The same, if nobody counts them (step_guess.h). */
void events_guessed_steps(struct events *e, const struct target *t, int64_t ended,
			  uint64_t time_ns);
void events_gone(struct events *e, struct target *t, uint64_t time_ns); /* closes its frames */
void events_counter(struct events *e, const struct counter *c);
void events_close_all(struct events *e, uint64_t time_ns); /* E for all that is open */
/*
 * The same into another file (chrome_trace_copy) or before a rotation, with everything still taken
 * for open; and names and B again after it. ts never goes back within a thread.
 */
void events_end_open(struct events *e, struct chrome_trace *into, uint64_t time_ns);
void events_begin_again(struct events *e, struct chrome_trace *into, uint64_t time_ns);

#endif
