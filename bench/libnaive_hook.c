/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The baseline of hook_cost: a hook as one would write it first. Takes a lock, formats the row and
 * writes it to the file before the call returns.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int halMemAlloc(void **pp, unsigned long long size, unsigned long long flag);
int halMemFree(void *pp);

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static FILE *out;
static unsigned long long id;

static void row(const char *event, void *p, unsigned long long size)
{
	struct timespec t;

	pthread_mutex_lock(&lock);
	if (!out)
		out = fopen(getenv("NAIVE_OUTPUT"), "w");
	clock_gettime(CLOCK_REALTIME, &t);
	if (out) {
		fprintf(out,
			"%llu,%s,HAL,N/"
			"A,%lld%09ld,%d,%ld,0,0x%016llx,\"{addr:0x%016llx,size:%llu}\",,\n",
			id++, event, (long long)t.tv_sec, t.tv_nsec, getpid(), syscall(SYS_gettid),
			(unsigned long long)p, (unsigned long long)p, size);
		fflush(out);
	}
	pthread_mutex_unlock(&lock);
}

int halMemAlloc(void **pp, unsigned long long size, unsigned long long flag)
{
	static int (*real)(void **, unsigned long long, unsigned long long);

	if (!real)
		*(void **)&real = dlsym(RTLD_DEFAULT, "halMemAllocInner");
	int r = real(pp, size, flag);
	if (r == 0)
		row("MALLOC", *pp, size);
	return r;
}

int halMemFree(void *pp)
{
	static int (*real)(void *);

	if (!real)
		*(void **)&real = dlsym(RTLD_DEFAULT, "halMemFreeInner");
	row("FREE", pp, 0);
	return real(pp);
}
