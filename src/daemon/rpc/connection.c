/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * One connection, behind its TLS handshake: read, serve, write, in that order, over and over.
 * Requests are parsed where they were read, in a buffer that all connections share, and replies are
 * sent from another; a connection has memory of its own only for what is incomplete.
 */
#define LOG_AREA "rpc"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "daemon/rpc/api.h"
#include "daemon/rpc/rpc_impl.h"
#include "net/stream.h"
#include "net/tls/tls.h"

#define BATCH_NS 200000 /* requests of one connection are served, then those of others */
#define BATCH_BYTES 65536 /* replies made before the peer must take some */
#define LOG_EVERY_NS (10 * UINT64_C(1000000000))
#define UNSENT_MAX (64u << 20) /* of all connections; each may ask for megabytes, and take none */
#define TAKE_BYTES 16384 /* replies that a peer must take in RPC_TIMEOUT_S */

void rpc_conn_peer(const struct rpc_conn *c, char out[ADDRESS_TEXT_BYTES])
{
	struct sockaddr_storage address;
	socklen_t len = sizeof(address);

	if (c->caller.kind == CALLER_USER)
		snprintf(out, ADDRESS_TEXT_BYTES, "user %u", (unsigned)c->caller.uid);
	else if (getpeername(c->fd, (struct sockaddr *)&address, &len) < 0 ||
		 !address_text((struct sockaddr *)&address, len, out))
		snprintf(out, ADDRESS_TEXT_BYTES, "unknown");
}

static void on_event(evutil_socket_t fd, short what, void *arg)
{
	struct rpc_conn *c = arg;

	(void)fd, (void)what;
	rpc_conn_work(c);
}

/* `what` 0: for nothing. */
static void wait_for(struct rpc_conn *c, short what)
{
	if (c->waits == what)
		return;
	if (c->waits)
		event_del(&c->event);
	c->waits = what;
	if (!what)
		return;
	event_assign(&c->event, c->server->daemon->base, c->fd, what | EV_PERSIST, on_event, c);
	event_priority_set(&c->event, DAEMON_PRIORITY_RPC);
	event_add(&c->event, NULL);
}

static void queue_conn(struct rpc_queue *q, struct rpc_conn *c)
{
	wait_for(c, 0); /* it would be reported again and again until it is served */
	rpc_queue_add(q, c);
}

struct rpc_conn *rpc_conn_new(struct rpc_server *s, int fd, SSL *ssl, const struct caller *caller)
{
	struct rpc_conn *c = xcalloc(1, sizeof(*c));

	c->server = s;
	c->fd = fd;
	c->caller = *caller;
	c->ssl = ssl;
	if (ssl)
		stream_attach(ssl, fd);
	c->list = RPC_IDLE;
	return c;
}

static void release_output(struct rpc_conn *c)
{
	c->server->unsent -= c->out.len;
	buf_release(&c->out);
}

void rpc_conn_free(struct rpc_conn *c)
{
	if (c->waits)
		event_del(&c->event);
	if (c->ssl) {
		if (SSL_is_init_finished(c->ssl) && !c->broken)
			SSL_shutdown(c->ssl);
		SSL_free(c->ssl);
	}
	close(c->fd);
	buf_release(&c->in);
	release_output(c);
	free(c);
}

/* --- serving --- */

static enum rpc_end refuse_request(const struct rpc_conn *c, enum rpc_end why, const char *words)
{
	char peer[ADDRESS_TEXT_BYTES];

	rpc_conn_peer(c, peer);
	log_debug("request of %s refused: %s", peer, words);
	return why;
}

static enum rpc_end refuse_length(const struct rpc_conn *c, const char *data, size_t len)
{
	const char *foreign = rpc_frame_foreign(data, len);
	char words[128];

	if (foreign)
		snprintf(words, sizeof(words), "it speaks %s, this port does not", foreign);
	else
		snprintf(words, sizeof(words), "its length is not 1 to %d", RPC_REQUEST_MAX);
	return refuse_request(c, RPC_END_BAD_LENGTH, words);
}

