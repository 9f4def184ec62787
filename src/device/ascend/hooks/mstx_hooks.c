/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * libascend_mstx_hook.so: mstx asks for InitInjectionMstx and hands us its function table. Through
 * it come marks, ranges, and the memory pools of torch_npu, MindSpore and ATB.
 *
 * Each object of the job that embeds mstx calls us once with its own table: nothing here may
 * depend on being called once. Modules that an older mstx does not have are left alone.
 */
#include "device/ascend/abi.h"
#include "guest/collect/collect.h"

#include <stdatomic.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
#define CALLER __builtin_return_address(0)

#define MAX_DOMAINS 64
#define MAX_DOMAIN_NAME 128

/* A domain is known by its address; pool 0 means marks only. */
struct domain {
	char name[MAX_DOMAIN_NAME];
	uint8_t pool;
};

static struct domain pools[] = {
	{"ptaCaching", POOL_PTA},
	{"msleaks", POOL_PTA}, /* what older torch_npu calls it */
	{"ptaWorkspace", POOL_PTA_WORKSPACE},
	{"mindsporeMemPool", POOL_MINDSPORE},
	{"atb", POOL_ATB},
};

static struct domain users[MAX_DOMAINS];
static _Atomic uint32_t nusers;

static void on_mark(const char *message, void *stream)
{
	collect_sanitizer(message, stream);
	collect_mark(MARK_INSTANT, 0, message, NULL);
}

static uint64_t on_range_start(const char *message, void *stream)
{
	(void)stream;
	if (!collect_tracing())
		return 0;
	uint64_t id = collect_range_id();
	collect_mark(MARK_RANGE_START, id, message, NULL);
	return id;
}

static void on_range_end(uint64_t id)
{
	if (id)
		collect_mark(MARK_RANGE_END, id, NULL, NULL);
}

static struct domain *user_domain(const char *name)
{
	uint32_t n = atomic_load(&nusers);

	for (uint32_t i = 0; i < n && i < MAX_DOMAINS; i++)
		if (!strncmp(users[i].name, name, MAX_DOMAIN_NAME - 1))
			return &users[i];
	n = atomic_fetch_add(&nusers, 1);
	if (n >= MAX_DOMAINS) {
		atomic_store(&nusers, MAX_DOMAINS);
		return NULL;
	}
	strncpy(users[n].name, name, MAX_DOMAIN_NAME - 1);
	return &users[n];
}

static void *on_domain_create(const char *name)
{
	if (!name)
		return NULL;
	for (size_t i = 0; i < sizeof(pools) / sizeof(pools[0]); i++)
		if (!strcmp(pools[i].name, name))
			return &pools[i];
	return user_domain(name);
}

static void on_domain_destroy(void *domain)
{
	(void)domain; /* domains are few, named, and may be created again */
}

/* NULL unless it is one of ours: the handle comes back through foreign hands. */
static struct domain *domain_of(void *handle)
{
	char *p = handle;

	if (p >= (char *)pools && p < (char *)pools + sizeof(pools))
		return handle;
	if (p >= (char *)users && p < (char *)users + sizeof(users))
		return handle;
	return NULL;
}

static void on_domain_mark(void *handle, const char *message, void *stream)
{
	struct domain *d = domain_of(handle);

	(void)stream;
	collect_mark(MARK_INSTANT, 0, message, d ? d->name : NULL);
}

static uint64_t on_domain_range_start(void *handle, const char *message, void *stream)
{
	struct domain *d = domain_of(handle);

	(void)stream;
	if (!collect_tracing())
		return 0;
	uint64_t id = collect_range_id();
	collect_mark(MARK_RANGE_START, id, message, d ? d->name : NULL);
	return id;
}

static void on_domain_range_end(void *handle, uint64_t id)
{
	struct domain *d = domain_of(handle);

	if (id)
		collect_mark(MARK_RANGE_END, id, NULL, d ? d->name : NULL);
}

