/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Listening sockets of the RPC and of HTTP: a few connections are accepted at a time, so that other
 * events are served in between; when files run out, or on demand, accepting rests for a while.
 */
#ifndef SONDE_DAEMON_ACCEPT_H
#define SONDE_DAEMON_ACCEPT_H

#include <event2/event.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "daemon/daemon.h"
#include "daemon/fabric/fabric_impl.h"
#include "net/address.h"

#define LISTENERS_MAX (DAEMON_MAX_BINDS * 2 + 1)

struct listener {
	struct listeners *set;
	int fd;
	struct event *event; /* NULL: not started */
	unsigned port;
	bool is_unix;
	struct fabric_endpoint file; /* of a socket that listeners_open_path() made; else zero */
	char name[ADDRESS_TEXT_BYTES]; /* "127.0.0.1:1778", or the path */
};

struct listeners {
	struct event_base *base;
	struct listener v[LISTENERS_MAX];
	unsigned n;
	struct event *resume;
	bool resting;
	uint64_t failures; /* of accept(), for want of files */
	/* Takes the socket over, which does not block. */
	void (*accepted)(void *arg, const struct listener *from, int fd);
	void (*free_one)(void *arg); /* files have run out: closes a connection; may be NULL */
	void *arg;
};

/* The caller sets the functions first. */
void listeners_init(struct listeners *l, struct event_base *base);
void listeners_release(struct listeners *l);

/* Takes a listening socket over; NULL, with the socket closed: there are too many. */
struct listener *listeners_add(struct listeners *l, int fd);
/* A new socket that listens at the address. Negative errno: it cannot. */
int listeners_open(struct listeners *l, const struct sockaddr *a, socklen_t len, bool v6_only,
		   struct listener **out);
/* The same by a path, for everybody on this machine. Its file is removed at the end. */
int listeners_open_path(struct listeners *l, const char *path, struct err *err);
void listeners_close(struct listeners *l); /* all of them */

/* Accepts from now on, those that were added since as well. */
void listeners_start(struct listeners *l);
void listeners_rest(struct listeners *l, uint64_t us);
/* What the kernel has connected already, `most` of each socket. */
void listeners_accept_waiting(struct listeners *l, unsigned most);

#endif
