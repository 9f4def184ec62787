/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "acl/acl.h"

#include "hal/ascend_hal.h"
#include "runtime/rt.h"
#include "sim/feed.h"
#include "sim/state.h"

#define ACL_CALL(expression) SIM_CALL(MSPTI_ACTIVITY_KIND_ACL_API, expression)

aclError aclInit(const char *config)
{
	ACL_CALL(aclInitImpl(config));
}

aclError aclFinalize(void)
{
	ACL_CALL(aclFinalizeImpl());
}

const char *aclrtGetSocName(void)
{
	return sim_soc_name();
}

aclError aclrtGetDeviceCount(uint32_t *out_count)
{
	int32_t n;
	int r = rtGetDeviceCount(&n);
	if (!r)
		*out_count = (uint32_t)n;
	return r;
}

aclError aclrtSetDevice(int32_t device)
{
	ACL_CALL(aclrtSetDeviceImpl(device));
}

aclError aclrtResetDevice(int32_t device)
{
	(void)device;
	return ACL_SUCCESS;
}

aclError aclrtGetDevice(int32_t *out_device)
{
	ACL_CALL(aclrtGetDeviceImpl(out_device));
}

aclError aclrtMalloc(void **out_ptr, size_t size, aclrtMemMallocPolicy policy)
{
	ACL_CALL(aclrtMallocImpl(out_ptr, size, policy));
}

aclError aclrtFree(void *ptr)
{
	ACL_CALL(aclrtFreeImpl(ptr));
}

aclError aclrtMallocHost(void **out_ptr, size_t size)
{
	ACL_CALL(rtMallocHost(out_ptr, size, HAL_MODULE_APP));
}

aclError aclrtFreeHost(void *ptr)
{
	ACL_CALL(rtFreeHost(ptr));
}

/* Pages are not really pinned: the simulator must run without privileges. */
aclError aclrtHostRegisterV2(void *ptr, uint64_t size, uint32_t flag)
{
	(void)flag;
	return ptr && size ? ACL_SUCCESS : ACL_ERROR_INVALID_PARAM;
}

aclError aclrtHostUnregister(void *ptr)
{
	return ptr ? ACL_SUCCESS : ACL_ERROR_INVALID_PARAM;
}

aclError aclrtMemcpy(void *dst, size_t dst_max, const void *src, size_t n, aclrtMemcpyKind kind)
{
	ACL_CALL(rtMemcpy(dst, dst_max, src, n, kind));
}

aclError aclrtMemcpyAsync(void *dst, size_t dst_max, const void *src, size_t n,
			  aclrtMemcpyKind kind, aclrtStream stream)
{
	ACL_CALL(rtMemcpyAsync(dst, dst_max, src, n, kind, stream));
}

aclError aclrtMemset(void *ptr, size_t max, int32_t value, size_t n)
{
	ACL_CALL(rtMemset(ptr, max, (uint32_t)value, n));
}

aclError aclrtGetMemInfo(aclrtMemAttr attr, size_t *out_free, size_t *out_total)
{
	(void)attr;
	ACL_CALL(rtMemGetInfo(out_free, out_total));
}

aclError aclrtCreateStream(aclrtStream *out_stream)
{
	ACL_CALL(rtStreamCreate(out_stream, 0));
}

aclError aclrtDestroyStream(aclrtStream stream)
{
	ACL_CALL(rtStreamDestroy(stream));
}

aclError aclrtSynchronizeStream(aclrtStream stream)
{
	ACL_CALL(rtStreamSynchronize(stream));
}

aclError aclrtSynchronizeDevice(void)
{
	ACL_CALL(rtDeviceSynchronize());
}

aclError aclrtStreamGetId(aclrtStream stream, int32_t *out_id)
{
	ACL_CALL(aclrtStreamGetIdImpl(stream, out_id));
}

aclError aclrtLaunchKernel(void *function, uint32_t blocks, const void *args, size_t size,
			   aclrtStream stream)
{
	ACL_CALL(aclrtLaunchKernelImpl(function, blocks, args, size, stream));
}

aclError aclrtLaunchKernelV2(void *function, uint32_t blocks, const void *args, size_t size,
			     void *config, aclrtStream stream)
{
	ACL_CALL(aclrtLaunchKernelV2Impl(function, blocks, args, size, config, stream));
}

aclError aclrtLaunchKernelWithConfig(void *function, uint32_t blocks, aclrtStream stream,
				     void *config, void *args_handle, void *reserve)
{
	ACL_CALL(aclrtLaunchKernelWithConfigImpl(function, blocks, stream, config, args_handle,
						 reserve));
}

aclError aclrtLaunchKernelWithHostArgs(void *function, uint32_t blocks, aclrtStream stream,
				       void *config, void *host_args, size_t size,
				       void *placeholders, size_t placeholder_count)
{
	(void)placeholders, (void)placeholder_count;
	ACL_CALL(aclrtLaunchKernelWithHostArgsImpl(function, blocks, stream, config, host_args,
						   size));
}
