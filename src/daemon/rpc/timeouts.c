/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Turns: a queue of connections of which each round of the event loop serves one. A timer of no
 * time at all is what makes the loop look at its other events in between; an event made active by
 * hand would be run in the same round.
 */
#include "base/clock.h"
#include "daemon/rpc/rpc_impl.h"

int rpc_turns_init(struct rpc_turns *t, struct rpc_server *s, event_callback_fn fn)
{
	TAILQ_INIT(&t->queue);
	t->timer = event_new(s->daemon->base, -1, 0, fn, s);
	return t->timer ? event_priority_set(t->timer, DAEMON_PRIORITY_RPC) : -1;
}

void rpc_turns_release(struct rpc_turns *t)
{
	if (t->timer)
		event_free(t->timer);
	t->timer = NULL;
}

static void arm(struct rpc_turns *t)
{
	struct timeval wait = {0};
	uint64_t now = clock_mono_ns();

	if (TAILQ_EMPTY(&t->queue) || event_pending(t->timer, EV_TIMEOUT, NULL))
		return;
	if (t->rest_until_ns > now)
		wait.tv_usec = (suseconds_t)((t->rest_until_ns - now) / 1000);
	event_add(t->timer, &wait);
}

void rpc_turns_add(struct rpc_turns *t, struct rpc_conn *c)
{
	if (!c->queued)
		TAILQ_INSERT_TAIL(&t->queue, c, turn);
	c->queued = true;
	arm(t);
}

static void unlink_from(struct rpc_turns *t, struct rpc_conn *c)
{
	TAILQ_REMOVE(&t->queue, c, turn);
	c->queued = false;
}

void rpc_turns_remove(struct rpc_conn *c)
{
	struct rpc_server *s = c->server;

	if (c->queued)
		unlink_from(c->list == RPC_GREETING ? &s->greetings : &s->later, c);
}

struct rpc_conn *rpc_turns_take(struct rpc_turns *t)
{
	struct rpc_conn *c = TAILQ_FIRST(&t->queue);

	if (c)
		unlink_from(t, c);
	return c;
}

void rpc_turns_rest(struct rpc_turns *t, uint64_t cost_ns)
{
	const uint64_t longest_ns = 100000000; /* the machine slept, or the process was stopped */

	t->rest_until_ns = clock_mono_ns() + (cost_ns < longest_ns ? cost_ns : longest_ns);
	arm(t);
}
