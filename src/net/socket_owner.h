/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Whose the other end of a connection is, as the kernel says. */
#ifndef SONDE_NET_SOCKET_OWNER_H
#define SONDE_NET_SOCKET_OWNER_H

#include <sys/types.h>

/* A socket for questions about TCP. Negative errno: this kernel answers none. */
int socket_owner_open(void);

/*
 * The user who made the socket on the other end of a TCP connection, if it is a socket of this
 * machine and network namespace: one exact question of some microseconds, whatever the number of
 * sockets. -ENOENT: there is none, or its program has closed it. Other negative errno: the kernel
 * does not answer.
 */
int socket_owner_tcp(int questions, int fd, uid_t *out);

/* The user, and whether the process has the group, of the other end of a UNIX stream socket.
 * `group` (gid_t)-1: none is asked for. Negative errno. */
int socket_owner_unix(int fd, gid_t group, uid_t *out, int *out_in_group);

#endif
