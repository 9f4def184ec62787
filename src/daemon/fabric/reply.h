/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Answers of the fabric: one datagram each, to the address of the question, by the socket on which
 * it came. One that does not fit into the peer's queue now is tried again for as long as the peer
 * may wait for it, by a timer that runs only then. What waits is bounded, in all and for each user.
 *
 * What a peer does not read stays with our socket, and counts against its buffer. Half of that is
 * for everybody, a quarter more for configs, and all of it for root and the daemon's own user: a
 * user who reads nothing keeps others from empty answers at worst, never from a config.
 */
#ifndef SONDE_DAEMON_FABRIC_REPLY_H
#define SONDE_DAEMON_FABRIC_REPLY_H

#include <event2/event.h>
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/un.h>

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

#endif
