/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * On a busy machine the thread waits for a processor, too. The kernel counts that time: what was
 * added to it since the thread lay down to sleep is how long ago it was woken.
 *
 *	sleeps ------------- the end ~~~~~~~~ runs, reads the clock
 *	                     |<-- run delay -->|
 */
#include "recorder/ends/end_times.h"

#include "base/clock.h"
#include "base/containers/hmap.h"
#include "base/mem.h"
#include "base/sched_latency.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#define MAX_AT_ONCE 64
#define WAIT_NS 100000000
#define STOP UINT64_MAX /* the number of the descriptor that ends the thread */

struct end_times {
	int epoll, stop;
	pthread_t thread;
	pthread_mutex_t lock; /* of the map */
	pthread_cond_t noted;
	struct hmap times; /* number: 0 while it runs, then the time */
};

/* Nanoseconds that the thread waited for a processor in its life; 0 where that is not counted. */
static uint64_t read_run_delay(int fd)
{
	char text[96];
	ssize_t n = fd < 0 ? -1 : pread(fd, text, sizeof(text) - 1, 0);
	unsigned long long ran, waited;

	if (n <= 0)
		return 0;
	text[n] = '\0';
	return sscanf(text, "%llu %llu", &ran, &waited) == 2 ? waited : 0;
}

static bool note_ends(struct end_times *t, const struct epoll_event *events, int n, uint64_t now)
{
	bool stop = false;

	pthread_mutex_lock(&t->lock);
	for (int i = 0; i < n; i++) {
		uint64_t number = events[i].data.u64;

		stop |= number == STOP;
		if (number != STOP && hmap_get(&t->times, number) == 0)
			hmap_put(&t->times, number, now);
	}
	pthread_cond_broadcast(&t->noted);
	pthread_mutex_unlock(&t->lock);
	return !stop;
}

static void *run_thread(void *arg)
{
	struct end_times *t = arg;
	struct epoll_event events[MAX_AT_ONCE];
	int delays = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
	bool go_on = true;

	(void)sched_latency_lower();
	while (go_on) {
		uint64_t before = read_run_delay(delays);
		int n = epoll_wait(t->epoll, events, MAX_AT_ONCE, -1);
		uint64_t now = clock_mono_ns(), after = read_run_delay(delays);

		go_on = n < 0 ? errno == EINTR : note_ends(t, events, n, now - (after - before));
	}
	if (delays >= 0)
		close(delays);
	return NULL;
}

static bool start_thread(struct end_times *t)
{
	struct epoll_event stop = {.events = EPOLLIN, .data.u64 = STOP};
	sigset_t all, before;

	if (t->epoll < 0 || t->stop < 0 || epoll_ctl(t->epoll, EPOLL_CTL_ADD, t->stop, &stop) < 0)
		return false;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	int e = pthread_create(&t->thread, NULL, run_thread, t);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return e == 0;
}

static void release_times(struct end_times *t)
{
	if (t->epoll >= 0)
		close(t->epoll);
	if (t->stop >= 0)
		close(t->stop);
	pthread_mutex_destroy(&t->lock);
	pthread_cond_destroy(&t->noted);
	hmap_release(&t->times);
	free(t);
}

struct end_times *end_times_new(void)
{
	struct end_times *t = xcalloc(1, sizeof(*t));

	pthread_mutex_init(&t->lock, NULL);
	pthread_cond_init(&t->noted, NULL);
	t->epoll = epoll_create1(EPOLL_CLOEXEC);
	t->stop = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (start_thread(t))
		return t;
	release_times(t);
	return NULL;
}

void end_times_free(struct end_times *t)
{
	if (!t)
		return;
	eventfd_write(t->stop, 1);
	pthread_join(t->thread, NULL);
	release_times(t);
}

void end_times_watch(struct end_times *t, int pidfd, uint64_t number)
{
	struct epoll_event e = {.events = EPOLLIN | EPOLLONESHOT, .data.u64 = number};

	if (!t || pidfd < 0)
		return;
	pthread_mutex_lock(&t->lock);
	hmap_put(&t->times, number, 0);
	if (epoll_ctl(t->epoll, EPOLL_CTL_ADD, pidfd, &e) < 0)
		hmap_remove(&t->times, number);
	pthread_mutex_unlock(&t->lock);
}

/* The thread is about to run, too. */
static uint64_t await_time(struct end_times *t, uint64_t number)
{
	struct timespec until;
	uint64_t found;
	int e = 0;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_nsec += WAIT_NS;
	if (until.tv_nsec >= 1000000000) {
		until.tv_nsec -= 1000000000;
		until.tv_sec++;
	}
	pthread_mutex_lock(&t->lock);
	while ((found = hmap_get(&t->times, number)) == 0 && e != ETIMEDOUT)
		e = pthread_cond_clockwait(&t->noted, &t->lock, CLOCK_MONOTONIC, &until);
	pthread_mutex_unlock(&t->lock);
	return found == HMAP_NONE ? 0 : found;
}

uint64_t end_times_get(struct end_times *t, int pidfd, uint64_t number)
{
	struct pollfd p = {.fd = pidfd, .events = POLLIN};

	return t && pidfd >= 0 && poll(&p, 1, 0) > 0 ? await_time(t, number) : 0;
}

void end_times_forget(struct end_times *t, uint64_t number)
{
	if (!t)
		return;
	pthread_mutex_lock(&t->lock);
	hmap_remove(&t->times, number);
	pthread_mutex_unlock(&t->lock);
}
