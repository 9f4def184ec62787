/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * All calls of a run: as many at a time as there may be files, the next as soon as one is done; and
 * one call from name to reply. client/dns.c turns names into addresses, client/call_errors.c puts
 * failures into words.
 */
#include "client/client_impl.h"

#include <errno.h>
#include <event2/event.h>
#include <event2/event_struct.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/ssl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/containers/buf.h"
#include "base/mem.h"
#include "client/dns.h"
#include "client/hosts.h"
#include "net/address.h"
#include "net/rpc_frame.h"
#include "net/stream.h"
#include "net/tls/tls.h"
#include "wire/rpc.h"

#define OTHER_FILES 64 /* that the process has open for other things */
#define FEWEST 16
/* A handshake costs us milliseconds of work, and the daemon waits seconds for it: more at a time
 * would only be late. */
#define MOST_TLS 256
#define READ_BYTES 16384
#define GREETING_TRIES 4 /* a daemon that is flooded closes connections before it greets them */
#define GREETING_PAUSE_MS 50 /* before the second try; doubled for each */

/* --- one call: name, connection (each address one after another), handshake, request, reply --- */

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

static void disconnect_attempt(struct client_attempt *a)
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

static void free_attempt(struct client_attempt *a)
{
	disconnect_attempt(a);
	event_del(&a->deadline);
	if (a->found)
		freeaddrinfo(a->found);
	buf_release(&a->out);
	buf_release(&a->in);
	free(a);
}

static void finish_call(struct client_attempt *a)
{
	struct client_run *run = a->run;
	struct client_call *call = a->call;

	if (call->reply)
		call->err.code = 0; /* an address before this one may have failed */
	call->seconds = (double)(clock_mono_ns() - a->start_ns) / 1e9;
	run->attempts[call - run->calls] = NULL;
	run->active--;
	free_attempt(a);
	if (run->options->done)
		run->options->done(run->options->arg, call);
}

static void fail_call(struct client_attempt *a)
{
	if (!a->call->err.code)
		err_set(&a->call->err, -EIO, "the call of %s failed", a->where);
	finish_call(a);
}

/* --- talking --- */

static int do_handshake(struct client_attempt *a, short *wait)
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
	if (!a->out_sent)
		a->call->asked_ns = clock_mono_ns();
	while (a->out_sent < a->out.len) {
		ssize_t n = stream_send(a->fd, a->ssl, a->out.data + a->out_sent,
					a->out.len - a->out_sent, wait);

		if (n == -EAGAIN)
			return -EAGAIN;
		/* It may have sent why it will not read: that is found by reading. */
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
static int receive_reply(struct client_attempt *a, short *wait)
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
			return client_explain_closed(a, &a->call->err);
		a->in.len += (size_t)n;
		int r = rpc_frame_find(a->in.data, a->in.len, RPC_REPLY_MAX, &body, &bytes);
		if (r < 0)
			return client_explain_no_reply(a, &a->call->err);
		if (r > 0) {
			a->call->answered_ns = clock_mono_ns();
			take_reply(a, body, bytes);
			return 1;
		}
	}
}

static void try_from(struct client_attempt *a, const struct addrinfo *first);

static void on_retry(evutil_socket_t fd, short what, void *arg)
{
	struct client_attempt *a = arg;

	(void)fd, (void)what;
	a->waits = 0;
	a->call->err = (struct err){0};
	try_from(a, a->address);
}

/* Whether it was closed without a word before it was greeted, and is tried again. Nothing was asked
 * so far, so that nothing is asked twice. */
static bool retry_greeting(struct client_attempt *a)
{
	unsigned ms = GREETING_PAUSE_MS << a->handshaking;

	if (a->phase != CLIENT_GREETING || a->call->err.code != -ECONNRESET ||
	    ++a->handshaking == GREETING_TRIES)
		return false;
	disconnect_attempt(a);
	event_assign(&a->io, a->run->base, -1, 0, on_retry, a);
	event_add(&a->io, &(struct timeval){.tv_usec = (suseconds_t)ms * 1000});
	a->waits = EV_TIMEOUT;
	return true;
}

