/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "device/cuda/metrics/memory.h"

#include <errno.h>

/*
 * What the driver keeps for itself belongs neither to the device's memory nor to what is in use of
 * it, as far as CUDA tells a program; here it is the same, so that the numbers fit together.
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

int cuda_memory_read(const struct nvml *n, unsigned index, struct cuda_memory *out, struct err *err)
{
	struct nvml_memory m;
	nvml_device device;

	nvml_result r = n->handle(index, &device);
	if (r != NVML_SUCCESS)
		return err_set(err, -ENODEV, "NVML has no GPU %u: %s", index, nvml_words(n, r));
	if (!n->memory)
		return err_set(err, -ENOTSUP, "this NVML does not tell the memory of a GPU");
	r = read_memory(n, device, &m);
	if (r != NVML_SUCCESS)
		return err_set(err, -EIO, "NVML does not tell the memory of GPU %u: %s", index,
			       nvml_words(n, r));
	*out = (struct cuda_memory){.total_bytes = m.total, .used_bytes = m.used};
	out->has_processes = nvml_processes(n, device, (int)index, &out->processes);
	return 0;
}
