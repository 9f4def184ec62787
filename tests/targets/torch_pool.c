/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * A pool over CUDA's driver that reports its blocks as torch's caching allocator does: one segment,
 * blocks cut from it, steps that the program reports. Prints what torch would say of itself, a line
 * for each step: "step N allocated reserved".
 *
 *	torch_pool STEPS [refuse]
 */
#include "cuda/cuda.h"
#include "sonde/sonde.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB (1ull << 20)
#define SEGMENT (64 * MIB)

struct device {
	int8_t type, index;
};

/* libc10's, where there is one; else that of whoever stands before it. */
extern void report(
	void *ptr, int64_t bytes, size_t allocated, size_t reserved,
	struct device device) __asm__("_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE")
	__attribute__((weak));

static size_t allocated, reserved;
static const struct device gpu = {1, 0}, cpu = {0, -1};

static void give_block(CUdeviceptr at, int64_t bytes)
{
	allocated += (size_t)bytes;
	if (report)
		report((void *)(uintptr_t)at, bytes, allocated, reserved, gpu);
}

int main(int argc, char **argv)
{
	int steps = argc > 1 ? atoi(argv[1]) : 1;
	CUdeviceptr segment = 0, other = 0;
	CUcontext context;
	CUdevice device;

	if (cuInit(0) || cuDeviceGet(&device, 0) || cuDevicePrimaryCtxRetain(&context, device) ||
	    cuCtxSetCurrent(context) || cuMemAlloc_v2(&segment, SEGMENT))
		return 1;
	reserved = SEGMENT;
	if (report)
		report((void *)(uintptr_t)0x1000, 4096, 4096, 0, cpu); /* no block of a device */
	for (int step = 1; step <= steps; step++) {
		give_block(segment, 8 * MIB);
		give_block(segment + 8 * MIB, (int64_t)(512 * (unsigned)step));
		give_block(segment, -8 * (int64_t)MIB);
		sonde_step();
		printf("step %d %zu %zu\n", step, allocated, reserved);
		give_block(segment + 8 * MIB, -(int64_t)(512 * (unsigned)step));
	}
	if (argc > 2 && !strcmp(argv[2], "refuse") && !cuMemAlloc_v2(&other, 200ull << 30))
		return 2;
	give_block(segment, 16 * MIB); /* is left */
	return 0;
}
