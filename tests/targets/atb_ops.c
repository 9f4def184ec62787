/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Executes ATB operators and counts what really ran: atb_ops N [unwind]
 *
 * unwind: every third operator is left in the middle, by pthread_exit() in a thread of its own.
 * That unwinds the stack as a C++ exception does, through every frame between here and the launch.
 */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "acl/acl.h"
#include "atb/atb.h"
#include "runtime/rt.h"
#include "sim/kernel.h"

static _Atomic long ran, left;
static __thread int leave;
static int device;

static void count(const void *args, size_t size)
{
	(void)args;
	(void)size;
	atomic_fetch_add(&ran, 1);
}

/* Ours comes first in the search order, so that ATB launches through it. */
int rtKernelLaunchWithHandleV2(void *handle, uint64_t key, uint32_t blocks, void *args, void *desc,
			       void *stream, const void *cfg)
{
	static __typeof__(&rtKernelLaunchWithHandleV2) real;

	if (!real)
		real = (__typeof__(real))dlsym(RTLD_NEXT, "rtKernelLaunchWithHandleV2");
	if (leave) {
		atomic_fetch_add(&left, 1);
		pthread_exit(NULL);
	}
	return real(handle, key, blocks, args, desc, stream, cfg);
}

static int run(const struct sim_atb_call *call)
{
	errno = 77;
	int r = sim_atb_execute(call);
	if (errno != 77)
		printf("errno %d\n", errno);
	return r;
}

static void *run_and_leave(void *arg)
{
	(void)aclrtSetDevice(device);
	leave = 1;
	(void)run(arg);
	return (void *)(uintptr_t) "returned";
}

static void run_in_thread(const struct sim_atb_call *call)
{
	pthread_t t;
	void *how = NULL;

	if (pthread_create(&t, NULL, run_and_leave, (void *)(uintptr_t)call))
		exit(1);
	pthread_join(t, &how);
	if (how)
		printf("an operator %s\n", (char *)how);
}

int main(int argc, char **argv)
{
	long n = argc > 1 ? atol(argv[1]) : 10;
	int unwind = argc > 2 && !strcmp(argv[2], "unwind");
	void *memory, *stream;

	if (aclInit(NULL) || aclrtSetDevice(device) || aclrtCreateStream(&stream) ||
	    aclrtMalloc(&memory, 4096, ACL_MEM_MALLOC_HUGE_FIRST))
		return 1;
	struct atb_tensor in[2] = {{.dtype = 27,
				    .format = 29,
				    .dims = {4, 8, 16},
				    .dim_num = 3,
				    .device = memory,
				    .bytes = 1024},
				   {.dim_num = 1, .dims = {1}}}; /* no address: dropped */
	struct atb_tensor out = {.dtype = 0,
				 .format = 2,
				 .dims = {-1, 64},
				 .dim_num = 2,
				 .device = (char *)memory + 1024,
				 .bytes = 512};
	struct sim_atb_call call = {.name = "LinearOperation",
				    .kernel = sim_kernel_register("LinearKernel", 1000, count),
				    .kernel_name = "LinearKernel",
				    .in = in,
				    .in_count = 2,
				    .out = &out,
				    .out_count = 1,
				    .workspace = memory,
				    .workspace_bytes = 2048,
				    .stream = stream};
	for (long i = 0; i < n; i++) {
		if (unwind && i % 3 == 2)
			run_in_thread(&call);
		else if (run(&call))
			return 1;
	}
	aclrtSynchronizeDevice();
	printf("ran %ld left %ld\n", ran, left);
	aclrtFree(memory);
	return aclFinalize();
}
