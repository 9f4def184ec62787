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
	if (!TAILQ_EMPTY(&q->conns) && !event_pending(q->timer, EV_TIMEOUT, NULL))
		loop_timer_start(q->timer, 0);
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
		unlink_conn(&s->later, c);
}

static struct rpc_conn *take_first(struct rpc_queue *q)
{
	struct rpc_conn *c = TAILQ_FIRST(&q->conns);

	if (c)
		unlink_conn(q, c);
	return c;
}

static void on_later(evutil_socket_t fd, short what, void *arg)
{
	struct rpc_server *s = arg;
	struct rpc_conn *c = take_first(&s->later);

	(void)fd, (void)what;
	if (c)
		rpc_conn_work(c);
	arm_queue(&s->later);
}

/* --- accepting --- */

static unsigned count_connections(const struct rpc_server *s)
{
	return s->counts[RPC_IDLE] + s->counts[RPC_BUSY];
}

/* Ends the connection that has been on the list for longest. */
static bool end_first(struct rpc_server *s, enum rpc_list list, enum rpc_end why)
{
	struct rpc_conn *c = TAILQ_FIRST(&s->lists[list]);

	if (c)
		rpc_conn_close(c, why);
	return c != NULL;
}

/* The source with most connections loses one: nobody can take the places of others. */
static void evict_one(struct rpc_server *s)
{
	uint64_t source = source_with_most(&s->per_source);

	for (int list = RPC_IDLE; list < RPC_LISTS; list++) {
		struct rpc_conn *c;

		TAILQ_FOREACH(c, &s->lists[list], link)
		if (c->caller.source == source) {
			rpc_conn_close(c, RPC_END_CROWDED);
			return;
		}
	}
}

struct rpc_conn *rpc_server_most_unsent(struct rpc_server *s)
{
	struct rpc_conn *c, *most = NULL;
	struct hmap bytes = {0};

	TAILQ_FOREACH(c, &s->lists[RPC_BUSY], link)
	source_count(&bytes, c->caller.source, (int)c->out.len);
	uint64_t source = source_with_most(&bytes);
	TAILQ_FOREACH(c, &s->lists[RPC_BUSY], link)
	if (c->caller.source == source && c->out.len > (most ? most->out.len : 0))
		most = c;
	hmap_release(&bytes);
	return most;
}

static void take_over(struct rpc_server *s, int fd, SSL *ssl, const struct caller *caller)
{
	if (count_connections(s) >= s->max_conns)
		evict_one(s);
	struct rpc_conn *c = rpc_conn_new(s, fd, ssl, caller);
	source_count(&s->per_source, caller->source, 1);
	rpc_conn_insert(c);
	rpc_conn_work(c); /* what it asks has often come with it */
	rpc_timeouts_arm(s);
}

static void on_greeted(void *arg, int fd, SSL *ssl, const struct caller *caller)
{
	take_over(arg, fd, ssl, caller);
}

static void on_refused(void *arg, enum greeting_refusal why, const char *peer, const char *words)
{
	struct rpc_server *s = arg;

	s->ends[why == GREETING_CROWDED ? RPC_END_CROWDED : RPC_END_HANDSHAKE]++;
	if (words)
		rpc_log_refusal(s, "no TLS with", peer, words);
}

void rpc_server_admit(struct rpc_server *s, int fd)
{
	struct caller caller = access_identify(s->daemon->access, fd);

	s->accepted++;
	if (caller.kind == CALLER_CERTIFIED)
		handshakes_add(s->daemon->handshakes, &s->handshaking, fd, &caller);
	else
		take_over(s, fd, NULL, &caller);
}

static void on_accepted(void *arg, const struct listener *from, int fd)
{
	(void)from;
	rpc_server_admit(arg, fd);
}

static void close_idle(void *arg)
{
	end_first(arg, RPC_IDLE, RPC_END_CROWDED);
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
	s->handshaking =
		(struct handshakes_server){.greeted = on_greeted, .refused = on_refused, .arg = s};
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
	handshakes_forget(s->daemon->handshakes, &s->handshaking);
	return s->counts[RPC_BUSY];
}

void rpc_server_free(struct rpc_server *s)
{
	if (!s)
		return;
	listeners_release(&s->listeners);
	handshakes_forget(s->daemon->handshakes, &s->handshaking);
	for (int i = 0; i < RPC_LISTS; i++)
		while (end_first(s, (enum rpc_list)i, RPC_END_SHUTDOWN))
			continue;
	event_free(s->later.timer);
	event_free(s->sweep);
	buf_release(&s->reply);
	hmap_release(&s->per_source);
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
			 addresses, "connections",
			 (int)(count_connections(s) + s->handshaking.pending), "max_connections",
			 (int)s->max_conns, "accepted", (json_int_t)s->accepted, "accept_failures",
			 (json_int_t)s->listeners.failures, "calls", (json_int_t)s->calls,
			 "refused", refused);
}
