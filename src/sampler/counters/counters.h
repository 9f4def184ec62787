/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * What cards, host memory and processes do beside the stacks: read in a thread of its own, so that
 * a driver that hangs never delays a sample.
 */
#ifndef SONDE_SAMPLER_COUNTERS_COUNTERS_H
#define SONDE_SAMPLER_COUNTERS_COUNTERS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

enum counter_track { COUNTER_NPU, COUNTER_GPU, COUNTER_HOST, COUNTER_PROCESS };

/* One track of numbers at one moment. */
struct counter {
	uint64_t time_ns; /* CLOCK_MONOTONIC */
	enum counter_track track;
	int card; /* or -1 */
	pid_t pid; /* COUNTER_PROCESS */
	const char *name; /* "npu_aicore_usage_rate" …; static */
	unsigned n; /* values that are series of the track, */
	unsigned more; /* and behind them those that only sampler/session/series.h takes */
	struct {
		const char *key; /* "aicore", "hbm_used_mb" …; static */
		double value;
	} values[8];
};

struct counters_options {
	bool npu, gpu, host, processes;
	bool power; /* of devices, too */
	bool cpu; /* of the host, too */
	unsigned period_ms;
	unsigned npu_timeout_ms, gpu_timeout_ms;
};

struct counters;

/* Waits for no driver; fails only if no thread can be started. */
int counters_start(const struct counters_options *o, struct counters **out, struct err *err);
/* Which of the wanted ones are not there, and why; "" if all are. False, and "", while some may
 * still answer. */
bool counters_missing(struct counters *c, char *out, size_t cap);
/* The processes whose CPU and memory are wanted; copies the list. */
void counters_processes(struct counters *c, const pid_t *pids, unsigned n);
/* Puts it into the queue with the time of now, or counts it as lost. Any thread may. */
void counters_put(struct counters *c, const struct counter *one);
/* Hands over what came in since the last call, in order of time; never waits. Returns how many
 * were lost because they were not taken in time. */
uint64_t counters_take(struct counters *c, void (*fn)(void *arg, const struct counter *c),
		       void *arg);
/* Does not wait for a driver that hangs. */
void counters_stop(struct counters *c);

#endif
