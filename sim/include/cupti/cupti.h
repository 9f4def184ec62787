/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * As much of NVIDIA's tracing library as monitors and profilers of activities use, and a driver to
 * go with it. There is no GPU: the job says what its kernels are, simCuda…() below, and the library
 * notes them as the real one does:
 *
 *	- one pair of buffer callbacks and one clock for the whole process, whoever was last;
 *	- a flush returns buffers whose kernels have all ended, a forced one all of them, and the
 *	  kernels that still run have no end then;
 *	- records of kinds that are off are not made; without a buffer they are dropped and counted.
 *
 * SIM_CUPTI_VERSION is what cuptiGetVersion() says, and decides how long records are: 18 (CUDA
 * 12.0), 28 (12.9), 130001 (13.0, the default), 130401 (13.4), or something newer.
 */
#ifndef SONDE_SIM_CUPTI_H
#define SONDE_SIM_CUPTI_H

#include <stddef.h>
#include <stdint.h>

enum {
	CUPTI_SUCCESS = 0,
	CUPTI_ERROR_INVALID_PARAMETER = 1,
	CUPTI_ERROR_INVALID_OPERATION = 7,
	CUPTI_ERROR_MAX_LIMIT_REACHED = 12,
	CUPTI_ERROR_INVALID_KIND = 21,
	CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED = 39,
};

enum {
	CUPTI_ACTIVITY_KIND_MEMCPY = 1,
	CUPTI_ACTIVITY_KIND_MEMSET = 2,
	CUPTI_ACTIVITY_KIND_DRIVER = 4,
	CUPTI_ACTIVITY_KIND_RUNTIME = 5,
	CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL = 10,
	CUPTI_ACTIVITY_KIND_OVERHEAD = 17,
	CUPTI_ACTIVITY_KIND_MEMCPY2 = 22,
	CUPTI_ACTIVITY_KIND_MEMORY2 = 49,
};

typedef void (*CUpti_BuffersCallbackRequestFunc)(uint8_t **buffer, size_t *size, size_t *max);
typedef void (*CUpti_BuffersCallbackCompleteFunc)(void *context, uint32_t stream, uint8_t *buffer,
						  size_t size, size_t valid);
typedef uint64_t (*CUpti_TimestampCallbackFunc)(void);

int cuptiGetVersion(uint32_t *out);
int cuptiGetTimestamp(uint64_t *out);
int cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc request,
				   CUpti_BuffersCallbackCompleteFunc complete);
int cuptiActivityRegisterTimestampCallback(CUpti_TimestampCallbackFunc clock);
int cuptiActivityEnable(int kind);
int cuptiActivityDisable(int kind);
int cuptiActivityEnableRuntimeApi(uint32_t cbid, uint8_t on);
int cuptiActivityEnableDriverApi(uint32_t cbid, uint8_t on);
int cuptiActivityFlushAll(uint32_t flag);
int cuptiActivityGetNextRecord(uint8_t *buffer, size_t valid, void **record);
int cuptiActivityGetNumDroppedRecords(void *context, uint32_t stream, size_t *out);
int cuptiGetCallbackName(int domain, uint32_t cbid, const char **name);
int cuptiGetThreadIdType(int *type);
int cuptiSetThreadIdType(int type);
int cuptiFinalize(void);

/* --- the job's side --- */

/* Launched now, begins at once, takes so long; the call itself is noted as cudaLaunchKernel (those
 * below as cudaMemcpyAsync and cudaMemsetAsync). The name must live as long as the process. Returns
 * the correlation id. */
uint32_t simCudaKernel(const char *name, uint32_t device, uint32_t stream, uint64_t ns);
void simCudaMemcpy(uint32_t device, uint32_t stream, uint8_t kind, uint64_t bytes, uint64_t ns);
void simCudaMemset(uint32_t device, uint32_t stream, uint32_t value, uint64_t bytes);
/* kind: 2 pinned, 3 of the device. */
void simCudaMemory(uint32_t device, int released, uint32_t kind, uint64_t address, uint64_t bytes);
/* How many callbacks and kinds are in force: for tests of what is left behind. */
int simCuptiEnabled(int kind);

/* libcuda: loads what CUDA_INJECTION64_PATH names, once. */
int cuInit(unsigned int flags);

#endif
