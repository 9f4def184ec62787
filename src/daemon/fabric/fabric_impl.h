/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Inside of the fabric: fabric.c takes datagrams, daemon/fabric/sockets.c looks after the sockets
 * on which they arrive. */
#ifndef SONDE_DAEMON_FABRIC_FABRIC_IMPL_H
#define SONDE_DAEMON_FABRIC_FABRIC_IMPL_H

#include "base/containers/buf.h"
#include "daemon/fabric/endpoint.h"
#include "daemon/fabric/fabric.h"
#include "daemon/fabric/rate_limit.h"
#include "daemon/fabric/reply.h"
#include "daemon/jobs/jobs.h"

#define FABRIC_LISTENERS 5
#define FABRIC_DROP_REASONS (FABRIC_FAULTS + 8) /* fabric.c */

/* An endpoint on which the daemon listens, or wants to. */
struct fabric_listener {
	struct fabric *fabric;
	const char *name, *kind; /* "home-data", "home" */
	char *where; /* the abstract name, or the path */
	bool is_path;
	mode_t mode; /* of the path */
	struct fabric_endpoint socket;
	struct event *readable; /* NULL: not open */
	bool suspended;
	bool lost; /* its file was removed or replaced, which is logged once */
	unsigned free_polls; /* how often in a row nobody had it */
	uint64_t received;
};

struct fabric {
	struct daemon *daemon;
	fabric_data_fn data;
	void *data_arg;
	struct fabric_listener listeners[FABRIC_LISTENERS];
	unsigned nlisteners;
	/* Suspended endpoints are read again when all others were served, or after a while. */
	struct event *others_served, *suspended_enough;
	struct event *reopen; /* endpoints that another daemon had, or whose files were removed */
	int watch_fd; /* inotify of the directories of socket files; -1: none */
	struct event *watch;
	struct fabric_limit limit;
	struct fabric_replies *replies;
	uint64_t dropped[FABRIC_DROP_REASONS];
	struct buf text; /* of a config */
	char *datagram; /* FABRIC_MAX_BYTES, aligned as malloc() does */
};

/* --- fabric.c --- */

/* Reads what has arrived; arg is the listener. */
void fabric_on_readable(evutil_socket_t fd, short what, void *arg);

/* --- daemon/fabric/sockets.c --- */

/* Opens what is available, and keeps it open. False: nothing is. */
bool fabric_sockets_open(struct fabric *f);
void fabric_sockets_close(struct fabric *f);
/* A guest is gone that was reached by one of the listeners, at this address: the file of its socket
 * is removed, if it lies beside ours. */
void fabric_sockets_tidy(void *arg, uid_t uid, const struct jobs_address *at);

#endif
