/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "daemon/sinks/outbox.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "base/background.h"
#include "base/mem.h"

#define LOG_AREA "metrics"
#include "base/log.h"

#define MAX_TRIES 6
#define FIRST_PAUSE_S 1 /* doubled after every try: 31 seconds in all */
#define LEAVE_S 1 /* for what is queued when the end comes */

struct outbox {
	struct outbox_options o;
	int end_fd; /* a timer: readable when there is no more time */
	_Atomic int users; /* the thread and the loop: the last one frees it */

	pthread_mutex_t lock; /* of everything below */
	pthread_cond_t wake;
	bool stop; /* deliver what is there, then end */
	bool failing; /* which is logged once */
	struct outbox_item *first, **last;
	unsigned items;
	size_t bytes;
};

static void free_items(struct outbox_item *items)
{
	while (items) {
		struct outbox_item *next = items->next;

		free(items);
		items = next;
	}
}

/* Takes a chain of at most OUTBOX_BATCH items; NULL: it is time to end. */
static struct outbox_item *take_batch(struct outbox *b, unsigned *out_n)
{
	unsigned n = 0;

	pthread_mutex_lock(&b->lock);
	while (!b->first && !b->stop)
		pthread_cond_wait(&b->wake, &b->lock);
	struct outbox_item *batch = b->first, **at = &b->first;
	for (; *at && n < OUTBOX_BATCH; n++) {
		b->bytes -= (*at)->bytes;
		at = &(*at)->next;
	}
	if (batch) {
		struct outbox_item *rest = *at;

		*at = NULL;
		if (!rest)
			b->last = &b->first;
		b->first = rest;
	}
	b->items -= n;
	pthread_mutex_unlock(&b->lock);
	*out_n = n;
	return batch;
}

/* False: there is no time for another try. */
static bool pause_before_retry(struct outbox *b, unsigned seconds)
{
	struct timespec until;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += seconds;
	pthread_mutex_lock(&b->lock);
	int e = 0;
	while (!b->stop && e != ETIMEDOUT)
		e = pthread_cond_timedwait(&b->wake, &b->lock, &until);
	bool go_on = !b->stop;
	pthread_mutex_unlock(&b->lock);
	return go_on;
}

static void log_outcome(struct outbox *b, int r, const struct err *err)
{
	if (r < 0 && !b->failing)
		log_warn("cannot deliver metrics to %s: %s", b->o.name, err->text);
	else if (r >= 0 && b->failing)
		log_info("metrics are delivered to %s again", b->o.name);
	b->failing = r < 0;
}

static void deliver_batch(struct outbox *b, const struct outbox_item *batch, unsigned n)
{
	unsigned pause = FIRST_PAUSE_S;
	int r = -EAGAIN;

	for (unsigned tries = 0; r == -EAGAIN && tries < MAX_TRIES; tries++) {
		struct err err = {0};

		if (tries && !pause_before_retry(b, pause))
			break;
		if (tries)
			pause *= 2;
		r = b->o.deliver(b->o.arg, batch, &err);
		log_outcome(b, r, &err);
	}
	unsigned lost = r < 0 ? n : (unsigned)r;
	atomic_fetch_add(b->o.delivered, n - lost);
	atomic_fetch_add(b->o.dropped, lost);
}

static void unref_outbox(struct outbox *b)
{
	if (atomic_fetch_sub(&b->users, 1) > 1)
		return;
	free_items(b->first);
	pthread_cond_destroy(&b->wake);
	pthread_mutex_destroy(&b->lock);
	close(b->end_fd);
	free(b);
}

static void outbox_main(void *arg)
{
	struct outbox *b = arg;
	struct outbox_item *batch;
	unsigned n;

	while ((batch = take_batch(b, &n))) {
		deliver_batch(b, batch, n);
		free_items(batch);
	}
	b->o.end(b->o.arg);
	unref_outbox(b);
}

int outbox_new(const struct outbox_options *o, struct outbox **out, struct err *err)
{
	pthread_condattr_t attr;
	int fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);

	if (fd < 0)
		return err_sys(err, -errno, "cannot make a timer");
	struct outbox *b = xcalloc(1, sizeof(*b));
	b->o = *o;
	b->end_fd = fd;
	b->users = 2;
	b->last = &b->first;
	pthread_mutex_init(&b->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&b->wake, &attr);
	pthread_condattr_destroy(&attr);
	*out = b; /* before the thread, which may ask for it */
	int r = background_run(o->name, outbox_main, b);
	if (r < 0) {
		*out = NULL;
		b->users = 1;
		unref_outbox(b);
		return err_sys(err, r, "cannot start a thread");
	}
	return 0;
}

void outbox_put(struct outbox *b, const void *data, size_t bytes)
{
	struct outbox_item *item = NULL;

	pthread_mutex_lock(&b->lock);
	if (b->items < b->o.max_items && bytes <= OUTBOX_BYTES - b->bytes) {
		item = xmalloc(sizeof(*item) + bytes);
		item->next = NULL;
		item->bytes = bytes;
		memcpy(item->data, data, bytes);
		*b->last = item;
		b->last = &item->next;
		b->items++;
		b->bytes += bytes;
		pthread_cond_signal(&b->wake);
	}
	pthread_mutex_unlock(&b->lock);
	if (!item)
		atomic_fetch_add(b->o.dropped, 1);
}

void outbox_free(struct outbox *b)
{
	const struct itimerspec leave = {.it_value.tv_sec = LEAVE_S};

	pthread_mutex_lock(&b->lock);
	if (timerfd_settime(b->end_fd, 0, &leave, NULL) < 0)
		log_debug("cannot set the end of the thread of %s", b->o.name);
	b->stop = true;
	pthread_cond_signal(&b->wake);
	pthread_mutex_unlock(&b->lock);
	unref_outbox(b);
}

int outbox_end_fd(const struct outbox *b)
{
	return b->end_fd;
}
