/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The profiling ratios of one GPU between two rounds. They need the same hardware counters as
 * profilers (Nsight, CUPTI), so they can be let go of for a while.
 */
#ifndef SONDE_DEVICE_CUDA_METRICS_GPM_H
#define SONDE_DEVICE_CUDA_METRICS_GPM_H

#include <stdbool.h>

#include "device/cuda/metrics/nvml.h"
#include "device/metrics_list.h"

struct gpm {
	bool supported;
	nvml_gpm_sample before, now; /* NULL until first wanted */
	uint64_t before_ns; /* 0: there is no sample before */
};

void gpm_init(struct gpm *g, const struct nvml *n, nvml_device d);
void gpm_release(struct gpm *g, const struct nvml *n);

/* Adds the ratios since the last call; nothing after the first, or if asked too soon. `query` is
 * only room. True if PCIe and NVLink are among them. */
bool gpm_read(struct gpm *g, const struct nvml *n, nvml_device d, struct nvml_gpm_query *query,
	      struct metric_list *out);

/* Forgets the last sample and gives its memory back: the next ratios are from a new start. */
void gpm_stop(struct gpm *g, const struct nvml *n);

#endif
