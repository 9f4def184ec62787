/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "base/background.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"

#define LOG_AREA "background"
#include "base/log.h"

struct background {
	const char *name;
	void (*fn)(void *arg);
	void *arg;
	struct background *next, **link;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of everything below */
static pthread_cond_t one_ended = PTHREAD_COND_INITIALIZER;
static struct background *running;

static void add_to_list(struct background *b)
{
	pthread_mutex_lock(&lock);
	b->next = running;
	b->link = &running;
	if (b->next)
		b->next->link = &b->next;
	running = b;
	pthread_mutex_unlock(&lock);
}

static void remove_from_list(struct background *b)
{
	pthread_mutex_lock(&lock);
	*b->link = b->next;
	if (b->next)
		b->next->link = b->link;
	free(b);
	pthread_cond_broadcast(&one_ended);
	pthread_mutex_unlock(&lock);
}

static void *background_main(void *arg)
{
	struct background *b = arg;

	b->fn(b->arg);
	remove_from_list(b);
	return NULL;
}

int background_run(const char *name, void (*fn)(void *arg), void *arg)
{
	struct background *b = xcalloc(1, sizeof(*b));
	sigset_t all, before;
	pthread_attr_t attr;
	pthread_t thread;

	*b = (struct background){.name = name, .fn = fn, .arg = arg};
	add_to_list(b);
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	/* signals are for the loop */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	int e = pthread_create(&thread, &attr, background_main, b);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attr);
	if (e)
		remove_from_list(b);
	return -e;
}

/* A destructor of a driver's library would wait for what the thread inside it holds. */
static void leave_at_once(int status, void *arg)
{
	(void)arg;
	fflush(NULL);
	_exit(status);
}

static unsigned count_running(const char *name)
{
	unsigned n = 0;

	for (const struct background *b = running; b; b = b->next)
		n += !name || !strcmp(b->name, name);
	return n;
}

unsigned background_wait(const char *name, unsigned ms)
{
	struct timespec until;
	int e = 0;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += ms / 1000;
	until.tv_nsec += (long)(ms % 1000) * 1000000;
	if (until.tv_nsec >= 1000000000) {
		until.tv_nsec -= 1000000000;
		until.tv_sec++;
	}
	pthread_mutex_lock(&lock);
	while (count_running(name) && e != ETIMEDOUT)
		e = pthread_cond_clockwait(&one_ended, &lock, CLOCK_MONOTONIC, &until);
	unsigned left = count_running(name);
	for (const struct background *b = running; b; b = b->next)
		if (!name || !strcmp(b->name, name))
			log_warn("%s still hangs: left behind", b->name);
	pthread_mutex_unlock(&lock);
	if (left)
		on_exit(leave_at_once, NULL);
	return left;
}
