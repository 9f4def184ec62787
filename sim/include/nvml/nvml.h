/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * As much of NVIDIA's management library as monitors of GPUs ask for. SIM_GPU_COUNT says how many
 * GPUs the simulated machine has: none unless it is set.
 */
#ifndef SONDE_SIM_NVML_H
#define SONDE_SIM_NVML_H

#include <stddef.h>

enum nvml_return {
	NVML_SUCCESS = 0,
	NVML_ERROR_UNINITIALIZED = 1,
	NVML_ERROR_INVALID_ARGUMENT = 2,
	NVML_ERROR_NOT_SUPPORTED = 3,
	NVML_ERROR_INSUFFICIENT_SIZE = 7,
	NVML_ERROR_DRIVER_NOT_LOADED = 9,
	NVML_ERROR_ARGUMENT_VERSION_MISMATCH = 25,
};

typedef struct sim_gpu *nvmlDevice_t;
typedef struct sim_gpm_sample *nvmlGpmSample_t;

typedef struct {
	unsigned int gpu, memory;
} nvmlUtilization_t;

typedef struct {
	unsigned long long total, free, used;
} nvmlMemory_t;

typedef struct {
	unsigned int version;
	unsigned long long total, reserved, free, used;
} nvmlMemory_v2_t;

typedef struct {
	unsigned int pid;
	unsigned long long usedGpuMemory;
	unsigned int gpuInstanceId, computeInstanceId;
} nvmlProcessInfo_t;

typedef struct {
	unsigned int version, isSupportedDevice;
} nvmlGpmSupport_t;

typedef struct {
	unsigned int metricId;
	int nvmlReturn;
	double value;
	struct {
		const char *shortName, *longName, *unit;
	} metricInfo;
} nvmlGpmMetric_t;

#define NVML_GPM_METRIC_MAX 98

typedef struct {
	unsigned int version, numMetrics;
	nvmlGpmSample_t sample1, sample2;
	nvmlGpmMetric_t metrics[NVML_GPM_METRIC_MAX];
} nvmlGpmMetricsGet_t;

_Static_assert(sizeof(nvmlProcessInfo_t) == 24, "vendor layout");
_Static_assert(sizeof(nvmlGpmMetric_t) == 40, "vendor layout");
_Static_assert(offsetof(nvmlGpmMetricsGet_t, metrics) == 24, "vendor layout");

int nvmlInit_v2(void);
int nvmlShutdown(void);
const char *nvmlErrorString(int result);
int nvmlDeviceGetCount_v2(unsigned int *out);
int nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *out);
int nvmlDeviceGetName(nvmlDevice_t gpu, char *out, unsigned int size);
int nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *out);
int nvmlDeviceGetUUID(nvmlDevice_t gpu, char *out, unsigned int size);
int nvmlDeviceGetMinorNumber(nvmlDevice_t gpu, unsigned int *out);
int nvmlDeviceGetUtilizationRates(nvmlDevice_t gpu, nvmlUtilization_t *out);
int nvmlDeviceGetMemoryInfo(nvmlDevice_t gpu, nvmlMemory_t *out);
int nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t gpu, nvmlMemory_v2_t *out);
int nvmlDeviceGetPowerUsage(nvmlDevice_t gpu, unsigned int *out_mw);
int nvmlDeviceGetTemperature(nvmlDevice_t gpu, int sensor, unsigned int *out_celsius);
int nvmlDeviceGetClockInfo(nvmlDevice_t gpu, int clock, unsigned int *out_mhz);
int nvmlDeviceGetPcieThroughput(nvmlDevice_t gpu, int counter, unsigned int *out_kb_s);
/* Those that SIM_GPU_PID names, "pid" on every GPU or "pid@gpu", with commas between them;
 * SIM_GPU_GRAPHICS_PID those that draw. */
int nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t gpu, unsigned int *count,
					    nvmlProcessInfo_t *out);
int nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t gpu, unsigned int *count,
					     nvmlProcessInfo_t *out);
/* SIM_GPU_GPM=0 makes the GPUs too old for the rest. */
int nvmlGpmQueryDeviceSupport(nvmlDevice_t gpu, nvmlGpmSupport_t *out);
int nvmlGpmSampleAlloc(nvmlGpmSample_t *out);
int nvmlGpmSampleFree(nvmlGpmSample_t sample);
int nvmlGpmSampleGet(nvmlDevice_t gpu, nvmlGpmSample_t sample);
int nvmlGpmMetricsGet(nvmlGpmMetricsGet_t *query);

#endif
