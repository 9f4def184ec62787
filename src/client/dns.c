/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * A thread takes questions until there are none and ends. What the threads and the loop share is
 * counted, and freed by the last to leave: a thread may be stuck in getaddrinfo() for longer than
 * anybody wants its answer.
 */
#include "client/dns.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/queue.h>
#include <unistd.h>

#include "base/background.h"
#include "base/mem.h"

#define MAX_THREADS 64 /* as many names may be unanswered before others must wait */

struct question {
	STAILQ_ENTRY(question) next;
	size_t id;
	char *host;
	struct addrinfo *found;
	int error;
};

STAILQ_HEAD(questions, question);

struct shared {
	pthread_mutex_t lock;
	struct questions asked, answered;
	int wake; /* eventfd: there are answers */
	unsigned threads;
	unsigned users; /* the threads, and the loop */
	bool closed; /* the loop has left */
};

struct client_names {
	struct shared *shared;
	struct event *event;
	client_names_fn fn;
	void *arg;
};

static const struct addrinfo stream_hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_ADDRCONFIG};

struct addrinfo *client_names_numeric(const char *host)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST};
	struct addrinfo *found = NULL;

	return getaddrinfo(host, NULL, &hints, &found) ? NULL : found;
}

static void question_free(struct question *q)
{
	if (q->found)
		freeaddrinfo(q->found);
	free(q->host);
	free(q);
}

static void questions_free(struct questions *list)
{
	struct question *q;

	while ((q = STAILQ_FIRST(list))) {
		STAILQ_REMOVE_HEAD(list, next);
		question_free(q);
	}
}

/* With the lock held, which is gone afterwards. */
static void release_user(struct shared *s)
{
	bool last = --s->users == 0;

	pthread_mutex_unlock(&s->lock);
	if (!last)
		return;
	questions_free(&s->asked);
	questions_free(&s->answered);
	close(s->wake);
	pthread_mutex_destroy(&s->lock);
	free(s);
}

static void resolve_name(struct question *q)
{
	q->error = getaddrinfo(q->host, NULL, &stream_hints, &q->found);
	/* without any address but loopback, AI_ADDRCONFIG may hide all there is */
	if (q->error == EAI_NONAME || q->error == EAI_ADDRFAMILY)
		q->error = getaddrinfo(q->host, NULL,
				       &(struct addrinfo){.ai_socktype = SOCK_STREAM}, &q->found);
	if (q->error)
		q->found = NULL;
}

static void answer_questions(void *arg)
{
	struct shared *s = arg;
	const uint64_t one = 1;
	struct question *q;

	pthread_mutex_lock(&s->lock);
	while (!s->closed && (q = STAILQ_FIRST(&s->asked))) {
		STAILQ_REMOVE_HEAD(&s->asked, next);
		pthread_mutex_unlock(&s->lock);
		resolve_name(q);
		pthread_mutex_lock(&s->lock);
		STAILQ_INSERT_TAIL(&s->answered, q, next);
		if (write(s->wake, &one, sizeof(one)) < 0)
			break; /* the counter of an eventfd does not run full here */
	}
	s->threads--;
	release_user(s);
}

/* With the lock held. */
static int start_thread(struct shared *s)
{
	int r = background_run("lookup of names", answer_questions, s);

	if (r == 0) {
		s->threads++;
		s->users++;
	}
	return r;
}

int client_names_ask(struct client_names *n, size_t id, const char *host)
{
	struct shared *s = n->shared;
	struct question *q = xcalloc(1, sizeof(*q));
	int r = 0;

	q->id = id;
	q->host = xstrdup(host);
	pthread_mutex_lock(&s->lock);
	STAILQ_INSERT_TAIL(&s->asked, q, next);
	if (s->threads < MAX_THREADS)
		r = start_thread(s);
	if (r < 0 && !s->threads)
		STAILQ_REMOVE(&s->asked, q, question, next);
	else
		r = 0; /* those that there are will get to it */
	pthread_mutex_unlock(&s->lock);
	if (r < 0)
		question_free(q);
	return r;
}

static void on_answers(evutil_socket_t fd, short what, void *arg)
{
	struct questions answered = STAILQ_HEAD_INITIALIZER(answered);
	struct client_names *n = arg;
	struct question *q;
	uint64_t count;

	(void)what;
	if (read(fd, &count, sizeof(count)) < 0)
		return;
	pthread_mutex_lock(&n->shared->lock);
	STAILQ_CONCAT(&answered, &n->shared->answered);
	pthread_mutex_unlock(&n->shared->lock);
	while ((q = STAILQ_FIRST(&answered))) {
		struct addrinfo *found = q->found;

		STAILQ_REMOVE_HEAD(&answered, next);
		q->found = NULL;
		n->fn(n->arg, q->id, found, q->error);
		question_free(q);
	}
}

struct client_names *client_names_new(struct event_base *base, client_names_fn fn, void *arg)
{
	struct client_names *n = xcalloc(1, sizeof(*n));
	struct shared *s = xcalloc(1, sizeof(*s));

	pthread_mutex_init(&s->lock, NULL);
	STAILQ_INIT(&s->asked);
	STAILQ_INIT(&s->answered);
	s->users = 1;
	s->wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	n->shared = s;
	n->fn = fn;
	n->arg = arg;
	if (s->wake >= 0)
		n->event = event_new(base, s->wake, EV_READ | EV_PERSIST, on_answers, n);
	if (!n->event || event_add(n->event, NULL) < 0) {
		client_names_free(n);
		return NULL;
	}
	return n;
}

void client_names_free(struct client_names *n)
{
	if (!n)
		return;
	if (n->event)
		event_free(n->event);
	pthread_mutex_lock(&n->shared->lock);
	n->shared->closed = true;
	release_user(n->shared);
	free(n);
}
