/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * What we use of NVIDIA's management library, libnvidia-ml.so.1: numbers, layouts and calls. All of
 * it is looked up at run time; a driver that lacks a call reports the less.
 */
#ifndef SONDE_DEVICE_CUDA_ABI_H
#define SONDE_DEVICE_CUDA_ABI_H

#include <stddef.h>
#include <stdint.h>

typedef int nvml_result; /* NVML_SUCCESS, or what nvmlErrorString() has words for */
typedef struct nvml_device_opaque *nvml_device;
typedef struct nvml_gpm_sample_opaque *nvml_gpm_sample;

#define NVML_SUCCESS 0
#define NVML_ERROR_INSUFFICIENT_SIZE 7

#define NVML_NAME_BYTES 96
#define NVML_UUID_BYTES 96

enum nvml_clock { NVML_CLOCK_SM = 1 };
enum nvml_sensor { NVML_TEMPERATURE_GPU = 0 };
enum nvml_pcie { NVML_PCIE_TX = 0, NVML_PCIE_RX = 1 };

struct nvml_utilization {
	unsigned int gpu, memory; /* percent of the last sampling period */
};

struct nvml_memory {
	unsigned long long total, free, used; /* bytes */
};

/* The second version of it, which _v2 and _v3 of the call fill. */
struct nvml_process {
	unsigned int pid;
	unsigned long long used_bytes; /* all ones: not known */
	unsigned int gpu_instance, compute_instance;
};

_Static_assert(sizeof(struct nvml_utilization) == 8, "layout of libnvidia-ml.so");
/* Without what the driver keeps for itself, which the struct above counts as used. */
struct nvml_memory_v2 {
	unsigned int version; /* in: NVML_MEMORY_V2 */
	unsigned long long total, reserved, free, used;
};
#define NVML_MEMORY_V2 (sizeof(struct nvml_memory_v2) | 2u << 24)

_Static_assert(sizeof(struct nvml_memory_v2) == 40, "layout of libnvidia-ml.so");
_Static_assert(sizeof(struct nvml_memory) == 24, "layout of libnvidia-ml.so");
_Static_assert(offsetof(struct nvml_process, used_bytes) == 8, "layout of libnvidia-ml.so");
_Static_assert(sizeof(struct nvml_process) == 24, "layout of libnvidia-ml.so");

/* --- GPM: what profiling counters say between two samples; Hopper and newer --- */

#define NVML_GPM_VERSION 1

enum nvml_gpm_metric_id {
	NVML_GPM_GRAPHICS_UTIL = 1, /* percent, as are those up to 13 */
	NVML_GPM_SM_UTIL = 2,
	NVML_GPM_SM_OCCUPANCY = 3,
	NVML_GPM_ANY_TENSOR_UTIL = 5,
	NVML_GPM_DRAM_BW_UTIL = 10,
	NVML_GPM_FP64_UTIL = 11,
	NVML_GPM_FP32_UTIL = 12,
	NVML_GPM_FP16_UTIL = 13,
	NVML_GPM_PCIE_TX = 20, /* MiB in a second, as are those below */
	NVML_GPM_PCIE_RX = 21,
	NVML_GPM_NVLINK_RX = 60,
	NVML_GPM_NVLINK_TX = 61,
};

struct nvml_gpm_support {
	unsigned int version; /* in */
	unsigned int supported;
};

struct nvml_gpm_metric {
	unsigned int id; /* in */
	nvml_result result;
	double value;
	const char *short_name, *long_name, *unit;
};

/* The array has as many elements as the library knows metrics: 98 in its first version, 333 later.
 * It looks at the first n only; the room is for those that may write more. */
#define NVML_GPM_ROOM 512

struct nvml_gpm_query {
	unsigned int version; /* in, as all but the results in metrics */
	unsigned int n;
	nvml_gpm_sample from, to;
	struct nvml_gpm_metric metrics[NVML_GPM_ROOM];
};

_Static_assert(sizeof(struct nvml_gpm_metric) == 40, "layout of libnvidia-ml.so");
_Static_assert(offsetof(struct nvml_gpm_query, metrics) == 24, "layout of libnvidia-ml.so");

#endif
