/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Whether the clocks of hosts agree, since a start time given to all means what each host's clock
 * says. A host tells its time between the moment we asked and the moment its answer was here; how
 * far its clock is from ours is known only within that span.
 */
#ifndef SONDE_CLI_CTL_CLOCK_H
#define SONDE_CLI_CTL_CLOCK_H

#include <stddef.h>
#include <stdint.h>

#include "cli/ctl/ctl.h"

#define CTL_CLOCK_TOLERANCE_NS INT64_C(100000000)

/* Theirs minus ours lies in between. */
struct ctl_span {
	int64_t low_ns, high_ns;
};

/* What the middle host is ahead of us. 0 if there is none. */
int64_t ctl_clock_middle(const struct ctl_span *spans, size_t n);

/* How far the host is from that at least: 0 if it may be right. Negative: it is behind. */
int64_t ctl_clock_apart(struct ctl_span s, int64_t middle_ns);

/* A common start in delay_s seconds, in ms since the epoch by the clocks of the hosts. Warns about
 * hosts whose clocks differ; those that cannot tell their time are passed over. */
int ctl_clock_start(struct ctl *c, unsigned delay_s, uint64_t *out_ms, struct err *err);

#endif
