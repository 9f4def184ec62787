/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Memory with labels of every kind, from a framework's pool and from the driver. Sizes tell the
 * blocks apart. The weights get their label when the peak is over, as an optimizer does it.
 */
#include "sonde/sonde.h"

#include "acl/acl.h"
#include "hal/ascend_hal.h"
#include "sim/pool.h"

#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#define KIB 1024

static struct sim_pool *pool;

static char *take(size_t bytes)
{
	char *p = sim_pool_alloc(pool, bytes);

	if (!p)
		_exit(9);
	return p;
}

static void give(void *p)
{
	if (sim_pool_dealloc(pool, p))
		_exit(9);
}

/* Another thread's labels are its own. */
static void *loader(void *arg)
{
	if (aclrtSetDevice(0))
		_exit(9);
	sonde_label_push("loader");
	*(char **)arg = take(96 * KIB);
	return NULL; /* without a pop */
}

int main(void)
{
	char *batch, *weight, *gradient, *cache, *user, *temporary;
	void *driver = NULL;
	pthread_t t;

	if (aclrtSetDevice(0) || halMemAlloc(&driver, 3000 * KIB, 1ull << 10))
		return 1;
	pool = sim_pool_new(SIM_POOL_PTA, 0);
	weight = take(512 * KIB);
	gradient = take(256 * KIB);
	sonde_label_push_at(SONDE_LABEL_COMPONENT, "vllm");
	sonde_label_push_at(SONDE_LABEL_DETAIL_1, "kv_cache");
	cache = take(128 * KIB);
	sonde_label_push("outer");
	sonde_label_push("inner");
	user = take(64 * KIB);
	sonde_label_pop("inner");
	sonde_label_pop("outer");
	sonde_label_pop("kv_cache");
	sonde_label_pop("vllm");
	if (pthread_create(&t, NULL, loader, &batch) || pthread_join(t, NULL))
		return 1;
	temporary = take(900 * KIB); /* the peak */
	give(temporary);
	sonde_label_addr_at(SONDE_LABEL_DETAIL_1, weight + 1000, "weight");
	sonde_label_addr_at(SONDE_LABEL_DETAIL_1, gradient, "weight");
	sonde_label_addr_at(SONDE_LABEL_DETAIL_1, gradient + 256 * KIB - 1, "gradient");
	sonde_label_addr(cache + 5, "hot");
	sonde_label_addr((char *)driver + 17, "staging");
	sonde_label_addr(&t, "nobody's");
	give(gradient);
	give(user);
	give(batch);
	/* weight and cache stay */
	halMemFree(driver);
	printf("done\n");
	return 0;
}
