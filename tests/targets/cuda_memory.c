/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * A CUDA job that uses memory in every way. It finds the driver as CUDA's runtime does, or by the way
 * that its first argument names; the others say what it does.
 *
 *	runtime		dlopen(), cuGetProcAddress by dlsym(), everything else by that
 *	old		cuGetProcAddress of CUDA 11, if there is one; what it lacks by dlsym()
 *	dlsym, dlvsym	every function by its name
 *	linked		as the loader binds it: with the driver preloaded
 *
 *	all		one of each kind, all ended but LEFT; prints what was done
 *	contexts	two contexts, blocks in both, destroyed; the primary one, reset
 *	pairs N [THREADS] | cycles N	cuMemAllocAsync and cuMemFreeAsync; map, unmap
 *	refuse		asks for too much, in three ways
 *	pointers	are functions the same that were the same?
 *	hold		one block, then waits for the end of its input
 *	churn		blocks until it is killed; a line for each that has been allocated
 *	fork | spawn	children that use memory after, before the driver was initialised
 *
 * It ends with the sum of all results, which nobody may change.
 */
#include "cuda/cuda.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* clang-format off */
#define DRIVER(X) \
	X(cuInit, cuInit) \
	X(cuDeviceGetCount, cuDeviceGetCount) \
	X(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain) \
	X(cuDevicePrimaryCtxReset, cuDevicePrimaryCtxReset_v2) \
	X(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2) \
	X(cuCtxSetCurrent, cuCtxSetCurrent) \
	X(cuCtxCreate, cuCtxCreate_v2) \
	X(cuCtxDestroy, cuCtxDestroy_v2) \
	X(cuMemAlloc, cuMemAlloc_v2) \
	X(cuMemAllocPitch, cuMemAllocPitch_v2) \
	X(cuMemFree, cuMemFree_v2) \
	X(cuMemAllocHost, cuMemAllocHost_v2) \
	X(cuMemHostAlloc, cuMemHostAlloc) \
	X(cuMemFreeHost, cuMemFreeHost) \
	X(cuMemHostRegister, cuMemHostRegister_v2) \
	X(cuMemHostUnregister, cuMemHostUnregister) \
	X(cuMemAllocManaged, cuMemAllocManaged) \
	X(cuArrayCreate, cuArrayCreate_v2) \
	X(cuArrayDestroy, cuArrayDestroy) \
	X(cuMemAllocAsync, cuMemAllocAsync) \
	X(cuMemAllocFromPoolAsync, cuMemAllocFromPoolAsync) \
	X(cuMemFreeAsync, cuMemFreeAsync) \
	X(cuMemPoolCreate, cuMemPoolCreate) \
	X(cuMemPoolDestroy, cuMemPoolDestroy) \
	X(cuMemPoolTrimTo, cuMemPoolTrimTo) \
	X(cuMemAddressReserve, cuMemAddressReserve) \
	X(cuMemAddressFree, cuMemAddressFree) \
	X(cuMemCreate, cuMemCreate) \
	X(cuMemRelease, cuMemRelease) \
	X(cuMemMap, cuMemMap) \
	X(cuMemUnmap, cuMemUnmap) \
	X(cuMemRetainAllocationHandle, cuMemRetainAllocationHandle) \
	X(cuMemImportFromShareableHandle, cuMemImportFromShareableHandle) \
	X(cuMemExportToShareableHandle, cuMemExportToShareableHandle)
/* clang-format on */

#define MEMBER(name, full) __typeof__(&full) name;
static struct {
	DRIVER(MEMBER)
} cu;

#define NAME(name, full) {#name, #full},
static const struct {
	const char *name, *full;
} names[] = {DRIVER(NAME)};

#define CALL(name, ...) count_result(cu.name(__VA_ARGS__))
#define LEFT 4096

static unsigned long long sum;

static int count_result(int r)
{
	__atomic_add_fetch(&sum, (unsigned)r + 1, __ATOMIC_RELAXED);
	return r;
}

/* --- ways --- */

typedef int (*proc1)(const char *, void **, int, uint64_t);
typedef int (*proc2)(const char *, void **, int, uint64_t, int *);

static void *lib;

static void *by_name(const char *way, const char *full)
{
	if (!strcmp(way, "linked"))
		return dlsym(RTLD_DEFAULT, full);
	if (!strcmp(way, "dlvsym"))
		return dlvsym(lib, full, "NONE") ?: dlsym(lib, full);
	return dlsym(lib, full);
}

