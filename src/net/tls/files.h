/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The files of a certificate directory, read and checked:
 *
 *	ca.crt                    the CAs that peers must come from
 *	server.crt or client.crt  our certificate, and the CAs between it and ca.crt, if any
 *	server.key or client.key  its private key
 *	ca.crl                    what those CAs have revoked; may be missing
 *	key.pass                  the passphrase of the key, for services; may be missing
 *
 * The directory must belong to us or root and be writable by its owner alone, so must the files;
 * keys and passphrase must be readable by their owner alone.
 */
#ifndef SONDE_NET_TLS_FILES_H
#define SONDE_NET_TLS_FILES_H

#include <openssl/x509.h>
#include <stdbool.h>

#include "base/containers/buf.h"
#include "base/err.h"
#include "net/tls/files.h"
#include "net/tls/tls.h"

/* --- passphrases --- */

/*
 * The passphrase of a private key, in memory that is locked and left out of core dumps. It is kept
 * so that certificates can be loaded again without anybody at the terminal.
 */
#define TLS_PASSPHRASE_BYTES 256 /* with the NUL */

struct tls_passphrase {
	int len; /* 0: none is known */
	char text[TLS_PASSPHRASE_BYTES];
};

struct tls_passphrase *tls_passphrase_new(void); /* NULL: no memory */
void tls_passphrase_free(struct tls_passphrase *p); /* p may be NULL */

/* Asks on the terminal for the passphrase of `what`, a file or new keys; fills buf, returns its
 * length or a negative errno. */
int tls_passphrase_ask(const char *what, char *buf, int size, struct err *err);

/* --- the directory --- */

enum tls_role { TLS_ROLE_SERVER, TLS_ROLE_CLIENT };

struct tls_source {
	const char *dir;
	enum tls_role role;
	struct tls_passphrase
		*passphrase; /* tried first if known; keeps the one that opened the key */
	bool may_ask; /* on the terminal */
	tls_notice_fn notice; /* may be NULL */
	void *arg;
};

struct tls_files {
	STACK_OF(X509) * ca;
	STACK_OF(X509) * chain; /* ours, the leaf first */
	STACK_OF(X509_CRL) * crls; /* empty: there is no ca.crl */
	EVP_PKEY *key;
};

int tls_files_load(const struct tls_source *src, struct tls_files *out, struct err *err);
void tls_files_release(struct tls_files *f);

/* The text of a key file to the key. Asks for the passphrase only if it needs one. */
int tls_files_key(const struct tls_source *src, const char *path, struct buf *text, EVP_PKEY **out,
		  struct err *err);

/* All certificates of a PEM text: at least one. */
int tls_files_certificates(const char *path, const struct buf *text, STACK_OF(X509) * *out,
			   struct err *err);
/* All revocation lists of a PEM text: at least one. */
int tls_files_crls(const char *path, const struct buf *text, STACK_OF(X509_CRL) * *out,
		   struct err *err);

/* Whether nobody but its owner, who is us or root, can change what is in it. */
int tls_files_check_dir(const char *dir, struct err *err);
/* Checks owner and mode of the file (secret: nobody else may read it either), and reads it. -ENOENT
 * if it is not there. */
int tls_files_read(const char *path, bool secret, struct buf *out, struct err *err);
/* Wipes before it frees. */
void tls_files_forget(struct buf *text);

#endif
