/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * One datagram endpoint of the fabric: a bound socket that tells the credentials of senders. A
 * socket file that a dead daemon left behind is replaced; one that somebody listens on, that
 * belongs to another user, or that is no socket, never is.
 *
 * While the socket is open, the kernel keeps the inode of its file, even without a name: so the
 * number tells whether the name still leads to us.
 */
#ifndef SONDE_DAEMON_FABRIC_ENDPOINT_H
#define SONDE_DAEMON_FABRIC_ENDPOINT_H

#include <stdbool.h>
#include <sys/types.h>
#include <sys/un.h>

#include "base/err.h"

struct fabric_endpoint {
	int fd;
	int send_bytes; /* its buffer for answers that are not read yet */
	struct sockaddr_un address;
	bool is_path;
	dev_t device; /* of the file of a path */
	ino_t inode;
};

int fabric_endpoint_abstract(struct fabric_endpoint *e, const char *name, struct err *err);
int fabric_endpoint_path(struct fabric_endpoint *e, const char *path, mode_t mode, struct err *err);

/* Removes the file of a socket, if it is one of this user that nobody listens on; follows no link.
 */
int fabric_endpoint_remove_dead(const char *path, uid_t owner, struct err *err);

/* Whether nobody has the name now, as far as can be told without taking it. */
bool fabric_endpoint_free(const char *name, bool is_path);

/* Whether those who use its name do not reach it any more: the file was removed or replaced. */
bool fabric_endpoint_lost(const struct fabric_endpoint *e);

/* Closes the socket and removes its file, unless it has become another's. */
void fabric_endpoint_close(struct fabric_endpoint *e);

/* "@dynolog" or the path. */
const char *fabric_endpoint_text(const struct fabric_endpoint *e, char buf[112]);

#endif
