/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * One rank trains on one device in one thread: its memory, its operators, its model.
 * A rank is used by its own thread only.
 */
#ifndef SONDE_SIM_RANK_H
#define SONDE_SIM_RANK_H

#include <stddef.h>
#include <stdint.h>

#include "options.h"
#include "sim/pool.h"

#define OP_TENSORS 8

struct tensor {
	void *ptr;
	size_t bytes;
};

struct rank {
	const struct train_options *opt;
	int index; /* over all processes */
	int device; /* logical */
	int leader; /* first rank of its process: it announces the steps */
	int step;
	uint64_t random;
	uint64_t allocations;
	uint64_t hash;
	void *stream;
	struct sim_pool *pool;
	struct sim_pool *workspace_pool;
	struct tensor workspace;
	struct model *model;
	struct tensor early;
	struct tensor late;
	void *hccl_buffer;
	struct drv_mem_handle *segment; /* physical memory as for expandable segments */
	void *comm; /* HcclComm of a job of ranks */
	int failed; /* the device has: there is no point in going on */
};

struct rank_result {
	uint64_t hash;
	uint64_t allocations;
	int failed;
};

/* mem.c: the memory a framework would give. A failure is reported by a NULL ptr. */
struct tensor tensor_new(struct rank *r, size_t bytes);
void tensor_free(struct rank *r, struct tensor *t);
/* Bytes from the start of @t to where a neighbour may begin. */
size_t tensor_room(struct rank *r, const struct tensor *t);
int memory_open(struct rank *r);
void memory_close(struct rank *r);

/* op.c: one operator, by its PyTorch name; launches one kernel. */
struct op {
	const char *name; /* aten name without the torch._ops prefix */
	const struct tensor *in[OP_TENSORS];
	const struct tensor *out[OP_TENSORS];
	size_t overrun; /* bytes written past the first output: the out-of-bounds fault */
};
void op_run(struct rank *r, const struct op *op);
void ops_register(const struct train_options *o);
/* From now on the kernel takes @factor times as long; -1 when there is none of this name. */
int ops_slow(const char *kernel, double factor);

/* train.c */
int train_setup(struct rank *r);
/* The step's loss. */
double train_step(struct rank *r, int step);
void train_finish(struct rank *r);
uint64_t rank_random(struct rank *r);

/* fault.c: called at fixed points of every step; each does nothing unless its fault is due. */
void fault_step_begin(struct rank *r);
void fault_after_forward(struct rank *r);
void fault_after_backward(struct rank *r);
void fault_step_end(struct rank *r);

/* ranks.c: a launcher and its ranks. */
int ranks_launch(const struct train_options *o, char **argv);
/* In a rank: where its result goes, and the communicator of all. */
struct rank_result *ranks_attach(const struct train_options *o);
int ranks_connect(struct rank *r);
void ranks_disconnect(struct rank *r);
void print_result(const struct train_options *o, const struct rank_result *results);

/* loader.c: host threads that prepare batches. */
struct loader;
struct loader *loader_new(const struct train_options *o, int device);
/* Lets every thread prepare its batch of @step and waits; returns a checksum. */
uint64_t loader_step(struct loader *l, int step);
void loader_free(struct loader *l);

#endif
