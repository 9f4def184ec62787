/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Functions by name and version: since CUDA 11.3, in another form since 12.0. */
#include "driver.h"

#include <string.h>

#define PER_THREAD 2u /* flag: the default stream is the thread's */

#define PLAIN(name, since)                                                                         \
	{                                                                                          \
#		name, since, 0, (void *)name                                                      \
	}
#define SECOND(name, since)                                                                        \
	{                                                                                          \
#		name, since, 0, (void *)name##_v2                                                 \
	}
#define STREAM(name, since)                                                                        \
	{#name, since, 0, (void *)name},                                                           \
	{                                                                                          \
#		name, since, 1, (void *)name##_ptsz                                               \
	}

/* Of entries with the same name the last one that is old enough counts. */
static const struct {
	const char *name;
	int since;
	int per_thread;
	void *fn;
} entries[] = {
	PLAIN(cuInit, 2000),
	PLAIN(cuDriverGetVersion, 2020),
	PLAIN(cuDeviceGetCount, 2000),
	PLAIN(cuDeviceGet, 2000),
	PLAIN(cuDeviceGetName, 2000),
	SECOND(cuDeviceTotalMem, 3020),
	SECOND(cuDeviceGetUuid, 11040),
	PLAIN(cuDeviceGetAttribute, 2000),
	SECOND(cuCtxCreate, 3020),
	SECOND(cuCtxDestroy, 4000),
	PLAIN(cuCtxGetCurrent, 4000),
	PLAIN(cuCtxSetCurrent, 4000),
	SECOND(cuCtxPushCurrent, 4000),
	SECOND(cuCtxPopCurrent, 4000),
	PLAIN(cuCtxGetDevice, 2000),
	PLAIN(cuDevicePrimaryCtxRetain, 7000),
	SECOND(cuDevicePrimaryCtxRelease, 11000),
	SECOND(cuDevicePrimaryCtxReset, 11000),
	PLAIN(cuDevicePrimaryCtxGetState, 7000),
	PLAIN(cuStreamCreate, 2000),
	SECOND(cuMemGetInfo, 3020),
	SECOND(cuMemAlloc, 3020),
	{"cuMemAlloc", 14000, 0, (void *)cuMemAlloc_v3},
	SECOND(cuMemAllocPitch, 3020),
	SECOND(cuMemFree, 3020),
	SECOND(cuMemAllocHost, 3020),
	PLAIN(cuMemHostAlloc, 2020),
	PLAIN(cuMemFreeHost, 2000),
	SECOND(cuMemHostRegister, 6050),
	PLAIN(cuMemHostUnregister, 4000),
	PLAIN(cuMemAllocManaged, 6000),
	SECOND(cuArrayCreate, 3020),
	SECOND(cuArray3DCreate, 3020),
	PLAIN(cuArrayDestroy, 2000),
	STREAM(cuMemAllocAsync, 11020),
	PLAIN(cuMemAllocFromPoolAsync, 11020),
	STREAM(cuMemFreeAsync, 11020),
	PLAIN(cuMemPoolCreate, 11020),
	PLAIN(cuMemPoolDestroy, 11020),
	PLAIN(cuMemPoolTrimTo, 11020),
	PLAIN(cuMemPoolGetAttribute, 11020),
	PLAIN(cuDeviceGetMemPool, 11020),
	SECOND(cuStreamBeginCapture, 10010),
	PLAIN(cuStreamEndCapture, 10000),
	PLAIN(cuStreamIsCapturing, 10000),
	PLAIN(cuGraphCreate, 10000),
	PLAIN(cuGraphAddMemAllocNode, 11040),
	SECOND(cuGraphAddNode, 12030),
	PLAIN(cuGraphNodeGetType, 10000),
	PLAIN(cuGraphInstantiateWithFlags, 11040),
	STREAM(cuGraphLaunch, 10000),
	PLAIN(cuGraphExecDestroy, 10000),
	PLAIN(cuDeviceGetGraphMemAttribute, 11040),
	PLAIN(cuDeviceGraphMemTrim, 11040),
	PLAIN(cuMemAddressReserve, 10020),
	PLAIN(cuMemAddressFree, 10020),
	PLAIN(cuMemCreate, 10020),
	PLAIN(cuMemRelease, 10020),
	PLAIN(cuMemMap, 10020),
	PLAIN(cuMemUnmap, 10020),
	PLAIN(cuMemRetainAllocationHandle, 11000),
	PLAIN(cuMemExportToShareableHandle, 10020),
	PLAIN(cuMemImportFromShareableHandle, 10020),
	PLAIN(cuGetProcAddress, 11030),
	SECOND(cuGetProcAddress, 12000),
};

static CUresult find(const char *name, void **out, int version, uint64_t flags)
{
	int have = (int)sim_env("SIM_CUDA_VERSION", 13000);

	*out = NULL;
	if (version > have)
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < sizeof(entries) / sizeof(entries[0]); i++)
		if (!strcmp(entries[i].name, name) && entries[i].since <= version &&
		    (!entries[i].per_thread || flags & PER_THREAD))
			*out = entries[i].fn;
	return *out ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult cuGetProcAddress(const char *name, void **out, int version, uint64_t flags)
{
	return find(name, out, version, flags);
}

CUresult cuGetProcAddress_v2(const char *name, void **out, int version, uint64_t flags, int *status)
{
	CUresult r = find(name, out, version, flags);

	if (status)
		*status = r == CUDA_SUCCESS ? 0 : 1;
	return r == CUDA_ERROR_NOT_FOUND && status ? CUDA_SUCCESS : r;
}
