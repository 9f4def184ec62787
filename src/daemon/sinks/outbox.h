/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * A thread that delivers what the loop hands over, for sinks whose receiver may be slow, far away
 * or gone: a collector, a file on a network. The queue is bounded, in items and bytes; what finds
 * no room is dropped and counted, and the loop never waits.
 */
#ifndef SONDE_DAEMON_SINKS_OUTBOX_H
#define SONDE_DAEMON_SINKS_OUTBOX_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define OUTBOX_BYTES (4 << 20)
#define OUTBOX_BATCH 256 /* items delivered at once, at most */

struct outbox_item {
	struct outbox_item *next;
	size_t bytes;
	char data[];
};

struct outbox;

struct outbox_options {
	const char *name; /* for messages */
	unsigned max_items;
	_Atomic uint64_t *delivered, *dropped; /* counted up */
	/*
	 * Runs in the thread. Delivers a chain of items; gives how many of them it had to leave
	 * out. -EAGAIN: it may work later, the same items come again after a while; any other
	 * failure drops them all. Where it waits it must give up when outbox_end_fd() becomes
	 * readable.
	 */
	int (*deliver)(void *arg, const struct outbox_item *items, struct err *err);
	/* In the thread, as the last call: frees arg and what the counters are part of. */
	void (*end)(void *arg);
	void *arg;
};

int outbox_new(const struct outbox_options *o, struct outbox **out, struct err *err);
/* A copy of the bytes. Never waits. */
void outbox_put(struct outbox *b, const void *data, size_t bytes);
/* Comes back at once. What is queued has a second to leave; then the thread calls end(). */
void outbox_free(struct outbox *b);

/* For deliver(): a descriptor that becomes readable when there is no more time; never read it. */
int outbox_end_fd(const struct outbox *b);

#endif
