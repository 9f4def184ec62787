/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Odd CUDA jobs, linked with the driver; the argument says which:
 *
 *	resets N	contexts that come and go, N times, with a block in each
 *	unknown		frees of what nobody has allocated, twice, of nothing
 *	threads N	as many threads at once, each with blocks of its own
 *	signals		memory in signal handlers, on a stack of their own, too
 *	exit		memory in exit handlers and destructors
 *	graphs		graphs that allocate: by nodes, and captured
 *	tomorrow	asks for functions of a CUDA that is not there yet
 *	sizes		as much as can be asked for, and more
 *	children N	forks and execs itself N times, all at once
 *	full		a context, where there may be no room for one
 *	fill N		150 MiB, and N more
 *	leak		steps, each of which leaves 20 MiB, until there is no more
 *	host		memory of the host, behind a handle and from a pool, as NCCL has it; one of the device
 *	one		a block
 *
 * Prints what the driver said.
 */
#include "cuda/cuda.h"
#include "sonde/sonde.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)

static unsigned long long sum;

static int count(int r)
{
	__atomic_add_fetch(&sum, (unsigned)r + 1, __ATOMIC_RELAXED);
	return r;
}

static int begin(void)
{
	CUcontext ctx;
	int r = cuInit(0);

	if (r == 0)
		r = cuDevicePrimaryCtxRetain(&ctx, 0);
	return r ? r : cuCtxSetCurrent(ctx);
}

static void reset(long n)
{
	CUcontext ctx;
	CUdeviceptr a;

	for (long i = 0; i < n; i++) {
		count(cuMemAlloc_v2(&a, MIB));
		if (i % 2) {
			count(cuCtxCreate_v2(&ctx, 0, 0));
			count(cuMemAlloc_v2(&a, 2 * MIB));
			count(cuCtxDestroy_v2(ctx));
		}
		count(cuDevicePrimaryCtxReset_v2(0));
		count(begin());
	}
}

static void free_unknown(void)
{
	CUdeviceptr a;

	count(cuMemAlloc_v2(&a, MIB));
	count(cuMemFree_v2(a + 4096));
	count(cuMemFree_v2(0));
	count(cuMemFree_v2(0x123456789000ull));
	count(cuMemFreeAsync(0x123456789000ull, NULL));
	count(cuMemFreeAsync(a, NULL));
	count(cuMemFreeHost(&a));
	count(cuMemHostUnregister(&a));
	count(cuArrayDestroy((CUarray)0x4321000));
	count(cuMemUnmap(0x123456789000ull, 2 * MIB));
	count(cuCtxDestroy_v2(NULL));
	count(cuMemFree_v2(a));
	count(cuMemFree_v2(a));
}

static void *use_thread(void *arg)
{
	CUdeviceptr a, b;

	count(begin());
	count(cuMemAlloc_v2(&a, (size_t)(uintptr_t)arg << 12));
	for (int i = 0; i < 50; i++) {
		count(cuMemAllocAsync(&b, 4096, NULL));
		count(cuMemFreeAsync(b, NULL));
	}
	count(cuMemFree_v2(a));
	return NULL;
}

static void use_threads(long n)
{
	pthread_t *each = calloc((size_t)n, sizeof(*each));

	for (long i = 0; i < n; i++)
		if (pthread_create(&each[i], NULL, use_thread, (void *)(uintptr_t)(i + 1)))
			abort();
	for (long i = 0; i < n; i++)
		pthread_join(each[i], NULL);
	free(each);
}

static void on_signal(int number)
{
	CUdeviceptr a;

	count(cuMemAlloc_v2(&a, (size_t)number * MIB));
	count(cuMemFree_v2(a));
}

static void use_signals(void)
{
	static char room[64 << 10];
	stack_t own = {.ss_sp = room, .ss_size = sizeof(room)};
	struct sigaction act = {.sa_handler = on_signal};

	sigaltstack(&own, NULL);
	sigaction(SIGUSR1, &act, NULL);
	act.sa_flags = SA_ONSTACK;
	sigaction(SIGUSR2, &act, NULL);
	raise(SIGUSR1);
	raise(SIGUSR2);
}

static void at_exit(void)
{
	CUdeviceptr a;

	if (cuMemAlloc_v2(&a, 3 * MIB) == 0)
		cuMemFree_v2(a);
}

static void use_exit(void)
{
	CUdeviceptr a;

	atexit(at_exit);
	count(cuMemAlloc_v2(&a, MIB));
}

static CUdeviceptr late;

__attribute__((destructor)) static void end(void)
{
	if (late)
		cuMemFree_v2(late);
}

static void launch(CUgraph graph, CUstream stream)
{
	CUgraphExec exec;

	count(cuGraphInstantiateWithFlags(&exec, graph, 0));
	count(cuGraphLaunch(exec, stream));
	count(cuGraphLaunch(exec, stream));
	count(cuGraphExecDestroy(exec));
}

static void use_graphs(void)
{
	CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC};
	CUgraph one, two, three;
	CUgraphNode node;
	CUstream stream;
	CUdeviceptr a;

	params.alloc.poolProps.location = (CUmemLocation){1, 0};
	params.alloc.bytesize = 6 * MIB;
	count(cuGraphCreate(&one, 0));
	count(cuGraphAddMemAllocNode(&node, one, NULL, 0, &params.alloc));
	launch(one, NULL);
	count(cuStreamCreate(&stream, 0));
	count(cuStreamBeginCapture_v2(stream, 0));
	count(cuMemAllocAsync(&a, 10 * MIB, stream));
	count(cuMemFreeAsync(a, stream));
	count(cuStreamEndCapture(stream, &two));
	launch(two, stream);
	count(cuDeviceGraphMemTrim(0));
	count(cuGraphCreate(&three, 0));
	params.alloc.bytesize = 4 * MIB;
	count(cuGraphAddNode_v2(&node, three, NULL, NULL, 0, &params));
	launch(three, stream);
}

