/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * steady COUNTER THREADS EVENTS PACE HOW: allocates and frees in THREADS threads, EVENTS pairs each
 * (0: for ever), PACE of them between naps of a millisecond (0: no naps), and ends by HOW:
 *
 *	return, exit, thread-exit (by the second thread), _exit, quick_exit, abort,
 *	segv, kill, orphan (SIGKILL when the parent dies), leak (return without freeing),
 *	keep (return, and nothing is ever freed: every event is an allocation of its own)
 */
#include "counted.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

static unsigned long events, pace;
static const char *how;
static unsigned nthreads;

static void end_now(void)
{
	if (!strcmp(how, "_exit"))
		_exit(5);
	if (!strcmp(how, "quick_exit"))
		quick_exit(6);
	if (!strcmp(how, "abort"))
		abort();
	if (!strcmp(how, "segv"))
		raise(SIGSEGV);
	if (!strcmp(how, "kill"))
		kill(getpid(), SIGKILL);
	if (strstr(how, "exit"))
		exit(7);
}

static void *work(void *arg)
{
	unsigned me = (unsigned)(uintptr_t)arg;
	void *live[8] = {0};
	struct timespec ms = {0, 1000000};
	int keeps = !strcmp(how, "keep");
	unsigned ender = !strcmp(how, "thread-exit") ? 1 : 0;
	/* One thread ends the process; the others go on as if nothing had been said. */
	unsigned long n =
		me == ender || !strcmp(how, "return") || !strcmp(how, "leak") || keeps ? events : 0;

	for (unsigned long i = 0; !n || i < n; i++) {
		if (!keeps)
			counted_free(me, live[i % 8]);
		live[i % 8] = counted_alloc(me, 4096 * (1 + i % 5));
		if (pace && i % pace == pace - 1)
			nanosleep(&ms, NULL);
	}
	if (me == ender)
		end_now();
	for (unsigned i = 0; i < 8 && strcmp(how, "leak") && !keeps; i++)
		counted_free(me, live[i]);
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t thread[64];

	if (argc != 6)
		return 98;
	nthreads = (unsigned)atoi(argv[2]);
	events = strtoul(argv[3], NULL, 10);
	pace = strtoul(argv[4], NULL, 10);
	how = argv[5];
	if (!nthreads || nthreads > 64)
		return 98;
	if (!strcmp(how, "orphan"))
		prctl(PR_SET_PDEATHSIG, SIGKILL);
	counted_open(argv[1]);
	for (uintptr_t i = 1; i < nthreads; i++)
		pthread_create(&thread[i], NULL, work, (void *)i);
	work(NULL);
	for (unsigned i = 1; i < nthreads; i++)
		pthread_join(thread[i], NULL);
	puts("done");
	return 0;
}
