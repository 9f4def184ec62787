/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Who listens on a TCP port of this machine, for the words of an error. */
#ifndef SONDE_DAEMON_RPC_PEER_OWNER_H
#define SONDE_DAEMON_RPC_PEER_OWNER_H

#include <stddef.h>

/* "dynolog, process 1234", or "another process" where /proc does not tell us. */
void rpc_owner(unsigned port, char *out, size_t size);

#endif
