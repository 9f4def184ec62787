/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Inside the metrics hub: what its files share. */
#ifndef SONDE_DAEMON_METRICS_METRICS_IMPL_H
#define SONDE_DAEMON_METRICS_METRICS_IMPL_H

#include "daemon/metrics/metrics.h"
#include "daemon/metrics/reader.h"
#include "daemon/metrics/store.h"

#define METRICS_SINKS 4
#define METRICS_READERS 2

/* A source that is read on the loop: files of /proc and counters of the kernel never hang. */
struct metrics_loop {
	const struct metrics_source *source;
	void *self; /* NULL: not opened */
	struct event *timer;
	unsigned interval_s;
	uint64_t failures;
	char why[256]; /* the last failure */
	struct metrics *hub;
};

struct metrics {
	struct daemon *d;
	struct store store;
	struct sink *sinks[METRICS_SINKS];
	unsigned nsinks;
	struct metrics_loop loops[2]; /* kernel, perf */
	struct reader *readers[METRICS_READERS];
	unsigned nreaders;
	bool found_opened; /* devices that were found are read */
	struct event *resume; /* of what was paused */
	uint64_t bad_data; /* messages of monitors that could not be used */
};

/* The state of source i; false: there is none. */
#define METRICS_SOURCES (2 + METRICS_READERS)
bool metrics_source_info(const struct metrics *m, unsigned i, struct reader_info *out);

/* Whether a stored sample is too old to be shown. */
bool metrics_is_stale(const struct metrics *m, const struct stored *s, uint64_t now_ns);

#endif
