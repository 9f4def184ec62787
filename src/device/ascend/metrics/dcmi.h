/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The memory and state of Ascend devices as the vendor's management library (libdcmi.so, loaded at
 * run time) reports it. For our own processes: a call may take milliseconds, or hang with the
 * driver. One thread at a time has a handle; the library itself is entered by one at a time.
 */
#ifndef SONDE_DEVICE_ASCEND_METRICS_DCMI_H
#define SONDE_DEVICE_ASCEND_METRICS_DCMI_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

#define ASCEND_DCMI_PROCESSES 64 /* the library reports no more */
#define ASCEND_NO_BYTES UINT64_MAX /* how many is not known */

struct ascend_memory {
	uint64_t total_bytes;
	uint64_t used_bytes;
	bool has_processes; /* it reported who uses it */
	unsigned nprocesses;
	struct {
		uint32_t pid;
		uint32_t inner_pid; /* inside its container; 0 if that is not reported */
		uint64_t bytes; /* or ASCEND_NO_BYTES */
	} processes[ASCEND_DCMI_PROCESSES];
};

/* What is known of a chip: the members whose bits are set in `has`. */
enum ascend_has {
	ASCEND_HAS_AICORE = 1 << 0,
	ASCEND_HAS_VECTOR = 1 << 1,
	ASCEND_HAS_NPU = 1 << 2,
	ASCEND_HAS_HBM_BANDWIDTH = 1 << 3,
	ASCEND_HAS_MEMORY = 1 << 4,
	ASCEND_HAS_TEMPERATURE = 1 << 5,
	ASCEND_HAS_POWER = 1 << 6,
	ASCEND_HAS_HEALTH = 1 << 7,
};

enum ascend_health {
	ASCEND_OK = 0,
	ASCEND_WARNING = 1,
	ASCEND_ALARM = 2,
	ASCEND_CRITICAL = 3,
	ASCEND_UNKNOWN = 4,
};

struct ascend_chip {
	uint32_t device; /* the number that the driver's own calls use */
	uint32_t card, index; /* the board, as npu-smi counts them, and the chip on it */
	unsigned has; /* enum ascend_has */
	unsigned aicore, vector, npu, hbm_bandwidth; /* percent */
	struct ascend_memory memory;
	int temperature_c;
	double power_w;
	enum ascend_health health;
	char name[32]; /* "910B3"; empty: not known */
};

struct ascend_dcmi;

/* -ENOENT: no such library or no devices. Gives a handle. */
int ascend_dcmi_open(struct ascend_dcmi **out, struct err *err);
void ascend_dcmi_close(struct ascend_dcmi *d); /* d may be NULL */

/* device: the number that the driver's own calls use. Negative errno, *out untouched. */
int ascend_dcmi_memory(const struct ascend_dcmi *d, uint32_t device, struct ascend_memory *out,
		       struct err *err);

/* How many devices there are. */
unsigned ascend_dcmi_count(const struct ascend_dcmi *d);

/* Everything about device number n of them; what the library refuses to report is left out. */
void ascend_dcmi_chip(const struct ascend_dcmi *d, unsigned n, struct ascend_chip *out);

/* Only who uses it (memory.processes) and its numbers. -ENOTSUP: the library does not report. */
int ascend_dcmi_processes(const struct ascend_dcmi *d, unsigned n, struct ascend_chip *out);

#endif
