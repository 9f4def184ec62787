/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * npu-monitor inside a rank: sums of durations per kind of activity, sent to the daemon at every
 * interval. Here a step's activities are made up of its length.
 */
#ifndef SIM_CLIENT_MONITOR_H
#define SIM_CLIENT_MONITOR_H

#include <stdbool.h>
#include <stdint.h>

#include "config.h"
#include "link.h"

enum { MONITOR_KINDS = 11, MONITOR_RANGES = 256 };

struct monitor {
	bool running;
	bool to_files; /* a log file was asked for: no metrics */
	int64_t interval_s;
	uint64_t next_report_ns, ends_ns; /* since boot; ends_ns 0: open end */
	bool on[MONITOR_KINDS];
	uint64_t sum_ns[MONITOR_KINDS];
	struct {
		uint64_t start_ns, ns;
	} ranges[MONITOR_RANGES]; /* a step each, since the last report; no more are kept */
	int nranges;
	int sent; /* metrics since the start */
};

/* Carries out a command; one that breaks a rule is ignored as a whole. Tells the daemon the state.
 */
void monitor_command(struct monitor *m, struct link *l, const struct config *c);

/* One step has passed. */
void monitor_step(struct monitor *m, struct link *l, int device, uint64_t start_ns,
		  uint64_t end_ns);

/* Looks at the clock: reports, and ends a monitor whose duration is over, without a word to the
 * daemon, as the real one does. */
void monitor_tick(struct monitor *m, struct link *l, int device);

#endif
