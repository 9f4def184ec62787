/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "device/cuda/metrics_memory.h"

#include <errno.h>

int cuda_memory_read(const struct nvml *n, unsigned index, struct cuda_memory *out, struct err *err)
{
	struct nvml_memory m;
	nvml_device device;

	nvml_result r = n->handle(index, &device);
	if (r != NVML_SUCCESS)
		return err_set(err, -ENODEV, "NVML has no GPU %u: %s", index, nvml_words(n, r));
	if (!n->memory)
		return err_set(err, -ENOTSUP, "this NVML does not tell the memory of a GPU");
	r = n->memory(device, &m);
	if (r != NVML_SUCCESS)
		return err_set(err, -EIO, "NVML does not tell the memory of GPU %u: %s", index,
			       nvml_words(n, r));
	*out = (struct cuda_memory){.total_bytes = m.total, .used_bytes = m.used};
	out->has_processes = nvml_processes(n, device, (int)index, &out->processes);
	return 0;
}
