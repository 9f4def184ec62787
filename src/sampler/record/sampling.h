/* SPDX-License-Identifier: MulanPSL-2.0 */
/* The thread that samples the Python stacks of a process and all its descendants, for a recorder. */
#ifndef SONDE_SAMPLER_RECORD_SAMPLING_H
#define SONDE_SAMPLER_RECORD_SAMPLING_H

#include "base/containers/buf.h"
#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct sampling;

struct sampling_result {
	uint64_t samples;
	uint64_t dropped; /* that nobody took in time */
	uint64_t late; /* rounds that began late, or were left out to save time */
	unsigned processes;
	unsigned refused; /* Python processes that we may not read */
	char why[256];
};

/* NULL: no thread can be started. It samples when that is wanted. s may be NULL below. */
struct sampling *sampling_start(pid_t root, uint32_t interval_us);
void sampling_want(struct sampling *s, bool wanted);
/* Adds the records that have come since the last time. */
void sampling_take(struct sampling *s, struct buf *out);
void sampling_result(struct sampling *s, struct sampling_result *out);
/* Those that are sampled now; returns how many there are, of which `most` at most are written. */
struct sampling_process {
	pid_t pid; /* as we see it */
	uint32_t own_pid; /* as it sees itself */
};
unsigned sampling_processes(struct sampling *s, struct sampling_process *out, unsigned most);
/* Waits for a round that is being made, a second at most. */
void sampling_stop(struct sampling *s);

#endif
