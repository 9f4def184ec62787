/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * One datagram endpoint of the fabric: a bound socket that tells the credentials of senders. A
 * socket file that a dead daemon left behind is replaced; one that somebody listens on, that
 * belongs to another user, or that is no socket, never is.
 */
#ifndef SONDE_DAEMON_FABRIC_ENDPOINT_H
#define SONDE_DAEMON_FABRIC_ENDPOINT_H

#include <stdbool.h>
#include <sys/types.h>
#include <sys/un.h>

#include "base/err.h"

struct fabric_endpoint {
	int fd;
	struct sockaddr_un address;
	bool is_path;
};

int fabric_endpoint_abstract(struct fabric_endpoint *e, const char *name, struct err *err);
int fabric_endpoint_path(struct fabric_endpoint *e, const char *path, mode_t mode, struct err *err);

/* Closes the socket and removes its file, unless it has become another's. */
void fabric_endpoint_close(struct fabric_endpoint *e);

/* "@dynolog" or the path. */
const char *fabric_endpoint_text(const struct fabric_endpoint *e, char buf[112]);

#endif
