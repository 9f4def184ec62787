/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Names to addresses, for many at once: getaddrinfo() blocks, for seconds where a server is silent,
 * so that threads ask it. Answers come as events of the loop.
 */
#ifndef SONDE_CLIENT_DNS_H
#define SONDE_CLIENT_DNS_H

#include <event2/event.h>
#include <netdb.h>

struct client_names;

/* `found` belongs to the callee; NULL: `error` of getaddrinfo() says why. */
typedef void (*client_names_fn)(void *arg, size_t id, struct addrinfo *found, int error);

/* NULL: no events or no memory available. */
struct client_names *client_names_new(struct event_base *base, client_names_fn fn, void *arg);
/* Questions that are still being asked are forgotten, not waited for. */
void client_names_free(struct client_names *n);

/* Answered later by fn with that id. Negative errno: no thread could be started. */
int client_names_ask(struct client_names *n, size_t id, const char *host);

/* An address in digits, at once; NULL: it is a name. */
struct addrinfo *client_names_numeric(const char *host);

#endif
