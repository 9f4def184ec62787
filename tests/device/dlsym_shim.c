/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * A library that limits memory, as those that share GPUs do: it interposes dlsym(), and stands for
 * cuMemAlloc of the driver in whichever way that is looked up. A line with the number of calls that it
 * has seen goes to the file that SHIM_CALLS names, when the process ends.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if defined(__aarch64__)
#	define FIRST_GLIBC "GLIBC_2.17"
#else
#	define FIRST_GLIBC "GLIBC_2.2.5"
#endif

int shim_calls;

static void *(*next)(void *, const char *);
static int (*real_alloc)(unsigned long long *, size_t);
static int (*real_get)(const char *, void **, int, uint64_t, int *);

static void find_next(void)
{
	if (!next)
		next = (void *(*)(void *, const char *))dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
	if (!next)
		next = (void *(*)(void *, const char *))dlvsym(RTLD_NEXT, "dlsym", FIRST_GLIBC);
}

int cuMemAlloc_v2(unsigned long long *out, size_t bytes)
{
	__atomic_add_fetch(&shim_calls, 1, __ATOMIC_RELAXED);
	find_next();
	if (!real_alloc)
		real_alloc = (int (*)(unsigned long long *, size_t))next(
			dlopen("libcuda.so.1", RTLD_LAZY), "cuMemAlloc_v2");
	return real_alloc(out, bytes);
}

static int get_instead(const char *name, void **fn, int version, uint64_t flags, int *status)
{
	int r = real_get(name, fn, version, flags, status);

	if (r != 0 || !fn || !*fn)
		return r;
	if (!strcmp(name, "cuMemAlloc") && version < 14000) {
		if (*fn != (void *)cuMemAlloc_v2)
			real_alloc = (int (*)(unsigned long long *, size_t)) * fn;
		*fn = (void *)cuMemAlloc_v2;
	} else if (!strcmp(name, "cuGetProcAddress") && version >= 12000) {
		*fn = (void *)get_instead;
	}
	return r;
}

void *dlsym(void *handle, const char *name)
{
	void *found;

	find_next();
	found = next(handle, name);
	if (!found || handle == RTLD_NEXT)
		return found;
	if (!strcmp(name, "cuMemAlloc_v2") && !real_alloc) {
		real_alloc = (int (*)(unsigned long long *, size_t))found;
		return (void *)cuMemAlloc_v2;
	}
	if (!strcmp(name, "cuGetProcAddress_v2")) {
		real_get = (int (*)(const char *, void **, int, uint64_t, int *))found;
		return (void *)get_instead;
	}
	return found;
}

__attribute__((destructor)) static void write_calls(void)
{
	const char *path = getenv("SHIM_CALLS");
	char line[32];
	int n = snprintf(line, sizeof(line), "%d\n", shim_calls);
	int fd = path && shim_calls ? open(path, O_WRONLY | O_CREAT | O_APPEND, 0666) : -1;

	if (fd >= 0 && write(fd, line, (size_t)n) != n)
		abort();
	if (fd >= 0)
		close(fd);
}
