/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The memory of Ascend devices as the vendor's management library (libdcmi.so, loaded at run time)
 * tells it. For our own processes: a call may take milliseconds, or hang with the driver. One
 * thread at a time.
 */
#ifndef SONDE_DEVICE_ASCEND_DCMI_H
#define SONDE_DEVICE_ASCEND_DCMI_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

#define ASCEND_DCMI_PROCESSES 64 /* the library tells of no more */

struct ascend_memory {
	uint64_t total_bytes;
	uint64_t used_bytes;
	bool has_processes; /* it told who uses it */
	unsigned nprocesses;
	struct {
		uint32_t pid;
		uint64_t bytes;
	} processes[ASCEND_DCMI_PROCESSES];
};

struct ascend_dcmi;

/* -ENOENT: no such library or no devices. Gives a handle. */
int ascend_dcmi_open(struct ascend_dcmi **out, struct err *err);
void ascend_dcmi_close(struct ascend_dcmi *d); /* d may be NULL */

/* device: the number that the driver's own calls use. Negative errno, *out untouched. */
int ascend_dcmi_memory(const struct ascend_dcmi *d, uint32_t device, struct ascend_memory *out,
		       struct err *err);

#endif