void rpc_log_refusal(struct rpc_server *s, const char *what, const char *peer, const char *why)
{
	uint64_t now = clock_mono_ns();

	if (s->logged_ns && now - s->logged_ns < LOG_EVERY_NS) {
		s->unlogged++;
		log_debug("%s %s: %s", what, peer, why);
		return;
	}
	if (s->unlogged)
		log_warn("%s %s: %s (and %llu others since the last such line)", what, peer, why,
			 (unsigned long long)s->unlogged);
	else
		log_warn("%s %s: %s", what, peer, why);
	s->logged_ns = now;
	s->unlogged = 0;
}

/* Adds the reply of one request to server->reply. */
static enum rpc_end serve_one(struct rpc_conn *c, const char *body, size_t bytes)
{
	struct rpc_server *s = c->server;
	char peer[ADDRESS_TEXT_BYTES];
	struct err err = {0};

	/* Certificates are read anew while connections are open. */
	if (c->ssl && !tls_server_trusts(s->daemon->tls, c->ssl))
		return refuse_request(c, RPC_END_HANDSHAKE,
				      "its certificate is not accepted any more");
	json_t *request = api_parse(body, bytes, &err);

	if (!request)
		return refuse_request(c, RPC_END_BAD_JSON, err.text);
	struct access_grant who = access_find(s->daemon->access, &c->caller, c->ssl);
	const char *refusal = api_refusal(&who, json_string_value(json_object_get(request, "fn")));
	json_t *reply = api_call(s->daemon, &who, request);
	json_decref(request);
	if (!reply)
		return refuse_request(c, RPC_END_UNKNOWN, "there is no such function");
	if (refusal) {
		s->forbidden++;
		rpc_conn_peer(c, peer);
		rpc_log_refusal(s, "refused a call of", peer, refusal);
	}
	size_t begin = rpc_frame_begin(&s->reply);
	api_print(reply, &s->reply);
	rpc_frame_end(&s->reply, begin);
	json_decref(reply);
	s->calls++;
	return RPC_END_PEER;
}

/* Serves whole requests at the front of the bytes, a batch at most; gives their bytes. */
static size_t serve_batch(struct rpc_conn *c, const char *data, size_t len)
{
	struct buf *reply = &c->server->reply;
	uint64_t until = clock_mono_ns() + BATCH_NS;
	const char *body;
	size_t used = 0, bytes;

	while (reply->len < BATCH_BYTES) {
		int r = rpc_frame_find(data + used, len - used, RPC_REQUEST_MAX, &body, &bytes);

		if (r < 0)
			c->ending = refuse_length(c, data + used, len - used);
		if (r <= 0)
			break;
		c->ending = serve_one(c, body, bytes);
		if (c->ending)
			break;
		used += RPC_LENGTH_BYTES + bytes;
		if (used == len || clock_mono_ns() >= until)
			break;
	}
	return used;
}

/* --- bytes --- */

/* -ENOBUFS: it is this one that keeps too much. */
static int keep_output(struct rpc_conn *c, const char *data, size_t len)
{
	struct rpc_server *s = c->server;

	buf_add(&c->out, data, len);
	s->unsent += len;
	while (s->unsent > UNSENT_MAX) {
		struct rpc_conn *most = rpc_server_most_unsent(s);

		if (!most || most == c)
			return -ENOBUFS;
		rpc_conn_close(most, RPC_END_UNREAD);
	}
	return 0;
}

/* Sends from the buffer that all share; keeps what the kernel does not take. */
static int send_reply(struct rpc_conn *c)
{
	struct buf *reply = &c->server->reply;
	ssize_t n = 0;
	int r = 0;

	if (reply->len)
		n = stream_send(c->fd, c->ssl, reply->data, reply->len, &c->wants);
	if (n < 0 && n != -EAGAIN) {
		buf_clear(reply);
		return (int)n;
	}
	size_t sent = n > 0 ? (size_t)n : 0;
	if (sent < reply->len) {
		r = keep_output(c, reply->data + sent, reply->len - sent);
		if (n > 0)
			c->wants = EV_WRITE;
	}
	if (reply->cap > 4 * BATCH_BYTES)
		buf_release(reply);
	else
		buf_clear(reply);
	return r;
}

