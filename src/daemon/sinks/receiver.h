/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * A receiver of metrics, for the thread of an outbox: a connection, plain or TLS, and HTTP POST
 * over one. Every step has a deadline and ends at once when the thread is to end.
 */
#ifndef SONDE_DAEMON_SINKS_RECEIVER_H
#define SONDE_DAEMON_SINKS_RECEIVER_H

#include <openssl/ssl.h>
#include <stddef.h>
#include <stdint.h>

#include "base/containers/buf.h"
#include "base/err.h"

struct receiver {
	const char *host, *port;
	SSL_CTX *tls; /* NULL: plain */
	unsigned timeout_ms; /* from the connection until the last byte */
	int end_fd; /* readable: give up; -1: none */
};

struct receiver_conn {
	int fd; /* -1: closed */
	SSL *ssl;
	const struct receiver *target;
	uint64_t deadline_ns; /* CLOCK_MONOTONIC */
};

/* Every address of the name is tried. All return a negative errno with words. */
int receiver_connect(const struct receiver *t, struct receiver_conn *out, struct err *err);
/* The deadline counts from now: for a connection that is used again. */
void receiver_restart(struct receiver_conn *c);
int receiver_write(struct receiver_conn *c, const void *data, size_t bytes, struct err *err);
/* Bytes read; 0: the peer has closed. */
int receiver_read(struct receiver_conn *c, void *data, size_t bytes, struct err *err);
void receiver_close(struct receiver_conn *c);

/* --- HTTP POST --- */

struct post;

struct post_options {
	const char *endpoint; /* http[s]://host[:port][/path] */
	const char *path; /* added to that of the endpoint, if it is not there yet */
	const char *headers; /* "name=value,name=value"; or NULL */
	const char *ca, *cert,
		*key; /* files for https; NULL or "": the system's CAs, no certificate */
	unsigned timeout_ms;
};

int post_new(const struct post_options *o, struct post **out, struct err *err);
void post_free(struct post *p);

/* -EAGAIN: the receiver asks for a later try, or cannot be reached. Any other failure is final.
 * end_fd: readable when the thread is to end. */
int post_send(struct post *p, const struct buf *body, int end_fd, struct err *err);

#endif
