/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "device/cuda/metrics/nvml.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>

#define LIBRARY "libnvidia-ml.so.1"

static int find_calls(struct nvml *n, struct err *err)
{
	const struct {
		const char *name;
		const char *older; /* takes the same arguments */
		void **to;
		bool needed;
	} calls[] = {
		{"nvmlInit_v2", "nvmlInit", (void **)&n->init, true},
		{"nvmlShutdown", NULL, (void **)&n->shutdown, true},
		{"nvmlErrorString", NULL, (void **)&n->words, true},
		{"nvmlDeviceGetCount_v2", "nvmlDeviceGetCount", (void **)&n->count, true},
		{"nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetHandleByIndex", (void **)&n->handle,
		 true},
		{"nvmlDeviceGetName", NULL, (void **)&n->name, false},
		{"nvmlDeviceGetUUID", NULL, (void **)&n->uuid, false},
		{"nvmlDeviceGetHandleByUUID", NULL, (void **)&n->handle_of, false},
		{"nvmlDeviceGetMinorNumber", NULL, (void **)&n->minor, false},
		{"nvmlDeviceGetUtilizationRates", NULL, (void **)&n->utilization, false},
		{"nvmlDeviceGetMemoryInfo", NULL, (void **)&n->memory, false},
		{"nvmlDeviceGetMemoryInfo_v2", NULL, (void **)&n->memory_v2, false},
		{"nvmlDeviceGetPowerUsage", NULL, (void **)&n->power, false},
		{"nvmlDeviceGetTemperature", NULL, (void **)&n->temperature, false},
		{"nvmlDeviceGetClockInfo", NULL, (void **)&n->clock, false},
		{"nvmlDeviceGetPcieThroughput", NULL, (void **)&n->pcie, false},
		{"nvmlDeviceGetComputeRunningProcesses_v3",
		 "nvmlDeviceGetComputeRunningProcesses_v2", (void **)&n->processes, false},
		{"nvmlDeviceGetGraphicsRunningProcesses_v3",
		 "nvmlDeviceGetGraphicsRunningProcesses_v2", (void **)&n->graphics, false},
		{"nvmlGpmQueryDeviceSupport", NULL, (void **)&n->gpm_support, false},
		{"nvmlGpmSampleAlloc", NULL, (void **)&n->gpm_alloc, false},
		{"nvmlGpmSampleFree", NULL, (void **)&n->gpm_free, false},
		{"nvmlGpmSampleGet", NULL, (void **)&n->gpm_take, false},
		{"nvmlGpmMetricsGet", NULL, (void **)&n->gpm_get, false},
	};

	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		*calls[i].to = dlsym(n->library, calls[i].name);
		if (!*calls[i].to && calls[i].older)
			*calls[i].to = dlsym(n->library, calls[i].older);
		if (!*calls[i].to && calls[i].needed)
			return err_set(err, -ENOENT, "%s has no %s", LIBRARY, calls[i].name);
	}
	if (!n->gpm_alloc || !n->gpm_free || !n->gpm_take || !n->gpm_get)
		n->gpm_support = NULL;
	return 0;
}

int nvml_open(struct nvml *n, struct err *err)
{
	*n = (struct nvml){0};
	n->library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
	if (!n->library) {
		const char *why = dlerror();
		return err_set(err, -ENOENT, "cannot load %s: %s", LIBRARY, why ? why : "?");
	}
	int r = find_calls(n, err);
	if (r == 0) {
		nvml_result result = n->init();
		if (result == NVML_SUCCESS)
			return 0;
		r = err_set(err, -ENOENT, "%s does not start: %s", LIBRARY, nvml_words(n, result));
	}
	dlclose(n->library);
	n->library = NULL;
	return r;
}

void nvml_close(struct nvml *n)
{
	if (!n->library)
		return;
	n->shutdown();
	dlclose(n->library);
	n->library = NULL;
}

const char *nvml_words(const struct nvml *n, nvml_result r)
{
	const char *text = n->words(r);

	return text ? text : "unknown error";
}

/*
 * What the driver keeps for itself belongs neither to the device's memory nor to what is in use of
 * it, as far as CUDA reports to a program; here it is the same, so that the numbers fit together.
 */
static nvml_result read_memory(const struct nvml *n, nvml_device device, struct nvml_memory *out)
{
	struct nvml_memory_v2 v2 = {.version = NVML_MEMORY_V2};

	if (n->memory_v2 && n->memory_v2(device, &v2) == NVML_SUCCESS && v2.reserved < v2.total) {
		*out = (struct nvml_memory){v2.total - v2.reserved, v2.free, v2.used};
		return NVML_SUCCESS;
	}
	return n->memory(device, out);
}

/* "GPU-8-4-4-4-12" digits. */
static void write_uuid(const struct cuda_gpu_name *which, char out[48])
{
	static const uint8_t breaks[16] = {[4] = 1, [6] = 1, [8] = 1, [10] = 1};
	int at = snprintf(out, 48, "%s-", which->part ? "MIG" : "GPU");

	for (unsigned i = 0; i < 16; i++)
		at += snprintf(out + at, (size_t)(48 - at), "%s%02x", breaks[i] ? "-" : "",
			       which->uuid[i]);
}

static nvml_result find_device(const struct nvml *n, const struct cuda_gpu_name *which,
			       nvml_device *out)
{
	char uuid[48];

	if (which->uuid && n->handle_of) {
		write_uuid(which, uuid);
		if (n->handle_of(uuid, out) == NVML_SUCCESS)
			return NVML_SUCCESS;
	}
	return n->handle(which->index, out);
}

int cuda_memory_read(const struct nvml *n, const struct cuda_gpu_name *which,
		     struct cuda_memory *out, struct err *err)
{
	unsigned index = which->index;
	struct nvml_memory m;
	nvml_device device;

	nvml_result r = find_device(n, which, &device);
	if (r != NVML_SUCCESS)
		return err_set(err, -ENODEV, "NVML has no GPU %u: %s", index, nvml_words(n, r));
	if (!n->memory)
		return err_set(err, -ENOTSUP, "this NVML does not report memory for GPUs");
	r = read_memory(n, device, &m);
	if (r != NVML_SUCCESS)
		return err_set(err, -EIO, "NVML does not report memory for GPU %u: %s", index,
			       nvml_words(n, r));
	*out = (struct cuda_memory){.total_bytes = m.total, .used_bytes = m.used};
	out->has_processes = nvml_processes(n, device, (int)index, &out->processes);
	return 0;
}
