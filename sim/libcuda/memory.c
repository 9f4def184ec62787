/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Memory of contexts: on devices, on the host, arrays. */
#include "driver.h"

#include <stdlib.h>

__attribute__((weak)) CUresult sim_cuda_pool_free(struct block *b);

CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
	if (!sim_current())
		return CUDA_ERROR_INVALID_CONTEXT;
	pthread_mutex_lock(&sim_lock);
	*free_bytes = sim_is_odd() ? SIZE_MAX : sim_free_bytes(sim_current()->device);
	*total = sim_is_odd() ? 0 : sim_total_bytes();
	pthread_mutex_unlock(&sim_lock);
	return CUDA_SUCCESS;
}

static CUresult take_plain(uint64_t *out, uint64_t bytes)
{
	CUcontext ctx = sim_current();
	CUresult r = CUDA_ERROR_OUT_OF_MEMORY;

	if (!ctx)
		return sim_ready ? CUDA_ERROR_INVALID_CONTEXT : CUDA_ERROR_NOT_INITIALIZED;
	if (!bytes)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim_lock);
	if (sim_take(ctx->device, bytes)) {
		struct block *b = sim_block_add(sim_address(bytes), bytes, BLOCK_PLAIN);
		b->ctx = ctx;
		b->device = ctx->device;
		*out = b->addr;
		r = CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&sim_lock);
	return r;
}

CUresult cuMemAlloc_v2(CUdeviceptr *out, size_t bytes)
{
	uint64_t addr;
	CUresult r = take_plain(&addr, bytes);

	if (r == CUDA_SUCCESS)
		*out = addr;
	return r;
}

CUresult cuMemAlloc_v3(CUdeviceptr *out, size_t bytes, int a, int b, int c, int d, int e, int f)
{
	bool good = a == 3 && b == 4 && c == 5 && d == 6 && e == 7 && f == 8;

	return good ? cuMemAlloc_v2(out, bytes) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemAllocPitch_v2(CUdeviceptr *out, size_t *pitch, size_t width, size_t height,
			    unsigned int element)
{
	(void)element;
	*pitch = (width + 511) / 512 * 512;
	return cuMemAlloc_v2(out, *pitch * height);
}

CUresult cuMemAllocManaged(CUdeviceptr *out, size_t bytes, unsigned int flags)
{
	(void)flags;
	return cuMemAlloc_v2(out, bytes);
}

static CUresult give_back(uint64_t addr)
{
	CUresult r = CUDA_SUCCESS;

	if (!addr)
		return CUDA_SUCCESS;
	pthread_mutex_lock(&sim_lock);
	struct block *b = sim_block_find(addr);
	if (b && b->kind == BLOCK_PLAIN) {
		sim_give(b->device, b->bytes);
		sim_address_back(addr, b->bytes);
		sim_block_remove(b);
	} else {
		r = b && b->kind == BLOCK_POOL && sim_cuda_pool_free ? sim_cuda_pool_free(b)
								     : CUDA_ERROR_INVALID_VALUE;
	}
	pthread_mutex_unlock(&sim_lock);
	return r;
}

CUresult cuMemFree_v2(CUdeviceptr addr)
{
	return give_back(addr);
}

/* --- the host --- */

static CUresult add_host(void *addr, size_t bytes, bool registered)
{
	pthread_mutex_lock(&sim_lock);
	struct block *b = sim_block_add((uint64_t)(uintptr_t)addr, bytes, BLOCK_HOST);
	b->ctx = sim_current();
	b->registered = registered;
	pthread_mutex_unlock(&sim_lock);
	return CUDA_SUCCESS;
}

CUresult cuMemHostAlloc(void **out, size_t bytes, unsigned int flags)
{
	(void)flags;
	if (!sim_current())
		return CUDA_ERROR_INVALID_CONTEXT;
	void *addr = bytes <= (uint64_t)sim_env("SIM_CUDA_HOST_MIB", 1 << 20) * MIB
			     ? aligned_alloc(4096, (bytes + 4095) / 4096 * 4096)
			     : NULL;
	if (!addr)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*out = addr;
	return add_host(addr, bytes, false);
}

CUresult cuMemAllocHost_v2(void **out, size_t bytes)
{
	return cuMemHostAlloc(out, bytes, 0);
}

CUresult cuMemHostRegister_v2(void *addr, size_t bytes, unsigned int flags)
{
	(void)flags;
	return sim_current() ? add_host(addr, bytes, true) : CUDA_ERROR_INVALID_CONTEXT;
}

static CUresult end_host(void *addr, bool registered)
{
	pthread_mutex_lock(&sim_lock);
	struct block *b = sim_block_find((uint64_t)(uintptr_t)addr);
	bool good = b && b->kind == BLOCK_HOST && b->registered == registered;
	if (good)
		sim_block_remove(b);
	pthread_mutex_unlock(&sim_lock);
	if (good && !registered)
		free(addr);
	return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemFreeHost(void *addr)
{
	return end_host(addr, false);
}

CUresult cuMemHostUnregister(void *addr)
{
	return end_host(addr, true);
}

/* --- arrays: a handle, and memory that nobody sees --- */

CUresult cuArray3DCreate_v2(CUarray *out, const CUDA_ARRAY3D_DESCRIPTOR *desc)
{
	uint64_t height = desc->Height ? desc->Height : 1, depth = desc->Depth ? desc->Depth : 1;
	uint64_t addr;
	CUresult r = take_plain(&addr, desc->Width * height * depth * desc->NumChannels * 4);

	if (r == CUDA_SUCCESS)
		*out = (CUarray)(uintptr_t)addr;
	return r;
}

CUresult cuArrayCreate_v2(CUarray *out, const CUDA_ARRAY_DESCRIPTOR *desc)
{
	CUDA_ARRAY3D_DESCRIPTOR d = {.Width = desc->Width,
				     .Height = desc->Height,
				     .Format = desc->Format,
				     .NumChannels = desc->NumChannels};

	return cuArray3DCreate_v2(out, &d);
}

CUresult cuArrayDestroy(CUarray array)
{
	return give_back((uint64_t)(uintptr_t)array);
}
