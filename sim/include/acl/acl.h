/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * AscendCL as far as jobs here use it. A name without Impl lives in libascendcl and passes on to
 * its Impl in libascendcl_impl, which calls the runtime.
 */
#ifndef SONDE_SIM_ACL_H
#define SONDE_SIM_ACL_H

#include <stddef.h>
#include <stdint.h>

typedef int aclError;
typedef void *aclrtStream;

enum {
	ACL_SUCCESS = 0,
	ACL_ERROR_INVALID_PARAM = 100000,
	ACL_ERROR_UNINITIALIZE = 100001,
	ACL_ERROR_REPEAT_INITIALIZE = 100002,
	ACL_ERROR_RT_MEMORY_ALLOCATION = 207001,
};

typedef enum aclrtMemMallocPolicy {
	ACL_MEM_MALLOC_HUGE_FIRST,
	ACL_MEM_MALLOC_HUGE_ONLY,
	ACL_MEM_MALLOC_NORMAL_ONLY,
	ACL_MEM_MALLOC_HUGE1G_ONLY = 6,
} aclrtMemMallocPolicy;

typedef enum aclrtMemcpyKind {
	ACL_MEMCPY_HOST_TO_HOST,
	ACL_MEMCPY_HOST_TO_DEVICE,
	ACL_MEMCPY_DEVICE_TO_HOST,
	ACL_MEMCPY_DEVICE_TO_DEVICE,
} aclrtMemcpyKind;

typedef enum aclrtMemAttr { ACL_DDR_MEM, ACL_HBM_MEM } aclrtMemAttr;

#define ACL_HOST_REG_PINNED 0x10000000u

aclError aclInit(const char *config);
aclError aclFinalize(void);
const char *aclrtGetSocName(void);
aclError aclrtGetDeviceCount(uint32_t *out_count);
aclError aclrtSetDevice(int32_t device);
aclError aclrtResetDevice(int32_t device);
aclError aclrtGetDevice(int32_t *out_device);

aclError aclrtMalloc(void **out_ptr, size_t size, aclrtMemMallocPolicy policy);
aclError aclrtFree(void *ptr);
aclError aclrtMallocHost(void **out_ptr, size_t size);
aclError aclrtFreeHost(void *ptr);
aclError aclrtHostRegisterV2(void *ptr, uint64_t size, uint32_t flag);
aclError aclrtHostUnregister(void *ptr);
aclError aclrtMemcpy(void *dst, size_t dst_max, const void *src, size_t n, aclrtMemcpyKind kind);
aclError aclrtMemcpyAsync(void *dst, size_t dst_max, const void *src, size_t n,
			  aclrtMemcpyKind kind, aclrtStream stream);
aclError aclrtMemset(void *ptr, size_t max, int32_t value, size_t n);
aclError aclrtGetMemInfo(aclrtMemAttr attr, size_t *out_free, size_t *out_total);

aclError aclrtCreateStream(aclrtStream *out_stream);
aclError aclrtDestroyStream(aclrtStream stream);
aclError aclrtSynchronizeStream(aclrtStream stream);
aclError aclrtSynchronizeDevice(void);
aclError aclrtStreamGetId(aclrtStream stream, int32_t *out_id);

aclError aclrtLaunchKernel(void *function, uint32_t blocks, const void *args, size_t size,
			   aclrtStream stream);
aclError aclrtLaunchKernelV2(void *function, uint32_t blocks, const void *args, size_t size,
			     void *config, aclrtStream stream);
aclError aclrtLaunchKernelWithConfig(void *function, uint32_t blocks, aclrtStream stream,
				     void *config, void *args_handle, void *reserve);
aclError aclrtLaunchKernelWithHostArgs(void *function, uint32_t blocks, aclrtStream stream,
				       void *config, void *host_args, size_t size,
				       void *placeholders, size_t placeholder_count);

aclError aclInitImpl(const char *config);
aclError aclFinalizeImpl(void);
aclError aclrtSetDeviceImpl(int32_t device);
aclError aclrtGetDeviceImpl(int32_t *out_device);
aclError aclrtMallocImpl(void **out_ptr, size_t size, aclrtMemMallocPolicy policy);
aclError aclrtFreeImpl(void *ptr);
aclError aclrtStreamGetIdImpl(aclrtStream stream, int32_t *out_id);
aclError aclrtLaunchKernelImpl(void *function, uint32_t blocks, const void *args, size_t size,
			       aclrtStream stream);
aclError aclrtLaunchKernelV2Impl(void *function, uint32_t blocks, const void *args, size_t size,
				 void *config, aclrtStream stream);
aclError aclrtLaunchKernelWithConfigImpl(void *function, uint32_t blocks, aclrtStream stream,
					 void *config, void *args_handle, void *reserve);
aclError aclrtLaunchKernelWithHostArgsImpl(void *function, uint32_t blocks, aclrtStream stream,
					   void *config, void *host_args, size_t size);

#endif
