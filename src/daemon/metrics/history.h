/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * An hour of what devices and the host did, for the page: utilisation, memory, power, temperature, and
 * the traffic of the host. At most HISTORY_SERIES of them, made when a number comes for the first time.
 */
#ifndef SONDE_DAEMON_METRICS_HISTORY_H
#define SONDE_DAEMON_METRICS_HISTORY_H

#include "daemon/metrics/course.h"
#include "device/metrics.h"

#define HISTORY_SERIES 512 /* of 1.4 KiB each */

struct history_series {
	char source[8]; /* "kernel", "npu", "gpu" */
	int64_t device; /* SAMPLE_NO_DEVICE: the host */
	const char *name; /* "utilization", … */
	struct course course;
};

struct history {
	struct history_series **list;
	size_t n, cap;
	int64_t kernel_ns; /* of the last sample of the host: what is counted is of the time since */
};

/* `sample` is of the daemon's own sources; others are left out. */
void history_add(struct history *h, const struct sample *sample);
/* series[]: source, device, name, and values from that bin on. */
json_t *history_json(const struct history *h, int64_t from_bin, int64_t now_ns);
uint64_t history_bytes(const struct history *h);
void history_release(struct history *h);

#endif
