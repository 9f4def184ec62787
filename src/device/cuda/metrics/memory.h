/* SPDX-License-Identifier: MulanPSL-2.0 */
/* The memory of one NVIDIA GPU, and who has it. Calls may take as long as the driver likes. */
#ifndef SONDE_DEVICE_CUDA_METRICS_MEMORY_H
#define SONDE_DEVICE_CUDA_METRICS_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "device/cuda/metrics/nvml.h"
#include "device/metrics_processes.h"

struct cuda_memory {
	uint64_t total_bytes;
	uint64_t
		used_bytes; /* in both without what the driver keeps for itself, if it tells that */
	bool has_processes; /* it told who uses it: */
	struct device_processes processes; /* to be released */
};

/* index: as NVML counts, in the order of the bus. Negative errno, *out untouched. */
int cuda_memory_read(const struct nvml *n, unsigned index, struct cuda_memory *out,
		     struct err *err);

#endif
