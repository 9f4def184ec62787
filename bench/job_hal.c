/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The job behind hook_cost: driver allocations and frees as fast as they go, and how much
 * processor time one of them takes, printed as `ns_per_event X`.
 *
 *	job_hal EVENTS [threads] [live blocks] [distinct addresses] [stack depth] [rounds]
 *
 * The fastest of some rounds counts: the machine is shared, and what disturbs only adds.
 */
#include "hal/ascend_hal.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static long events, threads = 1, live, distinct = 64, depth, rounds = 5;

static double now(void)
{
	struct timespec t;

	/* What all threads of this process spend: waiting for a core is not our cost. */
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

#define FLAG (1ull << 10 | 7ull << 56) /* device 0, device memory, module RUNTIME */

static void *take(unsigned long long size)
{
	void *p = NULL;

	if (halMemAlloc(&p, size, FLAG) != 0) {
		fprintf(stderr, "job_hal: out of device memory\n");
		exit(1);
	}
	return p;
}

static void pairs(long n)
{
	void **slots = calloc((size_t)distinct, sizeof(*slots));

	for (long i = 0; i < n / 2; i++) {
		long k = i % distinct;
		if (slots[k])
			halMemFree(slots[k]);
		slots[k] = take(4096);
	}
	for (long k = 0; k < distinct; k++)
		if (slots[k])
			halMemFree(slots[k]);
	free(slots);
}

/* Frames that the optimiser must keep. */
static __attribute__((noinline)) void deep(long levels, long n)
{
	if (levels > 0)
		deep(levels - 1, n);
	else
		pairs(n);
	__asm__ volatile("" ::: "memory");
}

static void *thread_main(void *arg)
{
	(void)arg;
	deep(depth, events / threads);
	return NULL;
}

static double round_ns(void)
{
	pthread_t t[64];
	double begin = now();

	for (long i = 1; i < threads; i++)
		pthread_create(&t[i], NULL, thread_main, NULL);
	thread_main(NULL);
	for (long i = 1; i < threads; i++)
		pthread_join(t[i], NULL);
	return (now() - begin) / (double)events;
}

int main(int argc, char **argv)
{
	long *args[] = {&events, &threads, &live, &distinct, &depth, &rounds};
	double best = 0;

	for (int i = 1; i < argc && i <= 6; i++)
		*args[i - 1] = atol(argv[i]);
	if (events < 1 || threads < 1 || threads > 64 || distinct < 1)
		return 2;
	for (long i = 0; i < live; i++)
		take(512);
	pairs(100000); /* rings, caches, the recorder's attention */
	for (long i = 0; i < rounds; i++) {
		/* A job computes between its allocations; so does this one, by sleeping. */
		nanosleep(&(struct timespec){0, 100000000}, NULL);
		double ns = round_ns();
		if (i == 0 || ns < best)
			best = ns;
	}
	printf("ns_per_event %.2f\n", best);
	return 0;
}
