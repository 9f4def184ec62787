/* SPDX-License-Identifier: MulanPSL-2.0 */

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/background.h"
#include "base/clock.h"
#include "base/mem.h"
#include "daemon/loop.h"
#include "daemon/metrics/metrics_impl.h"

#define LOG_AREA "metrics"
#include "base/log.h"

#define MAX_WAITING 1024 /* samples that the loop has not taken yet */

struct reader {
	struct reader_options o;
	struct event *arrived, *watch;
	int fd; /* eventfd: the thread wakes the loop */
	_Atomic int users; /* the thread and the loop: the last one frees it */

	pthread_mutex_t lock; /* of everything below */
	pthread_cond_t wake;
	bool stop, ended;
	bool paused, pause_done; /* what is asked for, and what is so */
	enum reader_state state;
	uint64_t round_began_ns; /* 0: between two rounds */
	bool hang_logged;
	uint64_t failures;
	char why[256];
	struct stored *first, **last;
	unsigned waiting;
};

static struct stored *take_all(struct reader *r, bool *out_ended)
{
	pthread_mutex_lock(&r->lock);
	struct stored *all = r->first;
	r->first = NULL;
	r->last = &r->first;
	r->waiting = 0;
	*out_ended = r->ended;
	pthread_mutex_unlock(&r->lock);
	return all;
}

static void unref_reader(struct reader *r)
{
	bool ended;

	if (atomic_fetch_sub(&r->users, 1) > 1)
		return;
	for (struct stored *s = take_all(r, &ended), *next; s; s = next) {
		next = s->next;
		free(s);
	}
	pthread_cond_destroy(&r->wake);
	pthread_mutex_destroy(&r->lock);
	close(r->fd);
	free(r);
}

/* --- the thread --- */

static void keep_sample(void *arg, const struct sample *sample)
{
	struct reader *r = arg;
	struct stored *s = stored_copy(sample);

	pthread_mutex_lock(&r->lock);
	if (r->waiting < MAX_WAITING) {
		*r->last = s;
		r->last = &s->next;
		r->waiting++;
		s = NULL;
	}
	pthread_mutex_unlock(&r->lock);
	free(s);
}

static void wake_loop(struct reader *r)
{
	uint64_t one = 1;

	if (write(r->fd, &one, sizeof(one)) < 0)
		log_debug("'%s' has data that nobody waits for", r->o.source->name);
}

static void read_round(struct reader *r, void *self)
{
	struct err err = {0};

	pthread_mutex_lock(&r->lock);
	r->round_began_ns = clock_mono_ns();
	bool paused = r->paused, change = paused != r->pause_done;
	pthread_mutex_unlock(&r->lock);

	if (change && r->o.source->pause(self, paused) < 0)
		log_warn("'%s' cannot %s its hardware counters", r->o.source->name,
			 paused ? "pause" : "resume");
	int e = r->o.source->read(self, keep_sample, r, &err);

	pthread_mutex_lock(&r->lock);
	r->pause_done = paused;
	r->round_began_ns = 0;
	r->hang_logged = false;
	if (e < 0) {
		r->failures++;
		snprintf(r->why, sizeof(r->why), "%.255s", err.text);
	}
	pthread_mutex_unlock(&r->lock);
	wake_loop(r);
}

/* True when the reader is to end. */
static bool wait_interval(struct reader *r)
{
	struct timespec until;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += r->o.interval_s;
	pthread_mutex_lock(&r->lock);
	int e = 0;
	while (!r->stop && r->paused == r->pause_done && e != ETIMEDOUT)
		e = pthread_cond_timedwait(&r->wake, &r->lock, &until);
	bool stop = r->stop;
	pthread_mutex_unlock(&r->lock);
	return stop;
}

static void set_state(struct reader *r, enum reader_state state, const struct err *err)
{
	pthread_mutex_lock(&r->lock);
	r->state = state;
	r->round_began_ns = 0;
	if (err)
		snprintf(r->why, sizeof(r->why), "%.255s", err->text);
	pthread_mutex_unlock(&r->lock);
}

static void reader_main(void *arg)
{
	struct reader *r = arg;
	const char *name = r->o.source->name;
	struct err err = {0};
	void *self = NULL;
	int e = r->o.source->open(&self, &r->o.options, &err);

	if (e < 0) {
		set_state(r, e == -ENOENT ? READER_ABSENT : READER_FAILED, &err);
		if (e != -ENOENT || r->o.requested)
			log_warn("no metrics of source '%s': %s", name, err.text);
		else
			log_debug("no metrics of source '%s': %s", name, err.text);
	} else {
		set_state(r, READER_WORKS, NULL);
		log_info("metrics of source '%s' every %u s", name, r->o.interval_s);
		do
			read_round(r, self);
		while (!wait_interval(r));
		r->o.source->close(self);
	}
	pthread_mutex_lock(&r->lock);
	r->ended = true;
	pthread_mutex_unlock(&r->lock);
	wake_loop(r);
	unref_reader(r);
}