static void *by_runtime(const char *way, const char *name, const char *full)
{
	static void *get;
	void *fn = NULL;
	int status = 0;

	if (!get) {
		get = dlsym(lib, "cuGetProcAddress_v2");
		if (!strcmp(way, "old"))
			get = dlsym(lib, "cuGetProcAddress");
		else if (get) /* … which it uses to ask for itself, as the runtime does */
			((proc2)get)("cuGetProcAddress", &get, 12000, 0, &status);
	}
	/* Of a name without a number a driver of today has forms with other parameters. */
	if (!get || !strcmp(name, "cuCtxCreate"))
		return by_name(way, full);
	if (!strcmp(way, "old"))
		((proc1)get)(name, &fn, 11030, 0);
	else
		((proc2)get)(name, &fn, 12000, 0, &status);
	return fn;
}

static int find_driver(const char *way)
{
	void **at = (void **)&cu;
	bool runtime = !strcmp(way, "runtime") || !strcmp(way, "old");

	if (strcmp(way, "linked"))
		lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!lib && strcmp(way, "linked")) {
		fprintf(stderr, "%s\n", dlerror());
		return -1;
	}
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		at[i] = runtime ? by_runtime(way, names[i].name, names[i].full)
				: by_name(way, names[i].full);
	return cu.cuMemAlloc ? 0 : -1;
}

/* --- what it does --- */

static CUcontext primary;

static int begin(void)
{
	int r = CALL(cuInit, 0u);

	if (r == 0)
		r = CALL(cuDevicePrimaryCtxRetain, &primary, 0);
	if (r == 0)
		CALL(cuCtxSetCurrent, primary);
	return r;
}

static void use_contexts_memory(void)
{
	CUdeviceptr a, b, c, d;
	size_t pitch;
	void *host, *other, *own = aligned_alloc(4096, 8192);
	CUarray array;
	CUDA_ARRAY_DESCRIPTOR desc = {64, 64, 0x20, 1};

	CALL(cuMemAlloc, &a, (size_t)1 << 20);
	CALL(cuMemAllocPitch, &b, &pitch, (size_t)1000, (size_t)10, 4u);
	CALL(cuMemAllocManaged, &c, (size_t)3 << 20, 1u);
	CALL(cuMemAllocHost, &host, (size_t)4096);
	CALL(cuMemHostAlloc, &other, (size_t)8192, 0u);
	CALL(cuMemHostRegister, own, (size_t)8192, 0u);
	CALL(cuArrayCreate, &array, &desc);
	CALL(cuMemAlloc, &d, (size_t)LEFT);
	CALL(cuArrayDestroy, array);
	CALL(cuMemHostUnregister, own);
	CALL(cuMemFreeHost, other);
	CALL(cuMemFreeHost, host);
	CALL(cuMemFree, c);
	CALL(cuMemFree, b);
	CALL(cuMemFree, a);
	free(own);
}

static void use_pools(void)
{
	CUmemPoolProps props = {.allocType = 1, .location = {1, 0}};
	CUmemoryPool pool;
	CUdeviceptr a, b;

	if (!cu.cuMemAllocAsync)
		return;
	CALL(cuMemAllocAsync, &a, (size_t)5 << 20, NULL);
	if (CALL(cuMemPoolCreate, &pool, &props) == 0) {
		CALL(cuMemAllocFromPoolAsync, &b, (size_t)6 << 20, pool, NULL);
		CALL(cuMemFreeAsync, b, NULL);
		CALL(cuMemPoolTrimTo, pool, (size_t)0);
		CALL(cuMemPoolDestroy, pool);
	}
	CALL(cuMemFree, a);
}

/* The handle is given back while it is mapped, retained by its address, and comes once more by way of a
 * descriptor, as memory of another process does. */
static void use_virtual_memory(void)
{
	CUmemAllocationProp prop = {.type = 1, .requestedHandleTypes = 1, .location = {1, 0}};
	CUmemGenericAllocationHandle h, again, foreign;
	size_t bytes = 2 << 20;
	CUdeviceptr at;
	int fd = -1;

	if (!cu.cuMemCreate)
		return;
	CALL(cuMemAddressReserve, &at, 4 * bytes, (size_t)0, (CUdeviceptr)0, 0ull);
	CALL(cuMemCreate, &h, bytes, &prop, 0ull);
	CALL(cuMemMap, at, bytes, (size_t)0, h, 0ull);
	CALL(cuMemRelease, h);
	CALL(cuMemRetainAllocationHandle, &again, (void *)(uintptr_t)at);
	CALL(cuMemUnmap, at, bytes);
	if (CALL(cuMemExportToShareableHandle, &fd, again, 1, 0ull) == 0 &&
	    CALL(cuMemImportFromShareableHandle, &foreign, (void *)(intptr_t)fd, 1) == 0) {
		CALL(cuMemMap, at, bytes, (size_t)0, foreign, 0ull);
		CALL(cuMemUnmap, at, bytes);
		CALL(cuMemRelease, foreign);
		close(fd);
	}
	CALL(cuMemRelease, again);
	CALL(cuMemAddressFree, at, 4 * bytes);
}

