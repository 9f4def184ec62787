/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * As much of the CUDA driver as its memory takes. Bytes are counted and never there: addresses of
 * devices cannot be read. docs/simulator.md has the variables.
 */
#ifndef SONDE_SIM_CUDA_H
#define SONDE_SIM_CUDA_H

#include <stddef.h>
#include <stdint.h>

typedef int CUresult;
typedef unsigned long long CUdeviceptr;
typedef unsigned long long CUmemGenericAllocationHandle;
typedef int CUdevice;
typedef struct sim_context *CUcontext;
typedef struct sim_stream *CUstream;
typedef struct sim_pool *CUmemoryPool;
typedef struct sim_graph *CUgraph;
typedef struct sim_graph *CUgraphExec;
typedef struct sim_node *CUgraphNode;
typedef struct sim_array *CUarray;
typedef struct sim_array *CUmipmappedArray;

enum {
	CUDA_SUCCESS = 0,
	CUDA_ERROR_INVALID_VALUE = 1,
	CUDA_ERROR_OUT_OF_MEMORY = 2,
	CUDA_ERROR_NOT_INITIALIZED = 3,
	CUDA_ERROR_NO_DEVICE = 100,
	CUDA_ERROR_INVALID_DEVICE = 101,
	CUDA_ERROR_INVALID_CONTEXT = 201,
	CUDA_ERROR_NOT_FOUND = 500,
};

typedef struct {
	int type, id;
} CUmemLocation;

typedef struct {
	int type, requestedHandleTypes;
	CUmemLocation location;
	void *win32HandleMetaData;
	unsigned char allocFlags[8];
} CUmemAllocationProp;

typedef struct {
	int allocType, handleTypes;
	CUmemLocation location;
	unsigned char reserved[72];
} CUmemPoolProps;

typedef struct {
	CUmemPoolProps poolProps;
	const void *accessDescs;
	size_t accessDescCount, bytesize;
	CUdeviceptr dptr;
} CUDA_MEM_ALLOC_NODE_PARAMS;

enum { CU_GRAPH_NODE_TYPE_EMPTY = 5, CU_GRAPH_NODE_TYPE_MEM_ALLOC = 10 };

typedef struct {
	int type, reserved[3];
	union {
		CUDA_MEM_ALLOC_NODE_PARAMS alloc;
		unsigned char rest[240];
	};
} CUgraphNodeParams;

typedef struct {
	size_t Width, Height;
	int Format;
	unsigned int NumChannels;
} CUDA_ARRAY_DESCRIPTOR;

typedef struct {
	size_t Width, Height, Depth;
	int Format;
	unsigned int NumChannels, Flags;
} CUDA_ARRAY3D_DESCRIPTOR;

CUresult cuInit(unsigned int flags);
CUresult cuDriverGetVersion(int *out);
CUresult cuGetProcAddress(const char *name, void **out, int version, uint64_t flags);
CUresult cuGetProcAddress_v2(const char *name, void **out, int version, uint64_t flags,
			     int *status);

CUresult cuDeviceGetCount(int *out);
CUresult cuDeviceGet(CUdevice *out, int index);
CUresult cuDeviceGetName(char *out, int room, CUdevice device);
CUresult cuDeviceTotalMem_v2(size_t *out, CUdevice device);
CUresult cuDeviceGetUuid_v2(unsigned char out[16], CUdevice device);
CUresult cuDeviceGetAttribute(int *out, int attribute, CUdevice device);

CUresult cuCtxCreate_v2(CUcontext *out, unsigned int flags, CUdevice device);
CUresult cuCtxDestroy_v2(CUcontext ctx);
CUresult cuCtxGetCurrent(CUcontext *out);
CUresult cuCtxSetCurrent(CUcontext ctx);
CUresult cuCtxPushCurrent_v2(CUcontext ctx);
CUresult cuCtxPopCurrent_v2(CUcontext *out);
CUresult cuCtxGetDevice(CUdevice *out);
CUresult cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice device);
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device);
CUresult cuDevicePrimaryCtxReset_v2(CUdevice device);
CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned int *flags, int *active);
CUresult cuStreamCreate(CUstream *out, unsigned int flags);
CUresult cuStreamGetCtx(CUstream stream, CUcontext *out);
CUresult cuCtxSynchronize(void);

