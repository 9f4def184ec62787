/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * A copy of NVTX, as every library has one that was compiled with its headers. At its first call it
 * looks for a tool: at the path in NVTX_INJECTION64_PATH, else in a variable that a tool may define
 * (or set) itself.
 */
#include "cupti/nvtx.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>

typedef void (*slot)(void);
typedef const void *(*export_fn)(uint32_t table);
typedef int (*init_fn)(export_fn get);

static slot mark_fn, start_fn, end_fn, push_fn, pop_fn;
static slot domain_push_fn, domain_pop_fn, domain_create_fn;
static slot *core[16] = {
	[2] = &mark_fn, [5] = &start_fn, [7] = &end_fn, [9] = &push_fn, [11] = &pop_fn,
};
static slot *core2[16] = {
	[4] = &domain_push_fn,
	[5] = &domain_pop_fn,
	[12] = &domain_create_fn,
};

__attribute__((weak)) init_fn InitializeInjectionNvtx2_fnptr;

static int module(int which, slot ***table, unsigned int *size)
{
	if (which != 1 && which != 5)
		return 0;
	*table = which == 1 ? core : core2;
	*size = 16;
	return 1;
}

static const struct {
	size_t size;
	int (*module)(int which, slot ***table, unsigned int *size);
} callbacks = {sizeof(callbacks), module};

static const void *export_table(uint32_t which)
{
	return which == 1 ? &callbacks : NULL;
}

static void look_for_tool(void)
{
	static int done;
	const char *path = getenv("NVTX_INJECTION64_PATH");
	init_fn init = NULL;

	if (done++)
		return;
	void *lib = path ? dlopen(path, RTLD_LAZY) : NULL;
	if (lib)
		init = (init_fn)dlsym(lib, "InitializeInjectionNvtx2");
	if (!init)
		init = InitializeInjectionNvtx2_fnptr;
	if (init)
		(void)init(export_table);
}

void nvtxMarkA(const char *message)
{
	look_for_tool();
	if (mark_fn)
		((void (*)(const char *))mark_fn)(message);
}

int nvtxRangePushA(const char *message)
{
	look_for_tool();
	return push_fn ? ((int (*)(const char *))push_fn)(message) : -2;
}

int nvtxRangePop(void)
{
	look_for_tool();
	return pop_fn ? ((int (*)(void))pop_fn)() : -2;
}

uint64_t nvtxRangeStartA(const char *message)
{
	look_for_tool();
	return start_fn ? ((uint64_t(*)(const char *))start_fn)(message) : 0;
}

void nvtxRangeEnd(uint64_t id)
{
	look_for_tool();
	if (end_fn)
		((void (*)(uint64_t))end_fn)(id);
}

void *nvtxDomainCreateA(const char *name)
{
	look_for_tool();
	return domain_create_fn ? ((void *(*)(const char *))domain_create_fn)(name) : NULL;
}

int nvtxDomainRangePushEx(void *domain, const nvtxEventAttributes_t *event)
{
	look_for_tool();
	if (!domain_push_fn)
		return -2;
	return ((int (*)(void *, const nvtxEventAttributes_t *))domain_push_fn)(domain, event);
}

int nvtxDomainRangePop(void *domain)
{
	look_for_tool();
	return domain_pop_fn ? ((int (*)(void *))domain_pop_fn)(domain) : -2;
}
