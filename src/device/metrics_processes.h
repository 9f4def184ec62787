/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Who uses the devices, by the vendor's library or else its program. Calls may take as long as the
 * driver likes; the program has a deadline.
 */
#ifndef SONDE_DEVICE_METRICS_PROCESSES_H
#define SONDE_DEVICE_METRICS_PROCESSES_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
struct metric_list; /* device/metrics.h */

struct device_process {
	pid_t pid; /* as the driver counts: on the host */
	pid_t inner_pid; /* inside its container; 0 if that is not reported */
	int device; /* -1: not reported */
	uint64_t bytes; /* UINT64_MAX: not known */
};

/* Zero-initialise and release. A process is there once for each device that it uses. */
struct device_processes {
	struct device_process *list;
	size_t n, cap;
	const char *how; /* "DCMI", "npu-smi", "NVML", "nvidia-smi" */
	pid_t hanging; /* a program of before that does not end (base/subprocess.h) */
};

void device_processes_add(struct device_processes *d, const struct device_process *p);
void device_processes_release(struct device_processes *d);

/* Add to *out. -ENOENT: there is neither the library with a device nor the program. */
int ascend_processes(unsigned timeout_ms, struct device_processes *out, struct err *err);
int cuda_processes(unsigned timeout_ms, struct device_processes *out, struct err *err);

/*
 * For whom a device works: job, user, account and partition, as the environment of a process on it
 * says. Known only where we may read that environment: as root, or for our own processes.
 */

#define DEVICE_OWNER_TEXT 128

struct device_owner {
	char job_id[DEVICE_OWNER_TEXT];
	char username[DEVICE_OWNER_TEXT];
	char slurm_account[DEVICE_OWNER_TEXT];
	char slurm_partition[DEVICE_OWNER_TEXT];
};

/* Reads `size` bytes of an environment: strings one behind the other, each ended by NUL. */
void device_owner_parse(const char *text, size_t size, struct device_owner *out);

/* The first of the processes that is part of a job, or else that has a user. */
void device_owner_find(const uint32_t *pids, size_t n, struct device_owner *out);

/* Borrows the owner until the record is reported. */
void device_owner_add(const struct device_owner *o, struct metric_list *to);

#endif
