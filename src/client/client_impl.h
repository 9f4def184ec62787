/* SPDX-License-Identifier: MulanPSL-2.0 */
/* A run of calls under way: client.c makes them, call_errors.c puts failures into words. */
#ifndef SONDE_CLIENT_CLIENT_IMPL_H
#define SONDE_CLIENT_CLIENT_IMPL_H

#include <event2/event.h>
#include <event2/event_struct.h>
#include <netdb.h>
#include <openssl/ssl.h>
#include <stdint.h>

#include "base/containers/buf.h"
#include "client/client.h"

struct client_run {
	const struct client_options *options;
	struct client_call *calls;
	struct client_attempt **attempts; /* by call; NULL: not begun, or done */
	size_t n, next; /* of the calls; the next one to begin */
	size_t active, max_active;
	struct event_base *base;
	struct client_names *names;
};

enum client_phase {
	CLIENT_NAMING,
	CLIENT_CONNECTING,
	CLIENT_GREETING, /* TLS */
	CLIENT_SENDING,
	CLIENT_RECEIVING,
};

/* A call on its way. */
struct client_attempt {
	struct client_run *run;
	struct client_call *call;
	enum client_phase phase;
	struct addrinfo *found;
	const struct addrinfo *address; /* that is tried */
	int fd; /* -1: none */
	SSL *ssl;
	struct event io, deadline;
	short waits; /* what `io` is added for; 0: it is not */
	struct buf out, in;
	size_t out_sent;
	unsigned handshaking; /* that were tried */
	uint64_t start_ns;
	char where[300]; /* "host:port" */
};

/* Of a socket on this machine, where TLS is for nothing; NULL: it is a host. */
const char *client_path_of(const char *host);

/* Each returns err's code. `error` is of getaddrinfo(), or an errno. */
int client_explain_name(const struct client_attempt *a, int error, struct err *err);
int client_explain_connect(const struct client_attempt *a, int error, struct err *err);
int client_explain_late(const struct client_attempt *a, struct err *err);
int client_explain_closed(const struct client_attempt *a, struct err *err);
int client_explain_no_reply(const struct client_attempt *a, struct err *err);

#endif
