/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * One HTTP connection. What a peer can cost is bounded: the bytes it has sent and the reply to one
 * request in memory, a deadline for each request as a whole, a place among HTTP_MAX_CONNECTIONS.
 * (libevent's own HTTP server has neither a deadline for slow requests nor a limit of connections.)
 *
 *	READING --whole request, reply--> WRITING --written--> IDLE
 *	   ^                                                    |
 *	   +----------------------- first byte -----------------+
 *
 * After its last reply it is LINGERING until the peer closes.
 */
#include <event2/buffer.h>
#include <event2/bufferevent_ssl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "daemon/http/http_impl.h"
#include "daemon/loop.h"
#include "net/tls/tls.h"

#define LOG_AREA "http"
#include "base/log.h"

/* Of a peer that goes on sending while it is answered: one request and two records of TLS. */
#define INPUT_MAX (HTTP_HEAD_MAX + HTTP_BODY_MAX + 2 * 16384)

enum state { READING, WRITING, IDLE, LINGERING };

static const int seconds_of[] = {[READING] = 10, [WRITING] = 10, [IDLE] = 90, [LINGERING] = 2};

struct http_conn {
	struct http_conn *next, **link;
	struct http_server *server;
	bool metrics_only; /* accepted on the address for Prometheus, which may be reached from
			      elsewhere */
	struct caller caller;
	struct bufferevent *bev;
	struct event *deadline;
	enum state state;
	bool close_after; /* this reply is the last */
	bool peer_done; /* it sends no more */
};

static void set_state(struct http_conn *c, enum state state)
{
	c->state = state;
	event_add(c->deadline, &(struct timeval){.tv_sec = seconds_of[state]});
}

void http_conn_free(struct http_conn *c)
{
	*c->link = c->next;
	if (c->next)
		c->next->link = c->link;
	c->server->nconns--;
	source_count(&c->server->per_source, c->caller.source, -1);
	event_free(c->deadline);
	bufferevent_free(c->bev);
	free(c);
}

static void on_deadline(evutil_socket_t fd, short what, void *arg)
{
	struct http_conn *c = arg;

	(void)fd, (void)what;
	if (c->state != IDLE && c->state != LINGERING)
		c->server->refused++;
	http_conn_free(c);
}

/* --- replies --- */

static const char *status_text(int status)
{
	static const struct {
		int status;
		const char *text;
	} texts[] = {
		{200, "OK"},
		{400, "Bad Request"},
		{403, "Forbidden"},
		{404, "Not Found"},
		{405, "Method Not Allowed"},
		{411, "Length Required"},
		{413, "Content Too Large"},
		{415, "Unsupported Media Type"},
		{421, "Misdirected Request"},
		{431, "Request Header Fields Too Large"},
		{503, "Service Unavailable"},
		{505, "HTTP Version Not Supported"},
	};

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		if (texts[i].status == status)
			return texts[i].text;
	return "Error";
}

static void add_head(struct evbuffer *out, const struct http_reply *r, bool close_after)
{
	char date[40] = "";
	time_t now = time(NULL);
	struct tm tm = {0};

	gmtime_r(&now, &tm);
	strftime(date, sizeof(date), "%a, %d %b %Y %H:%M:%S GMT", &tm);
	evbuffer_add_printf(out,
			    "HTTP/1.1 %d %s\r\n"
			    "Date: %s\r\n"
			    "Content-Type: %s\r\n"
			    "Content-Length: %zu\r\n"
			    "Cache-Control: no-store\r\n"
			    "X-Content-Type-Options: nosniff\r\n"
			    "Referrer-Policy: no-referrer\r\n"
			    "Cross-Origin-Resource-Policy: same-origin\r\n",
			    r->status, status_text(r->status), date, r->content_type,
			    r->report ? evbuffer_get_length(r->report) : r->body.len);
	if (r->allow)
		evbuffer_add_printf(out, "Allow: %s\r\n", r->allow);
	if (r->page)
		evbuffer_add_printf(out, "Content-Security-Policy: default-src 'none'; "
					 "script-src 'self'; style-src 'self'; connect-src 'self'; "
					 "img-src data:; "
					 "base-uri 'none'; form-action 'none'; "
					 "frame-ancestors 'none'\r\n");
	/* Its user may have made it up: it has no origin, so nothing of ours is open to it. */
	if (r->report)
		evbuffer_add_printf(out, "Content-Security-Policy: sandbox allow-scripts; "
					 "default-src 'none'; script-src 'unsafe-inline'; "
					 "style-src 'unsafe-inline'; img-src data:; "
					 "base-uri 'none'; form-action 'none'; "
					 "frame-ancestors 'none'\r\n");
	evbuffer_add_printf(out, "Connection: %s\r\n\r\n", close_after ? "close" : "keep-alive");
}

/* Last step with the connection: with everything written it may be gone. */
static void send_reply(struct http_conn *c, struct http_reply *r, bool with_body)
{
	struct evbuffer *out = evbuffer_new();

	c->server->requests++;
	add_head(out, r, c->close_after);
	if (with_body && r->report)
		evbuffer_add_buffer_reference(out, r->report);
	else if (with_body)
		evbuffer_add(out, r->body.data, r->body.len);
	buf_release(&r->body);
	set_state(c, WRITING);
	bufferevent_write_buffer(c->bev, out);
	evbuffer_free(out);
}

/* A request that cannot be understood: where the next one begins is not known either. */
static void refuse_request(struct http_conn *c, int status, const char *why)
{
	struct http_reply r = {0};

	log_debug("refused a request: %s", why);
	c->server->refused++;
	c->close_after = true;
	http_fail(&r, status, "%s", why);
	send_reply(c, &r, true);
}

/* --- requests --- */

static void answer_request(struct http_conn *c, const struct http_request *request,
			   const char *body)
{
	struct daemon *d = c->server->d;
	SSL *ssl = bufferevent_openssl_get_ssl(c->bev);
	struct sockaddr_storage own = {0};
	socklen_t len = sizeof(own);
	struct http_reply r = {0};

	if (getsockname(bufferevent_getfd(c->bev), (struct sockaddr *)&own, &len) < 0)
		own.ss_family = AF_UNSPEC;
	struct http_call call = {
		.d = d,
		.request = request,
		.body = body,
		.body_bytes = request->content_length,
		.metrics_only = c->metrics_only,
		.tls = ssl != NULL,
		/* a certificate that is no good any more counts as none */
		.who = access_find(d->access, &c->caller,
				   ssl && tls_server_trusts(d->tls, ssl) ? ssl : NULL),
		.own_address = (struct sockaddr *)&own,
	};
	http_route(&call, &r);
	c->close_after = !request->keep_alive;
	send_reply(c, &r, request->method != HTTP_HEAD);
}

/* One request out of what has arrived. False: it is not complete, or refused. */
static bool take_request(struct http_conn *c)
{
	struct evbuffer *in = bufferevent_get_input(c->bev);
	size_t len = evbuffer_get_length(in);
	struct http_request request;
	const char *why;

	size_t peek = len < HTTP_HEAD_MAX ? len : HTTP_HEAD_MAX;
	const char *bytes = (const char *)evbuffer_pullup(in, (ev_ssize_t)peek);
	size_t head_bytes = bytes ? http_head_length(bytes, peek) : 0;
	if (!head_bytes) {
		if (peek == HTTP_HEAD_MAX)
			refuse_request(c, 431, "the head of the request is longer than 8192 bytes");
		return false;
	}
	char *copy = xstrndup(bytes, head_bytes);
	int status = http_parse(copy, head_bytes, &request, &why);
	if (!status && request.content_length > HTTP_BODY_MAX) {
		status = 413;
		why = "the body is longer than 8000 bytes";
	}
	bool whole = !status && len - head_bytes >= request.content_length;
	if (status) {
		refuse_request(c, status, why);
	} else if (whole) {
		evbuffer_drain(in, head_bytes);
		char *body = xcalloc(1, request.content_length + 1);
		evbuffer_remove(in, body, request.content_length);
		answer_request(c, &request, body);
		free(body);
	} else if (request.expects_continue && len == head_bytes &&
		   !evbuffer_get_length(bufferevent_get_output(c->bev))) {
		bufferevent_write(c->bev, "HTTP/1.1 100 Continue\r\n\r\n", 25);
	}
	free(copy);
	return whole;
}

static void on_read(struct bufferevent *bev, void *arg)
{
	struct http_conn *c = arg;
	struct evbuffer *in = bufferevent_get_input(bev);

	if (c->state == LINGERING) {
		evbuffer_drain(in, evbuffer_get_length(in));
		return;
	}
	if (c->state == WRITING) { /* the next request waits until this reply has left */
		if (evbuffer_get_length(in) > INPUT_MAX) {
			c->server->refused++;
			http_conn_free(c);
		}
		return;
	}
	if (c->state == IDLE)
		set_state(c, READING);
	take_request(c);
}

/* The last reply has left. The peer must be able to read it: a socket that is closed while bytes of
 * the peer are unread destroys what was sent. */
static void finish_connection(struct http_conn *c)
{
	if (bufferevent_openssl_get_ssl(c->bev))
		SSL_shutdown(bufferevent_openssl_get_ssl(c->bev));
	if (c->peer_done || shutdown(bufferevent_getfd(c->bev), SHUT_WR) < 0) {
		http_conn_free(c);
		return;
	}
	evbuffer_drain(bufferevent_get_input(c->bev),
		       evbuffer_get_length(bufferevent_get_input(c->bev)));
	set_state(c, LINGERING);
}

static void on_written(struct bufferevent *bev, void *arg)
{
	struct http_conn *c = arg;

	if (c->state != WRITING || evbuffer_get_length(bufferevent_get_output(bev)))
		return;
	if (c->close_after) {
		finish_connection(c);
		return;
	}
	set_state(c, IDLE);
	if (evbuffer_get_length(bufferevent_get_input(bev)))
		on_read(bev, c);
	if (c->peer_done && c->state != WRITING)
		http_conn_free(c); /* no whole request is left, and no more will come */
}

static void on_event(struct bufferevent *bev, short what, void *arg)
{
	struct http_conn *c = arg;

	if (what & BEV_EVENT_CONNECTED)
		return;
	if (what & BEV_EVENT_EOF && c->state == WRITING) {
		c->peer_done = true;
		return;
	}
	if (what & BEV_EVENT_ERROR && bufferevent_openssl_get_ssl(bev))
		c->server->refused++;
	http_conn_free(c);
}

/* --- connections --- */

static struct bufferevent *new_bufferevent(struct http_server *s, evutil_socket_t fd, SSL *ssl)
{
	if (!ssl)
		return bufferevent_socket_new(s->d->base, fd, BEV_OPT_CLOSE_ON_FREE);
	struct bufferevent *bev = bufferevent_openssl_socket_new(
		s->d->base, fd, ssl, BUFFEREVENT_SSL_OPEN, BEV_OPT_CLOSE_ON_FREE);
	if (!bev)
		SSL_free(ssl);
	else
		bufferevent_openssl_set_allow_dirty_shutdown(bev, 1);
	return bev;
}

/* Ends a connection of the source with most of them, so that nobody takes the places of others: the
 * oldest that asks for nothing, else the oldest. A good client is done within milliseconds. */
static void make_room(struct http_server *s)
{
	uint64_t source = source_with_most(&s->per_source);
	struct http_conn *idle = NULL, *oldest = NULL;

	for (struct http_conn *c = s->conns; c; c = c->next) {
		if (c->caller.source != source)
			continue;
		oldest = c;
		if (c->state == IDLE || c->state == LINGERING)
			idle = c;
	}
	if (!idle)
		s->refused++;
	http_conn_free(idle ? idle : oldest);
}

void http_conn_new(struct http_server *s, bool metrics_only, evutil_socket_t fd, SSL *ssl,
		   const struct caller *caller)
{
	if (s->nconns == HTTP_MAX_CONNECTIONS)
		make_room(s);
	struct bufferevent *bev = new_bufferevent(s, fd, ssl);
	if (!bev) {
		s->refused++;
		evutil_closesocket(fd);
		return;
	}
	struct http_conn *c = xcalloc(1, sizeof(*c));
	c->server = s;
	c->metrics_only = metrics_only;
	c->caller = *caller;
	source_count(&s->per_source, caller->source, 1);
	c->bev = bev;
	c->next = s->conns;
	c->link = &s->conns;
	if (c->next)
		c->next->link = &c->next;
	s->conns = c;
	s->nconns++;
	c->deadline = loop_event_new(s->d->base, -1, 0, DAEMON_PRIORITY_RPC, on_deadline, c);
	bufferevent_priority_set(bev, DAEMON_PRIORITY_RPC);
	bufferevent_setcb(bev, on_read, on_written, on_event, c);
	/* Not with TLS: what is left of a record would wait for the next one to come. */
	if (!ssl)
		bufferevent_setwatermark(bev, EV_READ, 0, HTTP_HEAD_MAX + HTTP_BODY_MAX);
	bufferevent_enable(bev, EV_READ | EV_WRITE);
	set_state(c, READING);
}
