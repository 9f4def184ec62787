/* SPDX-License-Identifier: MulanPSL-2.0 */
/* What `sonde snap` can be told. Which processes are meant is said as to `sonde stack`. */
#ifndef SONDE_CLI_SNAP_OPTIONS_H
#define SONDE_CLI_SNAP_OPTIONS_H

#include "base/text/args.h"
#include "sampler/session/options.h"
#include "sampler/snapshot/snapshot.h"

struct snap_options {
	struct stack_options stack; /* of it only what says which processes, all_threads, native */
	unsigned top;
	bool exact, json, watch;
	uint64_t interval_ns; /* of --watch */
	uint64_t hang_ns; /* 0: not asked for */
	uint64_t for_ns; /* 0: no limit */
	char **locals; /* functions */
	unsigned nlocals;
	size_t locals_cap;
};

extern const struct opt snap_option_rows[], py_stack_snap_option_rows[];

void snap_options_init(struct snap_options *o, unsigned top);
void snap_options_release(struct snap_options *o);
int snap_options_check(const struct snap_options *o, struct err *err);

/* For snapshot_take(); borrows from o. */
struct snapshot_options snap_options_snapshot(const struct snap_options *o, bool color);

#endif
