/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Sampling for snapshots: finds the processes, copies their stacks as often as wanted, adds native
 * frames. One thread uses it.
 */
#ifndef SONDE_SAMPLER_SNAPSHOT_TAKE_H
#define SONDE_SAMPLER_SNAPSHOT_TAKE_H

#include "sampler/hang/hang.h"
#include "sampler/session/options.h"
#include "sampler/snapshot/snapshot.h"

struct snap_sampler {
	const struct stack_options *o; /* of it which processes, all_threads, native */
	uint64_t end_ns; /* CLOCK_MONOTONIC when it is over; 0: when the processes have ended */
	struct discover_rules rules;
	struct targets *targets;
	uint64_t skew_ns; /* of the last round: from the first process to the last */
	struct err native_err; /* why native frames of some are missing; code 0: they are not */
};

void snap_sampler_init(struct snap_sampler *s, const struct stack_options *o);
/* The same for who reads stacks in another way than a snapshot does. */
void snap_sampler_init_as(struct snap_sampler *s, const struct stack_options *o,
			  const struct python_options *python);
void snap_sampler_release(struct snap_sampler *s);

/*
 * Finds the processes. Those that have just been started get a moment to become ready. -ENOENT with
 * words that help if there is none, -ESRCH if those that were named cannot be read: err has the
 * reason of the first.
 */
int snap_sampler_find(struct snap_sampler *s, struct err *err);

/* Copies all stacks at once; returns how many processes could be read. */
unsigned snap_sampler_round(struct snap_sampler *s);
/* A snapshot of what the last round copied, with native frames if they are wanted. */
struct snapshot *snap_sampler_take(struct snap_sampler *s, const struct snapshot_options *o);

/* Takes a snapshot every interval_ns until show() is false, the processes have ended, the time is up
 * or a signal asked to stop. changed: it is not the same as the one before. */
void snap_sampler_watch(struct snap_sampler *s, const struct snapshot_options *o,
			uint64_t interval_ns,
			bool (*show)(void *arg, const struct snapshot *s, bool changed), void *arg);

/*
 * Samples until a process has not moved for hang_ns: true, *out_now_ns is the time for h's report.
 * False if it is over before.
 */
bool snap_sampler_find_hang(struct snap_sampler *s, struct hang *h, uint64_t hang_ns,
			    uint64_t *out_now_ns);

#endif
