/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Who asked CUDA's driver for memory, and what is in use inside the pools of JAX and CuPy, which hold
 * large blocks of it: by the owner of driver blocks (CUDA@NCCL) and by the snapshots that the Python
 * package takes (see python/msmemscope/_cuda/pools.py).
 */
#ifndef SONDE_MEMORY_ANALYSIS_GPU_GPU_H
#define SONDE_MEMORY_ANALYSIS_GPU_GPU_H

#include <jansson.h>

#include "base/containers/buf.h"
#include "memory/dump/row.h"

#define GPU_NAME_BYTES 48

/* A library, or a program, that has asked for memory of a device. */
struct gpu_asker {
	uint32_t device;
	char name[GPU_NAME_BYTES];
	uint64_t bytes, blocks; /* now */
	uint64_t peak_bytes, peak_blocks; /* when the device had the most */
};

/* What a framework says about its pool on a device. */
struct gpu_pool {
	uint32_t device, pid;
	char name[GPU_NAME_BYTES]; /* XLA, CuPy */
	uint64_t reserved, used, most_used; /* the newest; bytes */
	uint64_t step; /* that had ended last, 0: none */
};

/* Of one device, all processes together. */
struct gpu_total {
	uint32_t device;
	uint64_t bytes, peak_bytes; /* of driver blocks */
	uint64_t memory; /* of the device; 0: not known */
};

/* A block that came or went. Rows of several processes are not in order of time: see total.h. */
struct gpu_change {
	uint64_t time_ns, bytes;
	uint32_t total, asker; /* indices; asker UINT32_MAX: nobody knows */
	bool freed;
};

/* Zero-initialise. */
struct gpu_use {
	struct gpu_change *waiting;
	size_t nwaiting, cap_waiting;
	bool unsorted;
	struct gpu_asker *askers;
	size_t naskers, cap_askers;
	struct gpu_pool *pools;
	size_t npools, cap_pools;
	struct gpu_total *totals;
	size_t ntotals, cap_totals;
	uint64_t step;
};

void gpu_use_release(struct gpu_use *g);
void gpu_use_row(struct gpu_use *g, const struct row *row);
/* Before anything is asked. */
void gpu_use_settle(struct gpu_use *g);

/* " torch has 8.30 GiB of that, NCCL 1.20 GiB": at the peak of the device. Nothing, if nobody knows. */
void gpu_use_describe_askers(const struct gpu_use *g, uint32_t device, struct buf *out);
/* " XLA holds 75 % of device 0 as one block of 105.00 GiB; …": for each pool, begins with a blank. */
void gpu_use_describe_pools(const struct gpu_use *g, struct buf *out);
/* Keys askers and pools, of one device. */
void gpu_use_put_json(const struct gpu_use *g, uint32_t device, json_t *out);

#endif
