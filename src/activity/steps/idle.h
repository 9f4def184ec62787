/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Why the devices of a rank had nothing to do: what its host did meanwhile. Every nanosecond of the
 * idle time of whole steps has one reason, so the reasons add up to it; IDLE_UNKNOWN is one of them.
 */
#ifndef SONDE_ACTIVITY_STEPS_IDLE_H
#define SONDE_ACTIVITY_STEPS_IDLE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum idle_why {
	IDLE_UNKNOWN, /* nothing is known of the host at that time */
	IDLE_DATA, /* a data loader */
	IDLE_CHECKPOINT,
	IDLE_COLLECTOR, /* Python's garbage collector */
	IDLE_ALLOCATION, /* of device or pinned memory, by the driver */
	IDLE_COMPILER, /* of kernels: torch.compile, Triton */
	IDLE_RANKS, /* calls of torch.distributed */
	IDLE_SYNC, /* waits for the device, or for another stream */
	IDLE_LOCK, /* or a queue, a thread, another process */
	IDLE_PYTHON, /* everything else that Python does */
	IDLE_CALL, /* what a library does, or a range of the program, where Python is not known */
	IDLE_WHYS
};

#define IDLE_MAX_REASONS 4096 /* of a rank; what is beyond is IDLE_UNKNOWN */

struct idle_reason {
	enum idle_why why;
	char *what; /* "__next__ (torch/utils/data/dataloader.py:628)", "cudaMalloc"; "" */
	char *where; /* of the user's program: "train (train.py:18)"; "" */
	uint64_t ns, times, longest_ns;
};

struct idle_share {
	uint32_t step, reason; /* their places in the rank's lists */
	uint64_t ns;
};

/* Of a rank. Zero: nobody has looked at its host. */
struct split_idle {
	bool looked; /* at what there is of the host, if that is nothing */
	bool python, calls; /* there is some of it */
	uint64_t ns; /* of all devices in whole steps: the sum of the reasons */
	uint64_t python_ns; /* of that, when Python is known */
	uint64_t left_out; /* slices of the host for which there was no room */
	struct idle_reason *reasons; /* by time, the most first */
	size_t nreasons;
	struct idle_share *shares; /* in the order of steps */
	size_t nshares;
};

void split_idle_release(struct split_idle *idle);

const char *idle_why_name(enum idle_why why); /* "data loader" */
/* Two ranks that do the same have the same one. */
bool idle_reason_is_same(const struct idle_reason *a, const struct idle_reason *b);

json_t *split_idle_json(const struct split_idle *idle); /* new; NULL: out of memory */
/* Foreign bytes; of a rank with so many steps and so much idle time. False: it is damaged. */
bool split_idle_read(const json_t *o, size_t steps, uint64_t idle_ns, struct split_idle *idle);

#endif
