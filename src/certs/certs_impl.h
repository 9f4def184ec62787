/* SPDX-License-Identifier: MulanPSL-2.0 */
/* What the two halves of the certificate directory share: certs.c has the CA and the files, sets.c
 * what it issues. */
#ifndef SONDE_CERTS_CERTS_IMPL_H
#define SONDE_CERTS_CERTS_IMPL_H

#include "base/containers/buf.h"
#include "certs/certs.h"

struct certs {
	char *dir;
	int lock; /* descriptor of dir, locked */
	struct certs_options o;
	struct certs_issuer issuer; /* the key: see certs_unlock() */
	X509_CRL *crl; /* NULL only while the CA is being made */
	bool made;
};

/* dir/A/B (B may be NULL) in `out`, which it clears. */
const char *certs_path(const struct certs *c, const char *a, const char *b, struct buf *out);

/* Loads the key of the CA, unless it is there; may ask for its password. */
int certs_unlock(struct certs *c, struct err *err);

/* A directory of mode 0700 below dir; fine if it is there. */
int certs_mkdir(const struct certs *c, const char *name, struct err *err);

/* Each writes dir/A/B as PEM, mode 0600, in one step. */
int certs_write_certificate(const struct certs *c, const char *a, const char *b, X509 *x,
			    struct err *err);
int certs_write_crl(const struct certs *c, const char *a, const char *b, struct err *err);
int certs_write_key(const struct certs *c, const char *a, const char *b, EVP_PKEY *key,
		    struct err *err);

/* The first certificate of dir/A/B. */
int certs_read_certificate(const struct certs *c, const char *a, const char *b, X509 **out,
			   struct err *err);

#endif
