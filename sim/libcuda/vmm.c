/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Virtual memory: since CUDA 10.2. Physical memory ends with its last reference and mapping. */
#include "driver.h"

#include <fcntl.h>
#include <stdlib.h>

struct physical {
	uint64_t bytes;
	CUdevice device;
	unsigned refs, maps;
	bool foreign; /* another process' */
};

static void end_if_unused(struct physical *p)
{
	if (p->refs || p->maps)
		return;
	if (!p->foreign)
		sim_give(p->device, p->bytes);
	free(p);
}

CUresult cuMemAddressReserve(CUdeviceptr *out, size_t bytes, size_t align, CUdeviceptr hint,
			     unsigned long long flags)
{
	(void)align;
	(void)hint;
	(void)flags;
	pthread_mutex_lock(&sim_lock);
	*out = sim_address(bytes);
	pthread_mutex_unlock(&sim_lock);
	return CUDA_SUCCESS;
}

CUresult cuMemAddressFree(CUdeviceptr addr, size_t bytes)
{
	pthread_mutex_lock(&sim_lock);
	sim_address_back(addr, bytes);
	pthread_mutex_unlock(&sim_lock);
	return CUDA_SUCCESS;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *out, size_t bytes,
		     const CUmemAllocationProp *prop, unsigned long long flags)
{
	bool host = prop->location.type != SIM_LOCATION_DEVICE;
	CUdevice device = host ? SIM_HOST : prop->location.id;

	(void)flags;
	if ((device < 0 && !host) || device >= sim_cuda_device_count())
		return CUDA_ERROR_INVALID_DEVICE;
	pthread_mutex_lock(&sim_lock);
	bool good = sim_take(device, bytes);
	pthread_mutex_unlock(&sim_lock);
	if (!good)
		return CUDA_ERROR_OUT_OF_MEMORY;
	struct physical *p = calloc(1, sizeof(*p));
	*p = (struct physical){.bytes = bytes, .device = device, .refs = 1};
	*out = (uintptr_t)p;
	return CUDA_SUCCESS;
}

/* A descriptor, which says nothing here. */
CUresult cuMemExportToShareableHandle(void *out, CUmemGenericAllocationHandle handle, int type,
				      unsigned long long flags)
{
	int fd = type == 1 && handle && !flags ? open("/dev/null", O_RDWR | O_CLOEXEC) : -1;

	*(int *)out = fd;
	return fd < 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *out, void *shareable,
					int type)
{
	struct physical *p = calloc(1, sizeof(*p));

	(void)shareable;
	(void)type;
	*p = (struct physical){.refs = 1, .foreign = true};
	*out = (uintptr_t)p;
	return CUDA_SUCCESS;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
	struct physical *p = (struct physical *)(uintptr_t)handle;

	if (!p || !p->refs)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&sim_lock);
	p->refs--;
	end_if_unused(p);
	pthread_mutex_unlock(&sim_lock);
	return CUDA_SUCCESS;
}

/* A mapping is a block whose pool is what lies behind it. */
CUresult cuMemMap(CUdeviceptr addr, size_t bytes, size_t offset,
		  CUmemGenericAllocationHandle handle, unsigned long long flags)
{
	struct physical *p = (struct physical *)(uintptr_t)handle;
	CUresult r = CUDA_ERROR_INVALID_VALUE;

	(void)offset;
	(void)flags;
	pthread_mutex_lock(&sim_lock);
	if (p && !sim_block_find(addr)) {
		sim_block_add(addr, bytes, BLOCK_RANGE)->pool = (struct sim_pool *)p;
		p->maps++;
		r = CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&sim_lock);
	return r;
}

/* Several mappings that lie one behind the other may end at once. */
CUresult cuMemUnmap(CUdeviceptr addr, size_t bytes)
{
	CUdeviceptr end = addr + bytes;
	CUresult r = CUDA_SUCCESS;

	pthread_mutex_lock(&sim_lock);
	while (addr < end && r == CUDA_SUCCESS) {
		struct block *b = sim_block_find(addr);
		if (!b || b->kind != BLOCK_RANGE) {
			r = CUDA_ERROR_INVALID_VALUE;
			break;
		}
		struct physical *p = (struct physical *)b->pool;
		addr += b->bytes;
		sim_block_remove(b);
		p->maps--;
		end_if_unused(p);
	}
	pthread_mutex_unlock(&sim_lock);
	return r;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *out, void *addr)
{
	CUresult r = CUDA_ERROR_INVALID_VALUE;

	pthread_mutex_lock(&sim_lock);
	struct block *b = sim_block_find((uint64_t)(uintptr_t)addr);
	if (b && b->kind == BLOCK_RANGE) {
		((struct physical *)b->pool)->refs++;
		*out = (uintptr_t)b->pool;
		r = CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&sim_lock);
	return r;
}
