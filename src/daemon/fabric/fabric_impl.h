/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Inside of the fabric:
 *
 *	fabric.c      datagrams: who sent them, which are dropped, what is done with the others
 *	sockets.c     which endpoints are open, and opening them again
 *	endpoint.c    one bound socket and its file
 *	rate_limit.c  how much a user and a process may send
 *	reply.c       replies, and those that wait
 */
#ifndef SONDE_DAEMON_FABRIC_FABRIC_IMPL_H
#define SONDE_DAEMON_FABRIC_FABRIC_IMPL_H

#include <event2/event.h>
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/un.h>

#include "base/containers/buf.h"
#include "base/containers/hmap.h"
#include "base/err.h"
#include "daemon/fabric/fabric.h"
#include "daemon/jobs/jobs.h"

/* --- endpoint --- */

/*
 * One datagram endpoint of the fabric: a bound socket that receives the credentials of senders. A
 * socket file that a dead daemon left behind is replaced in one step; one that somebody listens on,
 * that belongs to another user, or that is no socket, never is.
 *
 * In a directory where every user may create files (keeps_name) the file stays when the daemon
 * ends: the sticky bit keeps the name for this user, and a daemon that is away is not replaced by
 * somebody else's. Who connects meanwhile is refused.
 *
 * While the socket is open, the kernel keeps the inode of its file, even without a name: so the
 * number shows whether the name still leads to us.
 */

struct fabric_endpoint {
	int fd;
	int send_bytes; /* its buffer for answers that are not read yet */
	struct sockaddr_un address;
	bool is_path;
	bool keeps_name;
	dev_t device; /* of the file of a path */
	ino_t inode;
};

int fabric_endpoint_abstract(struct fabric_endpoint *e, const char *name, struct err *err);
/* user: whose dead socket is replaced as our own is, because an earlier daemon has gone on as it.
 */
int fabric_endpoint_path(struct fabric_endpoint *e, const char *path, mode_t mode, uid_t user,
			 struct err *err);

/* The same for a stream socket, which listens: of the servers that come by TCP, too. */
int fabric_endpoint_stream(struct fabric_endpoint *e, const char *path, mode_t mode,
			   struct err *err);

/* Removes the file of a socket, if it is one of this user that nobody listens on; follows no link.
 */
int fabric_endpoint_remove_dead(const char *path, uid_t owner, struct err *err);

/* Whether nobody has the name now, as far as is known without taking it. */
bool fabric_endpoint_free(const char *name, bool is_path);

/* Whether those who use its name do not reach it any more: the file was removed or replaced. */
bool fabric_endpoint_lost(const struct fabric_endpoint *e);

/* Closes the socket and removes its file, unless it keeps its name, or has become another's. */
void fabric_endpoint_close(struct fabric_endpoint *e);

/* "@dynolog" or the path. */
const char *fabric_endpoint_text(const struct fabric_endpoint *e, char buf[112]);

/* --- rate limit --- */

/*
 * How much may be sent to the fabric. Each user has a token bucket for control messages and one for
 * data, so that telemetry does not cost a process its config; root and the daemon's own user have
 * more. One process may use a part of its user's control messages, so that one that runs wild does
 * not silence the other ranks of its job. What is sent in excess is dropped before any work. The
 * memory for it is bounded whatever the number of users and processes.
 */

#define FABRIC_LIMIT_RATE 10000u /* datagrams of a user per second, and as many at once */
#define FABRIC_LIMIT_TRUSTED_RATE 50000u
#define FABRIC_LIMIT_PROCESS_PART 4u /* a process may use this part of it */
#define FABRIC_LIMIT_USERS 4096u /* with buckets of their own; the others share */

enum fabric_limit_class { FABRIC_LIMIT_CONTROL, FABRIC_LIMIT_DATA, FABRIC_LIMIT_CLASSES };

/* Zero-initialise and release. */
struct fabric_limit {
	struct hmap users;
	struct fabric_user *others; /* shared by those beyond FABRIC_LIMIT_USERS */
	struct fabric_process *processes; /* a table by pid; few pids fall on one place */
	uint64_t swept_ns; /* when idle users were last looked for */
};

/* Takes a token for one datagram; false if there is none. pid 0: not known. */
bool fabric_limit_take(struct fabric_limit *l, uid_t uid, pid_t pid, enum fabric_limit_class class,
		       uint64_t now_ns);

void fabric_limit_release(struct fabric_limit *l);

/* --- reply --- */

/*
 * Answers of the fabric: one datagram each, to the address of the question, by the socket on which
 * it came. One that does not fit into the peer's queue now is tried again for as long as the peer
 * may wait for it, by a timer that runs only then. What waits is bounded, in all and for each user.
 *
 * What a peer does not read stays with our socket, and counts against its buffer. Half of that is
 * for everybody, a quarter more for configs, and all of it for root and the daemon's own user: a
 * user who reads nothing keeps others from empty answers at worst, never from a config.
 */

struct fabric_replies;

/* To whom. */
struct fabric_peer {
	int fd; /* of the endpoint */
	int send_bytes; /* its buffer for what is sent */
	uid_t uid;
	struct sockaddr_un address;
	socklen_t address_len; /* of the family alone: it has no address and is not answered */
};

enum fabric_reply_flags {
	FABRIC_REPLY_NOW = 1 << 0, /* not kept when it cannot be sent at once */
};

struct fabric_replies *fabric_replies_new(struct event_base *base);
void fabric_replies_free(struct fabric_replies *r); /* r may be NULL */

/* The endpoint is closed: drops what waits for it. */
void fabric_replies_forget(struct fabric_replies *r, int fd);

/* Whether it was sent. One that waits was not. */
bool fabric_reply(struct fabric_replies *r, const struct fabric_peer *to, const char *type,
		  const void *payload, size_t payload_bytes, unsigned flags);

/* {"sent":N,"no_address":N,…} */
json_t *fabric_replies_describe(const struct fabric_replies *r);

/* --- the fabric --- */

#define FABRIC_LISTENERS 5
#define FABRIC_DROP_REASONS (FABRIC_FAULTS + 8) /* fabric.c */

/* An endpoint on which the daemon listens, or wants to. */
struct fabric_listener {
	struct fabric *fabric;
	const char *name, *kind; /* "home-data", "home" */
	char *where; /* the abstract name, or the path */
	bool is_path;
	bool is_shared; /* in a directory where every user may create files */
	bool dir_checked; /* what is wrong with that directory is logged once */
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
