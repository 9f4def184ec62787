/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The control RPC server: listeners, connections, frames (wire/rpc.h), TLS where there are
 * certificates. What a connection may cost is bounded: one request and its replies in memory, a
 * deadline for each request, a number of connections.
 */
#ifndef SONDE_DAEMON_RPC_RPC_H
#define SONDE_DAEMON_RPC_RPC_H

#include <jansson.h>

#include "base/err.h"
#include "daemon/daemon.h"

struct rpc_server;

/* Listens where the configuration says, or on the sockets `fds` that systemd handed over (nfds >
 * 0): those of notify.h, which listen and do not block. Fails if it can listen nowhere. */
int rpc_server_new(struct daemon *d, const int *fds, int nfds, struct rpc_server **out,
		   struct err *err);
void rpc_server_free(struct rpc_server *s);

/* Before the end: listens no more, answers what has come, closes connections that ask nothing.
 * Gives how many still have something to be sent. */
unsigned rpc_server_drain(struct rpc_server *s);

/* For how long it has been there. The time of day may jump; this does not. */
double rpc_server_age_s(const struct rpc_server *s);

/* {"port":N,"addresses":[…],"connections":N,"max_connections":N,"accepted":N,"accept_failures":N,
 * "calls":N,"refused":{…}} */
json_t *rpc_server_describe(const struct rpc_server *s);

#endif
