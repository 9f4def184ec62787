/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * A server on loopback that says what it is told to whoever connects, for targets that are clients.
 * A connection gets the next answer, its end, and is then read until the client closes it, so that
 * no byte is lost; with no answer left it gets the end alone.
 */
#ifndef SONDE_TESTS_FUZZ_PEER_H
#define SONDE_TESTS_FUZZ_PEER_H

#include <netinet/in.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/mem.h"

struct peer_answer {
	const char *data;
	size_t len;
};

struct peer {
	pthread_mutex_t lock; /* held while a connection is served */
	const struct peer_answer *answers;
	size_t n;
	unsigned port;
	int listener;
};

static inline void peer_serve(struct peer *p, int fd)
{
	char unread[4096];

	pthread_mutex_lock(&p->lock);
	for (size_t sent = 0; p->n && sent < p->answers->len;) {
		ssize_t done =
			send(fd, p->answers->data + sent, p->answers->len - sent, MSG_NOSIGNAL);

		if (done < 0)
			break;
		sent += (size_t)done;
	}
	p->answers += p->n > 0;
	p->n -= p->n > 0;
	pthread_mutex_unlock(&p->lock);
	shutdown(fd, SHUT_WR);
	while (recv(fd, unread, sizeof(unread), 0) > 0)
		;
	close(fd);
}

static inline void *peer_main(void *arg)
{
	struct peer *p = arg;

	for (;;) {
		int fd = accept4(p->listener, NULL, NULL, SOCK_CLOEXEC);

		BUG_ON(fd < 0);
		peer_serve(p, fd);
	}
	return NULL;
}

/* Begins when it is called first. */
static inline struct peer *peer_get(void)
{
	static struct peer p = {.lock = PTHREAD_MUTEX_INITIALIZER, .listener = -1};
	struct sockaddr_in at = {.sin_family = AF_INET};
	socklen_t len = sizeof(at);
	pthread_t thread;

	if (p.port)
		return &p;
	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	p.listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	BUG_ON(p.listener < 0 || bind(p.listener, (struct sockaddr *)&at, sizeof(at)) < 0 ||
	       listen(p.listener, 16) < 0 ||
	       getsockname(p.listener, (struct sockaddr *)&at, &len) < 0);
	p.port = ntohs(at.sin_port);
	BUG_ON(pthread_create(&thread, NULL, peer_main, &p));
	pthread_detach(thread);
	return &p;
}

/* What the next connections are told; it must last until they have ended. */
static inline void peer_describe(struct peer *p, const struct peer_answer *answers, size_t n)
{
	pthread_mutex_lock(&p->lock);
	p->answers = answers;
	p->n = n;
	pthread_mutex_unlock(&p->lock);
}

#endif