static void use_contexts(void)
{
	CUcontext one, two;
	CUdeviceptr a;

	CALL(cuCtxCreate, &one, 0u, 0);
	for (int i = 0; i < 3; i++)
		CALL(cuMemAlloc, &a, (size_t)1 << 20);
	CALL(cuCtxCreate, &two, 0u, 0);
	CALL(cuMemAlloc, &a, (size_t)2 << 20);
	CALL(cuCtxDestroy, two);
	CALL(cuCtxSetCurrent, one);
	CALL(cuMemAlloc, &a, (size_t)1 << 20);
	CALL(cuCtxDestroy, one);
	CALL(cuCtxSetCurrent, primary);
	CALL(cuMemAlloc, &a, (size_t)4 << 20);
	CALL(cuDevicePrimaryCtxReset, 0);
	CALL(cuDevicePrimaryCtxRetain, &primary, 0);
	CALL(cuMemAlloc, &a, (size_t)8 << 20);
	CALL(cuDevicePrimaryCtxRelease, 0);
}

static CUdeviceptr kept_of[64];

/* A thread for each device, as a process with several has it. */
static void *use_device(void *arg)
{
	int device = (int)(intptr_t)arg;
	CUcontext mine;
	CUdeviceptr a;

	CALL(cuDevicePrimaryCtxRetain, &mine, device);
	CALL(cuCtxSetCurrent, mine);
	CALL(cuMemAlloc, &kept_of[device], (size_t)(device + 1) << 20);
	for (int i = 0; i < 100; i++) {
		CALL(cuMemAlloc, &a, (size_t)(device + 1) << 12);
		CALL(cuMemFree, a);
		CALL(cuMemAllocAsync, &a, (size_t)(device + 1) << 12, NULL);
		CALL(cuMemFreeAsync, a, NULL);
	}
	return NULL;
}

static void use_devices(void)
{
	pthread_t each[64];
	int n = 0;

	CALL(cuDeviceGetCount, &n);
	for (int i = 0; i < n && i < 64; i++)
		pthread_create(&each[i], NULL, use_device, (void *)(intptr_t)i);
	for (int i = 0; i < n && i < 64; i++)
		pthread_join(each[i], NULL);
	for (int i = 0; i < n && i < 64; i++)
		CALL(cuMemFree, kept_of[i]); /* all of them in a context of device 0 */
}

static void report_time(const char *what, long n, const struct timespec *from)
{
	struct timespec to;

	clock_gettime(CLOCK_MONOTONIC, &to);
	printf("ns_per_%s %.1f\n", what,
	       ((double)(to.tv_sec - from->tv_sec) * 1e9 + (double)(to.tv_nsec - from->tv_nsec)) /
		       (double)n);
}

static void *run_pairs(void *arg)
{
	long n = *(long *)arg;
	CUdeviceptr a;

	CALL(cuCtxSetCurrent, primary);
	for (long i = 0; i < n; i++) {
		CALL(cuMemAllocAsync, &a, 512 * (1 + (size_t)(i & 7)), NULL);
		CALL(cuMemFreeAsync, a, NULL);
	}
	return NULL;
}

static void time_pairs(long n, long threads)
{
	struct timespec from;
	pthread_t each[64];

	clock_gettime(CLOCK_MONOTONIC, &from);
	for (long i = 0; i < threads && i < 64; i++)
		pthread_create(&each[i], NULL, run_pairs, &n);
	for (long i = 0; i < threads && i < 64; i++)
		pthread_join(each[i], NULL);
	report_time("pair", n * threads, &from);
}

static void time_cycles(long n)
{
	CUmemAllocationProp prop = {.type = 1, .location = {1, 0}};
	CUmemGenericAllocationHandle h;
	size_t bytes = 2 << 20;
	struct timespec from;
	CUdeviceptr at;

	CALL(cuMemAddressReserve, &at, bytes, (size_t)0, (CUdeviceptr)0, 0ull);
	CALL(cuMemCreate, &h, bytes, &prop, 0ull);
	clock_gettime(CLOCK_MONOTONIC, &from);
	for (long i = 0; i < n; i++) {
		CALL(cuMemMap, at, bytes, 0, h, 0);
		CALL(cuMemUnmap, at, bytes);
	}
	report_time("cycle", n, &from);
	CALL(cuMemRelease, h);
	CALL(cuMemAddressFree, at, bytes);
}

