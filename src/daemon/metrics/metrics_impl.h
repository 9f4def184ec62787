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
	struct metrics_loop kernel, perf;
	struct reader *readers[METRICS_READERS];
	unsigned nreaders;
	bool found_opened; /* devices that were found are read */
	struct event *resume; /* of what was paused */
	uint64_t bad_data; /* messages of monitors that said nothing usable */
};

/* Lines of the daemon itself, of the processes and of what is counted on the way. */
struct prom_text;
void metrics_own(const struct metrics *m, struct prom_text *e);

/* Whether a stored sample is too old to be told as of now. */
bool metrics_is_stale(const struct metrics *m, const struct stored *s, uint64_t now_ns);

#endif
