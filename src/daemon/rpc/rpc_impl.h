/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Inside the RPC server: rpc.c has the server and admits connections, daemon/rpc/connection.c
 * reads, serves and writes on one connection, daemon/rpc/timeouts.c gives turns to work that must
 * not hold up others, and daemon/rpc/listen.c makes the listening sockets.
 *
 * Every connection is on one of three lists, each in order of deadlines: all deadlines are the same
 * time away when they are set, so a new one goes to the end, and one timer watches the three heads.
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
#include "base/err.h"
#include "daemon/daemon.h"
#include "daemon/rpc/rpc.h"
#include "net/address.h"
#include "net/rpc_frame.h"
#include "wire/rpc.h"

#define RPC_MAX_LISTENERS (DAEMON_MAX_BINDS * 2)
#define RPC_INPUT_BYTES 16384 /* read at a time, and kept of one connection: a TLS record */

/* Why a connection was ended by us. Names in rpc.c. */
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

enum rpc_list {
	RPC_GREETING, /* in the TLS handshake */
	RPC_IDLE, /* nothing of a request has come */
	RPC_BUSY, /* a request is incomplete, or a reply unsent */
	RPC_LISTS
};

struct rpc_server;

struct rpc_conn {
	TAILQ_ENTRY(rpc_conn) place; /* on its list */
	TAILQ_ENTRY(rpc_conn) turn; /* in a queue of daemon/rpc/timeouts.c, while queued */
	struct rpc_server *server;
	struct event event;
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
struct rpc_turns {
	struct rpc_conns queue;
	struct event *timer;
	uint64_t rest_until_ns; /* not before that */
};

struct rpc_listener {
	int fd;
	struct event *event;
	char name[ADDRESS_TEXT_BYTES]; /* "127.0.0.1:1778" */
};

struct rpc_server {
	struct daemon *daemon;
	uint64_t began_ns;
	struct rpc_listener listeners[RPC_MAX_LISTENERS];
	unsigned nlisteners;
	unsigned port;
	struct rpc_conns lists[RPC_LISTS];
	unsigned counts[RPC_LISTS];
	unsigned max_conns;
	struct event *sweep; /* at the next deadline */
	struct event *accept_again; /* after files ran out */
	struct rpc_turns greetings; /* TLS handshakes */
	struct rpc_turns later; /* further requests of connections that sent many */
	struct buf reply; /* what is being answered now; empty between events */
	char input[RPC_INPUT_BYTES];
	uint64_t calls, accepted, accept_failures;
	uint64_t ends[RPC_ENDS];
	uint64_t told_ns,
		untold; /* of peers without TLS: when the log last said so, how often not */
};

/* --- rpc.c --- */

/* A zeroed server that listens nowhere. */
int rpc_server_init(struct rpc_server *s, struct daemon *d, struct err *err);
/* Takes over a connected, non-blocking socket. */
void rpc_server_admit(struct rpc_server *s, int fd);
/* Moves it to the end of the list with a new deadline. */
void rpc_conn_place(struct rpc_conn *c, enum rpc_list list);
void rpc_conn_close(struct rpc_conn *c, enum rpc_end why);

/* --- daemon/rpc/connection.c --- */

/* Takes the socket over. NULL: no SSL can be made; the socket is closed. */
struct rpc_conn *rpc_conn_new(struct rpc_server *s, int fd);
/* Does what can be done now. It may be closed and freed afterwards. */
void rpc_conn_work(struct rpc_conn *c);
/* Goes on with the TLS handshake; the same holds. */
void rpc_conn_greet(struct rpc_conn *c);
/* Frees what it has; rpc_conn_close() takes it off the server first. */
void rpc_conn_free(struct rpc_conn *c);
/* "10.0.0.7:40112", or "unknown" */
void rpc_conn_peer(const struct rpc_conn *c, char out[ADDRESS_TEXT_BYTES]);

/* --- daemon/rpc/timeouts.c --- */

int rpc_turns_init(struct rpc_turns *t, struct rpc_server *s, event_callback_fn fn);
void rpc_turns_release(struct rpc_turns *t);
void rpc_turns_add(struct rpc_turns *t, struct rpc_conn *c);
void rpc_turns_remove(struct rpc_conn *c);
/* The first in the queue, or NULL. */
struct rpc_conn *rpc_turns_take(struct rpc_turns *t);
/* To be called when a piece is done, `cost_ns` after it began. */
void rpc_turns_rest(struct rpc_turns *t, uint64_t cost_ns);

/* --- daemon/rpc/listen.c --- */

/* Each fills listeners and port. */
int rpc_listen(struct rpc_server *s, struct err *err);
void rpc_listen_inherited(struct rpc_server *s, const int *fds, int nfds);

#endif
