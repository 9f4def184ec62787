/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Memory goes to the driver by its plain, replaceable names: that is where memory tools listen. */
#include <string.h>

#include "hal/ascend_hal.h"
#include "runtime/rt.h"
#include "sim/feed.h"
#include "sim/state.h"
#include "stream.h"

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

static unsigned long long device_flag(uint32_t phy, uint32_t page, uint16_t module)
{
	unsigned long long flag = phy | (unsigned long long)HAL_VIRT_DEV << HAL_FLAG_VIRT_SHIFT |
				  HAL_FLAG_HBM |
				  (unsigned long long)module << HAL_FLAG_MODULE_SHIFT;
	if (page == RT_PAGE_HUGE)
		flag |= HAL_FLAG_HUGE;
	else if (page == RT_PAGE_GIANT)
		flag |= HAL_FLAG_GIANT;
	return flag;
}

/* These four call the driver themselves: what stands between them would show in call stacks. */

int rtMalloc(void **out_ptr, uint64_t size, uint32_t page, uint16_t module)
{
	struct sim_call call;
	uint32_t phy;
	sim_call_open(&call, MSPTI_ACTIVITY_KIND_RUNTIME_API, __func__);
	int r = current_phy(&phy);
	if (r)
		return sim_call_close(&call, r);
	uint64_t begin = feed_begin(MSPTI_ACTIVITY_KIND_MEMORY);
	r = halMemAlloc(out_ptr, size, device_flag(phy, page, module));
	if (begin && !r)
		feed_memory(MSPTI_ACTIVITY_MEMORY_OPERATION_TYPE_ALLOCATE, *out_ptr,
			    sim_hal_block_bytes(*out_ptr), begin);
	return sim_call_close(&call, from_drv(r));
}

int rtFree(void *ptr)
{
	struct sim_call call;
	sim_call_open(&call, MSPTI_ACTIVITY_KIND_RUNTIME_API, __func__);
	uint64_t begin = feed_begin(MSPTI_ACTIVITY_KIND_MEMORY);
	uint64_t bytes = begin ? sim_hal_block_bytes(ptr) : 0;
	int r = halMemFree(ptr);
	if (begin && !r)
		feed_memory(MSPTI_ACTIVITY_MEMORY_OPERATION_TYPE_RELEASE, ptr, bytes, begin);
	return sim_call_close(&call, from_drv(r));
}

int rtMallocHost(void **out_ptr, uint64_t size, uint16_t module)
{
	struct sim_call call;
	uint32_t phy = 0;
	sim_call_open(&call, MSPTI_ACTIVITY_KIND_RUNTIME_API, __func__);
	(void)current_phy(&phy);
	unsigned long long flag = phy | (unsigned long long)HAL_VIRT_HOST << HAL_FLAG_VIRT_SHIFT |
				  (unsigned long long)module << HAL_FLAG_MODULE_SHIFT;
	int r = halMemAlloc(out_ptr, size, flag);
	return sim_call_close(&call, from_drv(r));
}

int rtFreeHost(void *ptr)
{
	struct sim_call call;
	sim_call_open(&call, MSPTI_ACTIVITY_KIND_RUNTIME_API, __func__);
	int r = halMemFree(ptr);
	return sim_call_close(&call, from_drv(r));
}

/* Device bytes without backing read as zeros and swallow what is written. */
static int untouchable(const void *ptr)
{
	return sim_hal_is_device(ptr) && !sim_hal_backed(ptr);
}

void memory_copy(void *dst, const void *src, uint64_t n)
{
	if (untouchable(dst))
		return;
	if (untouchable(src))
		memset(dst, 0, n);
	else
		memmove(dst, src, n);
}

static int copy(void *dst, uint64_t dst_max, const void *src, uint64_t n, uint32_t kind)
{
	if (!dst || !src || n > dst_max || kind > RT_DEVICE_TO_DEVICE)
		return RT_ERROR_PARAM_INVALID;
	uint64_t begin = feed_begin(MSPTI_ACTIVITY_KIND_MEMCPY);
	memory_copy(dst, src, n);
	if (begin)
		feed_memcpy((int32_t)kind, n, begin);
	return RT_ERROR_NONE;
}

static int set(void *ptr, uint64_t max, uint32_t value, uint64_t n)
{
	if (!ptr || n > max)
		return RT_ERROR_PARAM_INVALID;
	uint64_t begin = feed_begin(MSPTI_ACTIVITY_KIND_MEMSET);
	if (!untouchable(ptr))
		memset(ptr, (int)value, n);
	if (begin)
		tell_memset(value, n, begin);
	return RT_ERROR_NONE;
}

static int get_info(size_t *out_free, size_t *out_total)
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

int rtMemcpy(void *dst, uint64_t dst_max, const void *src, uint64_t n, uint32_t kind)
{
	RT_CALL(copy(dst, dst_max, src, n, kind));
}

int rtMemset(void *ptr, uint64_t max, uint32_t value, uint64_t n)
{
	RT_CALL(set(ptr, max, value, n));
}

int rtMemGetInfo(size_t *out_free, size_t *out_total)
{
	RT_CALL(get_info(out_free, out_total));
}
