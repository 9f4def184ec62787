/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * What a certificate says, and what it and a revocation list must be before they are used. `path`
 * is only for the words. Times are UTC.
 */
#ifndef SONDE_NET_TLS_CERTIFICATE_H
#define SONDE_NET_TLS_CERTIFICATE_H

#include <openssl/x509.h>
#include <stdbool.h>

#include "base/containers/buf.h"
#include "base/err.h"

enum tls_kind {
	TLS_KIND_CA, /* of ca.crt: signs certificates and revocation lists */
	TLS_KIND_INTERMEDIATE, /* a CA between that one and ours */
	TLS_KIND_LEAF, /* of a server or a client: must not be a CA */
};

/* X.509 v3, a signature and a key that are strong enough, inside its dates, with a key usage. */
int tls_check_certificate(X509 *x, enum tls_kind kind, const char *path, struct err *err);

/* Signed by one of `ca` and inside its dates; one without an end is good for a year. */
int tls_check_crl(X509_CRL *crl, STACK_OF(X509) * ca, const char *path, struct err *err);

/* Whether one of the lists revokes the certificate. */
bool tls_is_revoked(STACK_OF(X509_CRL) * crls, X509 *x);

/* A time as "2026-01-31 12:00:00 UTC". */
#define TLS_TIME_BYTES 32
void tls_time_text(const ASN1_TIME *t, char out[TLS_TIME_BYTES]);

/*
 * Whom a certificate is for. It may come from a peer: characters that a terminal or a log could
 * obey are added as `?`.
 */

/* Adds the common name. */
void tls_name_of(X509 *x, struct buf *out);

/* Adds the host names and addresses with `between` between them. */
void tls_hosts_of(X509 *x, const char *between, struct buf *out);

#endif
