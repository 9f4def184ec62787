/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Inside the client: client.c has the run of all calls, client/call.c one call from name to reply,
 * client/names.c names to addresses, client/errors.c what to say when one fails.
 */
#ifndef SONDE_CLIENT_CLIENT_IMPL_H
#define SONDE_CLIENT_CLIENT_IMPL_H

#include <event2/event.h>
#include <event2/event_struct.h>
#include <netdb.h>
#include <openssl/ssl.h>
#include <stdint.h>

#include "base/containers/buf.h"
#include "client/client.h"
#include "client/names.h"

struct client_attempt;

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
	uint64_t start_ns;
	char where[300]; /* "host:port" */
};

/* Begins call i; it may be done when this returns. */
void client_attempt_start(struct client_run *run, size_t i);
/* The addresses of its name have come, or not. */
void client_attempt_named(struct client_attempt *a, struct addrinfo *found, int error);
/* Gives up what is under way, without an outcome. */
void client_attempt_free(struct client_attempt *a);

/* client.c: the outcome of a call is there (call->err.code, or its reply). */
void client_attempt_done(struct client_attempt *a);

/* --- client/errors.c: what went wrong and what to do about it --- */

int client_words_name(const struct client_attempt *a, int error, struct err *err);
int client_words_connect(const struct client_attempt *a, int error, struct err *err);
int client_words_late(const struct client_attempt *a, struct err *err);
int client_words_closed(const struct client_attempt *a, struct err *err);
int client_words_no_reply(const struct client_attempt *a, struct err *err);

#endif
