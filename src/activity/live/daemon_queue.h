/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Ways to daemons: datagrams of the fabric that wait until the daemon takes them. The recorder
 * never waits for it longer than a moment; what waits is bounded, the oldest go first, and are
 * counted. A window may be closed while its last report still waits.
 */
#ifndef SONDE_ACTIVITY_LIVE_DAEMON_QUEUE_H
#define SONDE_ACTIVITY_LIVE_DAEMON_QUEUE_H

#include "wire/request.h"

#include <stddef.h>
#include <stdint.h>

#define SENDER_MAX_WAITING 20000u /* datagrams */
#define SENDER_MAX_BYTES (8u << 20)
#define SENDERS_MAX 16u
/* Datagrams per second that one way takes: the daemon's limit for a user is 10,000 on all ways. */
#define SENDER_RATE 4000u

struct senders;
struct sender;

struct senders *senders_new(void);
/* Tries to send what waits, for half a second at most. */
void senders_free(struct senders *s);

/* "@name": an abstract name; else a path. Lives as long as the senders. NULL: it is no place, or
 * there are too many. */
struct sender *senders_find(struct senders *s, const struct request_text *where);

/* payload is copied. */
void sender_put(struct sender *s, const char *type, const char *payload, size_t len);
/* A datagram by itself, from any thread; tries for half a second at most. */
void sender_send_one(const struct request_text *where, const char *type, const char *payload,
		     size_t len);
uint64_t sender_lost(const struct sender *s); /* datagrams, since it is there */

void senders_tick(struct senders *s, uint64_t now_ns);
/* The same without a limit of the rate, for at most so long. */
void senders_flush(struct senders *s, uint64_t max_ns);

#endif
