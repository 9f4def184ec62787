/* SPDX-License-Identifier: MulanPSL-2.0 */
/* The server: who may connect, whose requests are served next, what is counted. */
#define LOG_AREA "rpc"

#include "daemon/rpc/rpc.h"

#include <stdlib.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "daemon/loop.h"
#include "daemon/rpc/rpc_impl.h"

#define MAX_CONNS 1024
#define MAX_GREETINGS 128 /* TLS handshakes at a time: peers whom nobody knows yet */

const char *const rpc_end_names[RPC_ENDS] = {
	[RPC_END_PEER] = NULL,
	[RPC_END_IDLE] = "idle",
	[RPC_END_BAD_LENGTH] = "bad_length",
	[RPC_END_BAD_JSON] = "bad_json",
	[RPC_END_UNKNOWN] = "unknown_function",
	[RPC_END_SLOW] = "slow_request",
	[RPC_END_INCOMPLETE] = "incomplete",
	[RPC_END_UNREAD] = "unread_reply",
	[RPC_END_HANDSHAKE] = "handshake",
	[RPC_END_CROWDED] = "crowded",
	[RPC_END_SHUTDOWN] = NULL,
};

/* --- queues --- */

/*
 * Each round of the event loop serves one connection of a queue. A timer of no time at all is what
 * makes the loop serve its other events in between; an event made active by hand would be run in
 * the same round.
 */
static void init_queue(struct rpc_queue *q, struct rpc_server *s, event_callback_fn fn)
{
	TAILQ_INIT(&q->conns);
	q->timer = loop_event_new(s->daemon->base, -1, 0, DAEMON_PRIORITY_RPC, fn, s);
}

static void arm_queue(struct rpc_queue *q)
{
	uint64_t now = clock_mono_ns();

	if (TAILQ_EMPTY(&q->conns) || event_pending(q->timer, EV_TIMEOUT, NULL))
		return;
	loop_timer_start(q->timer, q->rest_until_ns > now ? (q->rest_until_ns - now) / 1000 : 0);
}

void rpc_queue_add(struct rpc_queue *q, struct rpc_conn *c)
{
	if (!c->queued)
		TAILQ_INSERT_TAIL(&q->conns, c, queue_link);
	c->queued = true;
	arm_queue(q);
}

static void unlink_conn(struct rpc_queue *q, struct rpc_conn *c)
{
	TAILQ_REMOVE(&q->conns, c, queue_link);
	c->queued = false;
}

void rpc_queue_remove(struct rpc_conn *c)
{
	struct rpc_server *s = c->server;

	if (c->queued)
		unlink_conn(c->list == RPC_GREETING ? &s->greetings : &s->later, c);
}

static struct rpc_conn *take_first(struct rpc_queue *q)
{
	struct rpc_conn *c = TAILQ_FIRST(&q->conns);

	if (c)
		unlink_conn(q, c);
	return c;
}

static void rest_queue(struct rpc_queue *q, uint64_t cost_ns)
{
	const uint64_t longest_ns = 100000000; /* the machine slept, or the process was stopped */

	q->rest_until_ns = clock_mono_ns() + (cost_ns < longest_ns ? cost_ns : longest_ns);
	arm_queue(q);
}

static void on_greeting(evutil_socket_t fd, short what, void *arg)
{
	struct rpc_server *s = arg;
	struct rpc_conn *c = take_first(&s->greetings);
	uint64_t start = clock_mono_ns();

	(void)fd, (void)what;
	if (c)
		rpc_conn_greet(c);
	/* Handshakes are dear, and anybody can ask for one: they get half of the time. */
	rest_queue(&s->greetings, clock_mono_ns() - start);
}

static void on_later(evutil_socket_t fd, short what, void *arg)
{
	struct rpc_server *s = arg;
	struct rpc_conn *c = take_first(&s->later);

	(void)fd, (void)what;
	if (c)
		rpc_conn_work(c);
	rest_queue(&s->later, 0);
}

/* --- accepting --- */

static unsigned connections(const struct rpc_server *s)
{
	return s->counts[RPC_GREETING] + s->counts[RPC_IDLE] + s->counts[RPC_BUSY];
}

/* Ends the connection that has been on the list for longest. */
static bool end_first(struct rpc_server *s, enum rpc_list list, enum rpc_end why)
{
	struct rpc_conn *c = TAILQ_FIRST(&s->lists[list]);

	if (c)
		rpc_conn_close(c, why);
	return c != NULL;
}

static bool evict(struct rpc_server *s, enum rpc_list list)
{
	return end_first(s, list, RPC_END_CROWDED);
}

static void make_room(struct rpc_server *s)
{
	if (s->counts[RPC_GREETING] >= MAX_GREETINGS)
		evict(s, RPC_GREETING);
	if (connections(s) >= s->max_conns && !evict(s, RPC_IDLE) && !evict(s, RPC_GREETING))
		evict(s, RPC_BUSY);
}

