/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Inside the RPC server: rpc.c has the server, admits connections and queues work that must not
 * hold up others, daemon/rpc/connection.c reads, serves and writes on one connection,
 * daemon/rpc/timeouts.c ends connections that take too long, and daemon/rpc/listen.c makes the
 * listening sockets.
 */
#ifndef SONDE_DAEMON_RPC_RPC_IMPL_H
#define SONDE_DAEMON_RPC_RPC_IMPL_H

#include <event2/event.h>
#include <event2/event_struct.h>
#include <openssl/ssl.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "base/containers/buf.h"
#include "base/containers/hmap.h"
#include "base/err.h"
#include "daemon/accept.h"
#include "daemon/access.h"
#include "daemon/daemon.h"
#include "daemon/handshakes.h"
#include "daemon/rpc/rpc.h"
#include "net/rpc_frame.h"
#include "wire/rpc.h"

#define RPC_INPUT_BYTES 16384 /* read at a time, and kept of one connection: a TLS record */

/* Why a connection was ended by us. */
enum rpc_end {
	RPC_END_PEER, /* the peer left, with nothing asked that was not answered */
	RPC_END_IDLE, /* nothing asked for a while */
	RPC_END_BAD_LENGTH,
	RPC_END_BAD_JSON,
	RPC_END_UNKNOWN, /* no such function */
	RPC_END_SLOW, /* the request did not become whole in time */
	RPC_END_INCOMPLETE, /* the peer left in the middle of a request, or before its reply */
	RPC_END_UNREAD, /* the peer does not take its replies */
	RPC_END_HANDSHAKE, /* TLS failed, or took too long */
	RPC_END_CROWDED, /* others needed the place */
	RPC_END_SHUTDOWN,
	RPC_ENDS
};

extern const char *const rpc_end_names[RPC_ENDS]; /* NULL: not counted as refused */

enum rpc_list {
	RPC_IDLE, /* nothing of a request has come */
	RPC_BUSY, /* a request is incomplete, or a reply unsent */
	RPC_LISTS
};

struct rpc_server;

struct rpc_conn {
	TAILQ_ENTRY(rpc_conn) link; /* on its list */
	TAILQ_ENTRY(rpc_conn) queue_link; /* in a queue, while queued */
	struct rpc_server *server;
	struct event event;
	struct caller caller;
	SSL *ssl; /* NULL: plain */
	struct buf in; /* read and not served yet; at most RPC_INPUT_BYTES */
	struct buf out; /* not yet taken by the kernel, from out_sent on */
	size_t out_sent;
	size_t out_mark; /* out_sent when the deadline was set */
	uint64_t deadline_ns;
	int fd;
	short waits; /* what `event` is added for; 0: it is not */
	short wants; /* what the last read or write would wait for */
	enum rpc_list list;
	enum rpc_end ending; /* not RPC_END_PEER: to be closed when `out` is sent */
	bool eof; /* the peer will send nothing more */
	bool broken; /* an error ended it: there is nothing more to say */
	bool queued;
};

TAILQ_HEAD(rpc_conns, rpc_conn);

/* Work that is done one piece for each round of the event loop. */
struct rpc_queue {
	struct rpc_conns conns;
	struct event *timer;
};

struct rpc_server {
	struct daemon *daemon;
	uint64_t began_ns;
	struct listeners listeners;
	struct rpc_conns lists[RPC_LISTS];
	unsigned counts[RPC_LISTS];
	unsigned max_conns;
	struct hmap per_source; /* connections of each (struct caller) */
	struct event *sweep; /* at the next deadline */
	struct handshakes_server handshaking; /* TLS handshakes, which come before the lists */
	struct rpc_queue later; /* further requests of connections that sent many */
	struct buf reply; /* what is being answered now; empty between events */
	size_t unsent; /* bytes that connections keep for their peers */
	char input[RPC_INPUT_BYTES];
	uint64_t calls, accepted, forbidden;
	uint64_t ends[RPC_ENDS];
	uint64_t logged_ns, unlogged; /* peers that were refused: the last line of the log, and
					 since */
};

/* --- rpc.c --- */

/* A zeroed server that listens nowhere. */
void rpc_server_init(struct rpc_server *s, struct daemon *d);
/* Takes over a connected, non-blocking socket. */
void rpc_server_admit(struct rpc_server *s, int fd);
/* Of those that keep replies, of the source that keeps most, the one with most. NULL: none does. */
struct rpc_conn *rpc_server_most_unsent(struct rpc_server *s);
/* Served later, one for each round of the loop. */
void rpc_queue_add(struct rpc_queue *q, struct rpc_conn *c);
void rpc_queue_remove(struct rpc_conn *c);

/* --- daemon/rpc/connection.c --- */

/* Takes the socket over. ssl: its handshake is over; NULL: plain. */
struct rpc_conn *rpc_conn_new(struct rpc_server *s, int fd, SSL *ssl, const struct caller *caller);
/* Does what can be done now. It may be closed and freed afterwards. */
void rpc_conn_work(struct rpc_conn *c);
/* Frees what it has; rpc_conn_close() takes it off the server first. */
void rpc_conn_free(struct rpc_conn *c);
/* "10.0.0.7:40112", or "unknown" */
void rpc_conn_peer(const struct rpc_conn *c, char out[ADDRESS_TEXT_BYTES]);
/* One line in a while: anybody can make it happen. */
void rpc_log_refusal(struct rpc_server *s, const char *what, const char *peer, const char *why);

/* --- daemon/rpc/timeouts.c --- */

void rpc_timeouts_init(struct rpc_server *s);
void rpc_timeouts_arm(struct rpc_server *s);
/* Puts it at the end of its list, with a new deadline; moves it to the end of another. */
void rpc_conn_insert(struct rpc_conn *c);
void rpc_conn_set_list(struct rpc_conn *c, enum rpc_list list);
void rpc_conn_close(struct rpc_conn *c, enum rpc_end why);

/* --- daemon/rpc/listen.c --- */

/* Each fills the listeners. */
int rpc_listen(struct rpc_server *s, struct err *err);
void rpc_listen_inherited(struct rpc_server *s, const int *fds, int nfds);

#endif
