/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * A connection to a receiver of metrics, plain or TLS, for the thread of an outbox: every step has
 * a deadline and ends at once when the thread is to end.
 */
#ifndef SONDE_DAEMON_SINKS_NET_H
#define SONDE_DAEMON_SINKS_NET_H

#include <openssl/ssl.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct net_target {
	const char *host, *port;
	SSL_CTX *tls; /* NULL: plain */
	unsigned timeout_ms; /* from the connection until the last byte */
	int end_fd; /* readable: give up; -1: none */
};

struct net_conn {
	int fd; /* -1: closed */
	SSL *ssl;
	const struct net_target *target;
	uint64_t deadline_ns; /* CLOCK_MONOTONIC */
};

/* Every address of the name is tried. All return a negative errno with words. */
int net_open(const struct net_target *t, struct net_conn *out, struct err *err);
/* The deadline counts from now: for a connection that is used again. */
void net_restart(struct net_conn *c);
int net_write(struct net_conn *c, const void *data, size_t bytes, struct err *err);
/* Bytes read; 0: the peer has closed. */
int net_read(struct net_conn *c, void *data, size_t bytes, struct err *err);
void net_close(struct net_conn *c);

#endif
