/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * A library that limits memory, as those that share GPUs do: it interposes dlsym(), and stands for
 * cuMemAlloc of the driver in whichever way that is looked up. SHIM_LIMIT_MIB is the limit, if there is
 * one. A line with the number of calls that it has seen goes to the file that SHIM_CALLS names, when the
 * process ends.
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
static int (*real_info)(size_t *, size_t *);
static int (*real_total)(size_t *, int);
static int (*real_get)(const char *, void **, int, uint64_t, int *);
static size_t held;

static void find_next(void)
{
	if (!next)
		next = (void *(*)(void *, const char *))dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
	if (!next)
		next = (void *(*)(void *, const char *))dlvsym(RTLD_NEXT, "dlsym", FIRST_GLIBC);
}

/* 0: there is none. */
static size_t limit(void)
{
	const char *mib = getenv("SHIM_LIMIT_MIB");

	return mib ? (size_t)atol(mib) << 20 : 0;
}

int cuMemAlloc_v2(unsigned long long *out, size_t bytes)
{
	size_t most = limit();
	int r;

	__atomic_add_fetch(&shim_calls, 1, __ATOMIC_RELAXED);
	find_next();
	if (!real_alloc)
		real_alloc = (int (*)(unsigned long long *, size_t))next(
			dlopen("libcuda.so.1", RTLD_LAZY), "cuMemAlloc_v2");
	if (most && held + bytes > most)
		return 2; /* CUDA_ERROR_OUT_OF_MEMORY */
	r = real_alloc(out, bytes);
	held += r == 0 ? bytes : 0;
	return r;
}

int cuMemGetInfo_v2(size_t *unused, size_t *total)
{
	int r = real_info(unused, total);

	if (r == 0 && limit()) {
		*total = limit();
		*unused = limit() > held ? limit() - held : 0;
	}
	return r;
}

int cuDeviceTotalMem_v2(size_t *total, int device)
{
	int r = real_total(total, device);

	if (r == 0 && limit())
		*total = limit();
	return r;
}

static int get_instead(const char *name, void **fn, int version, uint64_t flags, int *status);

/* One of ours in the place of what was found; but for GPUs without a limit only the first. */
static void *replace(const char *name, void *found)
{
	static const struct {
		const char *name;
		void *ours;
		void **real;
	} all[] = {
		{"cuMemAlloc", (void *)cuMemAlloc_v2, (void **)&real_alloc},
		{"cuMemGetInfo", (void *)cuMemGetInfo_v2, (void **)&real_info},
		{"cuDeviceTotalMem", (void *)cuDeviceTotalMem_v2, (void **)&real_total},
	};

	for (size_t i = 0; found && i < (limit() ? 3 : 1); i++) {
		size_t n = strlen(all[i].name);

		if (strncmp(name, all[i].name, n) != 0 || (name[n] && strcmp(name + n, "_v2") != 0))
			continue;
		if (found != all[i].ours && !*all[i].real)
			*all[i].real = found;
		return all[i].ours;
	}
	return found;
}

static int get_instead(const char *name, void **fn, int version, uint64_t flags, int *status)
{
	int r = real_get(name, fn, version, flags, status);

	if (r != 0 || !fn || !*fn || version >= 14000)
		return r;
	if (!strcmp(name, "cuGetProcAddress") && version >= 12000)
		*fn = (void *)get_instead;
	else
		*fn = replace(name, *fn);
	return r;
}

void *dlsym(void *handle, const char *name)
{
	void *found;

	find_next();
	found = next(handle, name);
	if (!found || handle == RTLD_NEXT)
		return found;
	if (!strcmp(name, "cuGetProcAddress_v2")) {
		if (found != (void *)get_instead)
			real_get = (int (*)(const char *, void **, int, uint64_t, int *))found;
		return (void *)get_instead;
	}
	return strstr(name, "_v2") ? replace(name, found) : found;
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
