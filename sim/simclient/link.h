/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The datagram socket of a client, bound to a name of its own, and the calls of each kind of
 * client.
 */
#ifndef SIM_CLIENT_LINK_H
#define SIM_CLIENT_LINK_H

#include <stddef.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/un.h>

#include "client.h"
#include "wire.h"

struct link_address {
	struct sockaddr_un sun;
	socklen_t len;
};

struct link {
	int fd;
	enum client_kind kind;
	struct link_address server, data;
	char own_path[128]; /* our socket file; "": abstract */
};

/* Negative errno, after it was told. */
int link_open(struct link *l, const struct client_options *o);
void link_close(struct link *l);

/* Whether there is a daemon to send to, as the NPU client looks for it: a socket file that it may
 * write to. It does not try again. */
bool link_server_there(const struct link *l);

/* Waits its turn as the real ones do, up to 10 s, while the daemon's queue is full or nobody is at
 * the other end. Negative errno. */
int link_send(struct link *l, const char *type, const void *payload, size_t len);
/* To the data socket; given up after 31 ms. */
int link_send_data(struct link *l, const char *json, size_t len);

/* One datagram, the oldest; looked for `tries` times with 10 ms in between. Its payload's length,
 * or -EAGAIN; -EPERM if it came from a stranger, and then it stays where it is, as with the NPU
 * client. */
ssize_t link_receive(struct link *l, int tries, char *buf, size_t size);

/* What clients say. */
int link_context(struct link *l, int gpu);
int link_request(struct link *l, int mask);
void link_trace_status(struct link *l, enum wire_state s, int current, int start, int stop);
void link_monitor_status(struct link *l, enum wire_state s);

#endif
