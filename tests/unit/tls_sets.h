/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Certificate directories for tests, and certificates that the certs module would not make. Each
 * test is a process of its own and has one directory, which is gone when it ends. */
#ifndef SONDE_TESTS_UNIT_TLS_SETS_H
#define SONDE_TESTS_UNIT_TLS_SETS_H

#include <openssl/ssl.h>
#include <stdbool.h>
#include <sys/types.h>

#include "certs/certs.h"
#include "net/tls/tls.h"

void sets_begin(void);
/* The path of something in the directory; the last eight stay valid. */
const char *sets_path(const char *name);

/* A CA `name` with a server for a.test and localhost and a client. */
extern const struct certs_options sets_plain;
struct certs *sets_make(const char *name, const struct certs_options *o);

struct tls_server *sets_server(const char *set);
SSL_CTX *sets_client(const char *set);
/* The words with which loading a set fails. */
const char *sets_refusal(const char *set, bool server);

void sets_write(const char *path, const char *text, mode_t mode);

/* The issuer of a CA, for signing what it would not. */
struct certs_issuer sets_issuer(const char *ca);
void sets_issuer_release(struct certs_issuer *by);

struct odd {
	int rsa_bits; /* 0: P-256 */
	const char *constraints, *usage; /* NULL: no such extension */
	const EVP_MD *md;
	long version;
	int from_days, to_days;
};

extern const struct odd odd_sound; /* nothing odd about it */
EVP_PKEY *odd_key(int rsa_bits);
/* `by` NULL: signs itself. */
X509 *odd_make(const struct odd *o, EVP_PKEY *key, const struct certs_issuer *by);

#define CHECK_HAS(text, part)                                                                      \
	do {                                                                                       \
		const char *t_ = (text);                                                           \
		if (!strstr(t_, part)) {                                                           \
			fprintf(stderr, "%s:%d: no '%s' in: %s\n", __FILE__, __LINE__, part, t_);  \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)

#endif