CUresult cuStreamBeginCapture_v2(CUstream stream, int mode);
CUresult cuStreamEndCapture(CUstream stream, CUgraph *out);
CUresult cuStreamIsCapturing(CUstream stream, int *out);
CUresult cuGraphCreate(CUgraph *out, unsigned int flags);
CUresult cuGraphAddMemAllocNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *after, size_t n,
				CUDA_MEM_ALLOC_NODE_PARAMS *params);
CUresult cuGraphAddNode_v2(CUgraphNode *out, CUgraph graph, const CUgraphNode *after,
			   const void *edges, size_t n, CUgraphNodeParams *params);
CUresult cuGraphNodeGetType(CUgraphNode node, int *out);
CUresult cuGraphInstantiateWithFlags(CUgraphExec *out, CUgraph graph, unsigned long long flags);
CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream);
CUresult cuGraphLaunch_ptsz(CUgraphExec exec, CUstream stream);
CUresult cuGraphExecDestroy(CUgraphExec exec);
CUresult cuDeviceGetGraphMemAttribute(CUdevice device, int attribute, void *out);
CUresult cuDeviceGraphMemTrim(CUdevice device);

CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total);
CUresult cuMemAlloc_v2(CUdeviceptr *out, size_t bytes);
/* Of no CUDA that there is: the form that a driver of tomorrow may have (SIM_CUDA_VERSION=14000). */
CUresult cuMemAlloc_v3(CUdeviceptr *out, size_t bytes, int a, int b, int c, int d, int e, int f);
CUresult cuMemAllocPitch_v2(CUdeviceptr *out, size_t *pitch, size_t width, size_t height,
			    unsigned int element);
CUresult cuMemFree_v2(CUdeviceptr addr);
CUresult cuMemAllocHost_v2(void **out, size_t bytes);
CUresult cuMemHostAlloc(void **out, size_t bytes, unsigned int flags);
CUresult cuMemFreeHost(void *addr);
CUresult cuMemHostRegister_v2(void *addr, size_t bytes, unsigned int flags);
CUresult cuMemHostUnregister(void *addr);
CUresult cuMemAllocManaged(CUdeviceptr *out, size_t bytes, unsigned int flags);
CUresult cuArrayCreate_v2(CUarray *out, const CUDA_ARRAY_DESCRIPTOR *desc);
CUresult cuArray3DCreate_v2(CUarray *out, const CUDA_ARRAY3D_DESCRIPTOR *desc);
CUresult cuArrayDestroy(CUarray array);

CUresult cuMemAllocAsync(CUdeviceptr *out, size_t bytes, CUstream stream);
CUresult cuMemAllocAsync_ptsz(CUdeviceptr *out, size_t bytes, CUstream stream);
CUresult cuMemAllocFromPoolAsync(CUdeviceptr *out, size_t bytes, CUmemoryPool pool,
				 CUstream stream);
CUresult cuMemFreeAsync(CUdeviceptr addr, CUstream stream);
CUresult cuMemFreeAsync_ptsz(CUdeviceptr addr, CUstream stream);
CUresult cuMemPoolCreate(CUmemoryPool *out, const CUmemPoolProps *props);
CUresult cuMemPoolDestroy(CUmemoryPool pool);
CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep);
CUresult cuMemPoolGetAttribute(CUmemoryPool pool, int attribute, void *out);
CUresult cuDeviceGetMemPool(CUmemoryPool *out, CUdevice device);

CUresult cuMemAddressReserve(CUdeviceptr *out, size_t bytes, size_t align, CUdeviceptr hint,
			     unsigned long long flags);
CUresult cuMemAddressFree(CUdeviceptr addr, size_t bytes);
CUresult cuMemCreate(CUmemGenericAllocationHandle *out, size_t bytes,
		     const CUmemAllocationProp *prop, unsigned long long flags);
CUresult cuMemRelease(CUmemGenericAllocationHandle handle);
CUresult cuMemMap(CUdeviceptr addr, size_t bytes, size_t offset,
		  CUmemGenericAllocationHandle handle, unsigned long long flags);
CUresult cuMemUnmap(CUdeviceptr addr, size_t bytes);
CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *out, void *addr);
CUresult cuMemExportToShareableHandle(void *out, CUmemGenericAllocationHandle handle, int type,
				      unsigned long long flags);
CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *out, void *shareable,
					int type);

#endif
