/* SPDX-License-Identifier: MulanPSL-2.0 */
/* The parts of counters.c. */
#ifndef SONDE_SAMPLER_COUNTERS_COUNTERS_IMPL_H
#define SONDE_SAMPLER_COUNTERS_COUNTERS_IMPL_H

#include "base/containers/hmap.h"
#include "device/metrics.h"
#include "sampler/counters/counters.h"

/* Puts it into the queue with the time of now, or counts it as lost. */
void counters_put(struct counters *c, const struct counter *one);

/* --- cards (sampler/counters/cards.c) --- */

/* Puts what is wanted of a record of a card into the queue. */
void counters_put_sample(struct counters *c, enum counter_track track, const struct sample *s);

/* --- the host and processes (sampler/counters/host.c) --- */

struct meminfo {
	uint64_t total_bytes, available_bytes;
};

/* The content of /proc/meminfo. Old kernels do not say what is available: it is reckoned. -EPROTO
 * if it is nothing of the kind. */
int meminfo_parse(const char *text, size_t len, struct meminfo *out);

struct process_load {
	pid_t pid;
	uint64_t start_ticks, ticks, time_ns; /* at the last look */
	bool wanted;
};

/* Zero-initialise and release. */
struct process_loads {
	struct process_load *list;
	size_t n, cap;
	struct hmap by_pid; /* place in list */
};

void counters_put_host(struct counters *c);
void counters_put_processes(struct counters *c, struct process_loads *l, const pid_t *pids,
			    unsigned n);
void process_loads_release(struct process_loads *l);

#endif
