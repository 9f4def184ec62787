/* SPDX-License-Identifier: MulanPSL-2.0 */
/* The memory of the host, and processor time and memory of processes, as counters. */
#ifndef SONDE_SAMPLER_COUNTERS_HOST_H
#define SONDE_SAMPLER_COUNTERS_HOST_H

#include "base/containers/hmap.h"
#include "sampler/counters/counters.h"

struct meminfo {
	uint64_t total_bytes, available_bytes;
	uint64_t free_bytes, shared_bytes, cache_bytes; /* as free(1) has them; 0 if not there */
};

/* The content of /proc/meminfo. Old kernels do not report what is available: it is estimated.
 * -EPROTO if it is nothing of the kind. */
int meminfo_parse(const char *text, size_t len, struct meminfo *out);

struct process_load {
	pid_t pid;
	uint64_t start_ticks, ticks, time_ns; /* at the last read */
	bool wanted;
};

/* Zero-initialise and release. */
struct process_loads {
	struct process_load *list;
	size_t n, cap;
	struct hmap by_pid; /* index in list */
	uint64_t cpu_busy, cpu_all; /* of the host, at the last read */
};

void counters_put_host(struct counters *c);
void counters_put_cpu(struct counters *c, struct process_loads *l);
void counters_put_processes(struct counters *c, struct process_loads *l, const pid_t *pids,
			    unsigned n);
void process_loads_release(struct process_loads *l);

#endif
