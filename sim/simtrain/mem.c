/* SPDX-License-Identifier: MulanPSL-2.0 */
#include <stdio.h>

#include "acl/acl.h"
#include "hal/ascend_hal.h"
#include "rank.h"
#include "runtime/rt.h"

#define HCCL_BYTES (4u << 20)
#define SEGMENT_BYTES (8u << 20)

static unsigned long long hal_flag(const struct rank *r, unsigned module, size_t bytes)
{
	uint32_t phy = 0;
	(void)rtGetPhyId(r->device, &phy); /* the driver knows nothing of visible devices */
	unsigned long long flag = phy | HAL_FLAG_HBM |
				  (unsigned long long)HAL_VIRT_DEV << HAL_FLAG_VIRT_SHIFT |
				  (unsigned long long)module << HAL_FLAG_MODULE_SHIFT;
	return bytes >= 2u << 20 ? flag | HAL_FLAG_HUGE : flag;
}

struct tensor tensor_new(struct rank *r, size_t bytes)
{
	struct tensor t = {NULL, bytes};
	if (r->pool)
		t.ptr = sim_pool_alloc(r->pool, bytes);
	else if (halMemAlloc(&t.ptr, bytes, hal_flag(r, HAL_MODULE_APP, bytes)))
		t.ptr = NULL;
	if (t.ptr)
		r->allocations++;
	return t;
}

void tensor_free(struct rank *r, struct tensor *t)
{
	if (!t->ptr)
		return;
	/* The caching pools are stream ordered; the driver is not. */
	if (r->pool) {
		(void)sim_pool_dealloc(r->pool, t->ptr);
	} else {
		(void)aclrtSynchronizeStream(r->stream);
		(void)halMemFree(t->ptr);
	}
	t->ptr = NULL;
}

size_t tensor_room(struct rank *r, const struct tensor *t)
{
	return r->pool ? sim_pool_block_bytes(r->pool, t->ptr) : sim_hal_block_bytes(t->ptr);
}

int memory_open(struct rank *r)
{
	switch (r->opt->pool) {
	case TRAIN_PTA:
		r->pool = sim_pool_new(SIM_POOL_PTA, r->device);
		r->workspace_pool = sim_pool_new(SIM_POOL_PTA_WORKSPACE, r->device);
		break;
	case TRAIN_MINDSPORE:
		r->pool = sim_pool_new(SIM_POOL_MINDSPORE, r->device);
		break;
	case TRAIN_ATB:
		r->pool = sim_pool_new(SIM_POOL_ATB, r->device);
		break;
	case TRAIN_HAL:
		break;
	}
	if (!r->pool && r->opt->pool != TRAIN_HAL)
		return -1;
	/* What the collective library keeps beside every pool. */
	if (halMemAlloc(&r->hccl_buffer, HCCL_BYTES, hal_flag(r, HAL_MODULE_HCCL, HCCL_BYTES)))
		return -1;
	uint32_t phy = 0;
	(void)rtGetPhyId(r->device, &phy);
	struct drv_mem_prop prop = {
		.side = 1, .devid = phy, .module_id = HAL_MODULE_APP, .pg_type = 1, .mem_type = 1};
	if (r->opt->pool == TRAIN_HAL && halMemCreate(&r->segment, SEGMENT_BYTES, &prop, 0))
		return -1;
	return 0;
}

void memory_close(struct rank *r)
{
	if (r->workspace.ptr)
		(void)sim_pool_dealloc(r->workspace_pool, r->workspace.ptr);
	sim_pool_free(r->workspace_pool);
	sim_pool_free(r->pool);
	if (r->segment)
		(void)halMemRelease(r->segment);
	(void)halMemFree(r->hccl_buffer);
}
