/* SPDX-License-Identifier: MulanPSL-2.0 */
#ifndef SONDE_SIM_OPTIONS_H
#define SONDE_SIM_OPTIONS_H

#include <stddef.h>
#include <stdint.h>

#define MAX_TRAIN_RANKS 64

enum train_pool { TRAIN_PTA, TRAIN_MINDSPORE, TRAIN_ATB, TRAIN_HAL };

enum train_fault {
	FAULT_LEAK = 1 << 0,
	FAULT_EARLY = 1 << 1,
	FAULT_LATE = 1 << 2,
	FAULT_IDLE = 1 << 3,
	FAULT_OOB = 1 << 4,
	FAULT_OOM = 1 << 5,
	FAULT_CRASH = 1 << 6,
};

enum train_crash { CRASH_SEGV, CRASH_ABORT, CRASH_KILL, CRASH_EXIT };

struct train_options {
	int steps;
	int layers;
	int devices;
	int procs;
	int threads;
	int step_ms;
	int quiet;
	int aten;
	uint64_t seed;
	enum train_pool pool;
	const char *pool_name;
	unsigned faults; /* enum train_fault */
	size_t leak_bytes;
	enum train_crash crash;
	int fault_step;
	int forever;
	int bad_names;
	int ranks; /* 0: not a job of ranks */
	int rank; /* of this process, -1 in the launcher */
	int world_fd; /* what launcher and ranks share */
	int slow_rank; /* -1: none */
	double slow_factor;
	char slower_kernel[64]; /* "": none */
	double slower_factor;
	int slower_step;
};

/* Prints what is wrong to stderr and returns -1; 1 after --help; 0 to go on. */
int options_parse(struct train_options *o, int argc, char **argv);

#endif
