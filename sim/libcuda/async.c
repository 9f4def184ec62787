/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Memory in the order of streams, from pools: since CUDA 11.2. Streams are never behind here. */
#include "driver.h"

#include "sim/gpu_state.h"

#include <stdlib.h>

#define STEP (32 * MIB) /* by which a pool grows */

static struct sim_pool defaults[SIM_GPUS];

static bool fit(struct sim_pool *p, uint64_t bytes)
{
	uint64_t want = (p->used + bytes + STEP - 1) / STEP * STEP;

	if (want > p->reserved) {
		if (!sim_take(p->device, want - p->reserved))
			return false;
		p->reserved = want;
	}
	p->used += bytes;
	return true;
}

static CUresult take(CUdeviceptr *out, size_t bytes, struct sim_pool *pool)
{
	CUresult r = CUDA_ERROR_OUT_OF_MEMORY;

	if (!bytes)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim_lock);
	if (fit(pool, bytes)) {
		struct block *b = sim_block_add(sim_address(bytes), bytes, BLOCK_POOL);
		b->pool = pool;
		b->device = pool->device;
		*out = b->addr;
		r = CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&sim_lock);
	return r;
}

CUresult sim_cuda_pool_free(struct block *b)
{
	b->pool->used -= b->bytes;
	sim_address_back(b->addr, b->bytes);
	sim_block_remove(b);
	return CUDA_SUCCESS;
}

static struct sim_pool *default_pool(CUstream stream)
{
	CUcontext ctx = (uintptr_t)stream > 2 ? stream->ctx : sim_current();

	if (!ctx)
		return NULL;
	defaults[ctx->device].device = ctx->device;
	return &defaults[ctx->device];
}

CUresult cuMemAllocAsync(CUdeviceptr *out, size_t bytes, CUstream stream)
{
	struct sim_pool *pool = default_pool(stream);

	if (sim_graph_alloc(stream, out, bytes))
		return CUDA_SUCCESS;
	return pool ? take(out, bytes, pool) : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuMemAllocAsync_ptsz(CUdeviceptr *out, size_t bytes, CUstream stream)
{
	return cuMemAllocAsync(out, bytes, stream);
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *out, size_t bytes, CUmemoryPool pool, CUstream stream)
{
	(void)stream;
	return take(out, bytes, pool);
}

CUresult cuMemFreeAsync(CUdeviceptr addr, CUstream stream)
{
	CUresult r = CUDA_ERROR_INVALID_VALUE;

	if (sim_graph_free(stream))
		return CUDA_SUCCESS;
	pthread_mutex_lock(&sim_lock);
	struct block *b = sim_block_find(addr);
	if (b && b->kind == BLOCK_POOL)
		r = sim_cuda_pool_free(b);
	pthread_mutex_unlock(&sim_lock);
	return r;
}

CUresult cuMemFreeAsync_ptsz(CUdeviceptr addr, CUstream stream)
{
	return cuMemFreeAsync(addr, stream);
}

CUresult cuMemPoolCreate(CUmemoryPool *out, const CUmemPoolProps *props)
{
	*out = calloc(1, sizeof(**out));
	(*out)->device =
		props->location.type == SIM_LOCATION_DEVICE ? props->location.id : SIM_HOST;
	return CUDA_SUCCESS;
}

static void trim(struct sim_pool *p, uint64_t keep)
{
	uint64_t least = (p->used + STEP - 1) / STEP * STEP;
	uint64_t to = keep > least ? keep : least;

	if (to < p->reserved) {
		sim_give(p->device, p->reserved - to);
		p->reserved = to;
	}
}

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep)
{
	pthread_mutex_lock(&sim_lock);
	trim(pool, keep);
	pthread_mutex_unlock(&sim_lock);
	return CUDA_SUCCESS;
}

/* What is still allocated from it stays until it is freed: here, for good. */
CUresult cuMemPoolDestroy(CUmemoryPool pool)
{
	return cuMemPoolTrimTo(pool, 0);
}

CUresult cuMemPoolGetAttribute(CUmemoryPool pool, int attribute, void *out)
{
	if (attribute != 5 && attribute != 7)
		return CUDA_ERROR_INVALID_VALUE;
	if (sim_is_odd())
		*(uint64_t *)out = UINT64_MAX;
	else
		*(uint64_t *)out = attribute == 5 ? pool->reserved : pool->used;
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetMemPool(CUmemoryPool *out, CUdevice device)
{
	if (device < 0 || device >= sim_cuda_device_count())
		return CUDA_ERROR_INVALID_DEVICE;
	defaults[device].device = device;
	*out = &defaults[device];
	return CUDA_SUCCESS;
}
