/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Memory goes to the driver by its plain, replaceable names: that is where memory tools listen. */
#include <string.h>

#include "hal/ascend_hal.h"
#include "runtime/rt.h"
#include "sim/state.h"

static int from_drv(int code)
{
	switch (code) {
	case DRV_ERROR_NONE:
		return RT_ERROR_NONE;
	case DRV_ERROR_OUT_OF_MEMORY:
		return RT_ERROR_MEMORY_ALLOCATION;
	case DRV_ERROR_INVALID_VALUE:
	case DRV_ERROR_PARA_ERROR:
		return RT_ERROR_PARAM_INVALID;
	default:
		return RT_ERROR_DRV;
	}
}

static int current_phy(uint32_t *out_phy)
{
	int32_t device;
	int r = rtGetDevice(&device);
	return r ? r : rtGetPhyId(device, out_phy);
}

int rtMalloc(void **out_ptr, uint64_t size, uint32_t page, uint16_t module)
{
	uint32_t phy;
	int r = current_phy(&phy);
	if (r)
		return r;
	unsigned long long flag = phy | (unsigned long long)HAL_VIRT_DEV << HAL_FLAG_VIRT_SHIFT |
				  HAL_FLAG_HBM |
				  (unsigned long long)module << HAL_FLAG_MODULE_SHIFT;
	if (page == RT_PAGE_HUGE)
		flag |= HAL_FLAG_HUGE;
	else if (page == RT_PAGE_GIANT)
		flag |= HAL_FLAG_GIANT;
	r = halMemAlloc(out_ptr, size, flag);
	return from_drv(r);
}

int rtFree(void *ptr)
{
	int r = halMemFree(ptr);
	return from_drv(r);
}

int rtMallocHost(void **out_ptr, uint64_t size, uint16_t module)
{
	uint32_t phy = 0;
	(void)current_phy(&phy);
	unsigned long long flag = phy | (unsigned long long)HAL_VIRT_HOST << HAL_FLAG_VIRT_SHIFT |
				  (unsigned long long)module << HAL_FLAG_MODULE_SHIFT;
	int r = halMemAlloc(out_ptr, size, flag);
	return from_drv(r);
}

int rtFreeHost(void *ptr)
{
	int r = halMemFree(ptr);
	return from_drv(r);
}

/* Device bytes without backing read as zeros and swallow what is written. */
static int untouchable(const void *ptr)
{
	return sim_hal_is_device(ptr) && !sim_hal_backed(ptr);
}

int rtMemcpy(void *dst, uint64_t dst_max, const void *src, uint64_t n, uint32_t kind)
{
	if (!dst || !src || n > dst_max || kind > RT_DEVICE_TO_DEVICE)
		return RT_ERROR_PARAM_INVALID;
	if (untouchable(dst))
		return RT_ERROR_NONE;
	if (untouchable(src))
		memset(dst, 0, n);
	else
		memmove(dst, src, n);
	return RT_ERROR_NONE;
}

int rtMemset(void *ptr, uint64_t max, uint32_t value, uint64_t n)
{
	if (!ptr || n > max)
		return RT_ERROR_PARAM_INVALID;
	if (!untouchable(ptr))
		memset(ptr, (int)value, n);
	return RT_ERROR_NONE;
}

int rtMemGetInfo(size_t *out_free, size_t *out_total)
{
	uint32_t phy;
	int r = current_phy(&phy);
	if (r)
		return r;
	uint64_t total = sim_hbm_bytes();
	uint64_t used = sim_state_used((int)phy);
	*out_total = total;
	*out_free = used < total ? total - used : 0;
	return RT_ERROR_NONE;
}
