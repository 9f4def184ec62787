/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * A pool over CUDA's driver that reports its blocks as torch's caching allocator does: one segment,
 * blocks cut from it, steps that the program reports. Prints what torch would say of itself, a line
 * for each step: "step N allocated reserved".
 *
 *	torch_pool STEPS [refuse]
 *	torch_pool 0 fill | shatter	takes 12 segments of 20 MiB, gives every second block back or none, and
 *				asks for 32 MiB
 *	torch_pool 0 leak		takes such a segment in every step, until it gets none
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

/* --- a device that is filled --- */

#define SMALL (20 * MIB)
#define BLOCK (2 * MIB)
#define LARGE (32 * MIB)
#define SEGMENTS 12

static __attribute__((noinline)) int take_segment(CUdeviceptr *out)
{
	int r = cuMemAlloc_v2(out, SMALL);

	if (r == 0)
		reserved += SMALL;
	return r;
}

static void give_back_every_second(const CUdeviceptr *segments, int n)
{
	for (int i = 0; i < n; i++)
		for (uint64_t at = 0; at < SMALL; at += 2 * BLOCK)
			give_block(segments[i] + at, -(int64_t)BLOCK);
}

/* What others than the leak need in a step: it is given back. */
static void work_in_step(CUdeviceptr segment)
{
	give_block(segment, BLOCK);
	give_block(segment, -(int64_t)BLOCK);
	sonde_step();
}

static int take_blocks(CUdeviceptr *segment)
{
	if (take_segment(segment) != 0)
		return -1;
	for (uint64_t at = 0; at < SMALL; at += BLOCK)
		give_block(*segment + at, BLOCK);
	return 0;
}

static int run_full(const char *how)
{
	CUdeviceptr segments[SEGMENTS], first, large = 0;
	int n = 0;

	if (!strcmp(how, "leak")) {
		if (take_segment(&first))
			return 1;
		for (; take_blocks(&large) == 0; n++)
			work_in_step(first);
		printf("%d segments\n", n);
		return 0;
	}
	while (n < SEGMENTS && take_blocks(&segments[n]) == 0)
		n++;
	if (!strcmp(how, "shatter"))
		give_back_every_second(segments, n);
	printf("%d segments, %d\n", n, cuMemAlloc_v2(&large, LARGE));
	return 0;
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
	if (argc > 2 && strcmp(argv[2], "refuse") != 0 && !cuMemFree_v2(segment))
		return run_full(argv[2]);
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
