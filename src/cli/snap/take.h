/* SPDX-License-Identifier: MulanPSL-2.0 */
/* One look of `sonde snap` at all processes: finds them, copies their stacks, adds native ones. */
#ifndef SONDE_CLI_SNAP_TAKE_H
#define SONDE_CLI_SNAP_TAKE_H

#include "cli/snap/options.h"
#include "sampler/rounds/targets.h"

struct snap_look {
	const struct snap_options *o;
	struct discover_rules rules;
	struct targets *targets;
	uint64_t skew_ns; /* of the last round: from the first process to the last */
	struct err native_err; /* why native frames of some are missing; code 0: they are not */
};

void snap_look_init(struct snap_look *l, const struct snap_options *o);
void snap_look_release(struct snap_look *l);

/*
 * Finds the processes. Those that have just been started get a moment to become ready. -ENOENT with
 * words that help if there is none, -ESRCH if those that were named cannot be looked at: err has
 * the reason of the first.
 */
int snap_look_find(struct snap_look *l, struct err *err);

/* All stacks at once; how many processes could be looked at. */
unsigned snap_look_round(struct snap_look *l);
/* A snapshot of what the last round copied, with native frames if they are wanted. */
struct snapshot *snap_look_take(struct snap_look *l, bool color);

#endif
