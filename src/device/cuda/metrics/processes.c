/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "device/metrics_processes.h"

#include <errno.h>
#include <stdlib.h>

#include "base/mem.h"
#include "device/cuda/metrics/nvidia_smi.h"
#include "device/cuda/metrics/nvml.h"

#define FIRST_GUESS 64
#define MAX_PROCESSES 65536

/* True if the driver reported, even that there are none. */
static bool add_running(nvml_result (*ask)(nvml_device, unsigned int *, struct nvml_process *),
			nvml_device device, int index, struct device_processes *out)
{
	struct nvml_process *list = NULL;
	nvml_result r = NVML_ERROR_INSUFFICIENT_SIZE;
	unsigned n = 0;

	for (unsigned cap = FIRST_GUESS;
	     ask && r == NVML_ERROR_INSUFFICIENT_SIZE && cap <= MAX_PROCESSES;
	     cap = n > cap ? n + 16 : cap * 2) {
		free(list);
		/* Some versions of the driver fill larger elements: room for them, too. */
		list = xcalloc(cap, sizeof(*list) * 2);
		n = cap;
		r = ask(device, &n, list);
		if (n > cap && r == NVML_SUCCESS)
			r = NVML_ERROR_INSUFFICIENT_SIZE;
	}
	for (unsigned i = 0; r == NVML_SUCCESS && i < n; i++)
		if (list[i].pid > 0 && list[i].pid <= INT32_MAX)
			device_processes_add(out,
					     &(struct device_process){.pid = (pid_t)list[i].pid,
								      .device = index,
								      .bytes = list[i].used_bytes});
	free(list);
	return r == NVML_SUCCESS;
}

bool nvml_processes(const struct nvml *n, nvml_device device, int index,
		    struct device_processes *out)
{
	bool reported = add_running(n->processes, device, index, out);

	return add_running(n->graphics, device, index, out) || reported;
}

static int by_library(struct device_processes *out, struct err *err)
{
	struct nvml nvml;
	nvml_device device;
	unsigned count = 0;
	bool reported = false;

	int r = nvml_open(&nvml, err);
	if (r < 0)
		return r;
	if (nvml.count(&count) != NVML_SUCCESS)
		count = 0;
	for (unsigned i = 0; i < count; i++) {
		if (nvml.handle(i, &device) != NVML_SUCCESS)
			continue;
		reported |= nvml_processes(&nvml, device, (int)i, out);
	}
	nvml_close(&nvml);
	return reported ? 0 : err_set(err, -ENOENT, "NVML does not report who uses the GPUs");
}

int cuda_processes(unsigned timeout_ms, struct device_processes *out, struct err *err)
{
	struct err no_library = {0}, no_program = {0};

	out->how = "NVML";
	if (by_library(out, &no_library) == 0)
		return 0;
	out->how = "nvidia-smi";
	int r = nvidia_smi_apps(timeout_ms, out, &no_program);
	if (r == 0)
		return 0;
	return err_set(err, r, "no GPU: %.240s; %.240s", no_library.text, no_program.text);
}