/* --- the loop --- */

static void on_arrived(evutil_socket_t fd, short what, void *arg)
{
	struct reader *r = arg;
	uint64_t count;
	bool ended;

	(void)what;
	if (read(fd, &count, sizeof(count)) < 0)
		return;
	for (struct stored *s = take_all(r, &ended); s;) {
		struct stored *next = s->next;

		r->o.fn(r->o.arg, &s->sample);
		free(s);
		s = next;
	}
	if (ended)
		event_del(r->watch); /* nothing can hang any more */
}

/* Since when a round hangs, if that has not been logged yet; else 0. */
static double newly_hanging(struct reader *r)
{
	double seconds = 0;

	pthread_mutex_lock(&r->lock);
	if (r->round_began_ns && !r->hang_logged)
		seconds = (double)(clock_mono_ns() - r->round_began_ns) / 1e9;
	if (seconds < READER_HANGS_S)
		seconds = 0;
	else
		r->hang_logged = true;
	pthread_mutex_unlock(&r->lock);
	return seconds;
}

static void on_watch(evutil_socket_t fd, short what, void *arg)
{
	struct reader *r = arg;
	double seconds = newly_hanging(r);

	(void)fd, (void)what;
	if (seconds > 0)
		log_warn("reading source '%s' hangs since %.0f s: its driver does not answer",
			 r->o.source->name, seconds);
}

static struct reader *prepare_reader(struct event_base *base, const struct reader_options *o,
				     int fd)
{
	struct reader *r = xcalloc(1, sizeof(*r));
	pthread_condattr_t attr;

	r->o = *o;
	r->fd = fd;
	r->users = 2;
	r->last = &r->first;
	r->round_began_ns = clock_mono_ns(); /* opening may hang as well */
	pthread_mutex_init(&r->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&r->wake, &attr);
	pthread_condattr_destroy(&attr);
	r->arrived = loop_event_new(base, fd, EV_READ | EV_PERSIST, DAEMON_PRIORITY_METRICS,
				    on_arrived, r);
	r->watch = loop_event_new(base, -1, EV_PERSIST, DAEMON_PRIORITY_METRICS, on_watch, r);
	event_add(r->arrived, NULL);
	event_add(r->watch, &(struct timeval){.tv_sec = READER_HANGS_S});
	return r;
}

int reader_new(struct event_base *base, const struct reader_options *o, struct reader **out,
	       struct err *err)
{
	int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);

	if (fd < 0)
		return err_sys(err, -errno, "cannot make an event for source '%s'",
			       o->source->name);
	struct reader *r = prepare_reader(base, o, fd);
	int e = background_run(o->source->name, reader_main, r);
	if (e < 0) {
		r->users = 1;
		reader_free(r);
		return err_sys(err, e, "cannot start a thread for source '%s'", o->source->name);
	}
	*out = r;
	return 0;
}

void reader_free(struct reader *r)
{
	if (!r)
		return;
	event_free(r->arrived);
	event_free(r->watch);
	pthread_mutex_lock(&r->lock);
	r->stop = true;
	pthread_cond_signal(&r->wake);
	pthread_mutex_unlock(&r->lock);
	unref_reader(r);
}

bool reader_pause(struct reader *r, bool paused)
{
	pthread_mutex_lock(&r->lock);
	bool can = r->state == READER_WORKS && r->o.source->pause;
	if (can) {
		r->paused = paused;
		pthread_cond_signal(&r->wake);
	}
	pthread_mutex_unlock(&r->lock);
	return can;
}

struct reader_info reader_info(struct reader *r)
{
	struct reader_info i = {.source = r->o.source->name, .has_thread = true};

	pthread_mutex_lock(&r->lock);
	i.state = r->state;
	if (r->round_began_ns)
		i.round_s = (double)(clock_mono_ns() - r->round_began_ns) / 1e9;
	i.failures = r->failures;
	snprintf(i.why, sizeof(i.why), "%s", r->why);
	pthread_mutex_unlock(&r->lock);
	return i;
}

const char *reader_state_text(enum reader_state state)
{
	static const char *const texts[] = {"opening", "absent", "failed", "works"};

	return texts[state];
}
