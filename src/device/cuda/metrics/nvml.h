/* SPDX-License-Identifier: MulanPSL-2.0 */
/* NVIDIA's management library, loaded at run time. */
#ifndef SONDE_DEVICE_CUDA_METRICS_NVML_H
#define SONDE_DEVICE_CUDA_METRICS_NVML_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "device/cuda/abi.h"
#include "device/metrics_processes.h"

struct nvml {
	void *library;
	nvml_result (*init)(void);
	nvml_result (*shutdown)(void);
	const char *(*words)(nvml_result r);
	nvml_result (*count)(unsigned int *out);
	nvml_result (*handle)(unsigned int index, nvml_device *out);
	/* NULL where the driver does not have them: */
	nvml_result (*name)(nvml_device d, char *out, unsigned int size);
	nvml_result (*uuid)(nvml_device d, char *out, unsigned int size);
	nvml_result (*handle_of)(const char *uuid, nvml_device *out);
	nvml_result (*minor)(nvml_device d, unsigned int *out);
	nvml_result (*utilization)(nvml_device d, struct nvml_utilization *out);
	nvml_result (*memory)(nvml_device d, struct nvml_memory *out);
	nvml_result (*memory_v2)(nvml_device d, struct nvml_memory_v2 *out);
	nvml_result (*power)(nvml_device d, unsigned int *out_mw);
	nvml_result (*temperature)(nvml_device d, enum nvml_sensor s, unsigned int *out_c);
	nvml_result (*clock)(nvml_device d, enum nvml_clock c, unsigned int *out_mhz);
	nvml_result (*pcie)(nvml_device d, enum nvml_pcie c, unsigned int *out_kb_s);
	nvml_result (*processes)(nvml_device d, unsigned int *n, struct nvml_process *out);
	nvml_result (*graphics)(nvml_device d, unsigned int *n, struct nvml_process *out);
	/* All of them or none: */
	nvml_result (*gpm_support)(nvml_device d, struct nvml_gpm_support *out);
	nvml_result (*gpm_alloc)(nvml_gpm_sample *out);
	nvml_result (*gpm_free)(nvml_gpm_sample s);
	nvml_result (*gpm_take)(nvml_device d, nvml_gpm_sample s);
	nvml_result (*gpm_get)(struct nvml_gpm_query *q);
};

/* -ENOENT: no such library, or no driver behind it. */
int nvml_open(struct nvml *n, struct err *err);
void nvml_close(struct nvml *n);

/* The library's words for a result. */
const char *nvml_words(const struct nvml *n, nvml_result r);

/* Who uses the GPU (metrics_processes.c), added to *out; false: the driver does not report. */
struct device_processes;
bool nvml_processes(const struct nvml *n, nvml_device device, int index,
		    struct device_processes *out);

/* The memory of one NVIDIA GPU, and who has it. Calls may take as long as the driver likes. */

struct cuda_memory {
	uint64_t total_bytes;
	uint64_t used_bytes; /* in both without what the driver keeps for itself, if it reports that
			      */
	bool has_processes; /* it reported who uses it: */
	struct device_processes processes; /* to be released */
};

/* Which one: NVML counts in the order of the bus; a job may count in another. */
struct cuda_gpu_name {
	unsigned index;
	bool part; /* of a GPU (MIG) */
	const uint8_t *uuid; /* 16 bytes, as CUDA has them; NULL: the index says it */
};

/* Negative errno, *out untouched. */
int cuda_memory_read(const struct nvml *n, const struct cuda_gpu_name *which,
		     struct cuda_memory *out, struct err *err);

#endif
