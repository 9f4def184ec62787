/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Where the time of a step goes: what a device computes, what of its communication is not hidden
 * behind that, what it copies besides, and when it has nothing to do. For one rank from its
 * activities; for a job from its ranks.
 *
 * A step is the time between two boundaries that the job reports. What a device does in that time
 * counts, no matter what launched it: work that lies in a queue when a step begins keeps the device
 * busy in it. The parts of a step add up to it exactly.
 */
#ifndef SONDE_ACTIVITY_STEPS_STEP_SPLIT_H
#define SONDE_ACTIVITY_STEPS_STEP_SPLIT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "activity/files/activity.h"
#include "activity/steps/idle.h"
#include "activity/steps/spans.h"
#include "base/containers/buf.h"
#include "base/err.h"

enum split_part { SPLIT_COMPUTE, SPLIT_COMM, SPLIT_COPY, SPLIT_IDLE, SPLIT_PARTS };

#define SPLIT_MAX_STEPS 1000000
#define SPLIT_MAX_DEVICES 1024
#define SPLIT_MAX_KERNELS 1000 /* that are kept by name: those that took the most time */
#define SPLIT_NO_NUMBER UINT64_MAX /* of a step: some time, but no step of the job */

struct split_step {
	uint64_t number;
	uint64_t start_ns, end_ns; /* wall clock */
	bool whole; /* false: the job has ended in it, it is in no mean */
};

struct split_times {
	uint64_t step_ns;
	uint64_t part_ns[SPLIT_PARTS]; /* they add up to step_ns */
	uint64_t comm_ns; /* of communication, hidden or not */
};

struct split_device {
	uint32_t device;
	struct split_times *steps; /* as many as the rank has */
	struct split_times all; /* sum of the whole ones */
};

struct split_kernel {
	char *name;
	enum split_part part; /* never idle */
	uint64_t calls, total_ns, p99_ns, max_ns;
};

/* One rank: a process of the job. Texts are never NULL. */
struct split_rank {
	int32_t rank; /* -1: not known */
	uint32_t pid;
	char *host;
	char *request; /* REQUEST_TRACE_ID */
	char *job; /* the same text in all ranks of a job, another one in others; "": not known */
	char *parent; /* who has started it: ranks of a job on one host have the same; "" */
	char *dir; /* where it was read from or written to; not in the JSON */
	char *note; /* what the reader should know first: that it was killed, or "" */
	uint32_t world, local_world; /* of how many ranks it is one, of its host; 0: not known */
	bool chosen; /* the request was not for all: others need not have left a trace */
	bool ended; /* by request, with all that its device's library had reported by then */
	uint64_t waiting; /* launches that had not run at the end */
	uint64_t waiting_ns; /* when the first of them was made; 0: there is none */
	char *waiting_for; /* what that one runs, as it did a step before; "": not known */
	uint64_t lost; /* activities that the source or the rings could not report */
	uint64_t left_out; /* that the trace had no room for */
	uint64_t after_ns; /* device time that was launched in the steps and ran after them */
	uint32_t whole_steps;
	struct split_step *steps;
	size_t nsteps;
	struct split_device *devices; /* in the order of their numbers */
	size_t ndevices;
	struct split_kernel *kernels; /* by total time, the most first */
	size_t nkernels;
	uint64_t other_names, other_calls, other_ns; /* beyond SPLIT_MAX_KERNELS */
	struct split_idle idle; /* why its devices had nothing to do */
};

void split_times_add(struct split_times *sum, const struct split_times *t);

/* To the end of its last step; else the device's work is not all there, or there was no step. */
bool split_rank_is_complete(const struct split_rank *r);

struct split_rank *split_rank_new(void);
void split_rank_free(struct split_rank *r); /* may be NULL */
void split_rank_set(char **text, char *now); /* a text of a rank, which takes `now` */

/* --- from activities --- */

struct step_split;

struct step_split *step_split_new(void);
/* In order of time. At most SPLIT_MAX_STEPS count. */
void step_split_step(struct step_split *s, const struct split_step *step);
/* Activities that are no work of a device do nothing. `own`: launched in the steps. */
void step_split_add(struct step_split *s, const struct activity *a, bool own);
/* Idle time is explained by this, which stays the caller's. */
struct host_work;
void step_split_host(struct step_split *s, struct host_work *h);
void step_split_free(struct step_split *s); /* without an answer */
/* Fills steps, devices, kernels and idle of r; frees s. */
void step_split_finish(struct step_split *s, struct split_rank *r);

/* Leaves of each part of a device's work what those before it have not taken: compute counts first,
 * then communication that is not hidden behind it, then copies. out_comm: all communication;
 * release it. */
void split_exclusive(struct spans work[SPLIT_IDLE], struct spans *out_comm);

/* What kind of work it is; SPLIT_IDLE: none of a device. */
enum split_part split_part_of(const struct activity *a);
enum split_part split_part_of_kernel(const char *name);
const char *split_part_name(enum split_part part); /* "compute", "communication", "copy", "idle" */

/* --- as JSON --- */

json_t *split_rank_json(const struct split_rank *r); /* new; NULL: out of memory */
/* Foreign bytes. NULL and words if they are no such answer. */
struct split_rank *split_rank_read(const char *text, size_t len, struct err *err);

#endif
