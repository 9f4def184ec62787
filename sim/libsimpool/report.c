/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "report.h"

#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define TOOL "libascend_kernel_hook.so"

/* ATB's own rule: a thread whose heap registration was answered with NULL stops reporting. */
static __thread int atb_off;
static int tool_present;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* The frameworks' own test: an entry whose real path ends in the name and is longer than it. */
static void look_for_tool(void)
{
	const char *list = getenv("LD_PRELOAD");
	char *copy = list ? strdup(list) : NULL;
	char *save = NULL;
	for (char *at = copy ? strtok_r(copy, ": ", &save) : NULL; at && !tool_present;
	     at = strtok_r(NULL, ": ", &save)) {
		char path[PATH_MAX];
		if (!realpath(at, path))
			continue;
		size_t n = strlen(path);
		size_t want = strlen(TOOL);
		tool_present = n > want && !strcmp(path + n - want, TOOL);
	}
	free(copy);
}

int sim_pool_tool_present(void)
{
	pthread_once(&once, look_for_tool);
	return tool_present;
}

void report_init(struct pool_report *r, enum sim_pool_kind kind, int device)
{
	static const char *const names[] = {
		[SIM_POOL_PTA] = "ptaCaching",
		[SIM_POOL_PTA_WORKSPACE] = "ptaWorkspace",
		[SIM_POOL_MINDSPORE] = "mindsporeMemPool",
		[SIM_POOL_ATB] = "atb",
	};
	r->kind = kind;
	r->device = (uint32_t)device;
	r->on = kind == SIM_POOL_ATB || sim_pool_tool_present();
	r->domain = r->on ? mstxDomainCreateA(names[kind]) : NULL;
}

static void *announce_heap(struct pool_report *r, const void *ptr, size_t size)
{
	mstxMemVirtualRangeDesc_t range = {r->device, ptr, (int64_t)size};
	mstxMemHeapDesc_t desc = {0, 0, &range};
	return mstxMemHeapRegister(r->domain, &desc);
}

/*
 * torch_npu and MindSpore leave three members of the batch uninitialised. The values here cannot be
 * dereferenced: a tool that touches them crashes in our tests instead of at a user's.
 */
static void announce_region(struct pool_report *r, const void *ptr, size_t size)
{
	mstxMemVirtualRangeDesc_t range = {r->device, ptr, (int64_t)size};
	mstxMemRegionsRegisterBatch_t batch;
	memset(&batch, 0xa5, sizeof(batch));
	batch.regionCount = 1;
	batch.regionDescArray = &range;
	mstxMemRegionsRegister(r->domain, &batch);
}

static void withdraw_region(struct pool_report *r, const void *ptr)
{
	mstxMemRegionRef_t ref = {.refType = 0, .pointer = ptr};
	mstxMemRegionsUnregisterBatch_t batch = {1, &ref};
	mstxMemRegionsUnregister(r->domain, &batch);
}

void report_segment(struct pool_report *r, const void *base, size_t size, void **out_heap)
{
	*out_heap = NULL;
	if (r->kind != SIM_POOL_ATB || atb_off)
		return;
	*out_heap = announce_heap(r, base, size);
	if (!*out_heap)
		atb_off = 1;
}

void report_segment_gone(struct pool_report *r, void *heap)
{
	if (r->kind == SIM_POOL_ATB && heap)
		mstxMemHeapUnregister(r->domain, heap);
}

static void report_atb_block(struct pool_report *r, const void *ptr, size_t size, void *heap,
			     void **out_region)
{
	mstxMemRegionHandle_t handle = NULL;
	mstxMemVirtualRangeDesc_t range = {r->device, ptr, (int64_t)size};
	mstxMemRegionsRegisterBatch_t batch = {.heap = heap,
					       .regionType = 0,
					       .regionCount = 1,
					       .regionDescArray = &range,
					       .regionHandleArrayOut = &handle};
	mstxMemRegionsRegister(r->domain, &batch);
	*out_region = handle;
}

void report_block(struct pool_report *r, const void *ptr, size_t size, size_t reserved, void *heap,
		  void **out_region)
{
	*out_region = NULL;
	if (!r->on)
		return;
	switch (r->kind) {
	case SIM_POOL_PTA:
		(void)announce_heap(r, ptr, reserved);
		announce_region(r, ptr, size);
		break;
	case SIM_POOL_PTA_WORKSPACE:
		announce_region(r, ptr, size);
		break;
	case SIM_POOL_MINDSPORE:
		announce_region(r, ptr, size);
		(void)announce_heap(r, ptr, reserved);
		break;
	case SIM_POOL_ATB:
		if (heap && !atb_off)
			report_atb_block(r, ptr, size, heap, out_region);
		break;
	}
}

void report_block_gone(struct pool_report *r, const void *ptr, size_t reserved, void *region)
{
	if (!r->on)
		return;
	switch (r->kind) {
	case SIM_POOL_PTA:
		(void)announce_heap(r, ptr, reserved);
		withdraw_region(r, ptr);
		break;
	case SIM_POOL_PTA_WORKSPACE:
		withdraw_region(r, ptr);
		break;
	case SIM_POOL_MINDSPORE:
		withdraw_region(r, ptr);
		(void)announce_heap(r, ptr, reserved);
		break;
	case SIM_POOL_ATB:
		if (region) {
			mstxMemRegionRef_t ref = {.refType = 1, .handle = region};
			mstxMemRegionsUnregisterBatch_t batch = {1, &ref};
			mstxMemRegionsUnregister(r->domain, &batch);
		}
		break;
	}
}
