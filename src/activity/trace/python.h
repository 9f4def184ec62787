/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * --with-stack: the calls of a traced process' Python, seen from outside some hundred times a
 * second. What is seen is a moment: a call has begun at some time after the sample before. Inside
 * activity/trace; times are of CLOCK_MONOTONIC.
 */
#ifndef SONDE_ACTIVITY_TRACE_PYTHON_H
#define SONDE_ACTIVITY_TRACE_PYTHON_H

#include "base/containers/hmap.h"

#include <stdbool.h>
#include <stdint.h>

struct python_process;
struct trace_state;

#define SEEN_NEVER UINT64_MAX

#define SEEN_MAX_CALLS 1000000u
#define SEEN_KEPT_NS 1000000000ull /* of what has ended, while no step has begun */

/* A moment at which a call was seen to have begun or ended, and the sample before it. */
struct seen_moment {
	uint64_t ns, after_ns;
};

struct seen_call {
	struct seen_moment start, end;
	const char *name, *file; /* interned */
	int32_t line; /* the first of the function */
	uint32_t tid;
	uint32_t depth; /* 0: nothing called it */
	int32_t caller_line; /* of the call in the function that made it; 0 */
};

struct seen_thread {
	uint64_t round; /* in which it was there last */
	uint64_t ns; /* of the last sample */
	const char *name;
	uint32_t tid;
	struct seen_open *open; /* outermost first */
	size_t n, cap;
	bool gc; /* the innermost is the collector */
};

/* What was seen of one process. */
struct seen {
	struct hmap threads; /* serial to struct seen_thread */
	struct hmap names; /* tid to the name of the thread; interned */
	struct seen_call *calls; /* that have ended */
	size_t n, cap;
	uint64_t left_out;
	uint64_t round;
	uint64_t first_ns, last_ns; /* samples; 0: there was none */
	uint64_t samples; /* stacks of threads */
	uint64_t from_ns; /* of the steps; SEEN_NEVER */
	bool full;
	uint64_t *old; /* scratch memory */
	size_t old_cap;
};

/* After every sample that has succeeded. */
void seen_add_sample(struct seen *s, const struct python_process *p);
/* All that is open ends with the last sample. */
void seen_end(struct seen *s);
void seen_release(struct seen *s);

/*
 * Puts what was seen in the steps among the calls of the trace. Slices of a thread must be nested
 * in a timeline, and what others have reported of it is exact: so the moments are moved, within
 * what is known of them, to where no other call is in progress.
 */
void seen_nest(struct trace_state *t, const struct seen *s);

/*
 * activity/trace/python.c: samples from now until the steps are over or it is stopped.
 * SEEN_NEVER: not known yet.
 */
struct trace_python;
/* Where a process learns that we were refused its memory: its pid, 0 when it has seen it.
 * NULL: nowhere. For all. */
void trace_python_ask_through(_Atomic uint32_t *word);
/* `shown_pid`: as we see the process; `pid`: as it sees itself. */
struct trace_python *trace_python_start(uint32_t shown_pid, uint32_t pid);
void trace_python_steps(struct trace_python *p, uint64_t from_ns, uint64_t to_ns);
void trace_python_stop(struct trace_python *p); /* waits for nothing */
/* Waits until it has stopped. *out_why, where nothing was seen: the reason. */
const struct seen *trace_python_wait(struct trace_python *p, const char **out_why);
void trace_python_free(struct trace_python *p);

#endif
