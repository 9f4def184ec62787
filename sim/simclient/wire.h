/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * What frameworks put into datagrams, in host byte order: a header of 40 bytes, then one of these.
 */
#ifndef SIM_CLIENT_WIRE_H
#define SIM_CLIENT_WIRE_H

#include <assert.h>
#include <stdint.h>

struct wire_header {
	uint64_t size; /* of what follows */
	char type[32];
};
static_assert(sizeof(struct wire_header) == 40, "wire layout");

/* "ctxt" */
struct wire_context {
	int32_t gpu, pid;
	int64_t job;
};
static_assert(sizeof(struct wire_context) == 16, "wire layout");

/* "req" */
#define WIRE_MAX_PIDS 11
struct wire_request {
	int32_t mask, npids;
	int64_t job;
	int32_t pids[WIRE_MAX_PIDS];
};

/* "npuTraceStatus", "npuMonitorStatus" */
enum wire_state { WIRE_UNINITIALIZED = -1, WIRE_IDLE, WIRE_RUNNING, WIRE_READY };
struct wire_status {
	int32_t state, current_step, start_step, stop_step, pid, pad;
	int64_t job;
};
static_assert(sizeof(struct wire_status) == 32, "wire layout");

/* The same before November 2025. */
struct wire_status_old {
	int32_t state, pid;
	int64_t job;
};
static_assert(sizeof(struct wire_status_old) == 16, "wire layout");

#endif
