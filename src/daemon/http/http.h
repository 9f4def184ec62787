/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * HTTP on its own port, loopback by default: /metrics, /healthz, /api/v1/<fn>, and the status page.
 * Calls that change something are accepted only as the RPC would accept them: with certificates
 * configured, only over TLS with a good client certificate; and never from a foreign web page.
 */
#ifndef SONDE_DAEMON_HTTP_HTTP_H
#define SONDE_DAEMON_HTTP_HTTP_H

#include <stdint.h>

#include "base/err.h"
#include "daemon/daemon.h"

struct http_server;

/* Listens where the configuration says, or on the sockets `fds` that systemd handed over (nfds >
 * 0). */
int http_server_new(struct daemon *d, const int *fds, int nfds, struct http_server **out,
		    struct err *err);
void http_server_free(struct http_server *s); /* s may be NULL */

struct http_counts {
	uint64_t requests; /* answered */
	uint64_t refused; /* connections and requests */
};
struct http_counts http_server_counts(const struct http_server *s);

#endif
