/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The calls of the driver that come to us. Each has a name here, its parameters, and these in a call;
 * and the names under which the driver exports functions of that form.
 *
 * Names without _v2 that have one are of CUDA 3.1 and before, with addresses of 32 bits: nobody can
 * use them in a process of today.
 */
#ifndef SONDE_DEVICE_CUDA_HOOKS_CALLS_H
#define SONDE_DEVICE_CUDA_HOOKS_CALLS_H

#include "device/cuda/abi_driver.h"

/* X(call, parameters, arguments) */
#define CUDA_CALLS(X)                                                                              \
	X(init, (unsigned int flags), flags)                                                       \
	X(get_proc, (const char *name, void **out, int version, uint64_t flags), name, out,        \
	  version, flags)                                                                          \
	X(get_proc2, (const char *name, void **out, int version, uint64_t flags, void *status),    \
	  name, out, version, flags, status)                                                       \
	X(mem_alloc, (cu_address * out, size_t bytes), out, bytes)                                 \
	X(mem_alloc_pitch,                                                                         \
	  (cu_address * out, size_t * pitch, size_t width, size_t height, unsigned int element),   \
	  out, pitch, width, height, element)                                                      \
	X(mem_free, (cu_address addr), addr)                                                       \
	X(mem_alloc_host, (void **out, size_t bytes), out, bytes)                                  \
	X(mem_host_alloc, (void **out, size_t bytes, unsigned int flags), out, bytes, flags)       \
	X(mem_free_host, (void *addr), addr)                                                       \
	X(mem_host_register, (void *addr, size_t bytes, unsigned int flags), addr, bytes, flags)   \
	X(mem_host_unregister, (void *addr), addr)                                                 \
	X(mem_alloc_managed, (cu_address * out, size_t bytes, unsigned int flags), out, bytes,     \
	  flags)                                                                                   \
	X(mem_alloc_async, (cu_address * out, size_t bytes, cu_stream stream), out, bytes, stream) \
	X(mem_alloc_pool, (cu_address * out, size_t bytes, cu_pool pool, cu_stream stream), out,   \
	  bytes, pool, stream)                                                                     \
	X(mem_free_async, (cu_address addr, cu_stream stream), addr, stream)                       \
	X(pool_create, (cu_pool * out, const struct cu_pool_props *props), out, props)             \
	X(pool_destroy, (cu_pool pool), pool)                                                      \
	X(pool_trim, (cu_pool pool, size_t keep), pool, keep)                                      \
	X(address_reserve,                                                                         \
	  (cu_address * out, size_t bytes, size_t align, cu_address hint, unsigned long long f),   \
	  out, bytes, align, hint, f)                                                              \
	X(address_free, (cu_address addr, size_t bytes), addr, bytes)                              \
	X(mem_create,                                                                              \
	  (cu_handle * out, size_t bytes, const struct cu_allocation_prop *prop,                   \
	   unsigned long long flags),                                                              \
	  out, bytes, prop, flags)                                                                 \
	X(mem_release, (cu_handle handle), handle)                                                 \
	X(mem_map,                                                                                 \
	  (cu_address addr, size_t bytes, size_t offset, cu_handle handle, unsigned long long f),  \
	  addr, bytes, offset, handle, f)                                                          \
	X(mem_unmap, (cu_address addr, size_t bytes), addr, bytes)                                 \
	X(mem_retain, (cu_handle * out, void *addr), out, addr)                                    \
	X(mem_import, (cu_handle * out, void *shareable, int type), out, shareable, type)          \
	X(array_create, (cu_array * out, const struct cu_array_desc *desc), out, desc)             \
	X(array3d_create, (cu_array * out, const struct cu_array3d_desc *desc), out, desc)         \
	X(array_destroy, (cu_array array), array)                                                  \
	X(mipmap_create,                                                                           \
	  (cu_mipmap * out, const struct cu_array3d_desc *desc, unsigned int levels), out, desc,   \
	  levels)                                                                                  \
	X(mipmap_destroy, (cu_mipmap array), array)                                                \
	X(ctx_destroy, (cu_context ctx), ctx)                                                      \
	X(primary_retain, (cu_context * out, cu_device device), out, device)                       \
	X(primary_release, (cu_device device), device)                                             \
	X(primary_reset, (cu_device device), device)                                               \
	X(begin_capture, (cu_stream stream, int mode), stream, mode)                               \
	X(capture_to_graph,                                                                        \
	  (cu_stream stream, void *graph, const void *nodes, const void *edges, size_t n,          \
	   int mode),                                                                              \
	  stream, graph, nodes, edges, n, mode)                                                    \
	X(graph_add_alloc,                                                                         \
	  (void **out, void *graph, const void *after, size_t n, struct cu_graph_alloc *params),   \
	  out, graph, after, n, params)                                                            \
	X(graph_add_node,                                                                          \
	  (void **out, void *graph, const void *a, const void *b, const void *c, const void *d),   \
	  out, graph, a, b, c, d)                                                                  \
	X(graph_launch, (void *exec, cu_stream stream), exec, stream)                              \
	X(graph_trim, (cu_device device), device)

