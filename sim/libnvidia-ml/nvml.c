/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * GPUs for those who watch GPUs. They run no kernels: GPU n is always busy to 40 + n percent, which
 * is enough to see that each value arrives under its name, and in its unit.
 */
#include "nvml/nvml.h"

#include "sim/gpu_state.h"

#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MAX_GPUS 16
#define GIB (1ull << 30)

struct sim_gpu {
	unsigned index;
};

struct sim_gpm_sample {
	const struct sim_gpu *gpu; /* NULL: not taken yet */
	unsigned long long time_ns;
};

static struct sim_gpu gpus[MAX_GPUS];
static unsigned ngpus;
static struct sim_gpu_state *state; /* of the simulated driver; NULL: nobody uses the GPUs */

static unsigned env_number(const char *name, unsigned fallback)
{
	const char *text = getenv(name);

	return text && *text ? (unsigned)strtoul(text, NULL, 10) : fallback;
}

int nvmlInit_v2(void)
{
	ngpus = env_number("SIM_GPU_COUNT", 0);
	if (ngpus > MAX_GPUS)
		ngpus = MAX_GPUS;
	for (unsigned i = 0; i < ngpus; i++)
		gpus[i].index = i;
	if (!state)
		state = sim_gpu_state_map(1);
	return ngpus ? NVML_SUCCESS : NVML_ERROR_DRIVER_NOT_LOADED;
}

int nvmlShutdown(void)
{
	ngpus = 0;
	return NVML_SUCCESS;
}

const char *nvmlErrorString(int result)
{
	switch (result) {
	case NVML_SUCCESS:
		return "The operation was successful";
	case NVML_ERROR_DRIVER_NOT_LOADED:
		return "Driver Not Loaded";
	case NVML_ERROR_NOT_SUPPORTED:
		return "Not Supported";
	default:
		return "Unknown Error";
	}
}

/* Handles are only good between init and shutdown. */
static int check(const struct sim_gpu *gpu)
{
	if (!ngpus)
		return NVML_ERROR_UNINITIALIZED;
	if (gpu < gpus || gpu >= gpus + ngpus)
		return NVML_ERROR_INVALID_ARGUMENT;
	return NVML_SUCCESS;
}

/* With what is reserved, which a GPU of 80 GiB has less for jobs. */
static unsigned long long memory_bytes(void)
{
	const char *mib = getenv("SIM_GPU_MEMORY_MIB");

	return mib && *mib ? (strtoull(mib, NULL, 10) << 20) + GIB : 80 * GIB;
}

static unsigned load_of(const struct sim_gpu *gpu)
{
	return 40 + gpu->index;
}

int nvmlDeviceGetCount_v2(unsigned int *out)
{
	*out = ngpus;
	return ngpus ? NVML_SUCCESS : NVML_ERROR_UNINITIALIZED;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *out)
{
	if (index >= ngpus)
		return NVML_ERROR_INVALID_ARGUMENT;
	*out = &gpus[index];
	return NVML_SUCCESS;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *out)
{
	const char *last = strrchr(uuid, '-');

	if (strncmp(uuid, "GPU-00000000-", 13) != 0 || !last)
		return NVML_ERROR_INVALID_ARGUMENT;
	return nvmlDeviceGetHandleByIndex_v2((unsigned)strtoul(last + 1, NULL, 16), out);
}

int nvmlDeviceGetName(nvmlDevice_t gpu, char *out, unsigned int size)
{
	int r = check(gpu);

	if (!r)
		snprintf(out, size, "NVIDIA SIM 80GB HBM3");
	return r;
}

int nvmlDeviceGetUUID(nvmlDevice_t gpu, char *out, unsigned int size)
{
	int r = check(gpu);

	if (!r)
		snprintf(out, size, "GPU-00000000-0000-0000-0000-%012u", gpu->index);
	return r;
}

int nvmlDeviceGetMinorNumber(nvmlDevice_t gpu, unsigned int *out)
{
	int r = check(gpu);

	if (!r)
		*out = gpu->index;
	return r;
}

int nvmlDeviceGetUtilizationRates(nvmlDevice_t gpu, nvmlUtilization_t *out)
{
	int r = check(gpu);

	if (!r)
		*out = (nvmlUtilization_t){.gpu = load_of(gpu), .memory = load_of(gpu) / 2};
	return r;
}

static bool is_alive(const struct sim_gpu_user *u)
{
	return u->pid && kill((pid_t)u->pid, 0) == 0;
}

/* What jobs have from the simulated driver; without them a figure of its own for each GPU. */
static unsigned long long used_bytes(const struct sim_gpu *gpu)
{
	unsigned long long sum = 0;

	if (!state)
		return (10 + gpu->index) * GIB;
	for (int i = 0; i < SIM_GPU_USERS; i++)
		if (is_alive(&state->users[gpu->index][i]))
			sum += state->users[gpu->index][i].bytes;
	return sum;
}

int nvmlDeviceGetMemoryInfo(nvmlDevice_t gpu, nvmlMemory_t *out)
{
	int r = check(gpu);

	if (!r)
		*out = (nvmlMemory_t){.total = memory_bytes(),
				      .free = memory_bytes() - GIB - used_bytes(gpu),
				      .used = GIB + used_bytes(gpu)};
	return r;
}

int nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t gpu, nvmlMemory_v2_t *out)
{
	int r = check(gpu);

	if (!r && out->version != (sizeof(*out) | 2u << 24))
		r = NVML_ERROR_INVALID_ARGUMENT;
	if (!r)
		*out = (nvmlMemory_v2_t){.version = out->version,
					 .total = memory_bytes(),
					 .reserved = GIB,
					 .free = memory_bytes() - GIB - used_bytes(gpu),
					 .used = used_bytes(gpu)};
	return r;
}

int nvmlDeviceGetPowerUsage(nvmlDevice_t gpu, unsigned int *out_mw)
{
	int r = check(gpu);

	if (!r)
		*out_mw = 250500 + gpu->index * 1000;
	return r;
}

int nvmlDeviceGetTemperature(nvmlDevice_t gpu, int sensor, unsigned int *out_celsius)
{
	int r = check(gpu);

	if (!r && sensor != 0)
		r = NVML_ERROR_INVALID_ARGUMENT;
	if (!r)
		*out_celsius = 50 + gpu->index;
	return r;
}

int nvmlDeviceGetClockInfo(nvmlDevice_t gpu, int clock, unsigned int *out_mhz)
{
	int r = check(gpu);

	if (!r)
		*out_mhz = clock == 1 ? 1755 : 1593; /* 1: the multiprocessors' */
	return r;
}

int nvmlDeviceGetPcieThroughput(nvmlDevice_t gpu, int counter, unsigned int *out_kb_s)
{
	int r = check(gpu);

	if (!r)
		*out_kb_s = counter == 0 ? 1000 : 2000; /* 0: sent */
	return r;
}

static void list_users(const struct sim_gpu *gpu, unsigned *count, unsigned room,
		       nvmlProcessInfo_t *out)
{
	for (int i = 0; state && i < SIM_GPU_USERS; i++) {
		const struct sim_gpu_user *u = &state->users[gpu->index][i];

		if (!u->bytes || !is_alive(u))
			continue;
		if (*count < room)
			out[*count] = (nvmlProcessInfo_t){.pid = u->pid, .usedGpuMemory = u->bytes};
		++*count;
	}
}

/* The variable holds "pid", "pid@gpu", or several with commas between them. */
static int list_processes(const char *variable, const struct sim_gpu *gpu, unsigned *count,
			  nvmlProcessInfo_t *out)
{
	const char *at = getenv(variable);
	unsigned room = *count;
	int r = check(gpu);

	if (r)
		return r;
	*count = 0;
	while (at && *at) {
		char *end;
		unsigned pid = (unsigned)strtoul(at, &end, 10);
		unsigned on = *end == '@' ? (unsigned)strtoul(end + 1, &end, 10) : gpu->index;

		at = *end ? end + 1 : end;
		if (!pid || on != gpu->index)
			continue;
		if (*count < room)
			out[*count] = (nvmlProcessInfo_t){.pid = pid, .usedGpuMemory = 10 * GIB};
		++*count;
	}
	if (!strcmp(variable, "SIM_GPU_PID"))
		list_users(gpu, count, room, out);
	return *count > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

int nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t gpu, unsigned int *count,
					    nvmlProcessInfo_t *out)
{
	return list_processes("SIM_GPU_PID", gpu, count, out);
}

int nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t gpu, unsigned int *count,
					     nvmlProcessInfo_t *out)
{
	return list_processes("SIM_GPU_GRAPHICS_PID", gpu, count, out);
}

int nvmlGpmQueryDeviceSupport(nvmlDevice_t gpu, nvmlGpmSupport_t *out)
{
	if (out->version != 1)
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	out->isSupportedDevice = env_number("SIM_GPU_GPM", 1);
	return check(gpu);
}

int nvmlGpmSampleAlloc(nvmlGpmSample_t *out)
{
	*out = calloc(1, sizeof(**out));
	return *out ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

int nvmlGpmSampleFree(nvmlGpmSample_t sample)
{
	free(sample);
	return NVML_SUCCESS;
}

int nvmlGpmSampleGet(nvmlDevice_t gpu, nvmlGpmSample_t sample)
{
	struct timespec t;
	int r = check(gpu);

	if (r)
		return r;
	if (!env_number("SIM_GPU_GPM", 1))
		return NVML_ERROR_NOT_SUPPORTED;
	clock_gettime(CLOCK_MONOTONIC, &t);
	sample->gpu = gpu;
	sample->time_ns = (unsigned long long)t.tv_sec * 1000000000ull + (unsigned)t.tv_nsec;
	return NVML_SUCCESS;
}

/* Percents count from the metric's number, so that none can be taken for another; traffic is as
 * many MiB a second. This GPU has no FP64 pipe. */
static void fill(nvmlGpmMetric_t *m, const struct sim_gpu *gpu)
{
	if (m->metricId == 11)
		m->nvmlReturn = NVML_ERROR_NOT_SUPPORTED;
	else
		m->nvmlReturn = NVML_SUCCESS;
	m->value = m->metricId + gpu->index / 10.0;
}

int nvmlGpmMetricsGet(nvmlGpmMetricsGet_t *query)
{
	const struct sim_gpm_sample *from = query->sample1, *to = query->sample2;

	if (query->version != 1)
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	if (!from || !to || !from->gpu || from->gpu != to->gpu || to->time_ns <= from->time_ns ||
	    query->numMetrics > NVML_GPM_METRIC_MAX)
		return NVML_ERROR_INVALID_ARGUMENT;
	for (unsigned i = 0; i < query->numMetrics; i++)
		fill(&query->metrics[i], to->gpu);
	return NVML_SUCCESS;
}
