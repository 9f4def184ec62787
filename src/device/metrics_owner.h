/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * For whom a device works: job, user, account and partition, as the environment of a process on it
 * says. Known only where we may read that environment: as root, or for our own processes.
 */
#ifndef SONDE_DEVICE_METRICS_OWNER_H
#define SONDE_DEVICE_METRICS_OWNER_H

#include "device/metrics_list.h"

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

/* Borrows the owner until the record is told. */
void device_owner_add(const struct device_owner *o, struct metric_list *to);

#endif
