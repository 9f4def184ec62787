/* SPDX-License-Identifier: MulanPSL-2.0 */
/* One thread allocates, another one frees at once; nothing is recorded until the end. */
#include "sonde/sonde.h"

#include "hal/ascend_hal.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>

/* Waiting is sleeping: one that yields instead waits its turn among all that a busy machine runs. */
static void *box;
static sem_t full, empty;

static void *consumer(void *arg)
{
	for (long n = (long)arg; n > 0; n--) {
		sem_wait(&full);
		void *p = box;
		sem_post(&empty);
		halMemFree(p);
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

	sem_init(&full, 0, 0);
	sem_init(&empty, 0, 1);
	if (pthread_create(&t, NULL, consumer, (void *)n))
		return 1;
	for (long i = 0; i < n; i++) {
		void *p = take(4096);
		sem_wait(&empty);
		box = p;
		sem_post(&full);
	}
	pthread_join(t, NULL);
	sonde_start();
	halMemFree(take(777));
	sonde_stop();
	return 0;
}