void rpc_server_admit(struct rpc_server *s, int fd)
{
	s->accepted++;
	make_room(s);
	struct rpc_conn *c = rpc_conn_new(s, fd);
	if (!c)
		return;
	rpc_conn_insert(c);
	if (!c->ssl)
		rpc_conn_work(c); /* what it asks has often come with it */
	rpc_timeouts_arm(s);
}

static void on_accepted(void *arg, const struct listener *from, int fd)
{
	(void)from;
	rpc_server_admit(arg, fd);
}

static void close_idle(void *arg)
{
	evict(arg, RPC_IDLE);
}

/* --- life --- */

static unsigned port_of(const struct rpc_server *s)
{
	return s->listeners.n ? s->listeners.v[0].port : 0;
}

/* Half of the files at most: the fabric, HTTP and the device libraries need some, too. */
static unsigned most_connections(void)
{
	struct rlimit files;

	if (getrlimit(RLIMIT_NOFILE, &files) < 0 || files.rlim_cur / 2 > MAX_CONNS)
		return MAX_CONNS;
	return files.rlim_cur < 16 ? 8 : (unsigned)(files.rlim_cur / 2);
}

void rpc_server_init(struct rpc_server *s, struct daemon *d)
{
	s->daemon = d;
	s->began_ns = clock_mono_ns();
	s->max_conns = most_connections();
	rpc_timeouts_init(s);
	init_queue(&s->greetings, s, on_greeting);
	init_queue(&s->later, s, on_later);
	s->listeners.accepted = on_accepted;
	s->listeners.free_one = close_idle;
	s->listeners.arg = s;
	listeners_init(&s->listeners, d->base);
}

int rpc_server_new(struct daemon *d, const int *fds, int nfds, struct rpc_server **out,
		   struct err *err)
{
	struct rpc_server *s = xcalloc(1, sizeof(*s));
	int r = 0;

	rpc_server_init(s, d);
	if (nfds > 0)
		rpc_listen_inherited(s, fds, nfds);
	else
		r = rpc_listen(s, err);
	if (r < 0) {
		rpc_server_free(s);
		return r;
	}
	for (unsigned i = 0; i < s->listeners.n; i++)
		log_info("control RPC listens on %s (%s)", s->listeners.v[i].name,
			 s->listeners.v[i].is_unix ? "UNIX"
			 : d->tls		   ? "TLS"
						   : "plain");
	listeners_start(&s->listeners);
	if (nfds <= 0 && d->config->port == 0)
		log_info("System assigned port = %u", port_of(s));
	*out = s;
	return 0;
}

unsigned rpc_server_drain(struct rpc_server *s)
{
	listeners_accept_waiting(&s->listeners, s->max_conns);
	listeners_close(&s->listeners);
	/* each goes to the end of the list, or leaves it */
	for (unsigned n = s->counts[RPC_IDLE]; n; n--)
		rpc_conn_work(TAILQ_FIRST(&s->lists[RPC_IDLE]));
	while (end_first(s, RPC_IDLE, RPC_END_SHUTDOWN))
		continue;
	while (end_first(s, RPC_GREETING, RPC_END_SHUTDOWN))
		continue;
	return s->counts[RPC_BUSY];
}

void rpc_server_free(struct rpc_server *s)
{
	if (!s)
		return;
	listeners_release(&s->listeners);
	for (int i = 0; i < RPC_LISTS; i++)
		while (end_first(s, (enum rpc_list)i, RPC_END_SHUTDOWN))
			continue;
	event_free(s->greetings.timer);
	event_free(s->later.timer);
	event_free(s->sweep);
	buf_release(&s->reply);
	free(s);
}

double rpc_server_age_s(const struct rpc_server *s)
{
	return (double)(clock_mono_ns() - s->began_ns) / 1e9;
}

json_t *rpc_server_describe(const struct rpc_server *s)
{
	json_t *addresses = json_array(), *refused = json_object();

	for (unsigned i = 0; i < s->listeners.n; i++)
		json_array_append_new(addresses, json_string(s->listeners.v[i].name));
	for (int i = 0; i < RPC_ENDS; i++)
		if (rpc_end_names[i])
			json_object_set_new(refused, rpc_end_names[i],
					    json_integer((json_int_t)s->ends[i]));
	json_object_set_new(refused, "forbidden", json_integer((json_int_t)s->forbidden));
	return json_pack("{si so si si sI sI sI so}", "port", (int)port_of(s), "addresses",
			 addresses, "connections", (int)connections(s), "max_connections",
			 (int)s->max_conns, "accepted", (json_int_t)s->accepted, "accept_failures",
			 (json_int_t)s->listeners.failures, "calls", (json_int_t)s->calls,
			 "refused", refused);
}
