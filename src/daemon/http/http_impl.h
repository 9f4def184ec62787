/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Inside the HTTP server: addresses (http.c), connections and their timeouts
 * (daemon/http/connection.c), the head of a request (daemon/http/parse.c), who may ask for what and
 * the answers (daemon/http/routes.c).
 */
#ifndef SONDE_DAEMON_HTTP_HTTP_IMPL_H
#define SONDE_DAEMON_HTTP_HTTP_IMPL_H

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/containers/buf.h"
#include "base/containers/hmap.h"
#include "daemon/accept.h"
#include "daemon/access.h"
#include "daemon/daemon.h"
#include "daemon/handshakes.h"

/* --- parse --- */

/*
 * The head of an HTTP/1.x request: bytes to checked fields. Strict where laxness lets two programs
 * read one request differently; no I/O.
 */

#define HTTP_HEAD_MAX 8192 /* bytes of the request line and all headers */

enum http_method { HTTP_GET, HTTP_HEAD, HTTP_POST, HTTP_OTHER };

/* Texts lead into the head, which http_parse() cuts into strings. */
struct http_request {
	enum http_method method;
	const char *path; /* "/metrics"; not decoded */
	const char *query; /* behind the '?'; NULL: none */
	const char *host, *origin, *content_type, *fetch_site; /* NULL: not sent */
	size_t content_length;
	bool has_body; /* Content-Length was sent */
	bool keep_alive;
	bool expects_continue;
};

/* How many bytes the head has, the empty line behind it included; 0: it is not complete yet. */
size_t http_head_length(const char *bytes, size_t len);

/* Parses a complete head, writing into it. 0, or the HTTP status that says what is wrong with it;
 * *out_why then has words. */
int http_parse(char *head, size_t len, struct http_request *out, const char **out_why);

/* --- the server --- */

#define HTTP_MAX_CONNECTIONS 64
#define HTTP_BODY_MAX 8000 /* of a call: what the RPC takes, less the name of the function */

struct http_server {
	struct daemon *d;
	struct listeners listeners;
	const struct listener *prometheus; /* of these: for metrics only; NULL: none */
	unsigned port;
	struct http_conn *conns; /* newest first */
	unsigned nconns;
	struct hmap per_source; /* connections of each (struct caller) */
	struct handshakes_server
		handshaking[2]; /* TLS handshakes, which come before the connections;
					       the second: of those for metrics only */
	uint64_t requests, refused;
};

/* Takes the socket, and `ssl` whose handshake is over; NULL: plain. */
void http_conn_new(struct http_server *s, bool metrics_only, evutil_socket_t fd, SSL *ssl,
		   const struct caller *caller);
void http_conn_free(struct http_conn *c);

/* --- answers --- */

struct http_call {
	struct daemon *d;
	const struct http_request *request;
	const char *body;
	size_t body_bytes;
	bool metrics_only;
	bool tls;
	struct access_grant who;
	const struct sockaddr *own_address; /* to which the peer connected */
};

struct http_reply {
	int status;
	const char *content_type;
	const char *allow; /* methods, with status 405; or NULL */
	bool page; /* a file of the status page */
	struct evbuffer *report; /* a user's program has made it; NULL: there is a body */
	struct buf body;
};

/* Always fills the reply; the caller releases the body. */
void http_route(const struct http_call *call, struct http_reply *out);
/* A JSON object {"error":"…"}. */
__attribute__((format(printf, 3, 4))) void http_fail(struct http_reply *out, int status,
						     const char *fmt, ...);

/* Whether the request may come from a page of ours or from no page at all; words if not. */
bool http_from_here(const struct http_call *call, const char **out_why);

#endif