static void use_tomorrow(void)
{
	int (*get)(const char *, void **, int, uint64_t, int *) = NULL;
	int (*alloc)(CUdeviceptr *, size_t, int, int, int, int, int, int) = NULL;
	int (*managed)(CUdeviceptr *, size_t, unsigned) = NULL;
	CUdeviceptr a;
	int status;

	*(void **)&get = dlsym(RTLD_DEFAULT, "cuGetProcAddress_v2");
	count(get("cuMemAlloc", (void **)&alloc, 14000, 0, &status));
	count(get("cuMemAllocManaged", (void **)&managed, 14000, 0, &status));
	count(alloc(&a, MIB, 3, 4, 5, 6, 7, 8));
	count(managed(&a, 2 * MIB, 1));
}

static void use_sizes(void)
{
	CUDA_ARRAY3D_DESCRIPTOR desc = {SIZE_MAX / 2, SIZE_MAX / 2, 3, 0x20, 4, 0};
	CUmemAllocationProp prop = {.type = 1, .location = {1, 0}};
	CUmemGenericAllocationHandle h;
	CUdeviceptr a, b, c;
	CUarray array;
	size_t pitch;
	void *host;

	count(cuMemAlloc_v2(&a, SIZE_MAX));
	count(cuMemAlloc_v2(&a, (size_t)1 << 63));
	count(cuMemAlloc_v2(&b, (size_t)1 << 62));
	count(cuMemAlloc_v2(&c, ((size_t)1 << 62) - 1));
	count(cuMemAllocPitch_v2(&a, &pitch, (size_t)1 << 40, (size_t)1 << 40, 4));
	count(cuMemAllocManaged(&a, SIZE_MAX - 1, 1));
	count(cuArray3DCreate_v2(&array, &desc));
	count(cuMemCreate(&h, SIZE_MAX, &prop, 0));
	count(cuMemHostAlloc(&host, SIZE_MAX - 4096, 0));
	count(cuMemAddressReserve(&a, (size_t)1 << 47, 0, 0, 0));
	count(cuMemUnmap(SIZE_MAX - 4096, SIZE_MAX));
}

static void use_children(const char *self, long n)
{
	int status, bad = 0;

	for (long i = 0; i < n; i++) {
		pid_t pid = fork();
		if (pid == 0) {
			execl(self, self, "one", NULL);
			_exit(127);
		}
	}
	while (wait(&status) > 0)
		bad += status != 0;
	printf("bad %d\n", bad);
}

static int leave_in_step(void)
{
	CUdeviceptr a;

	return count(cuMemAlloc_v2(&a, 20 * MIB));
}

static void leak_steps(void)
{
	CUdeviceptr a;
	int r = 0;

	while (r == 0) {
		sonde_step();
		leave_in_step();
		r = count(cuMemAlloc_v2(&a, 30 * MIB));
		if (r == 0)
			count(cuMemFree_v2(a));
	}
}

static void fill(long mib)
{
	CUdeviceptr a;

	count(cuMemAlloc_v2(&a, 150 * MIB));
	count(cuMemAlloc_v2(&a, (size_t)mib * MIB));
}

static void use_host_memory(void)
{
	CUmemAllocationProp prop = {.type = 1, .location = {3, 0}}; /* of a NUMA node */
	CUmemPoolProps props = {.allocType = 1, .location = {2, 0}};
	CUmemGenericAllocationHandle h;
	CUmemoryPool pool;
	CUdeviceptr at, a, b;

	count(cuMemAddressReserve(&at, 4 * MIB, 0, 0, 0));
	count(cuMemCreate(&h, 4 * MIB, &prop, 0));
	count(cuMemMap(at, 4 * MIB, 0, h, 0));
	count(cuMemPoolCreate(&pool, &props));
	count(cuMemAllocFromPoolAsync(&a, 3 * MIB, pool, NULL));
	count(cuMemAlloc_v2(&b, MIB));
	count(cuMemFreeAsync(a, NULL));
	count(cuMemUnmap(at, 4 * MIB));
	count(cuMemRelease(h));
}

static void act(char **argv, long n)
{
	const char *what = argv[1];
	CUdeviceptr a;

	if (!strcmp(what, "resets"))
		reset(n);
	else if (!strcmp(what, "unknown"))
		free_unknown();
	else if (!strcmp(what, "threads"))
		use_threads(n);
	else if (!strcmp(what, "signals"))
		use_signals();
	else if (!strcmp(what, "exit"))
		use_exit();
	else if (!strcmp(what, "graphs"))
		use_graphs();
	else if (!strcmp(what, "tomorrow"))
		use_tomorrow();
	else if (!strcmp(what, "sizes"))
		use_sizes();
	else if (!strcmp(what, "fill"))
		fill(n);
	else if (!strcmp(what, "leak"))
		leak_steps();
	else if (!strcmp(what, "host"))
		use_host_memory();
	else if (!strcmp(what, "one"))
		count(cuMemAlloc_v2(&a, MIB));
	if (!strcmp(what, "exit"))
		cuMemAlloc_v2(&late, 2 * MIB);
}

int main(int argc, char **argv)
{
	long n = argc > 2 ? atol(argv[2]) : 1;
	int r;

	if (argc < 2)
		return 2;
	if (!strcmp(argv[1], "children"))
		use_children(argv[0], n);
	else if ((r = begin()) != 0)
		printf("begin %d\n", r);
	else
		act(argv, n);
	if (strcmp(argv[1], "one"))
		printf("sum %llu\n", sum);
	return 0;
}