/* As far as it goes. */
static void continue_call(struct client_attempt *a)
{
	short wait = EV_READ;
	int r = 0;

	while (r == 0) {
		if (a->phase == CLIENT_GREETING)
			r = do_handshake(a, &wait);
		else if (a->phase == CLIENT_SENDING)
			r = send_request(a, &wait);
		else
			r = receive_reply(a, &wait);
	}
	if (r == -EAGAIN)
		wait_for(a, wait, NULL);
	else if (r > 0)
		finish_call(a);
	else if (!retry_greeting(a))
		fail_call(a);
}

/* --- connecting --- */

static void on_connected(struct client_attempt *a)
{
	SSL_CTX *tls = client_path_of(a->call->host) ? NULL : a->run->options->tls;

	a->phase = tls ? CLIENT_GREETING : CLIENT_SENDING;
	if (tls) {
		a->ssl = tls_client_ssl(tls, a->call->host);
		if (!a->ssl) {
			err_set(&a->call->err, -EINVAL, "cannot speak TLS with '%s'",
				a->call->host);
			fail_call(a);
			return;
		}
		stream_attach(a->ssl, a->fd);
		SSL_set_connect_state(a->ssl);
	}
	stop_waiting(a); /* with the time limit of connecting */
	continue_call(a);
}

/* Begins to connect to a->address. Negative errno; the socket is closed then. */
static int try_address(struct client_attempt *a)
{
	const struct addrinfo *ai = a->address;
	struct sockaddr_storage to = {0};
	const int on = 1;

	if (ai->ai_addrlen > sizeof(to) || (ai->ai_family != AF_INET && ai->ai_family != AF_INET6))
		return -EAFNOSUPPORT;
	memcpy(&to, ai->ai_addr, ai->ai_addrlen);
	address_set_port((struct sockaddr *)&to, a->call->port);
	a->fd = socket(ai->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (a->fd < 0)
		return -errno;
	setsockopt(a->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	if (connect(a->fd, (struct sockaddr *)&to, ai->ai_addrlen) == 0 || errno == EINPROGRESS)
		return 0;
	int error = errno;
	disconnect_attempt(a);
	return -error;
}

/* A silent address gets its share of the time that is left, so that the others are tried, too. */
static struct timeval time_share(const struct client_attempt *a)
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
			client_explain_connect(a, -r, &a->call->err);
			continue;
		}
		struct timeval at_most = time_share(a);
		wait_for(a, EV_WRITE, &at_most);
		return;
	}
	fail_call(a);
}

/* Where many wait for the daemon, a connection is waited for: there is no event for it. */
static int connect_path(struct client_attempt *a, const char *path)
{
	const unsigned ms = a->run->options->timeout_ms;
	struct timeval at_most = {ms / 1000, (suseconds_t)(ms % 1000) * 1000};
	struct sockaddr_un to = {.sun_family = AF_UNIX};

	if (strlen(path) >= sizeof(to.sun_path))
		return -ENAMETOOLONG;
	strcpy(to.sun_path, path);
	a->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (a->fd < 0)
		return -errno;
	setsockopt(a->fd, SOL_SOCKET, SO_SNDTIMEO, &at_most, sizeof(at_most));
	if (connect(a->fd, (struct sockaddr *)&to, sizeof(to)) < 0)
		return errno == EAGAIN ? -ETIMEDOUT : -errno;
	return fcntl(a->fd, F_SETFL, O_NONBLOCK) < 0 ? -errno : 0;
}

static void try_path(struct client_attempt *a, const char *path)
{
	int r = connect_path(a, path);

	if (r == 0) {
		on_connected(a);
		return;
	}
	client_explain_connect(a, -r, &a->call->err);
	fail_call(a);
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
		on_connected(a);
		return;
	}
	client_explain_connect(a, error, &a->call->err);
	disconnect_attempt(a);
	try_from(a, a->address->ai_next);
}

static void on_io(evutil_socket_t fd, short what, void *arg)
{
	struct client_attempt *a = arg;

	(void)fd;
	if (a->phase == CLIENT_CONNECTING)
		on_connect(a, what);
	else
		continue_call(a);
}

/* --- beginning --- */

static void on_deadline(evutil_socket_t fd, short what, void *arg)
{
	struct client_attempt *a = arg;

	(void)fd, (void)what;
	client_explain_late(a, &a->call->err);
	fail_call(a);
}

