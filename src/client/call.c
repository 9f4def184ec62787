/* SPDX-License-Identifier: MulanPSL-2.0 */
/* One call: name, connection (each address in turn), handshake, request, reply. */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "client/client_impl.h"
#include "net/rpc_frame.h"
#include "net/stream.h"
#include "net/tls/tls.h"
#include "wire/rpc.h"

#define READ_BYTES 16384

static void on_io(evutil_socket_t fd, short what, void *arg);

/* --- parts --- */

static void stop_waiting(struct client_attempt *a)
{
	if (a->waits)
		event_del(&a->io);
	a->waits = 0;
}

static void wait_for(struct client_attempt *a, short what, const struct timeval *at_most)
{
	if (a->waits == what && !at_most)
		return;
	stop_waiting(a);
	event_assign(&a->io, a->run->base, a->fd, what | EV_PERSIST, on_io, a);
	event_add(&a->io, at_most);
	a->waits = what;
}

static void disconnect(struct client_attempt *a)
{
	stop_waiting(a);
	if (a->ssl) {
		if (SSL_is_init_finished(a->ssl) && a->call->reply)
			SSL_shutdown(a->ssl);
		SSL_free(a->ssl);
	}
	a->ssl = NULL;
	if (a->fd >= 0)
		close(a->fd);
	a->fd = -1;
}

void client_attempt_free(struct client_attempt *a)
{
	disconnect(a);
	event_del(&a->deadline);
	if (a->found)
		freeaddrinfo(a->found);
	buf_release(&a->out);
	buf_release(&a->in);
	free(a);
}

static void fail(struct client_attempt *a)
{
	if (!a->call->err.code)
		err_set(&a->call->err, -EIO, "the call of %s failed", a->where);
	client_attempt_done(a);
}

/* --- talking --- */

static int greet(struct client_attempt *a, short *wait)
{
	int r = stream_handshake(a->ssl, wait);

	if (r == 0)
		a->phase = CLIENT_SENDING;
	else if (r != -EAGAIN)
		tls_failure(a->ssl, &a->call->err);
	return r;
}

static int send_request(struct client_attempt *a, short *wait)
{
	while (a->out_sent < a->out.len) {
		ssize_t n = stream_send(a->fd, a->ssl, a->out.data + a->out_sent,
					a->out.len - a->out_sent, wait);

		if (n == -EAGAIN)
			return -EAGAIN;
		/* It may have said why it will not read: that is found by reading. */
		if (n < 0)
			break;
		a->out_sent += (size_t)n;
	}
	a->phase = CLIENT_RECEIVING;
	return 0;
}

static void take_reply(struct client_attempt *a, const char *body, size_t bytes)
{
	char *reply = xmalloc(bytes + 1);

	memcpy(reply, body, bytes);
	reply[bytes] = '\0';
	a->call->reply = reply;
	a->call->reply_bytes = bytes;
}

/* 1: the reply is there. */
static int receive(struct client_attempt *a, short *wait)
{
	const char *body;
	size_t bytes;

	for (;;) {
		ssize_t n =
			stream_recv(a->fd, a->ssl, buf_room(&a->in, READ_BYTES), READ_BYTES, wait);

		if (n == -EAGAIN)
			return -EAGAIN;
		if (n == -EPROTO && a->ssl && !a->in.len) {
			tls_failure(a->ssl, &a->call->err);
			return -EPROTO;
		}
		if (n <= 0)
			return client_words_closed(a, &a->call->err);
		a->in.len += (size_t)n;
		int r = rpc_frame_find(a->in.data, a->in.len, RPC_REPLY_MAX, &body, &bytes);
		if (r < 0)
			return client_words_no_reply(a, &a->call->err);
		if (r > 0) {
			take_reply(a, body, bytes);
			return 1;
		}
	}
}

/* As far as it goes. */
static void go_on(struct client_attempt *a)
{
	short wait = EV_READ;
	int r = 0;

	while (r == 0) {
		if (a->phase == CLIENT_GREETING)
			r = greet(a, &wait);
		else if (a->phase == CLIENT_SENDING)
			r = send_request(a, &wait);
		else
			r = receive(a, &wait);
	}
	if (r == -EAGAIN)
		wait_for(a, wait, NULL);
	else if (r < 0)
		fail(a);
	else
		client_attempt_done(a);
}

/* --- connecting --- */

static void connected(struct client_attempt *a)
{
	SSL_CTX *tls = a->run->options->tls;

	a->phase = tls ? CLIENT_GREETING : CLIENT_SENDING;
	if (tls) {
		a->ssl = tls_client_ssl(tls, a->call->host);
		if (!a->ssl) {
			err_set(&a->call->err, -EINVAL, "cannot speak TLS with '%s'",
				a->call->host);
			fail(a);
			return;
		}
		stream_attach(a->ssl, a->fd);
		SSL_set_connect_state(a->ssl);
	}
	stop_waiting(a); /* with the time limit of connecting */
	go_on(a);
}

