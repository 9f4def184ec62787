/* SPDX-License-Identifier: MulanPSL-2.0 */
/* How many processes had moved from one snapshot of `sonde snap --watch` to the next, over time. */
#ifndef SONDE_CLI_SNAP_MOVED_H
#define SONDE_CLI_SNAP_MOVED_H

#include "sampler/snapshot/snapshot.h"

#define MOVED_ROUNDS 512

struct moved {
	struct moved_process {
		pid_t pid;
		uint64_t place; /* of its main thread */
		int64_t steps;
	} * before;
	unsigned nbefore;
	unsigned n, of; /* that have moved, in the last round */
	uint64_t permille[MOVED_ROUNDS];
	size_t rounds;
};

void moved_note(struct moved *m, const struct snapshot *s);
/* A line as wide as the terminal; none before two rounds. */
void moved_add_line(const struct moved *m, unsigned width, struct buf *out);
void moved_release(struct moved *m);

#endif