static void on_addresses(struct client_attempt *a, struct addrinfo *found, int error)
{
	a->found = found;
	if (found) {
		try_from(a, found);
		return;
	}
	client_explain_name(a, error, &a->call->err);
	fail_call(a);
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

static void start_call(struct client_run *run, size_t i)
{
	const unsigned ms = run->options->timeout_ms;
	struct timeval limit = {ms / 1000, (suseconds_t)(ms % 1000) * 1000};
	struct client_attempt *a = xcalloc(1, sizeof(*a));
	struct client_call *call = &run->calls[i];

	a->run = run;
	a->call = call;
	a->fd = -1;
	a->start_ns = clock_mono_ns();
	if (client_path_of(call->host))
		snprintf(a->where, sizeof(a->where), "'%s'", client_path_of(call->host));
	else
		snprintf(a->where, sizeof(a->where), strchr(call->host, ':') ? "[%s]:%u" : "%s:%u",
			 call->host, call->port);
	run->attempts[i] = a;
	run->active++;
	evtimer_assign(&a->deadline, run->base, on_deadline, a);
	event_add(&a->deadline, &limit);
	if (write_request(a) < 0) {
		fail_call(a);
		return;
	}
	if (client_path_of(call->host)) {
		try_path(a, client_path_of(call->host));
		return;
	}
	struct addrinfo *found = client_names_numeric(call->host);
	if (found)
		on_addresses(a, found, 0);
	else if (client_names_ask(run->names, i, call->host) < 0)
		on_addresses(a, NULL, EAI_MEMORY);
}

/* --- all calls --- */

/* How many connections there may be, after raising the limit as far as it goes. */
static size_t most_connections(void)
{
	struct rlimit files;

	if (getrlimit(RLIMIT_NOFILE, &files) < 0)
		return FEWEST;
	if (files.rlim_cur < files.rlim_max) {
		struct rlimit more = {files.rlim_max, files.rlim_max};

		if (setrlimit(RLIMIT_NOFILE, &more) == 0)
			files = more;
	}
	return files.rlim_cur > OTHER_FILES + FEWEST ? (size_t)files.rlim_cur - OTHER_FILES
						     : FEWEST;
}

static void on_named(void *arg, size_t id, struct addrinfo *found, int error)
{
	struct client_run *run = arg;

	if (run->attempts[id])
		on_addresses(run->attempts[id], found, error);
	else if (found)
		freeaddrinfo(found); /* too late */
}

static int open_run(struct client_run *run, struct err *err)
{
	size_t most = most_connections();

	if (run->options->tls && most > MOST_TLS)
		most = MOST_TLS;
	run->max_active = run->options->max_in_flight;
	if (!run->max_active || run->max_active > most)
		run->max_active = most;
	run->base = event_base_new();
	if (run->base)
		run->names = client_names_new(run->base, on_named, run);
	if (!run->names)
		return err_set(err, -ENOMEM, "cannot make an event loop");
	run->attempts = xcalloc(run->n + 1, sizeof(*run->attempts));
	return 0;
}

int client_run(struct client_call *calls, size_t n, const struct client_options *o, struct err *err)
{
	struct client_run run = {.options = o, .calls = calls, .n = n};
	struct sigaction ignore = {.sa_handler = SIG_IGN}, before;
	int r = open_run(&run, err);

	sigaction(SIGPIPE, &ignore, &before); /* OpenSSL writes as if it could not come */
	for (size_t i = 0; i < n; i++) {
		calls[i].reply = NULL;
		calls[i].reply_bytes = 0;
		calls[i].asked_ns = calls[i].answered_ns = 0;
		calls[i].err.code = 0;
	}
	while (r == 0 && (run.active || run.next < n)) {
		/* Here alone: a call may be done at once, and must not start the next one. */
		while (run.next < n && run.active < run.max_active)
			start_call(&run, run.next++);
		if (run.active && event_base_loop(run.base, EVLOOP_ONCE) < 0)
			r = err_set(err, -EIO, "the event loop failed");
	}
	for (size_t i = 0; r < 0 && run.attempts && i < n; i++)
		if (run.attempts[i])
			free_attempt(run.attempts[i]);
	client_names_free(run.names);
	if (run.base)
		event_base_free(run.base);
	free(run.attempts);
	sigaction(SIGPIPE, &before, NULL);
	return r;
}

void client_call_release(struct client_call *call)
{
	free(call->reply);
	call->reply = NULL;
	call->reply_bytes = 0;
}
