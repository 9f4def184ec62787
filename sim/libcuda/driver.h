/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Inside the simulated driver. Everything happens under one lock. */
#ifndef SONDE_SIM_LIBCUDA_DRIVER_H
#define SONDE_SIM_LIBCUDA_DRIVER_H

#include "cuda/cuda.h"

#include <pthread.h>
#include <stdbool.h>

#define MIB (1ull << 20)

struct sim_context {
	CUdevice device;
	unsigned refs; /* of a primary one */
	bool primary, alive;
};

struct sim_stream {
	CUcontext ctx;
	CUgraph captured; /* NULL: it is not captured */
};

struct sim_pool {
	CUdevice device;
	uint64_t used, reserved;
};

enum block_kind { BLOCK_PLAIN, BLOCK_HOST, BLOCK_POOL, BLOCK_RANGE };

struct block {
	uint64_t addr, bytes; /* addr 0: free */
	CUcontext ctx;
	struct sim_pool *pool;
	CUdevice device;
	enum block_kind kind;
	bool registered;
};

extern pthread_mutex_t sim_lock;
extern bool sim_ready;

long sim_env(const char *name, long otherwise);
bool sim_is_odd(void); /* answers are beyond belief; memory works */
int sim_cuda_device_count(void);
int sim_physical(CUdevice device); /* which of the machine's it is */
CUcontext sim_current(void);

#define SIM_HOST (-1) /* in the place of a device: the host, which always has more */
#define SIM_LOCATION_DEVICE 1 /* others are of the host */

/* Counts bytes of a device; false: it has no more. */
bool sim_take(CUdevice device, uint64_t bytes);
void sim_give(CUdevice device, uint64_t bytes);
uint64_t sim_free_bytes(CUdevice device);
uint64_t sim_total_bytes(void);

struct block *sim_block_add(uint64_t addr, uint64_t bytes, enum block_kind kind);
struct block *sim_block_find(uint64_t addr);
void sim_block_remove(struct block *b);
void sim_blocks_end(CUcontext ctx); /* all that was allocated in it */
uint64_t sim_address(uint64_t bytes); /* fresh, or one that was given back */
void sim_address_back(uint64_t addr, uint64_t bytes);
bool sim_graph_alloc(CUstream stream, CUdeviceptr *out, size_t bytes); /* of graphs.c */
bool sim_graph_free(CUstream stream);
CUresult sim_cuda_pool_free(struct block *b); /* of async.c; NULL where the driver is too old */

#endif
