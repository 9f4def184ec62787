/* SPDX-License-Identifier: MulanPSL-2.0 */
/* libleaks_ascend_hal_hook.so: the driver's memory calls, and host memory pinned for devices. */
#include "device/ascend/abi.h"
#include "device/ascend/hooks/real.h"
#include "guest/collect/collect.h"

#define EXPORT __attribute__((visibility("default")))
#define CALLER __builtin_return_address(0)

static const char *const hal_libs[] = {"libascend_hal.so", NULL};
static const char *const acl_libs[] = {"libascendcl.so", "libascendcl_impl.so", NULL};

static uint8_t page_of_flag(unsigned long long flag)
{
	if (HAL_FLAG_GIANT(flag))
		return PAGE_GIANT;
	return HAL_FLAG_HUGE(flag) ? PAGE_HUGE : PAGE_NORMAL;
}

EXPORT int halMemAlloc(void **pp, unsigned long long size, unsigned long long flag)
{
	__typeof__(&halMemAlloc) real = REAL(halMemAlloc, "halMemAllocInner", hal_libs);

	if (!real)
		return DRV_NOT_SUPPORTED;
	int r = real(pp, size, flag);
	if (r == 0 && pp) {
		int host = HAL_FLAG_VIRT(flag) == HAL_VIRT_HOST;
		struct collect_block b = {
			.addr = (uint64_t)*pp,
			.size_bytes = size,
			.device = host ? DEV_HOST : HAL_FLAG_DEVICE(flag),
			.pool = host ? POOL_HOST : POOL_HAL,
			.kind = ALLOC_PLAIN,
			.page = page_of_flag(flag),
			.module = HAL_FLAG_MODULE(flag),
		};
		collect_alloc(&b, CALLER);
	} else if (r == DRV_OUT_OF_MEMORY) {
		collect_oom(HAL_FLAG_DEVICE(flag), ALLOC_PLAIN, size, flag, CALLER);
	}
	return r;
}

/* The driver does not say whether an address was host or device: the recorder knows. */
static const uint16_t unknown_device = DEV_NONE;

EXPORT int halMemFree(void *pp)
{
	__typeof__(&halMemFree) real = REAL(halMemFree, "halMemFreeInner", hal_libs);

	if (!real)
		return DRV_NOT_SUPPORTED;
	struct collect_block b = {.addr = (uint64_t)pp, .device = unknown_device, .pool = POOL_HAL};
	struct collect_pending p = collect_free_begin(&b);
	int r = real(pp);
	collect_free_end(p, &b, r == 0 && pp, CALLER);
	return r;
}

EXPORT int halMemCreate(struct drv_mem_handle **handle, size_t size,
			const struct drv_mem_prop *prop, uint64_t flag)
{
	__typeof__(&halMemCreate) real = REAL(halMemCreate, "halMemCreateInner", hal_libs);

	if (!real)
		return DRV_RESERVED;
	int r = real(handle, size, prop, flag);
	if (r == 0 && handle && prop) {
		int host = prop->side == 0;
		struct collect_block b = {
			.addr = (uint64_t)*handle,
			.size_bytes = size,
			.device = host ? DEV_HOST : (uint16_t)prop->devid,
			.pool = host ? POOL_HOST : POOL_HAL,
			.kind = ALLOC_CREATE,
			.page = prop->pg_type <= PAGE_GIANT ? (uint8_t)prop->pg_type : PAGE_NORMAL,
			.module = (uint8_t)prop->module_id,
		};
		collect_alloc(&b, CALLER);
	} else if (r == DRV_OUT_OF_MEMORY && prop) {
		collect_oom((uint16_t)prop->devid, ALLOC_CREATE, size, flag, CALLER);
	}
	return r;
}

EXPORT int halMemRelease(struct drv_mem_handle *handle)
{
	__typeof__(&halMemRelease) real = REAL(halMemRelease, "halMemReleaseInner", hal_libs);

	if (!real)
		return DRV_RESERVED;
	struct collect_block b = {.addr = (uint64_t)handle,
				  .device = unknown_device,
				  .pool = POOL_HAL,
				  .kind = ALLOC_CREATE};
	struct collect_pending p = collect_free_begin(&b);
	int r = real(handle);
	collect_free_end(p, &b, r == 0 && handle, CALLER);
	return r;
}

EXPORT int aclrtHostRegisterV2(void *ptr, uint64_t size, uint32_t flag)
{
	__typeof__(&aclrtHostRegisterV2) real = REAL(aclrtHostRegisterV2, NULL, acl_libs);

	if (!real)
		return ACL_ERROR_NOT_FOUND;
	int r = real(ptr, size, flag);
	if (r == 0 && (flag & ACL_HOST_REG_PINNED)) {
		struct collect_block b = {
			.addr = (uint64_t)ptr,
			.size_bytes = size,
			.device = DEV_HOST,
			.pool = POOL_HOST,
			.kind = ALLOC_PINNED,
			.module = MODULE_NONE,
		};
		collect_alloc(&b, CALLER);
	}
	return r;
}

EXPORT int aclrtHostUnregister(void *ptr)
{
	__typeof__(&aclrtHostUnregister) real = REAL(aclrtHostUnregister, NULL, acl_libs);

	if (!real)
		return ACL_ERROR_NOT_FOUND;
	struct collect_block b = {
		.addr = (uint64_t)ptr, .device = DEV_HOST, .pool = POOL_HOST, .kind = ALLOC_PINNED};
	struct collect_pending p = collect_free_begin(&b);
	int r = real(ptr);
	collect_free_end(p, &b, r == 0 && ptr, CALLER);
	return r;
}
