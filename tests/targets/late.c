/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * late COUNTER: device memory before main() and after it: static constructors and destructors,
 * atexit(), on_exit(), thread-specific destructors, and threads that go on while exit() runs.
 */
#include "counted.h"

#include <pthread.h>

static void *early, *middle;

static const char *argument(int n)
{
	static char text[4096];
	int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
	ssize_t len = read(fd, text, sizeof(text) - 1);
	char *p = text;

	close(fd);
	text[len > 0 ? len : 0] = '\0';
	for (; n > 0 && p < text + len; n--)
		while (*p++)
			;
	return p;
}

__attribute__((constructor(101))) static void before_everybody(void)
{
	counted_open(argument(1));
	early = counted_alloc(0, 4096);
	counted_churn(0, 10);
}

__attribute__((destructor(101))) static void after_everybody(void)
{
	counted_churn(0, 10);
	counted_free(0, early);
}

static void at_exit(void)
{
	counted_churn(0, 10);
	counted_free(0, middle);
}

static void on_exit_too(int status, void *arg)
{
	(void)status;
	(void)arg;
	counted_churn(0, 10);
}

static void end_of_thread(void *p)
{
	counted_free(0, p);
}

static void *thread(void *arg)
{
	pthread_key_t *key = arg;

	pthread_setspecific(*key, counted_alloc(0, 4096));
	return NULL;
}

int main(void)
{
	pthread_key_t key;
	pthread_t t;

	atexit(at_exit);
	on_exit(on_exit_too, NULL);
	pthread_key_create(&key, end_of_thread);
	pthread_create(&t, NULL, thread, &key);
	pthread_join(t, NULL);
	middle = counted_alloc(0, 4096);
	puts("late");
	return 0;
}