static void be_refused(void)
{
	CUmemAllocationProp prop = {.type = 1, .location = {1, 0}};
	CUmemGenericAllocationHandle h;
	size_t much = (size_t)1 << 40;
	CUdeviceptr a;
	int plain, async = 2, create = 2;

	errno = EDOM;
	plain = CALL(cuMemAlloc, &a, much);
	if (cu.cuMemAllocAsync) {
		async = CALL(cuMemAllocAsync, &a, much, NULL);
		create = CALL(cuMemCreate, &h, much, &prop, 0ull);
	}
	printf("refused %d %d %d errno %d\n", plain, async, create, errno == EDOM);
}

static void compare_pointers(void)
{
	proc2 get = (proc2)dlsym(lib, "cuGetProcAddress_v2");
	void *a = dlsym(lib, "cuMemAlloc_v2"), *b = NULL, *c = NULL;
	int status;

	get("cuMemAlloc", &b, 12000, 0, &status);
	get("cuMemAlloc", &c, 11000, 0, &status);
	printf("same %d %d\n", a == b, b == c);
	get("cuMemAllocAsync", &a, 12000, 0, &status);
	get("cuMemAllocAsync", &b, 12000, 2, &status);
	printf("others %d\n", a != b);
	(void)dlerror();
	a = dlsym(lib, "cuMemFree_v2");
	printf("no error %d\n", a && !dlerror());
	a = dlsym(lib, "cuNoSuchFunction");
	printf("error %d\n", !a && dlerror());
	printf("next %d\n", dlsym(RTLD_NEXT, "malloc") != NULL);
}

static void use_children(const char *how)
{
	CUdeviceptr a;
	bool before = !strcmp(how, "spawn");

	for (int i = 0; i < 2; i++) {
		pid_t pid = before || i == 0 ? fork() : 0;
		if (pid == 0 && (before || i == 0)) {
			if (before)
				begin();
			CALL(cuMemAlloc, &a, (size_t)(i + 2) << 20);
			_exit(0);
		}
		if (pid > 0)
			waitpid(pid, NULL, 0);
	}
	if (before)
		begin();
	CALL(cuMemAlloc, &a, (size_t)1 << 20);
}

/* Every allocation that has returned is a line that is on its way before the next. */
static void churn(void)
{
	CUdeviceptr kept[64] = {0};
	char line[32];

	for (unsigned long i = 1;; i++) {
		CUdeviceptr *a = &kept[i % 64];

		if (*a)
			CALL(cuMemFree, *a);
		CALL(cuMemAlloc, a, (size_t)512 * i);
		int n = snprintf(line, sizeof(line), "%lu\n", i);
		if (write(1, line, (size_t)n) != n)
			return;
	}
}

static void act(int argc, char **argv)
{
	const char *what = argv[2];
	CUdeviceptr a;

	if (!strcmp(what, "all")) {
		use_contexts_memory();
		use_pools();
		use_virtual_memory();
	} else if (!strcmp(what, "contexts")) {
		use_contexts();
	} else if (!strcmp(what, "devices")) {
		use_devices();
	} else if (!strcmp(what, "pairs")) {
		time_pairs(atol(argv[3]), argc > 4 ? atol(argv[4]) : 1);
	} else if (!strcmp(what, "cycles")) {
		time_cycles(atol(argv[3]));
	} else if (!strcmp(what, "refuse")) {
		be_refused();
	} else if (!strcmp(what, "pointers")) {
		compare_pointers();
	} else if (!strcmp(what, "churn")) {
		churn();
	} else if (!strcmp(what, "hold")) {
		CALL(cuMemAlloc, &a, (size_t)7 << 20);
		puts("ready");
		fflush(stdout);
		(void)getchar();
	}
}

int main(int argc, char **argv)
{
	int r;

	if (argc < 3 || find_driver(argv[1]) < 0)
		return 2;
	if (!strcmp(argv[2], "spawn"))
		use_children("spawn");
	else if ((r = begin()) != 0)
		printf("cuInit %d\n", r);
	else if (!strcmp(argv[2], "fork"))
		use_children("fork");
	else
		act(argc, argv);
	printf("sum %llu\n", sum);
	return 0;
}