/* X(call, number among those of the call, exported name) */
#define CUDA_NAMES(X)                                                                              \
	X(array3d_create, 0, cuArray3DCreate_v2)                                                   \
	X(array_create, 0, cuArrayCreate_v2)                                                       \
	X(array_destroy, 0, cuArrayDestroy)                                                        \
	X(ctx_destroy, 0, cuCtxDestroy)                                                            \
	X(ctx_destroy, 1, cuCtxDestroy_v2)                                                         \
	X(primary_release, 0, cuDevicePrimaryCtxRelease)                                           \
	X(primary_release, 1, cuDevicePrimaryCtxRelease_v2)                                        \
	X(primary_reset, 0, cuDevicePrimaryCtxReset)                                               \
	X(primary_reset, 1, cuDevicePrimaryCtxReset_v2)                                            \
	X(primary_retain, 0, cuDevicePrimaryCtxRetain)                                             \
	X(graph_trim, 0, cuDeviceGraphMemTrim)                                                     \
	X(get_proc, 0, cuGetProcAddress)                                                           \
	X(get_proc2, 0, cuGetProcAddress_v2)                                                       \
	X(graph_add_alloc, 0, cuGraphAddMemAllocNode)                                              \
	X(graph_add_node, 0, cuGraphAddNode)                                                       \
	X(graph_add_node, 1, cuGraphAddNode_v2)                                                    \
	X(graph_launch, 0, cuGraphLaunch)                                                          \
	X(graph_launch, 1, cuGraphLaunch_ptsz)                                                     \
	X(init, 0, cuInit)                                                                         \
	X(address_free, 0, cuMemAddressFree)                                                       \
	X(address_reserve, 0, cuMemAddressReserve)                                                 \
	X(mem_alloc_async, 0, cuMemAllocAsync)                                                     \
	X(mem_alloc_async, 1, cuMemAllocAsync_ptsz)                                                \
	X(mem_alloc_pool, 0, cuMemAllocFromPoolAsync)                                              \
	X(mem_alloc_pool, 1, cuMemAllocFromPoolAsync_ptsz)                                         \
	X(mem_alloc_host, 0, cuMemAllocHost_v2)                                                    \
	X(mem_alloc_managed, 0, cuMemAllocManaged)                                                 \
	X(mem_alloc_pitch, 0, cuMemAllocPitch_v2)                                                  \
	X(mem_alloc, 0, cuMemAlloc_v2)                                                             \
	X(mem_create, 0, cuMemCreate)                                                              \
	X(mem_free_async, 0, cuMemFreeAsync)                                                       \
	X(mem_free_async, 1, cuMemFreeAsync_ptsz)                                                  \
	X(mem_free_host, 0, cuMemFreeHost)                                                         \
	X(mem_free, 0, cuMemFree_v2)                                                               \
	X(mem_host_alloc, 0, cuMemHostAlloc)                                                       \
	X(mem_host_register, 0, cuMemHostRegister)                                                 \
	X(mem_host_register, 1, cuMemHostRegister_v2)                                              \
	X(mem_host_unregister, 0, cuMemHostUnregister)                                             \
	X(mem_import, 0, cuMemImportFromShareableHandle)                                           \
	X(mem_map, 0, cuMemMap)                                                                    \
	X(pool_create, 0, cuMemPoolCreate)                                                         \
	X(pool_destroy, 0, cuMemPoolDestroy)                                                       \
	X(pool_trim, 0, cuMemPoolTrimTo)                                                           \
	X(mem_release, 0, cuMemRelease)                                                            \
	X(mem_retain, 0, cuMemRetainAllocationHandle)                                              \
	X(mem_unmap, 0, cuMemUnmap)                                                                \
	X(mipmap_create, 0, cuMipmappedArrayCreate)                                                \
	X(mipmap_destroy, 0, cuMipmappedArrayDestroy)                                              \
	X(begin_capture, 0, cuStreamBeginCapture)                                                  \
	X(capture_to_graph, 0, cuStreamBeginCaptureToGraph)                                        \
	X(capture_to_graph, 1, cuStreamBeginCaptureToGraph_ptsz)                                   \
	X(begin_capture, 1, cuStreamBeginCapture_ptsz)                                             \
	X(begin_capture, 2, cuStreamBeginCapture_v2)                                               \
	X(begin_capture, 3, cuStreamBeginCapture_v2_ptsz)

#define CUDA_CALL_NUMBER(call, params, ...) CALL_##call,
enum cuda_call { CUDA_CALLS(CUDA_CALL_NUMBER) CUDA_NCALLS };

/* What a hook does: calls the driver's own function and reports what happened. */
#define CUDA_CALL_TYPES(call, params, ...) typedef int(*call##_fn) params;
CUDA_CALLS(CUDA_CALL_TYPES)

#endif
