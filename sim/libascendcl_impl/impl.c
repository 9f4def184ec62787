/* SPDX-License-Identifier: MulanPSL-2.0 */
/* What stands behind AscendCL. Results are kept in a variable so that each layer shows in a stack.
 */
#include <stdatomic.h>

#include "acl/acl.h"
#include "hal/ascend_hal.h"
#include "runtime/rt.h"
#include "sim/frame.h"
#include "sim/kernel.h"

#define HUGE_FROM (1u << 20)

static _Atomic int initialised;

aclError aclInitImpl(const char *config)
{
	(void)config;
	return atomic_exchange(&initialised, 1) ? ACL_ERROR_REPEAT_INITIALIZE : ACL_SUCCESS;
}

aclError aclFinalizeImpl(void)
{
	return atomic_exchange(&initialised, 0) ? ACL_SUCCESS : ACL_ERROR_UNINITIALIZE;
}

aclError aclrtSetDeviceImpl(int32_t device)
{
	return sim_layer(rtSetDevice(device));
}

aclError aclrtGetDeviceImpl(int32_t *out_device)
{
	return sim_layer(rtGetDevice(out_device));
}

/* As documented, the block is rounded up to 32 bytes and 32 more are added. */
aclError aclrtMallocImpl(void **out_ptr, size_t size, aclrtMemMallocPolicy policy)
{
	if (!out_ptr || !size)
		return ACL_ERROR_INVALID_PARAM;
	uint64_t bytes = ((uint64_t)size + 31) / 32 * 32 + 32;
	enum rt_page page = RT_PAGE_NORMAL;
	if (policy == ACL_MEM_MALLOC_HUGE1G_ONLY)
		page = RT_PAGE_GIANT;
	else if (policy == ACL_MEM_MALLOC_HUGE_ONLY ||
		 (policy == ACL_MEM_MALLOC_HUGE_FIRST && size > HUGE_FROM))
		page = RT_PAGE_HUGE;
	return sim_layer(rtMalloc(out_ptr, bytes, page, HAL_MODULE_APP));
}

aclError aclrtFreeImpl(void *ptr)
{
	return sim_layer(rtFree(ptr));
}

aclError aclrtStreamGetIdImpl(aclrtStream stream, int32_t *out_id)
{
	return sim_layer(rtGetStreamId(stream, out_id));
}

aclError aclrtLaunchKernelImpl(void *function, uint32_t blocks, const void *args, size_t size,
			       aclrtStream stream)
{
	struct sim_launch_args a = {args, size};
	return sim_layer(rtLaunchKernelByFuncHandle(function, blocks, &a, stream));
}

aclError aclrtLaunchKernelV2Impl(void *function, uint32_t blocks, const void *args, size_t size,
				 void *config, aclrtStream stream)
{
	struct sim_launch_args a = {args, size};
	return sim_layer(rtLaunchKernelByFuncHandleV2(function, blocks, &a, stream, config));
}

aclError aclrtLaunchKernelWithConfigImpl(void *function, uint32_t blocks, aclrtStream stream,
					 void *config, void *args_handle, void *reserve)
{
	(void)reserve;
	return sim_layer(
		rtLaunchKernelByFuncHandleV2(function, blocks, args_handle, stream, config));
}

aclError aclrtLaunchKernelWithHostArgsImpl(void *function, uint32_t blocks, aclrtStream stream,
					   void *config, void *host_args, size_t size)
{
	struct sim_launch_args a = {host_args, size};
	return sim_layer(rtLaunchKernelByFuncHandleV2(function, blocks, &a, stream, config));
}
