/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The other side of the RPC: calls to one daemon or to thousands at once, on one loop.
 */
#ifndef SONDE_CLIENT_CLIENT_H
#define SONDE_CLIENT_CLIENT_H

#include <jansson.h>
#include <openssl/ssl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* One call. The caller fills the first part and keeps it until client_run() returns. */
struct client_call {
	const char *host;
	unsigned port;
	const json_t *request;

	/* the outcome */
	char *reply; /* as received; NULL on failure; client_call_release() frees it */
	size_t reply_bytes;
	struct err err; /* code 0: it was answered */
	double seconds; /* from the start until the outcome */
	/* CLOCK_MONOTONIC when the request was sent, names and handshakes before it, and when its
	 * reply was there; 0: it did not get so far. */
	uint64_t asked_ns, answered_ns;
};

struct client_options {
	SSL_CTX *tls; /* NULL: plain */
	unsigned timeout_ms; /* of each call, names and handshake included */
	unsigned max_in_flight; /* connections at a time; 0: as many as there may be files */
	/* Called as each outcome comes in; may be NULL. */
	void (*done)(void *arg, struct client_call *call);
	void *arg;
};

/* Makes all calls and returns when each has its outcome. Every address of a name is tried. */
int client_run(struct client_call *calls, size_t n, const struct client_options *o,
	       struct err *err);
void client_call_release(struct client_call *call);

#endif