/*
 * torch_npu and MindSpore report the whole pool each time and want no handle. ATB reports each
 * heap once and stops reporting if it gets none.
 */
static void *on_heap_register(void *handle, const struct mstx_heap_desc *heap)
{
	struct domain *d = domain_of(handle);

	if (!d || !d->pool || !heap || !heap->desc)
		return NULL;
	const struct mstx_range_desc *r = heap->desc;
	int each = d->pool == POOL_ATB;
	collect_heap(d->pool, (uint16_t)r->device, each ? HEAP_ADD : HEAP_SET, (uint64_t)r->ptr,
		     r->size);
	return each ? (void *)r->ptr : NULL;
}

static void on_heap_unregister(void *handle, void *heap)
{
	struct domain *d = domain_of(handle);

	if (d && d->pool)
		collect_heap(d->pool, DEV_NONE, HEAP_DROP, (uint64_t)heap, 0);
}

/* Only ATB gives a place for handles; the others leave that pointer uninitialised. */
static void on_regions_register(void *handle, const struct mstx_regions *batch)
{
	struct domain *d = domain_of(handle);

	if (!d || !d->pool || !batch || !batch->desc)
		return;
	for (size_t i = 0; i < batch->count; i++) {
		const struct mstx_range_desc *r = &batch->desc[i];
		struct collect_block b = {
			.addr = (uint64_t)r->ptr,
			.size_bytes = (uint64_t)r->size,
			.device = (uint16_t)r->device,
			.pool = d->pool,
			.kind = ALLOC_REGION,
			.module = MODULE_NONE,
		};
		collect_alloc(&b, CALLER);
		if (d->pool == POOL_ATB && batch->out_handles)
			batch->out_handles[i] = (void *)r->ptr;
	}
}

/* The handle that we gave for a region is its address, so both kinds of reference are one. */
static void on_regions_unregister(void *handle, const struct mstx_region_refs *batch)
{
	struct domain *d = domain_of(handle);

	if (!d || !d->pool || !batch || !batch->ref)
		return;
	for (size_t i = 0; i < batch->count; i++) {
		struct collect_block b = {
			.addr = (uint64_t)batch->ref[i].ptr,
			.device = DEV_NONE,
			.pool = d->pool,
			.kind = ALLOC_REGION,
		};
		collect_free(&b, CALLER);
	}
}

static const mstx_slot core_slots[] = {
	[1] = (mstx_slot)on_mark,
	[2] = (mstx_slot)on_range_start,
	[3] = (mstx_slot)on_range_end,
};
static const mstx_slot domain_slots[] = {
	[1] = (mstx_slot)on_domain_create,    [2] = (mstx_slot)on_domain_destroy,
	[3] = (mstx_slot)on_domain_mark,      [4] = (mstx_slot)on_domain_range_start,
	[5] = (mstx_slot)on_domain_range_end,
};
static const mstx_slot memory_slots[] = {
	[1] = (mstx_slot)on_heap_register,
	[2] = (mstx_slot)on_heap_unregister,
	[3] = (mstx_slot)on_regions_register,
	[4] = (mstx_slot)on_regions_unregister,
};

/* Fills what this mstx has; ids at or past its size do not exist. */
static int fill_table(mstx_get_table get, int module, const mstx_slot *slots, unsigned n)
{
	mstx_slot **table = NULL;
	unsigned size = 0;

	if (get(module, &table, &size) != 0 || !table)
		return 0;
	for (unsigned id = 1; id < n && id < size; id++)
		if (table[id])
			*table[id] = slots[id];
	return 1;
}

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

EXPORT int InitInjectionMstx(mstx_get_table get)
{
	if (!get)
		return 1;
	int filled = fill_table(get, MSTX_CORE, core_slots, COUNT(core_slots));
	filled += fill_table(get, MSTX_DOMAIN, domain_slots, COUNT(domain_slots));
	filled += fill_table(get, MSTX_MEMORY, memory_slots, COUNT(memory_slots));
	return filled ? 0 : 1;
}
