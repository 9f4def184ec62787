/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The passphrase of a private key, in memory that is locked and left out of core dumps. It is kept
 * so that certificates can be loaded again without anybody at the terminal.
 */
#ifndef SONDE_NET_TLS_PASSPHRASE_H
#define SONDE_NET_TLS_PASSPHRASE_H

#include "base/err.h"

#define TLS_PASSPHRASE_BYTES 256 /* with the NUL */

struct tls_passphrase {
	int len; /* 0: none is known */
	char text[TLS_PASSPHRASE_BYTES];
};

struct tls_passphrase *tls_passphrase_new(void); /* NULL: no memory */
void tls_passphrase_free(struct tls_passphrase *p); /* p may be NULL */

/* Asks on the terminal for the passphrase of `what`, a file or new keys; fills buf, gives its
 * length or a negative errno. */
int tls_passphrase_ask(const char *what, char *buf, int size, struct err *err);

#endif
