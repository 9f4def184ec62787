/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * small_stack WHAT: allocates in signal handlers that run on an alternate stack of 4 KiB, or the
 * least that the kernel takes for its own part and a kilobyte. Below it is a page that
 * nobody may touch. WHAT: heap, driver, fork (heap, in a child that is born in a handler), beside (as
 * driver, with that stack not far below the TLS of the main thread), thread (the same in a thread
 * that has a stack of 64 KiB).
 */
#include "hal/ascend_hal.h"

#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define LEFT 1280 /* for the handler: enough for an event, less than a call stack needs */
#define ROUNDS 12000

static int heap;
static volatile unsigned handled;
static volatile pid_t child = -1;
static int may_fork;

/* The driver of this job: a few bytes of stack. */
int halMemAllocInner(void **pp, unsigned long long size, unsigned long long flag)
{
	static uint64_t next = 0x100000000000;

	(void)flag;
	*pp = (void *)(uintptr_t)__atomic_fetch_add(&next, (size + 4095) & ~4095ull,
						    __ATOMIC_RELAXED);
	return 0;
}

int halMemFreeInner(void *pp)
{
	(void)pp;
	return 0;
}

static void use_memory(void)
{
	void *p = NULL;

	if (heap) {
		p = malloc(100);
		*(volatile char *)p = 1;
		free(p);
	} else if (halMemAlloc(&p, 100, (uint64_t)HAL_VIRT_DEV << HAL_FLAG_VIRT_SHIFT) == 0) {
		halMemFree(p);
	}
}

static void on_signal(int sig)
{
	(void)sig;
	if (may_fork && handled == 10)
		child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
	use_memory();
	handled++;
}

/* The first free pages below the TLS of this thread, or below its stack; any, if all are in use. */
static char *map_beside(size_t bytes)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	char *at = (char *)((uintptr_t)pthread_self() / page * page);

	for (size_t down = bytes; down < 7u << 20; down += page) {
		char *p = mmap(at - down, bytes, PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
		if (p == at - down)
			return p;
		if (p != MAP_FAILED)
			munmap(p, bytes);
	}
	return mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

static volatile uintptr_t handler_sp;

static void note_sp(int sig)
{
	(void)sig;
	handler_sp = (uintptr_t)__builtin_frame_address(0);
}

/* What the kernel takes of such a stack before a handler runs. Less than AT_MINSIGSTKSZ, which is for
 * registers, too, that this program may not use. */
static size_t measure_kernels_part(void)
{
	static char large[64 << 10];
	struct sigaction sa = {.sa_handler = note_sp, .sa_flags = SA_ONSTACK};
	stack_t alt = {.ss_sp = large, .ss_size = sizeof(large)};

	if (sigaction(SIGUSR2, &sa, NULL) || sigaltstack(&alt, NULL) || raise(SIGUSR2))
		_exit(96);
	return (uintptr_t)large + sizeof(large) - handler_sp;
}

static void set_stack(int beside)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	size_t size = measure_kernels_part() + LEFT;

	if (size < 4096)
		size = 4096;
	size_t whole = (size + page - 1) / page * page;
	char *p = beside ? map_beside(whole + page)
			 : mmap(NULL, whole + page, PROT_READ | PROT_WRITE,
				MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	stack_t alt = {.ss_sp = p + page, .ss_size = size};
	if (p == MAP_FAILED || mprotect(p, page, PROT_NONE) || sigaltstack(&alt, NULL))
		_exit(99);
}

/* From many frames, which a call stack of the handler would have to show. */
static __attribute__((noinline)) unsigned descend(unsigned depth)
{
	if (depth)
		return descend(depth - 1) | (depth > 1000);
	raise(SIGUSR1);
	return 0;
}

static void *get_signals(void *beside)
{
	set_stack(beside != NULL);
	use_memory();
	(void)syscall(SYS_getpid); /* known to the loader by now */
	for (unsigned i = 0; i < ROUNDS; i++)
		descend(60);
	return NULL;
}

static void run_thread(void)
{
	pthread_attr_t attr;
	pthread_t thread;

	pthread_attr_init(&attr);
	if (pthread_attr_setstacksize(&attr, 65536) ||
	    pthread_create(&thread, &attr, get_signals, &heap) || pthread_join(thread, NULL))
		_exit(97);
}

int main(int argc, char **argv)
{
	struct sigaction sa = {.sa_handler = on_signal, .sa_flags = SA_ONSTACK};

	int status = 0;

	if (argc != 2)
		return 98;
	may_fork = !strcmp(argv[1], "fork");
	heap = may_fork || !strcmp(argv[1], "heap");
	sigaction(SIGUSR1, &sa, NULL);
	if (!strcmp(argv[1], "thread"))
		run_thread();
	else
		get_signals(strcmp(argv[1], "beside") ? NULL : argv);
	use_memory();
	if (!child)
		_exit(handled == ROUNDS ? 4 : 5);
	if (child > 0 && waitpid(child, &status, 0) == child)
		printf("child %d, ", WEXITSTATUS(status));
	printf("%u signals\n", handled);
	return 3;
}
