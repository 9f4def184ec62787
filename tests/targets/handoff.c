/* SPDX-License-Identifier: MulanPSL-2.0 */
/* One thread allocates, another one frees at once; nothing is recorded until the end. */
#include "sonde/sonde.h"

#include "hal/ascend_hal.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

static _Atomic(void *) box;

static void *consumer(void *arg)
{
	for (long n = (long)arg; n > 0;) {
		void *p = atomic_exchange(&box, NULL);
		if (!p) {
			sched_yield();
			continue;
		}
		halMemFree(p);
		n--;
	}
	return NULL;
}

static void *take(size_t size)
{
	void *p = NULL;

	halMemAlloc(&p, size, 1ull << 10);
	return p;
}

int main(int argc, char **argv)
{
	long n = argc > 1 ? atol(argv[1]) : 1000;
	pthread_t t;

	if (pthread_create(&t, NULL, consumer, (void *)n))
		return 1;
	for (long i = 0; i < n; i++) {
		void *p = take(4096);
		while (atomic_load(&box))
			sched_yield();
		atomic_store(&box, p);
	}
	pthread_join(t, NULL);
	sonde_start();
	halMemFree(take(777));
	sonde_stop();
	return 0;
}
