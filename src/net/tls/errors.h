/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * What went wrong on a TLS connection, recorded while it goes wrong: libevent empties OpenSSL's
 * error queue before anybody can read it, and a refused certificate is gone when the handshake has
 * failed.
 */
#ifndef SONDE_NET_TLS_ERRORS_H
#define SONDE_NET_TLS_ERRORS_H

#include <openssl/ssl.h>

/* Records the errors of all connections of this context. */
void tls_errors_watch(SSL_CTX *ctx);

/* Remembers for which host (borrowed only now) this connection is. */
void tls_errors_set_host(SSL *ssl, const char *host);

/* For SSL_set_verify(); also decides which revocation list may be missing. */
int tls_errors_verify(int ok, X509_STORE_CTX *store);

#endif
