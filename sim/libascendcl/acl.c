/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "acl/acl.h"

#include "hal/ascend_hal.h"
#include "runtime/rt.h"
#include "sim/frame.h"
#include "sim/state.h"

aclError aclInit(const char *config)
{
	return sim_layer(aclInitImpl(config));
}

aclError aclFinalize(void)
{
	return sim_layer(aclFinalizeImpl());
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
	return sim_layer(aclrtSetDeviceImpl(device));
}

aclError aclrtResetDevice(int32_t device)
{
	(void)device;
	return ACL_SUCCESS;
}

aclError aclrtGetDevice(int32_t *out_device)
{
	return sim_layer(aclrtGetDeviceImpl(out_device));
}

aclError aclrtMalloc(void **out_ptr, size_t size, aclrtMemMallocPolicy policy)
{
	return sim_layer(aclrtMallocImpl(out_ptr, size, policy));
}

aclError aclrtFree(void *ptr)
{
	return sim_layer(aclrtFreeImpl(ptr));
}

aclError aclrtMallocHost(void **out_ptr, size_t size)
{
	return sim_layer(rtMallocHost(out_ptr, size, HAL_MODULE_APP));
}

aclError aclrtFreeHost(void *ptr)
{
	return sim_layer(rtFreeHost(ptr));
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
	return sim_layer(rtMemcpy(dst, dst_max, src, n, kind));
}

aclError aclrtMemcpyAsync(void *dst, size_t dst_max, const void *src, size_t n,
			  aclrtMemcpyKind kind, aclrtStream stream)
{
	return sim_layer(rtMemcpyAsync(dst, dst_max, src, n, kind, stream));
}

aclError aclrtMemset(void *ptr, size_t max, int32_t value, size_t n)
{
	return sim_layer(rtMemset(ptr, max, (uint32_t)value, n));
}

aclError aclrtGetMemInfo(aclrtMemAttr attr, size_t *out_free, size_t *out_total)
{
	(void)attr;
	return sim_layer(rtMemGetInfo(out_free, out_total));
}

aclError aclrtCreateStream(aclrtStream *out_stream)
{
	return sim_layer(rtStreamCreate(out_stream, 0));
}

aclError aclrtDestroyStream(aclrtStream stream)
{
	return sim_layer(rtStreamDestroy(stream));
}

aclError aclrtSynchronizeStream(aclrtStream stream)
{
	return sim_layer(rtStreamSynchronize(stream));
}

aclError aclrtSynchronizeDevice(void)
{
	return sim_layer(rtDeviceSynchronize());
}

aclError aclrtStreamGetId(aclrtStream stream, int32_t *out_id)
{
	return sim_layer(aclrtStreamGetIdImpl(stream, out_id));
}

aclError aclrtLaunchKernel(void *function, uint32_t blocks, const void *args, size_t size,
			   aclrtStream stream)
{
	return sim_layer(aclrtLaunchKernelImpl(function, blocks, args, size, stream));
}

aclError aclrtLaunchKernelV2(void *function, uint32_t blocks, const void *args, size_t size,
			     void *config, aclrtStream stream)
{
	return sim_layer(aclrtLaunchKernelV2Impl(function, blocks, args, size, config, stream));
}

aclError aclrtLaunchKernelWithConfig(void *function, uint32_t blocks, aclrtStream stream,
				     void *config, void *args_handle, void *reserve)
{
	return sim_layer(aclrtLaunchKernelWithConfigImpl(function, blocks, stream, config,
							 args_handle, reserve));
}

aclError aclrtLaunchKernelWithHostArgs(void *function, uint32_t blocks, aclrtStream stream,
				       void *config, void *host_args, size_t size,
				       void *placeholders, size_t placeholder_count)
{
	(void)placeholders, (void)placeholder_count;
	return sim_layer(aclrtLaunchKernelWithHostArgsImpl(function, blocks, stream, config,
							   host_args, size));
}
