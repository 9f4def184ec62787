/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * What a recording was asked for, to separate what was left out from what never happened; and why
 * there is nothing in one.
 */
#ifndef SONDE_MEMORY_OPTIONS_ASKED_H
#define SONDE_MEMORY_OPTIONS_ASKED_H

#include <stdbool.h>

#include "base/containers/buf.h"
#include "memory/options/config.h"

#define MEM_MAX_GPUS 64

/* By what it was started with, or by what its processes have said since. Zero-initialise. */
struct mem_asked {
	bool known; /* it is a recording */
	bool own; /* a process has said so itself, when it began */
	bool memory; /* allocations and frees, in the dump */
	bool host; /* those of the host, too */
	bool operators, accesses; /* and who uses memory */
	bool db; /* as a database */
	bool steps; /* only some */
	bool deferred; /* from the moment the job asks for it */
	bool alone; /* no command of ours was in front of the program */
	bool devices; /* every NPU and GPU */
	uint32_t slots; /* else those */
	enum mem_program program;
	enum mem_tool tool;
	char command[MEM_COMMAND_BYTES];
	struct mem_machine machine;
	struct mem_gpu {
		bool known; /* a process has initialised CUDA, or tried to */
		bool works, followed; /* it could, and calls for memory come to our hooks */
		uint32_t error; /* else: of the driver */
		uint32_t driver; /* version, 13000 is CUDA 13.0 */
		uint64_t total_bytes; /* memory of the device */
		bool visible_set;
		char name[64], visible[64]; /* as CUDA_VISIBLE_DEVICES was */
	} gpu;
	uint32_t context_error; /* of the driver: a process could not begin to use the device */
	bool driver_unseen; /* a process had the driver, and nobody saw it use it */
	struct mem_gpu_device {
		uint16_t device; /* as in rows */
		bool mig, mps; /* a part of a GPU; shared by way of the MPS server */
		uint64_t total_bytes;
		char name[64];
	} gpus[MEM_MAX_GPUS]; /* that the job has found */
	size_t ngpus;
};

/* NULL: the job has told nothing about this device. */
const struct mem_gpu_device *mem_asked_device(const struct mem_asked *a, uint32_t device);

/* The job has initialised CUDA: see rec_gpu. */
void mem_asked_gpu(struct mem_asked *a, const struct rec_gpu *r);

/* own: of a process; such settings count instead of those of the session. */
void mem_asked_add(struct mem_asked *a, const struct mem_config *cfg, bool own);

/* Adds one or more sentences: why nothing was recorded of this job, and what to try. Nothing, if
 * it is not known what was asked for. */
void mem_asked_why_empty(const struct mem_asked *a, struct buf *out);

#endif
