/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * How long a connection may take: RPC_TIMEOUT_S between two requests (idle), for a request to
 * become whole, and for the peer to take its replies; daemon/handshakes.c has the same for
 * handshakes. Every connection is on one of two lists, each in order of deadlines: all deadlines
 * are the same time away when they are set, so a new one goes to the end, and one timer watches the
 * heads.
 */
#define LOG_AREA "rpc"

#include "base/clock.h"
#include "base/log.h"
#include "daemon/loop.h"
#include "daemon/rpc/rpc_impl.h"

#define TIMEOUT_NS (RPC_TIMEOUT_S * UINT64_C(1000000000))

void rpc_timeouts_arm(struct rpc_server *s)
{
	uint64_t now = clock_mono_ns(), first = UINT64_MAX;

	if (event_pending(s->sweep, EV_TIMEOUT, NULL))
		return;
	for (int i = 0; i < RPC_LISTS; i++) {
		struct rpc_conn *c = TAILQ_FIRST(&s->lists[i]);

		if (c && c->deadline_ns < first)
			first = c->deadline_ns;
	}
	if (first == UINT64_MAX)
		return;
	loop_timer_start(s->sweep, first > now ? (first - now) / 1000 + 1 : 1);
}

void rpc_conn_insert(struct rpc_conn *c)
{
	struct rpc_server *s = c->server;

	c->deadline_ns = clock_mono_ns() + TIMEOUT_NS;
	TAILQ_INSERT_TAIL(&s->lists[c->list], c, link);
	s->counts[c->list]++;
}

void rpc_conn_set_list(struct rpc_conn *c, enum rpc_list list)
{
	struct rpc_server *s = c->server;

	TAILQ_REMOVE(&s->lists[c->list], c, link);
	s->counts[c->list]--;
	c->list = list;
	rpc_conn_insert(c);
}

void rpc_conn_close(struct rpc_conn *c, enum rpc_end why)
{
	struct rpc_server *s = c->server;

	rpc_queue_remove(c);
	TAILQ_REMOVE(&s->lists[c->list], c, link);
	s->counts[c->list]--;
	source_count(&s->per_source, c->caller.source, -1);
	s->ends[why]++;
	rpc_conn_free(c);
}

static enum rpc_end why_late(const struct rpc_conn *c)
{
	if (c->list == RPC_IDLE)
		return RPC_END_IDLE;
	return c->out.len ? RPC_END_UNREAD : RPC_END_SLOW;
}

static void close_late(struct rpc_conn *c)
{
	enum rpc_end why = why_late(c);
	char peer[ADDRESS_TEXT_BYTES];

	rpc_conn_peer(c, peer);
	log_debug("connection of %s closed: %s", peer, rpc_end_names[why]);
	rpc_conn_close(c, why);
}

static void on_sweep(evutil_socket_t fd, short what, void *arg)
{
	struct rpc_server *s = arg;
	struct rpc_conn *c;
	uint64_t now = clock_mono_ns();

	(void)fd, (void)what;
	for (int i = 0; i < RPC_LISTS; i++)
		while ((c = TAILQ_FIRST(&s->lists[i])) && c->deadline_ns <= now)
			close_late(c);
	rpc_timeouts_arm(s);
}

void rpc_timeouts_init(struct rpc_server *s)
{
	for (int i = 0; i < RPC_LISTS; i++)
		TAILQ_INIT(&s->lists[i]);
	s->sweep = loop_event_new(s->daemon->base, -1, 0, DAEMON_PRIORITY_RPC, on_sweep, s);
}
