/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The first mstx call looks for a tool: the library that MSTX_INJECTION_PATH names, else any
 * InitInjectionMstx in the process's global scope. The tool asks for the tables and overwrites the
 * slots it wants. A slot that nobody filled, and every slot when the tool failed, does nothing.
 *
 * SIM_MSTX_MODULES=1|2 offers only the first modules, as older mstx did.
 */
#include "mstx/ms_tools_ext.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "marks.h"

/* Members in the order of their ids, from 1. */
static struct {
	void (*mark)(const char *, void *);
	mstxRangeId (*range_start)(const char *, void *);
	void (*range_end)(mstxRangeId);
} core;

static struct {
	mstxDomainHandle_t (*create)(const char *);
	void (*destroy)(mstxDomainHandle_t);
	void (*mark)(mstxDomainHandle_t, const char *, void *);
	mstxRangeId (*range_start)(mstxDomainHandle_t, const char *, void *);
	void (*range_end)(mstxDomainHandle_t, mstxRangeId);
} domain_slots;

static struct {
	mstxMemHeapHandle_t (*heap_register)(mstxDomainHandle_t, const mstxMemHeapDesc_t *);
	void (*heap_unregister)(mstxDomainHandle_t, mstxMemHeapHandle_t);
	void (*regions_register)(mstxDomainHandle_t, const mstxMemRegionsRegisterBatch_t *);
	void (*regions_unregister)(mstxDomainHandle_t, const mstxMemRegionsUnregisterBatch_t *);
} memory_slots;

#define SLOT(s) ((MstxFuncPointer *)(void *)&(s))

/* Slot 0 is unused; the NULL behind the last id is not counted in the size. */
static MstxFuncPointer *core_table[] = {NULL, SLOT(core.mark), SLOT(core.range_start),
					SLOT(core.range_end), NULL};
static MstxFuncPointer *domain_table[] = {NULL,
					  SLOT(domain_slots.create),
					  SLOT(domain_slots.destroy),
					  SLOT(domain_slots.mark),
					  SLOT(domain_slots.range_start),
					  SLOT(domain_slots.range_end),
					  NULL};
static MstxFuncPointer *memory_table[] = {NULL,
					  SLOT(memory_slots.heap_register),
					  SLOT(memory_slots.heap_unregister),
					  SLOT(memory_slots.regions_register),
					  SLOT(memory_slots.regions_unregister),
					  NULL};

#define COUNT(t) ((unsigned)(sizeof(t) / sizeof((t)[0])) - 1)

static _Atomic int ready;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static int get_table(int module, MstxFuncTable *out_table, unsigned *out_size)
{
	const char *limit = getenv("SIM_MSTX_MODULES");
	if (!out_table || !out_size || (limit && module > atoi(limit)))
		return 1;
	switch (module) {
	case MSTX_MODULE_CORE:
		*out_table = core_table;
		*out_size = COUNT(core_table);
		return 0;
	case MSTX_MODULE_DOMAIN:
		*out_table = domain_table;
		*out_size = COUNT(domain_table);
		return 0;
	case MSTX_MODULE_MEMORY:
		*out_table = memory_table;
		*out_size = COUNT(memory_table);
		return 0;
	default:
		return 1;
	}
}

static int inject(void)
{
	const char *path = getenv("MSTX_INJECTION_PATH");
	void *handle = NULL;
	if (path && *path) {
		handle = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
		if (!handle)
			return 1;
	}
	MstxInitInjection init = NULL;
	*(void **)&init = dlsym(handle, "InitInjectionMstx"); /* NULL: the default scope */
	return init ? init(get_table) : 1;
}

static void init_once(void)
{
	if (inject()) {
		memset(&core, 0, sizeof(core));
		memset(&domain_slots, 0, sizeof(domain_slots));
		memset(&memory_slots, 0, sizeof(memory_slots));
	}
	atomic_store_explicit(&ready, 1, memory_order_release);
}

static inline void prepare(void)
{
	if (!atomic_load_explicit(&ready, memory_order_acquire))
		pthread_once(&once, init_once);
}

void mstxMarkA(const char *message, void *stream)
{
	prepare();
	marks_instant(NULL, message, stream);
	if (core.mark)
		core.mark(message, stream);
}

mstxRangeId mstxRangeStartA(const char *message, void *stream)
{
	prepare();
	mstxRangeId id = core.range_start ? core.range_start(message, stream) : 0;
	return marks_start(NULL, message, stream, id);
}

void mstxRangeEnd(mstxRangeId id)
{
	prepare();
	marks_end(id);
	if (core.range_end && !marks_is_ours(id))
		core.range_end(id);
}

mstxDomainHandle_t mstxDomainCreateA(const char *name)
{
	prepare();
	return marks_domain(domain_slots.create ? domain_slots.create(name) : NULL, name);
}

void mstxDomainDestroy(mstxDomainHandle_t domain)
{
	prepare();
	if (domain_slots.destroy)
		domain_slots.destroy(marks_tools_domain(domain));
}

void mstxDomainMarkA(mstxDomainHandle_t domain, const char *message, void *stream)
{
	prepare();
	marks_instant(domain, message, stream);
	if (domain_slots.mark)
		domain_slots.mark(marks_tools_domain(domain), message, stream);
}

mstxRangeId mstxDomainRangeStartA(mstxDomainHandle_t domain, const char *message, void *stream)
{
	prepare();
	mstxRangeId id = 0;
	if (domain_slots.range_start)
		id = domain_slots.range_start(marks_tools_domain(domain), message, stream);
	return marks_start(domain, message, stream, id);
}

void mstxDomainRangeEnd(mstxDomainHandle_t domain, mstxRangeId id)
{
	prepare();
	marks_end(id);
	if (domain_slots.range_end && !marks_is_ours(id))
		domain_slots.range_end(marks_tools_domain(domain), id);
}

mstxMemHeapHandle_t mstxMemHeapRegister(mstxDomainHandle_t domain, const mstxMemHeapDesc_t *desc)
{
	prepare();
	domain = marks_tools_domain(domain);
	return memory_slots.heap_register ? memory_slots.heap_register(domain, desc) : NULL;
}

void mstxMemHeapUnregister(mstxDomainHandle_t domain, mstxMemHeapHandle_t heap)
{
	prepare();
	if (memory_slots.heap_unregister)
		memory_slots.heap_unregister(marks_tools_domain(domain), heap);
}

void mstxMemRegionsRegister(mstxDomainHandle_t domain, const mstxMemRegionsRegisterBatch_t *batch)
{
	prepare();
	if (memory_slots.regions_register)
		memory_slots.regions_register(marks_tools_domain(domain), batch);
}

void mstxMemRegionsUnregister(mstxDomainHandle_t domain,
			      const mstxMemRegionsUnregisterBatch_t *batch)
{
	prepare();
	if (memory_slots.regions_unregister)
		memory_slots.regions_unregister(marks_tools_domain(domain), batch);
}
