/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Mutual TLS of both sides of the RPC. A directory holds ca.crt, server.crt and server.key or
 * client.crt and client.key, and perhaps ca.crl; they are checked before any handshake: X.509 v3,
 * signature algorithm, key length, dates, usage, own revocation, and the modes of the files. A
 * peer's certificate must come from ca.crt and must not be on ca.crl.
 */
#ifndef SONDE_NET_TLS_TLS_H
#define SONDE_NET_TLS_TLS_H

#include <jansson.h>
#include <openssl/ssl.h>
#include <stdbool.h>

#include "base/containers/buf.h"
#include "base/err.h"

/* --- daemon --- */

struct tls_server;

int tls_server_new(const char *certs_dir, struct tls_server **out, struct err *err);
void tls_server_free(struct tls_server *t); /* t may be NULL */

/* Reads the files again for new connections; what was there stays in force on failure. */
int tls_server_reload(struct tls_server *t, struct err *err);

/* An SSL for an accepted connection: requires a client certificate. */
SSL *tls_server_ssl(struct tls_server *t);
/* The same for HTTP: asks for a certificate but lets peers without one read what is public. */
SSL *tls_server_ssl_optional(struct tls_server *t);
/* Whether the peer showed a good certificate. */
bool tls_peer_verified(const SSL *ssl);
/* The same as of now, for a connection that lasts: a certificate that has expired or was revoked
 * since is no good any more. */
bool tls_server_trusts(const struct tls_server *t, const SSL *ssl);

/* Adds the name that the peer's certificate is for. False: it has none, several, or one that is no
 * plain text. */
bool tls_peer_name(const SSL *ssl, struct buf *out);

/* {"subject":…,"not_after":"…","days_left":N,"crl":bool} */
json_t *tls_server_describe(const struct tls_server *t);

/* --- client --- */

/* `notice` (may be NULL) gets each line that today's CLI prints while it loads. */
typedef void (*tls_notice_fn)(void *arg, const char *line);
int tls_client_new(const char *certs_dir, tls_notice_fn notice, void *arg, SSL_CTX **out,
		   struct err *err);
/* An SSL that will accept only a certificate for `host` (DNS name or address). */
SSL *tls_client_ssl(SSL_CTX *ctx, const char *host);

/* Why the last handshake failed, in words. */
void tls_failure(const SSL *ssl, struct err *err);

#endif
