/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * A directory with a certificate authority and what it has issued:
 *
 *	ca/ca.crt ca.key ca.crl     the CA: stays where it was made
 *	ca/issued/SET-SERIAL.crt    every certificate it has ever signed
 *	server-HOST/                a set: ca.crt server.crt server.key ca.crl
 *	client/ client-NAME/        a set: ca.crt client.crt client.key ca.crl
 *
 * A set is what --certs-dir needs. Sets may be moved away; the CA remembers what it has issued and
 * can revoke it all the same. Directories have mode 0700, files 0600. What exists is only
 * overwritten on request.
 */
#ifndef SONDE_CERTS_CERTS_H
#define SONDE_CERTS_CERTS_H

#include <openssl/x509.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/containers/buf.h"
#include "base/err.h"
#include "net/tls/files.h"

/* --- issue --- */

/*
 * Making keys, certificates and revocation lists, in memory. What is made passes the checks of
 * net/tls/certificate.h and of today's tools: X.509 v3, sha256, RSA 3072 or EC P-256, key usage,
 * hosts as alternative names.
 */

#define CERTS_DEFAULT_DAYS 825 /* valid for so long; the longest that browsers accept */

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

/* --- the directory --- */

struct certs;

struct certs_options {
	unsigned days; /* how long what is issued now is valid */
	enum certs_key key; /* of what is made now */
	bool encrypt; /* keys made now, with the passphrase */
	struct tls_passphrase *passphrase; /* borrowed; also tried for an encrypted ca.key */
};

/* Opens the directory and locks it; makes the CA if there is none and `create` says so, else that
 * is an error. */
int certs_open(const char *dir, const struct certs_options *o, bool create, struct certs **out,
	       struct err *err);
void certs_free(struct certs *c); /* c may be NULL */
bool certs_is_new(const struct certs *c);

/* Adds the name of the set of a server or client: "server-HOST", "client", "client-NAME". */
void certs_set_name(enum certs_kind kind, const char *name, struct buf *out);

/* Makes the set of a server (hosts: "NAME,OTHER,…") or a client. 1 if it was made, 0 if it was
 * there and `renew` is false. */
int certs_add(struct certs *c, enum certs_kind kind, const char *name, const char *hosts,
	      bool renew, struct err *err);

/* Makes the set anew, with a new key, for the hosts it has been for; adds its host or client. */
int certs_renew(struct certs *c, const char *set, struct buf *out_name, struct err *err);

/* Revokes all that was issued for a set, or for a host or client of that name; returns how many
 * certificates that were, 0 if all of them are revoked already, and writes the list into every set
 * that is here. */
int certs_revoke(struct certs *c, const char *name, struct err *err);

/* Calls for each set that is here, in order of name; ends at the first negative result. */
typedef int (*certs_set_fn)(void *arg, const char *set, struct err *err);
int certs_each_set(struct certs *c, certs_set_fn fn, void *arg, struct err *err);

/* Calls for each certificate that was issued, in order of set. */
struct certs_issued {
	const char *set;
	X509 *x;
	bool revoked;
};
typedef int (*certs_issued_fn)(void *arg, const struct certs_issued *i, struct err *err);
int certs_each_issued(struct certs *c, certs_issued_fn fn, void *arg, struct err *err);

#endif
