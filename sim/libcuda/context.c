/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Contexts: a stack of them in each thread; primary ones are counted. */
#include "driver.h"

#include "sim/gpu_state.h"

#include <stdlib.h>

#define STACK 16

static struct sim_context primary[SIM_GPUS];
static __thread CUcontext stack[STACK];
static __thread int depth;

CUcontext sim_current(void)
{
	return depth ? stack[depth - 1] : NULL;
}

static uint64_t context_bytes(void)
{
	return (uint64_t)sim_env("SIM_CUDA_CONTEXT_MIB", 256) * MIB;
}

static CUresult begin(CUcontext ctx, CUdevice device)
{
	if (!sim_take(device, context_bytes()))
		return CUDA_ERROR_OUT_OF_MEMORY;
	ctx->device = device;
	ctx->alive = true;
	return CUDA_SUCCESS;
}

static void end(CUcontext ctx)
{
	if (!ctx->alive)
		return;
	sim_blocks_end(ctx);
	sim_give(ctx->device, context_bytes());
	ctx->alive = false;
	ctx->refs = 0;
}

CUresult cuCtxCreate_v2(CUcontext *out, unsigned int flags, CUdevice device)
{
	CUcontext ctx = calloc(1, sizeof(*ctx));

	(void)flags;
	if (!sim_ready)
		return CUDA_ERROR_NOT_INITIALIZED;
	pthread_mutex_lock(&sim_lock);
	CUresult r = begin(ctx, device);
	pthread_mutex_unlock(&sim_lock);
	if (r == CUDA_SUCCESS) {
		*out = ctx;
		return cuCtxPushCurrent_v2(ctx);
	}
	free(ctx);
	return r;
}

CUresult cuCtxDestroy_v2(CUcontext ctx)
{
	if (!ctx || ctx->primary || !ctx->alive)
		return CUDA_ERROR_INVALID_CONTEXT;
	pthread_mutex_lock(&sim_lock);
	end(ctx);
	pthread_mutex_unlock(&sim_lock);
	if (sim_current() == ctx)
		depth--;
	free(ctx);
	return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *out)
{
	*out = sim_current();
	return sim_ready ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}

CUresult cuCtxSetCurrent(CUcontext ctx)
{
	if (!depth)
		depth = 1;
	stack[depth - 1] = ctx;
	return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent_v2(CUcontext ctx)
{
	if (!ctx || depth == STACK)
		return CUDA_ERROR_INVALID_VALUE;
	stack[depth++] = ctx;
	return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent_v2(CUcontext *out)
{
	if (!depth)
		return CUDA_ERROR_INVALID_CONTEXT;
	*out = stack[--depth];
	return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice *out)
{
	if (!sim_current())
		return CUDA_ERROR_INVALID_CONTEXT;
	*out = sim_is_odd() ? 70000 : sim_current()->device;
	return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice device)
{
	CUresult r = CUDA_SUCCESS;

	if (device < 0 || device >= sim_cuda_device_count())
		return CUDA_ERROR_INVALID_DEVICE;
	pthread_mutex_lock(&sim_lock);
	if (!primary[device].alive)
		r = begin(&primary[device], device);
	if (r == CUDA_SUCCESS) {
		primary[device].primary = true;
		primary[device].refs++;
		*out = &primary[device];
	}
	pthread_mutex_unlock(&sim_lock);
	return r;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
	pthread_mutex_lock(&sim_lock);
	if (primary[device].alive && --primary[device].refs == 0)
		end(&primary[device]);
	pthread_mutex_unlock(&sim_lock);
	return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice device)
{
	pthread_mutex_lock(&sim_lock);
	end(&primary[device]);
	pthread_mutex_unlock(&sim_lock);
	return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned int *flags, int *active)
{
	*flags = 0;
	*active = primary[device].alive;
	return CUDA_SUCCESS;
}

CUresult cuStreamCreate(CUstream *out, unsigned int flags)
{
	(void)flags;
	*out = calloc(1, sizeof(**out));
	(*out)->ctx = sim_current();
	return CUDA_SUCCESS;
}

CUresult cuStreamGetCtx(CUstream stream, CUcontext *out)
{
	*out = (uintptr_t)stream > 2 ? stream->ctx : sim_current();
	return CUDA_SUCCESS;
}

/* Nothing runs here. */
CUresult cuCtxSynchronize(void)
{
	return sim_current() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}
