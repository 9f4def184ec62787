/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * signals COUNTER HOW MS: allocates in a loop for MS milliseconds, while a timer interrupts it a
 * thousand times a second with a handler that allocates as well. HOW: plain, altstack, jump (the
 * handler leaves by siglongjmp), nested (two timers whose handlers interrupt each other).
 */
#include "counted.h"

#include <setjmp.h>
#include <signal.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>

/*
 * The driver of this job: no lock, so that a signal handler may interrupt it and jump out of it.
 * The hooks prefer the inner names.
 */
int halMemAllocInner(void **pp, unsigned long long size, unsigned long long flag)
{
	static _Atomic uint64_t next = 0x100000000000;

	(void)flag;
	*pp = (void *)(uintptr_t)atomic_fetch_add(&next, (size + 4095) & ~4095ull);
	return 0;
}

int halMemFreeInner(void *pp)
{
	(void)pp;
	return 0;
}

static volatile sig_atomic_t jumps, inside;
static sigjmp_buf back;
static volatile int may_jump;

static void on_timer(int sig)
{
	unsigned word = 1 + (unsigned)inside++;

	void *p = counted_alloc(word, 4096 + (unsigned)sig);
	counted_free(word, p);
	inside--;
	if (may_jump) {
		jumps++;
		siglongjmp(back, 1);
	}
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void start_timer(int which, int sig, int flags, int us)
{
	struct itimerval every = {{0, us}, {0, us}};
	struct sigaction sa = {.sa_handler = on_timer, .sa_flags = flags};

	sigaction(sig, &sa, NULL);
	setitimer(which, &every, NULL);
}

static void stop_timer(int which)
{
	struct itimerval none = {{0, 0}, {0, 0}};

	setitimer(which, &none, NULL);
}

int main(int argc, char **argv)
{
	static char stack[65536];
	stack_t alt = {.ss_sp = stack, .ss_size = sizeof(stack)};

	if (argc != 4)
		return 98;
	counted_open(argv[1]);
	int jump = !strcmp(argv[2], "jump"), on_alt = !strcmp(argv[2], "altstack");
	double until = now() + atoi(argv[3]) / 1000.0;
	if (on_alt)
		sigaltstack(&alt, NULL);
	start_timer(ITIMER_REAL, SIGALRM, on_alt ? SA_ONSTACK : SA_RESTART, 1000);
	if (!strcmp(argv[2], "nested"))
		start_timer(ITIMER_PROF, SIGPROF, SA_RESTART, 1300);
	if (jump)
		sigsetjmp(back, 1);
	may_jump = jump;
	while (now() < until) {
		void *p = counted_alloc(0, 4096);
		counted_free(0, p);
	}
	may_jump = 0;
	stop_timer(ITIMER_REAL);
	stop_timer(ITIMER_PROF);
	/* The rest of the job, after all the jumps. */
	for (int i = 0; i < 5000; i++)
		counted_free(100, counted_alloc(100, 4096));
	if (jump && !jumps)
		return 97;
	puts("signals");
	return 0;
}
