/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Whether the clocks of hosts agree, since a start time given to all is read by each host's clock, and
 * times of several hosts are shown side by side. A host reads its clock between the moment we asked
 * and the moment its answer was here; how far its clock is from ours is known only within that span.
 */
#ifndef SONDE_CLIENT_CLOCKS_H
#define SONDE_CLIENT_CLOCKS_H

#include <stddef.h>
#include <stdint.h>

#include "base/numbers/clock_fit.h"
#include "client/call_hosts.h"
#include "formats/clock_file.h"

#define CLOCKS_TOLERANCE_NS INT64_C(100000000)
#define CLOCKS_ROUNDS 8

/* How far the middle host is ahead of us. 0 if there is none. */
int64_t clocks_middle(const struct clock_span *spans, size_t n);

/* How far the host is from that at least: 0 if it may be right. Negative: it is behind. */
int64_t clocks_apart(struct clock_span s, int64_t middle_ns);

/* A host whose clock differs from the middle one by more than the tolerance. */
struct clock_difference {
	size_t host;
	int64_t apart_ns; /* at least; negative: it is behind */
};

/* A common start in delay_s seconds, in ms since the epoch by the clocks of the hosts. *out (the
 * caller frees it) has the hosts whose clocks differ; hosts that do not report their time are left
 * out. */
int clocks_common_start(struct client_group *g, unsigned delay_s, uint64_t *out_ms,
			struct clock_difference **out, size_t *out_n, struct err *err);

/*
 * Asks all hosts some times, and adds the round trips: their `label` is that of the host in the group,
 * their times are those of our CLOCK_MONOTONIC. last[i] is the last answer of host i (the caller's
 * client_answers_new()).
 */
int clocks_ask(struct client_group *g, unsigned rounds, struct clock_trips *out,
	       struct client_answer *last, struct err *err);

#endif
