/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Traces are written beside everything else: that of millions of activities takes seconds, in which
 * the rings of other ranks would fill up. One thread, while there is something to write; it has
 * each trace for itself.
 */
#define LOG_AREA "trace"
#include "activity/files/db_vfs.h"
#include "activity/trace/trace_impl.h"
#include "base/log.h"
#include "base/mem.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

static struct {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct trace_state *first, **end;
	bool runs;
} queue = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void write_one(struct trace_state *t)
{
	struct err err = {0};

	if (trace_files_write(t, &err) < 0)
		log_err("process %u: the trace of request %s is not written: %s", t->w->pid,
			t->request, err.text);
	trace_free(t);
}

static void *writer(void *arg)
{
	(void)arg;
	pthread_mutex_lock(&queue.lock);
	while (queue.first) {
		struct trace_state *t = queue.first;

		queue.first = t->next;
		pthread_mutex_unlock(&queue.lock);
		write_one(t);
		pthread_mutex_lock(&queue.lock);
	}
	queue.runs = false;
	pthread_cond_broadcast(&queue.changed);
	pthread_mutex_unlock(&queue.lock);
	return NULL;
}

static bool start(void)
{
	sigset_t all, was;
	pthread_t thread;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &was);
	bool ok = pthread_create(&thread, NULL, writer, NULL) == 0;
	pthread_sigmask(SIG_SETMASK, &was, NULL);
	if (ok)
		pthread_detach(thread);
	return ok;
}

/* What the window is about to take with it. */
static void part(struct trace_state *t)
{
	t->own = *t->w;
	t->own.state = NULL;
	t->own.names = NULL;
	t->own.senders = NULL;
	t->own.text = xstrndup(t->w->text, t->w->text_len);
	t->own.groups = t->w->groups ? xstrdup(t->w->groups) : NULL;
	t->w = &t->own;
	trace_request_read(t->own.text, t->own.text_len, &t->own.trace);
}

void trace_writer_add(struct trace_state *t)
{
	(void)activity_db_vfs(); /* made before two threads want it */
	part(t);
	pthread_mutex_lock(&queue.lock);
	if (!queue.first)
		queue.end = &queue.first;
	*queue.end = t;
	queue.end = &t->next;
	if (!queue.runs)
		queue.runs = start();
	bool alone = !queue.runs;
	if (alone)
		queue.first = NULL; /* there was nobody before it, or there would be a thread */
	pthread_mutex_unlock(&queue.lock);
	if (alone)
		write_one(t);
}

bool window_trace_writes(void)
{
	pthread_mutex_lock(&queue.lock);
	bool runs = queue.runs;
	pthread_mutex_unlock(&queue.lock);
	return runs;
}

void window_trace_wait(void)
{
	pthread_mutex_lock(&queue.lock);
	while (queue.runs)
		pthread_cond_wait(&queue.changed, &queue.lock);
	pthread_mutex_unlock(&queue.lock);
}
