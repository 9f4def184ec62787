/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * storm COUNTER threads TOTAL AT_ONCE: TOTAL threads, AT_ONCE of them alive, three events each.
 * storm COUNTER forks THREADS EACH: THREADS threads that fork EACH children: some record, some do
 * not, some fork again, some exec; all counted in the file.
 */
#include "counted.h"

#include <pthread.h>
#include <string.h>
#include <sys/wait.h>

static const char *self, *counter;
static unsigned each;

static void *three_events(void *arg)
{
	(void)arg;
	void *a = counted_alloc(0, 4096);
	void *b = counted_alloc(0, 8192);
	counted_free(0, a);
	return b;
}

static int threads(unsigned total, unsigned at_once)
{
	pthread_t *thread = calloc(at_once, sizeof(*thread));
	pthread_attr_t attr;

	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, 65536);
	for (unsigned done = 0; done < total; done += at_once) {
		for (unsigned i = 0; i < at_once; i++)
			if (pthread_create(&thread[i], &attr, three_events, NULL))
				return 97;
		for (unsigned i = 0; i < at_once; i++) {
			void *left;
			pthread_join(thread[i], &left);
			counted_free(0, left);
		}
	}
	free(thread);
	return 0;
}

static void reap(pid_t pid, int expected)
{
	int status;

	if (pid <= 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status) ||
	    WEXITSTATUS(status) != expected)
		_exit(96);
}

static void child(unsigned kind)
{
	pid_t pid;

	switch (kind % 5) {
	case 0: /* records, ends without a word */
		counted_churn(0, 20);
		_exit(3);
	case 1: /* never records */
		_exit(3);
	case 2: /* a grandchild records, the child does not */
		pid = fork();
		if (pid == 0) {
			counted_churn(0, 10);
			_exit(4);
		}
		reap(pid, 4);
		_exit(3);
	case 3: /* before, in between, after */
		counted_churn(0, 5);
		pid = fork();
		if (pid == 0) {
			counted_churn(0, 5);
			_exit(5);
		}
		counted_churn(0, 5);
		reap(pid, 5);
		_exit(3);
	default: /* becomes another program */
		counted_churn(0, 5);
		execl(self, self, counter, "once", "0", "0", (char *)NULL);
		_exit(95);
	}
}

static void *forker(void *arg)
{
	for (unsigned i = 0; i < each; i++) {
		counted_churn(0, 3);
		pid_t pid = fork();
		if (pid == 0)
			child(i + (unsigned)(uintptr_t)arg);
		reap(pid, 3);
	}
	return NULL;
}

static int forks(unsigned n)
{
	pthread_t thread[64];

	for (uintptr_t i = 0; i < n; i++)
		pthread_create(&thread[i], NULL, forker, (void *)i);
	for (unsigned i = 0; i < n; i++)
		pthread_join(thread[i], NULL);
	return 0;
}

int main(int argc, char **argv)
{
	int r = 98;

	if (argc != 5)
		return r;
	self = "/proc/self/exe";
	counter = argv[1];
	counted_open(argv[1]);
	unsigned a = (unsigned)atoi(argv[3]), b = (unsigned)atoi(argv[4]);
	if (!strcmp(argv[2], "threads")) {
		r = threads(a, b);
	} else if (!strcmp(argv[2], "forks") && a <= 64) {
		each = b;
		r = forks(a);
	} else if (!strcmp(argv[2], "once")) {
		counted_churn(0, 7);
		return 3;
	}
	puts(r ? "bad" : "calm");
	return r;
}
