/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Batch preparation: every thread fills a host buffer per step and pins it while the step needs it.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "acl/acl.h"
#include "rank.h"

#define BATCH_BYTES (64u << 10)

struct worker {
	struct loader *loader;
	pthread_t thread;
	int index;
	uint64_t sum;
};

struct loader {
	int count;
	int device;
	int step; /* < 0: stop */
	uint64_t seed;
	pthread_barrier_t begin;
	pthread_barrier_t end;
	struct worker worker[];
};

static __attribute__((noinline)) uint64_t load_batch(const struct loader *l, int index)
{
	unsigned char *pageable = malloc(BATCH_BYTES);
	void *pinned = NULL;
	uint64_t sum = l->seed + (uint64_t)l->step * 1000003u + (uint64_t)index;
	if (!pageable || aclrtMallocHost(&pinned, BATCH_BYTES)) {
		free(pageable);
		return 0;
	}
	(void)aclrtHostRegisterV2(pageable, BATCH_BYTES, ACL_HOST_REG_PINNED);
	memset(pageable, (int)(sum & 0x7f), BATCH_BYTES);
	for (size_t i = 0; i < BATCH_BYTES; i += 4096)
		sum = sum * 31 + pageable[i];
	(void)aclrtHostUnregister(pageable);
	(void)aclrtFreeHost(pinned);
	free(pageable);
	return sum;
}

static void *worker_main(void *arg)
{
	struct worker *w = arg;
	char name[16];
	snprintf(name, sizeof(name), "loader-%d", w->index);
	pthread_setname_np(pthread_self(), name);
	(void)aclrtSetDevice(w->loader->device);
	for (;;) {
		pthread_barrier_wait(&w->loader->begin);
		if (w->loader->step < 0)
			return NULL;
		w->sum = load_batch(w->loader, w->index);
		pthread_barrier_wait(&w->loader->end);
	}
}

struct loader *loader_new(const struct train_options *o, int device)
{
	if (!o->threads)
		return NULL;
	size_t n = (size_t)o->threads;
	struct loader *l = calloc(1, sizeof(*l) + n * sizeof(l->worker[0]));
	if (!l)
		abort();
	l->count = o->threads;
	l->device = device;
	l->seed = o->seed;
	pthread_barrier_init(&l->begin, NULL, (unsigned)n + 1);
	pthread_barrier_init(&l->end, NULL, (unsigned)n + 1);
	for (int i = 0; i < l->count; i++) {
		l->worker[i].loader = l;
		l->worker[i].index = i;
		if (pthread_create(&l->worker[i].thread, NULL, worker_main, &l->worker[i]))
			abort(); /* without its threads the barrier would wait for ever */
	}
	return l;
}

uint64_t loader_step(struct loader *l, int step)
{
	if (!l)
		return 0;
	l->step = step;
	pthread_barrier_wait(&l->begin);
	pthread_barrier_wait(&l->end);
	uint64_t sum = 0;
	for (int i = 0; i < l->count; i++)
		sum = sum * 1099511628211ull + l->worker[i].sum;
	return sum;
}

void loader_free(struct loader *l)
{
	if (!l)
		return;
	l->step = -1;
	pthread_barrier_wait(&l->begin);
	for (int i = 0; i < l->count; i++)
		pthread_join(l->worker[i].thread, NULL);
	free(l);
}
