/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * TLS handshakes of the RPC and of HTTP. A handshake costs the daemon milliseconds, and anybody who
 * reaches the port can ask for one, so they are shared out by source (struct caller): a user of
 * this machine, or an address.
 *
 *  - Handshakes get half of the loop's time. Of the sources that want one, the one that has used
 *    least of late is served next; one from which a good certificate has come counts less.
 *  - A source has GREETER_PER_SOURCE places. When they, or all places, are taken, the source with
 *    most of them loses one, before anything was computed for it if possible. So a flood costs its
 *    own source, not others; and within a source, who was taken in is served.
 */
#ifndef SONDE_DAEMON_GREETER_H
#define SONDE_DAEMON_GREETER_H

#include <jansson.h>
#include <openssl/ssl.h>
#include <stdbool.h>

#include "daemon/access.h"
#include "daemon/daemon.h"
#include "net/address.h"

#define GREETER_PLACES 256
#define GREETER_PER_SOURCE 64

enum greeting_refusal {
	GREETING_FAILED,
	GREETING_LATE, /* it took too long */
	GREETING_CROWDED, /* others needed the place */
};

/* A server whose connections begin with a handshake. Zeroed but for what it sets. */
struct handshakes_server {
	bool certificate_optional;
	/* Takes the socket and the connection over. */
	void (*greeted)(void *arg, int fd, SSL *ssl, const struct caller *caller);
	/* It is closed. `words`: what failed, or NULL. */
	void (*refused)(void *arg, enum greeting_refusal why, const char *peer, const char *words);
	void *arg;
	unsigned pending; /* handshakes that are going on */
};

struct handshakes;

struct handshakes *handshakes_new(struct daemon *d);
void handshakes_free(struct handshakes *g); /* g may be NULL; its servers are gone */

/* Takes over a socket that was accepted and does not block. */
void handshakes_add(struct handshakes *g, struct handshakes_server *s, int fd,
		    const struct caller *caller);
/* Closes all of the server, without a word; s->pending is 0 afterwards. */
void handshakes_forget(struct handshakes *g, struct handshakes_server *s);

#endif