/* 0: everything is sent. -EAGAIN: the rest must wait. */
static int flush_output(struct rpc_conn *c)
{
	while (c->out_sent < c->out.len) {
		ssize_t n = stream_send(c->fd, c->ssl, c->out.data + c->out_sent,
					c->out.len - c->out_sent, &c->wants);

		if (n < 0)
			return (int)n;
		c->out_sent += (size_t)n;
	}
	release_output(c);
	c->out_sent = c->out_mark = 0;
	return 0;
}

/* Serves what has been read: the shared buffer behind what was kept, or what was kept alone. */
static int serve_input(struct rpc_conn *c, const char *data, size_t len)
{
	size_t used = serve_batch(c, data, len);

	if (data == c->in.data) {
		memmove(c->in.data, c->in.data + used, len - used);
		c->in.len = len - used;
	} else if (used < len) {
		buf_add(&c->in, data + used, len - used);
	}
	if (!c->in.len || c->ending)
		buf_release(&c->in);
	if (used)
		rpc_conn_set_list(c, RPC_BUSY);
	return send_reply(c);
}

/* Reads once and serves what came. */
static int read_some(struct rpc_conn *c)
{
	size_t room = RPC_INPUT_BYTES - c->in.len;
	char *to = c->in.len ? buf_room(&c->in, room) : c->server->input;
	ssize_t n = stream_recv(c->fd, c->ssl, to, room, &c->wants);

	if (n < 0)
		return (int)n;
	if (n == 0) {
		c->eof = true;
		return 0;
	}
	c->wants = EV_READ;
	if (to == c->server->input)
		return serve_input(c, to, (size_t)n);
	c->in.len += (size_t)n;
	return serve_input(c, c->in.data, c->in.len);
}

/* --- what next --- */

/* Whether a whole request is kept, or something that cannot become one. */
static bool request_kept(const struct rpc_conn *c)
{
	const char *body;
	size_t bytes;

	return rpc_frame_find(c->in.data, c->in.len, RPC_REQUEST_MAX, &body, &bytes) != 0;
}

/* Whether there is something to do without waiting for the peer. */
static bool more_at_hand(const struct rpc_conn *c)
{
	return request_kept(c) ||
	       (c->ssl && !c->eof && SSL_pending(c->ssl) > 0 && c->wants == EV_READ);
}

/* Leaves it waiting for what it needs, or closed. */
static void settle_conn(struct rpc_conn *c, int r)
{
	bool unsent = c->out_sent < c->out.len;

	if (r < 0 && r != -EAGAIN) {
		c->broken = true;
		rpc_conn_close(c, r == -ENOBUFS		? RPC_END_UNREAD
				  : unsent || c->in.len ? RPC_END_INCOMPLETE
							: RPC_END_PEER);
	} else if (unsent) {
		if (c->out_sent - c->out_mark >= TAKE_BYTES) {
			c->out_mark = c->out_sent;
			rpc_conn_set_list(c, RPC_BUSY);
		}
		wait_for(c, c->wants);
	} else if (c->ending) {
		rpc_conn_close(c, c->ending);
	} else if (more_at_hand(c)) {
		queue_conn(&c->server->later, c);
	} else if (c->eof) {
		rpc_conn_close(c, c->in.len ? RPC_END_INCOMPLETE : RPC_END_PEER);
	} else {
		if (!c->in.len)
			rpc_conn_set_list(c, RPC_IDLE);
		else if (c->list != RPC_BUSY)
			rpc_conn_set_list(c, RPC_BUSY);
		wait_for(c, c->wants);
	}
}

void rpc_conn_work(struct rpc_conn *c)
{
	c->wants = EV_READ;
	int r = flush_output(c);
	if (r == 0 && !c->ending) {
		if (request_kept(c))
			r = serve_input(c, c->in.data, c->in.len);
		else if (!c->eof)
			r = read_some(c);
	}
	settle_conn(c, r);
}
