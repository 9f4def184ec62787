/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The driver's entry points. Plain and Inner names share one static function, so a call of the
 * plain name never passes a second name that somebody may have replaced.
 */
#include "hal/ascend_hal.h"

#include "heap.h"
#include "sim/state.h"

#define FREQ_KHZ 50000
#define TICK_NS 20

static int alloc_flagged(void **pp, unsigned long long size, unsigned long long flag)
{
	if (!pp || !size)
		return DRV_ERROR_PARA_ERROR;
	unsigned virt = (unsigned)(flag >> HAL_FLAG_VIRT_SHIFT & HAL_FLAG_VIRT_MASK);
	if (virt > HAL_VIRT_HOST_AGENT)
		return DRV_ERROR_INVALID_MALLOC_TYPE;
	int heap = (int)(flag & HAL_FLAG_DEVICE_MASK);
	if (virt == HAL_VIRT_HOST || virt == HAL_VIRT_HOST_AGENT)
		heap = SIM_HOST_HEAP;
	else if (heap >= SIM_MAX_DEVICES)
		return DRV_ERROR_INVALID_DEVICE;
	uint64_t page = 4096;
	if (flag & HAL_FLAG_GIANT)
		page = 1ull << 30;
	else if ((flag >> HAL_FLAG_PAGE_SHIFT & HAL_FLAG_PAGE_MASK) == 1)
		page = 2ull << 20;
	return heap_alloc(heap, size, page, HEAP_ALLOC, pp);
}

static int create_prop(struct drv_mem_handle **handle, size_t size, const struct drv_mem_prop *prop)
{
	static const uint64_t pages[] = {4096, 2ull << 20, 1ull << 30};
	if (!handle || !size || !prop || prop->pg_type > 2 || prop->side > 1)
		return DRV_ERROR_PARA_ERROR;
	if (prop->side == 1 && prop->devid >= SIM_MAX_DEVICES)
		return DRV_ERROR_INVALID_DEVICE;
	int heap = prop->side == 0 ? SIM_HOST_HEAP : (int)prop->devid;
	return heap_alloc(heap, size, pages[prop->pg_type], HEAP_CREATE, (void **)handle);
}

int halMemAllocInner(void **pp, unsigned long long size, unsigned long long flag)
{
	return alloc_flagged(pp, size, flag);
}

int halMemAlloc(void **pp, unsigned long long size, unsigned long long flag)
{
	return alloc_flagged(pp, size, flag);
}

int halMemFreeInner(void *pp)
{
	return heap_free(pp, HEAP_ALLOC);
}

int halMemFree(void *pp)
{
	return heap_free(pp, HEAP_ALLOC);
}

int halMemCreateInner(struct drv_mem_handle **handle, size_t size, const struct drv_mem_prop *prop,
		      uint64_t flag)
{
	(void)flag;
	return create_prop(handle, size, prop);
}

int halMemCreate(struct drv_mem_handle **handle, size_t size, const struct drv_mem_prop *prop,
		 uint64_t flag)
{
	(void)flag;
	return create_prop(handle, size, prop);
}

int halMemReleaseInner(struct drv_mem_handle *handle)
{
	return heap_free(handle, HEAP_CREATE);
}

int halMemRelease(struct drv_mem_handle *handle)
{
	return heap_free(handle, HEAP_CREATE);
}

/* A 50 MHz counter that does not start at zero, so that a reader must really subtract. */
uint64_t sim_hal_counter(uint64_t mono_ns)
{
	return mono_ns / TICK_NS + 0x100000000ull;
}

int halGetDeviceInfo(uint32_t device, int32_t module, int32_t info, int64_t *out_value)
{
	if (!out_value)
		return DRV_ERROR_PARA_ERROR;
	if (device >= (uint32_t)sim_device_count())
		return DRV_ERROR_INVALID_DEVICE;
	if (module == 0 && info == HAL_INFO_OSC_FREQ)
		*out_value = FREQ_KHZ;
	else if (module == 0 && info == HAL_INFO_SYS_COUNT)
		*out_value = (int64_t)sim_hal_counter(sim_now_ns());
	else
		return DRV_ERROR_NOT_SUPPORT;
	return DRV_ERROR_NONE;
}
