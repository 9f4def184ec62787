/* SPDX-License-Identifier: MulanPSL-2.0 */
/* The runtime: devices, streams that execute in order, memory through the driver, kernel launches.
 */
#ifndef SONDE_SIM_RT_H
#define SONDE_SIM_RT_H

#include <stddef.h>
#include <stdint.h>

enum {
	RT_ERROR_NONE = 0,
	RT_ERROR_PARAM_INVALID = 107000,
	RT_ERROR_INVALID_DEVICE = 107001,
	RT_ERROR_CONTEXT_NULL = 107002,
	RT_ERROR_STREAM_INVALID = 107003,
	RT_ERROR_MEMORY_ALLOCATION = 207001,
	RT_ERROR_RESOURCE_ALLOC_FAIL = 207005,
	RT_ERROR_AICPU_EXCEPTION = 507018, /* also: a collective that could not be carried out */
	RT_ERROR_DRV = 507899,
};

/* The head of the runtime's extended argument block; the rest is not looked at here. */
struct rtArgsEx {
	void *args;
	void *hostInputInfo;
	uint32_t argsSize;
	uint32_t tilingAddrOffset;
};

enum rt_memcpy_kind { RT_HOST_TO_HOST, RT_HOST_TO_DEVICE, RT_DEVICE_TO_HOST, RT_DEVICE_TO_DEVICE };
enum rt_page { RT_PAGE_NORMAL, RT_PAGE_HUGE, RT_PAGE_GIANT };

int rtGetDeviceCount(int32_t *out_count);
int rtSetDevice(int32_t device);
int rtGetDevice(int32_t *out_device);
/* The driver's id behind a logical one, after ASCEND_RT_VISIBLE_DEVICES. */
int rtGetPhyId(int32_t device, uint32_t *out_phy);

int rtMalloc(void **out_ptr, uint64_t size, uint32_t page, uint16_t module);
int rtFree(void *ptr);
int rtMallocHost(void **out_ptr, uint64_t size, uint16_t module);
int rtFreeHost(void *ptr);
int rtMemcpy(void *dst, uint64_t dst_max, const void *src, uint64_t n, uint32_t kind);
int rtMemcpyAsync(void *dst, uint64_t dst_max, const void *src, uint64_t n, uint32_t kind,
		  void *stream);
int rtMemset(void *ptr, uint64_t max, uint32_t value, uint64_t n);
int rtMemGetInfo(size_t *out_free, size_t *out_total);

int rtStreamCreate(void **out_stream, int32_t priority);
int rtStreamDestroy(void *stream);
int rtStreamSynchronize(void *stream);
int rtGetStreamId(void *stream, int32_t *out_id);
int rtDeviceSynchronize(void);

int rtKernelLaunch(const void *stub, uint32_t blocks, void *args, uint32_t args_size, void *sm_desc,
		   void *stream);
int rtKernelLaunchWithHandleV2(void *handle, uint64_t tiling_key, uint32_t blocks, void *args_ex,
			       void *sm_desc, void *stream, const void *config);
int rtKernelLaunchWithFlagV2(const void *stub, uint32_t blocks, void *args_ex, void *sm_desc,
			     void *stream, uint32_t flags, const void *config);
int rtAicpuKernelLaunchExWithArgs(uint32_t type, const char *op, uint32_t blocks,
				  const void *args_ex, void **sm_desc, void *stream,
				  uint32_t flags);
int rtLaunchKernelByFuncHandle(void *function, uint32_t blocks, void *args_handle, void *stream);
int rtLaunchKernelByFuncHandleV2(void *function, uint32_t blocks, void *args_handle, void *stream,
				 const void *config);

#endif
