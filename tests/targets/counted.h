/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * A job that counts its own completed events in a file that outlives it: 64 words of 8 bytes, one
 * per thread. A word grows only after the call has returned, so what the recorder wrote is between
 * the sum of the words and that sum plus one event per thread.
 */
#ifndef SONDE_TESTS_COUNTED_H
#define SONDE_TESTS_COUNTED_H

#include "hal/ascend_hal.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define COUNTED_WORDS 512
#define COUNTED_BYTES (COUNTED_WORDS * 8)

static _Atomic uint64_t *counted;

/* The file may exist: several processes count into it, each into words of its own. */
static inline void counted_open(const char *path)
{
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);

	if (fd < 0 || ftruncate(fd, COUNTED_BYTES) < 0) {
		perror(path);
		exit(99);
	}
	counted = mmap(NULL, COUNTED_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (counted == MAP_FAILED)
		exit(99);
	close(fd);
}

#ifdef COUNTED_HOST
/* Host memory, of sizes that nothing else in a small program has: 7 more than whole pages. */
static inline void *counted_alloc(unsigned word, unsigned long long bytes)
{
	char *p = malloc(bytes + 7);

	if (!p)
		return NULL;
	*(volatile char *)p = 1;
	atomic_fetch_add_explicit(&counted[word], 1, memory_order_relaxed);
	return p;
}

static inline void counted_free(unsigned word, void *p)
{
	if (!p)
		return;
	free(p);
	atomic_fetch_add_explicit(&counted[word], 1, memory_order_relaxed);
}
#else
static inline void *counted_alloc(unsigned word, unsigned long long bytes)
{
	void *p = NULL;

	if (halMemAlloc(&p, bytes, (uint64_t)HAL_VIRT_DEV << HAL_FLAG_VIRT_SHIFT))
		return NULL;
	atomic_fetch_add_explicit(&counted[word], 1, memory_order_relaxed);
	return p;
}

static inline void counted_free(unsigned word, void *p)
{
	if (p && halMemFree(p) == 0)
		atomic_fetch_add_explicit(&counted[word], 1, memory_order_relaxed);
}
#endif

/* n pairs, with up to eight blocks alive. */
static inline void counted_churn(unsigned word, unsigned long n)
{
	void *live[8] = {0};

	for (unsigned long i = 0; i < n; i++) {
		counted_free(word, live[i % 8]);
		live[i % 8] = counted_alloc(word, 4096 * (1 + i % 5));
	}
	for (unsigned i = 0; i < 8; i++)
		counted_free(word, live[i]);
}

#endif
