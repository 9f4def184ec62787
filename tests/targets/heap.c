/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The malloc family, one promise after the other; says so and returns 0 when all were kept.
 */
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHECK(x)                                                                                   \
	do {                                                                                       \
		if (!(x)) {                                                                        \
			printf("line %d: %s\n", __LINE__, #x);                                     \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)

static volatile size_t huge = SIZE_MAX / 2 + 7; /* hidden from the compiler */

static void basics(void)
{
	char *p = malloc(0);
	free(p);
	free(NULL);
	p = malloc(100);
	memset(p, 'a', 100);
	CHECK(malloc_usable_size(p) >= 100 && malloc_usable_size(NULL) == 0);
	p = realloc(p, 100000);
	for (int i = 0; i < 100; i++)
		CHECK(p[i] == 'a');
	p = realloc(p, 50);
	for (int i = 0; i < 50; i++)
		CHECK(p[i] == 'a');
	free(p);
	p = realloc(NULL, 64);
	CHECK(p);
	p = realloc(p, 0); /* frees, and may give a block of no size */
	free(p);
	p = reallocarray(NULL, 10, 10);
	CHECK(p);
	errno = 0;
	CHECK(!reallocarray(p, huge, 4) && errno == ENOMEM);
	CHECK(!calloc(huge, 4)); /* tcmalloc leaves errno alone here */
	errno = 0;
	CHECK(!malloc(huge) && errno == ENOMEM);
	char *same = p;
	CHECK(!realloc(p, huge) && same == p); /* the old block stays */
	free(p);
	errno = 42;
	p = malloc(10);
	CHECK(errno == 42);
	free(p);
	CHECK(errno == 42);
}

static void zeroed(void)
{
	for (int round = 0; round < 200; round++) {
		size_t n = 1 + (size_t)round * 37 % 5000;
		unsigned char *dirty = malloc(n);
		memset(dirty, 0xff, n);
		free(dirty);
		unsigned char *p = calloc(n, 1);
		for (size_t i = 0; i < n; i++)
			CHECK(p[i] == 0);
		free(p);
	}
}

static void aligned(void)
{
	void *p;

	for (size_t a = 16; a <= 1 << 16; a *= 2) {
		CHECK(posix_memalign(&p, a, a + 3) == 0 && (uintptr_t)p % a == 0);
		p = realloc(p, 3 * a);
		free(p);
		p = aligned_alloc(a, 2 * a);
		CHECK(p && (uintptr_t)p % a == 0);
		free(p);
		p = memalign(a, 100);
		CHECK(p && (uintptr_t)p % a == 0);
		free(p);
	}
	p = (void *)7;
	CHECK(posix_memalign(&p, 3, 10) == EINVAL && p == (void *)7);
	p = valloc(10);
	CHECK((uintptr_t)p % (size_t)getpagesize() == 0);
	free(p);
}

static void *hand_over[4];
static pthread_barrier_t barrier;

/* Blocks are freed by another thread than the one that got them. */
static void *worker(void *arg)
{
	size_t me = (size_t)(uintptr_t)arg;
	void *live[64] = {0};

	for (size_t i = 0; i < 20000; i++) {
		size_t k = (i * 7 + me) % 64;
		free(live[k]);
		live[k] = malloc(1 + i % 3000);
		CHECK(live[k]);
		*(char *)live[k] = (char)me;
	}
	for (size_t k = 0; k < 64; k++)
		free(live[k]);
	hand_over[me] = strdup("from another thread");
	pthread_barrier_wait(&barrier);
	CHECK(!strcmp(hand_over[(me + 1) % 4], "from another thread"));
	free(hand_over[(me + 1) % 4]);
	return NULL;
}

int main(void)
{
	pthread_t t[4];

	setvbuf(stdout, NULL, _IONBF, 0);
	basics();
	zeroed();
	aligned();
	pthread_barrier_init(&barrier, NULL, 4);
	for (uintptr_t i = 0; i < 4; i++)
		pthread_create(&t[i], NULL, worker, (void *)i);
	for (int i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	puts("kept");
	return 0;
}
