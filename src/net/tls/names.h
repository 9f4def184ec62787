/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Whom a certificate is for. It may come from a peer: characters that a terminal or a log could
 * obey are added as `?`. */
#ifndef SONDE_NET_TLS_NAMES_H
#define SONDE_NET_TLS_NAMES_H

#include <openssl/x509.h>

#include "base/containers/buf.h"

/* Adds the common name. */
void tls_name_of(X509 *x, struct buf *out);

/* Adds the host names and addresses with `between` between them. */
void tls_hosts_of(X509 *x, const char *between, struct buf *out);

#endif
