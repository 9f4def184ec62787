/* SPDX-License-Identifier: MulanPSL-2.0 */
/* What nvidia-smi says, for machines where the library cannot be loaded. */
#ifndef SONDE_DEVICE_CUDA_METRICS_NVIDIA_SMI_H
#define SONDE_DEVICE_CUDA_METRICS_NVIDIA_SMI_H

#include <sys/types.h>

#include "base/containers/buf.h"
#include "device/metrics_processes.h"

#define NVIDIA_SMI_GPUS 64

/* -1 where it says [N/A] or [Not Supported], as MIG and some virtual GPUs make it do. */
struct nvidia_smi_gpu {
	int index;
	int utilization, memory_utilization; /* percent */
	int64_t memory_used_mb, memory_total_mb;
};

/* Lines of "index, gpu %, memory %, used MB, total MB"; gives how many GPUs. What is no such line
 * is left out. */
unsigned nvidia_smi_parse_gpus(const char *text, size_t len, struct nvidia_smi_gpu *out,
			       unsigned cap);

/* Lines of "pid, MB". */
void nvidia_smi_parse_apps(const char *text, size_t len, struct device_processes *out);

/* Run it and parse. Negative as run_program(); *hanging as there. */
int nvidia_smi_gpus(unsigned timeout_ms, pid_t *hanging, struct nvidia_smi_gpu *out, unsigned cap,
		    struct err *err);
int nvidia_smi_apps(unsigned timeout_ms, struct device_processes *out, struct err *err);

#endif