/* Begins to connect to a->address. Negative errno; the socket is closed then. */
static int try_address(struct client_attempt *a)
{
	const struct addrinfo *ai = a->address;
	struct sockaddr_storage to = {0};
	const int on = 1;

	if (ai->ai_addrlen > sizeof(to))
		return -EAFNOSUPPORT;
	memcpy(&to, ai->ai_addr, ai->ai_addrlen);
	if (ai->ai_family == AF_INET)
		((struct sockaddr_in *)&to)->sin_port = htons((uint16_t)a->call->port);
	else if (ai->ai_family == AF_INET6)
		((struct sockaddr_in6 *)&to)->sin6_port = htons((uint16_t)a->call->port);
	else
		return -EAFNOSUPPORT;
	a->fd = socket(ai->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (a->fd < 0)
		return -errno;
	setsockopt(a->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	if (connect(a->fd, (struct sockaddr *)&to, ai->ai_addrlen) == 0 || errno == EINPROGRESS)
		return 0;
	int error = errno;
	disconnect(a);
	return -error;
}

/* A silent address gets its share of the time that is left, so that the others are tried, too. */
static struct timeval share(const struct client_attempt *a)
{
	uint64_t spent_us = (clock_mono_ns() - a->start_ns) / 1000;
	uint64_t all_us = a->run->options->timeout_ms * UINT64_C(1000), left_us = 1;
	unsigned addresses = 0;

	for (const struct addrinfo *ai = a->address; ai; ai = ai->ai_next)
		addresses++;
	if (all_us > spent_us)
		left_us += (all_us - spent_us) / addresses;
	return (struct timeval){(time_t)(left_us / 1000000), (suseconds_t)(left_us % 1000000)};
}

static void try_from(struct client_attempt *a, const struct addrinfo *first)
{
	int r = -EHOSTUNREACH;

	a->phase = CLIENT_CONNECTING;
	for (const struct addrinfo *ai = first; ai; ai = ai->ai_next) {
		a->address = ai;
		r = try_address(a);
		if (r < 0) {
			client_words_connect(a, -r, &a->call->err);
			continue;
		}
		struct timeval at_most = share(a);
		wait_for(a, EV_WRITE, &at_most);
		return;
	}
	fail(a);
}

static void on_connect(struct client_attempt *a, short what)
{
	socklen_t len = sizeof(int);
	int error = 0;

	if (what & EV_TIMEOUT)
		error = ETIMEDOUT;
	else if (getsockopt(a->fd, SOL_SOCKET, SO_ERROR, &error, &len) < 0)
		error = errno;
	if (!error) {
		connected(a);
		return;
	}
	client_words_connect(a, error, &a->call->err);
	disconnect(a);
	try_from(a, a->address->ai_next);
}

static void on_io(evutil_socket_t fd, short what, void *arg)
{
	struct client_attempt *a = arg;

	(void)fd;
	if (a->phase == CLIENT_CONNECTING)
		on_connect(a, what);
	else
		go_on(a);
}

/* --- beginning --- */

static void on_deadline(evutil_socket_t fd, short what, void *arg)
{
	struct client_attempt *a = arg;

	(void)fd;
	(void)what;
	client_words_late(a, &a->call->err);
	fail(a);
}

void client_attempt_named(struct client_attempt *a, struct addrinfo *found, int error)
{
	a->found = found;
	if (found) {
		try_from(a, found);
		return;
	}
	client_words_name(a, error, &a->call->err);
	fail(a);
}

/* The bytes of the request. */
static int write_request(struct client_attempt *a)
{
	char *text = json_dumps(a->call->request, JSON_COMPACT);
	size_t begin = rpc_frame_begin(&a->out);

	if (!text)
		return err_set(&a->call->err, -EINVAL, "the request is no JSON");
	buf_add_str(&a->out, text);
	free(text);
	rpc_frame_end(&a->out, begin);
	if (a->out.len - begin <= RPC_REQUEST_MAX)
		return 0;
	return err_set(&a->call->err, -EMSGSIZE,
		       "the request has %zu bytes, a daemon takes %d: ask for fewer things at once",
		       a->out.len - begin, RPC_REQUEST_MAX);
}

void client_attempt_start(struct client_run *run, size_t i)
{
	const unsigned ms = run->options->timeout_ms;
	struct timeval limit = {ms / 1000, (suseconds_t)(ms % 1000) * 1000};
	struct client_attempt *a = xcalloc(1, sizeof(*a));
	struct client_call *call = &run->calls[i];

	a->run = run;
	a->call = call;
	a->fd = -1;
	a->start_ns = clock_mono_ns();
	snprintf(a->where, sizeof(a->where), strchr(call->host, ':') ? "[%s]:%u" : "%s:%u",
		 call->host, call->port);
	run->attempts[i] = a;
	run->active++;
	evtimer_assign(&a->deadline, run->base, on_deadline, a);
	event_add(&a->deadline, &limit);
	if (write_request(a) < 0) {
		fail(a);
		return;
	}
	struct addrinfo *found = client_names_numeric(call->host);
	if (found)
		client_attempt_named(a, found, 0);
	else if (client_names_ask(run->names, i, call->host) < 0)
		client_attempt_named(a, NULL, EAI_MEMORY);
}
