/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Graphs that allocate: since CUDA 11.4. Their memory is there from the first launch to the trim, as
 * much as the largest of them needs. They do nothing else.
 */
#include "driver.h"

#include "sim/gpu_state.h"

#include <stdlib.h>

#define STEP (2 * MIB)

struct sim_graph {
	uint64_t bytes[SIM_GPUS];
};

struct sim_node {
	int type;
};

static uint64_t reserved[SIM_GPUS];

static CUdeviceptr add_bytes(CUgraph graph, CUdevice device, uint64_t bytes)
{
	pthread_mutex_lock(&sim_lock);
	CUdeviceptr addr = sim_address(bytes);
	graph->bytes[device] += (bytes + STEP - 1) / STEP * STEP;
	pthread_mutex_unlock(&sim_lock);
	return addr;
}

bool sim_graph_alloc(CUstream stream, CUdeviceptr *out, size_t bytes)
{
	if ((uintptr_t)stream <= 2 || !stream->captured)
		return false;
	*out = add_bytes(stream->captured, stream->ctx->device, bytes);
	return true;
}

bool sim_graph_free(CUstream stream)
{
	return (uintptr_t)stream > 2 && stream->captured;
}

CUresult cuStreamBeginCapture_v2(CUstream stream, int mode)
{
	(void)mode;
	if ((uintptr_t)stream <= 2 || stream->captured)
		return CUDA_ERROR_INVALID_VALUE;
	stream->captured = calloc(1, sizeof(struct sim_graph));
	return CUDA_SUCCESS;
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph *out)
{
	if ((uintptr_t)stream <= 2 || !stream->captured)
		return CUDA_ERROR_INVALID_VALUE;
	*out = stream->captured;
	stream->captured = NULL;
	return CUDA_SUCCESS;
}

CUresult cuStreamIsCapturing(CUstream stream, int *out)
{
	*out = (uintptr_t)stream > 2 && stream->captured;
	return CUDA_SUCCESS;
}

CUresult cuGraphCreate(CUgraph *out, unsigned int flags)
{
	(void)flags;
	*out = calloc(1, sizeof(**out));
	return CUDA_SUCCESS;
}

CUresult cuGraphAddMemAllocNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *after, size_t n,
				CUDA_MEM_ALLOC_NODE_PARAMS *params)
{
	(void)after;
	(void)n;
	*out = malloc(sizeof(**out));
	(*out)->type = CU_GRAPH_NODE_TYPE_MEM_ALLOC;
	params->dptr = add_bytes(graph, params->poolProps.location.id, params->bytesize);
	return CUDA_SUCCESS;
}

/* The form of CUDA 12.3. Of nodes that allocate nothing only the type is kept. */
CUresult cuGraphAddNode_v2(CUgraphNode *out, CUgraph graph, const CUgraphNode *after,
			   const void *edges, size_t n, CUgraphNodeParams *params)
{
	(void)edges;
	if (params->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
		return cuGraphAddMemAllocNode(out, graph, after, n, &params->alloc);
	*out = malloc(sizeof(**out));
	(*out)->type = params->type;
	return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetType(CUgraphNode node, int *out)
{
	*out = node->type;
	return CUDA_SUCCESS;
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *out, CUgraph graph, unsigned long long flags)
{
	(void)flags;
	*out = malloc(sizeof(**out));
	**out = *graph;
	return CUDA_SUCCESS;
}

CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream)
{
	CUresult r = CUDA_SUCCESS;

	(void)stream;
	pthread_mutex_lock(&sim_lock);
	for (CUdevice d = 0; d < sim_cuda_device_count(); d++) {
		if (exec->bytes[d] <= reserved[d])
			continue;
		if (sim_take(d, exec->bytes[d] - reserved[d]))
			reserved[d] = exec->bytes[d];
		else
			r = CUDA_ERROR_OUT_OF_MEMORY;
	}
	pthread_mutex_unlock(&sim_lock);
	return r;
}

CUresult cuGraphLaunch_ptsz(CUgraphExec exec, CUstream stream)
{
	return cuGraphLaunch(exec, stream);
}

CUresult cuGraphExecDestroy(CUgraphExec exec)
{
	free(exec);
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetGraphMemAttribute(CUdevice device, int attribute, void *out)
{
	if (device < 0 || device >= sim_cuda_device_count() || attribute < 0 || attribute > 3)
		return CUDA_ERROR_INVALID_VALUE;
	*(uint64_t *)out = sim_is_odd() ? UINT64_MAX : reserved[device];
	return CUDA_SUCCESS;
}

CUresult cuDeviceGraphMemTrim(CUdevice device)
{
	pthread_mutex_lock(&sim_lock);
	sim_give(device, reserved[device]);
	reserved[device] = 0;
	pthread_mutex_unlock(&sim_lock);
	return CUDA_SUCCESS;
}
