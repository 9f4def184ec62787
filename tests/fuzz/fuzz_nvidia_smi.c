/* SPDX-License-Identifier: MulanPSL-2.0 */
/* What nvidia-smi prints, of whatever version. What is taken from it is within bounds. */
#include <stdint.h>

#include "base/mem.h"
#include "device/cuda/metrics/nvidia_smi.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct device_processes d = {0};
	struct nvidia_smi_gpu gpus[4];
	unsigned n = nvidia_smi_parse_gpus((const char *)data, size, gpus, 4);

	BUG_ON(n > 4);
	for (unsigned i = 0; i < n; i++) {
		const struct nvidia_smi_gpu *g = &gpus[i];

		BUG_ON(g->index < 0 || g->utilization < -1 || g->utilization > 100);
		BUG_ON(g->memory_utilization < -1 || g->memory_utilization > 100);
		BUG_ON(g->memory_used_mb < -1 || g->memory_used_mb > g->memory_total_mb);
		BUG_ON(g->memory_total_mb > INT64_MAX >> 20);
	}
	nvidia_smi_parse_apps((const char *)data, size, &d);
	for (size_t i = 0; i < d.n; i++)
		BUG_ON(d.list[i].pid <= 0 ||
		       (d.list[i].bytes != UINT64_MAX && d.list[i].bytes & 0xfffff));
	device_processes_release(&d);
	return 0;
}
