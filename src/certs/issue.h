/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Making keys, certificates and revocation lists, in memory. What is made passes the checks of
 * net/tls/certificate.h and of today's tools: X.509 v3, sha256, RSA 3072 or EC P-256, key usage,
 * hosts as alternative names.
 */
#ifndef SONDE_CERTS_ISSUE_H
#define SONDE_CERTS_ISSUE_H

#include <openssl/x509.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

enum certs_key { CERTS_RSA, CERTS_EC };
enum certs_kind { CERTS_CA, CERTS_SERVER, CERTS_CLIENT };

struct certs_issuer {
	X509 *ca;
	EVP_PKEY *key;
};

struct certs_subject {
	enum certs_kind kind;
	const char *name; /* for people; cut to what fits */
	const char *hosts; /* of a server: names and addresses, separated by commas */
	unsigned days;
};

/* Whether the text is an address or a host name, perhaps with `*.` before it. */
bool certs_is_host(const char *text);

int certs_make_key(enum certs_key type, EVP_PKEY **out, struct err *err);

/* `by` NULL: signs itself, which is for a CA. It never outlives the CA. */
int certs_make(const struct certs_subject *s, EVP_PKEY *key, const struct certs_issuer *by,
	       X509 **out, struct err *err);

/* A list with all that `old` (may be NULL) has and `revoked` (n of them) on it. */
int certs_make_crl(const struct certs_issuer *by, X509_CRL *old, X509 *const *revoked, size_t n,
		   X509_CRL **out, struct err *err);

#endif
