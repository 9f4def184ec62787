/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "memory/dump/write_behind.h"

#include "base/fs.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#define MAX_THREADS 4
#define STACK_BYTES (512u << 10) /* libraries keep data of each thread there, too */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of everything below */
static pthread_cond_t queued = PTHREAD_COND_INITIALIZER;
static pthread_cond_t written = PTHREAD_COND_INITIALIZER;
static struct write_behind *first, **last = &first;
static unsigned threads, idle;
static pid_t owner; /* of the threads: a process that was forked has none */

static void write_one(struct write_behind *w)
{
	w->result = fs_write_all(w->fd, w->data, w->len, (int64_t)w->at, &w->done);
}

/* Of the queue, which is locked. */
static struct write_behind *take_first(void)
{
	struct write_behind *w = first;

	first = w->next;
	if (!first)
		last = &first;
	return w;
}

static void *run_thread(void *arg)
{
	pthread_mutex_lock(&lock);
	for (;;) {
		idle++;
		while (!first)
			pthread_cond_wait(&queued, &lock);
		idle--;
		struct write_behind *w = take_first();
		pthread_mutex_unlock(&lock);
		write_one(w);
		pthread_mutex_lock(&lock);
		w->waiting = false;
		pthread_cond_broadcast(&written);
	}
	return arg;
}

static bool start_thread(void)
{
	sigset_t all, before;
	pthread_attr_t attr;
	pthread_t thread;

	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attr, STACK_BYTES);
	sigfillset(&all); /* signals are for others */
	pthread_sigmask(SIG_SETMASK, &all, &before);
	int e = pthread_create(&thread, &attr, run_thread, NULL);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attr);
	return e == 0;
}

/* A thread that will do it, now or when it has done what it does. */
static bool have_thread(void)
{
	pid_t us = getpid();

	if (owner && owner != us)
		return false;
	owner = us;
	if (!idle && threads < MAX_THREADS && start_thread())
		threads++;
	return threads > 0;
}

void write_behind_start(struct write_behind *w)
{
	pthread_mutex_lock(&lock);
	w->waiting = have_thread();
	if (w->waiting) {
		w->next = NULL;
		*last = w;
		last = &w->next;
		pthread_cond_signal(&queued);
	}
	bool waiting = w->waiting;
	pthread_mutex_unlock(&lock);
	if (!waiting)
		write_one(w);
}

void write_behind_wait(struct write_behind *w)
{
	pthread_mutex_lock(&lock);
	while (w->waiting)
		pthread_cond_wait(&written, &lock);
	pthread_mutex_unlock(&lock);
}
