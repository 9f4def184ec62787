/* SPDX-License-Identifier: MulanPSL-2.0 */
/* The server: who may connect, how long a connection may stay, what is counted. */
#define LOG_AREA "rpc"

#include "daemon/rpc/rpc.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "daemon/rpc/rpc_impl.h"

#define MAX_CONNS 1024
#define MAX_GREETINGS 128 /* TLS handshakes at a time: peers whom nobody knows yet */
#define ACCEPT_BATCH 8 /* connections taken before others have their turn */
#define ACCEPT_PAUSE_MS 100 /* when files have run out */
#define TIMEOUT_NS (RPC_TIMEOUT_S * UINT64_C(1000000000))

static const char *const end_names[RPC_ENDS] = {
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

/* --- lists and deadlines --- */

static void arm_sweep(struct rpc_server *s)
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
	uint64_t wait_us = first > now ? (first - now) / 1000 + 1 : 1;
	struct timeval wait = {(time_t)(wait_us / 1000000), (suseconds_t)(wait_us % 1000000)};
	event_add(s->sweep, &wait);
}

void rpc_conn_place(struct rpc_conn *c, enum rpc_list list)
{
	struct rpc_server *s = c->server;

	TAILQ_REMOVE(&s->lists[c->list], c, place);
	s->counts[c->list]--;
	c->list = list;
	c->deadline_ns = clock_mono_ns() + TIMEOUT_NS;
	TAILQ_INSERT_TAIL(&s->lists[list], c, place);
	s->counts[list]++;
}

void rpc_conn_close(struct rpc_conn *c, enum rpc_end why)
{
	struct rpc_server *s = c->server;

	rpc_turns_remove(c);
	TAILQ_REMOVE(&s->lists[c->list], c, place);
	s->counts[c->list]--;
	s->ends[why]++;
	rpc_conn_free(c);
}

static enum rpc_end why_late(const struct rpc_conn *c)
{
	if (c->list == RPC_GREETING)
		return RPC_END_HANDSHAKE;
	if (c->list == RPC_IDLE)
		return RPC_END_IDLE;
	return c->out.len ? RPC_END_UNREAD : RPC_END_SLOW;
}

static void close_late(struct rpc_conn *c)
{
	enum rpc_end why = why_late(c);
	char peer[ADDRESS_TEXT_BYTES];

	rpc_conn_peer(c, peer);
	log_debug("connection of %s closed: %s", peer, end_names[why]);
	rpc_conn_close(c, why);
}

static void on_sweep(evutil_socket_t fd, short what, void *arg)
{
	struct rpc_server *s = arg;
	struct rpc_conn *c;
	uint64_t now = clock_mono_ns();

	(void)fd;
	(void)what;
	for (int i = 0; i < RPC_LISTS; i++)
		while ((c = TAILQ_FIRST(&s->lists[i])) && c->deadline_ns <= now)
			close_late(c);
	arm_sweep(s);
}

/* --- turns --- */

static void on_greeting(evutil_socket_t fd, short what, void *arg)
{
	struct rpc_server *s = arg;
	struct rpc_conn *c = rpc_turns_take(&s->greetings);
	uint64_t start = clock_mono_ns();

	(void)fd;
	(void)what;
	if (c)
		rpc_conn_greet(c);
	/* Handshakes are dear, and anybody can ask for one: they get half of the time. */
	rpc_turns_rest(&s->greetings, clock_mono_ns() - start);
}

static void on_later(evutil_socket_t fd, short what, void *arg)
{
	struct rpc_server *s = arg;
	struct rpc_conn *c = rpc_turns_take(&s->later);

	(void)fd;
	(void)what;
	if (c)
		rpc_conn_work(c);
	rpc_turns_rest(&s->later, 0);
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
	TAILQ_INSERT_TAIL(&s->lists[c->list], c, place);
	s->counts[c->list]++;
	c->deadline_ns = clock_mono_ns() + TIMEOUT_NS;
	if (!c->ssl)
		rpc_conn_work(c); /* what it asks has often come with it */
	arm_sweep(s);
}

/* Files or memory have run out. The listener would be reported again and again: it rests. */
static void pause_accepting(struct rpc_server *s, int error)
{
	struct timeval wait = {.tv_usec = ACCEPT_PAUSE_MS * 1000};

	if (!s->accept_failures++)
		log_warn("cannot accept connections: %s; trying again every %d ms", strerror(error),
			 ACCEPT_PAUSE_MS);
	evict(s, RPC_IDLE);
	for (unsigned i = 0; i < s->nlisteners; i++)
		event_del(s->listeners[i].event);
	event_add(s->accept_again, &wait);
}

static void on_accept(evutil_socket_t listener, short what, void *arg)
{
	struct rpc_server *s = arg;

	(void)what;
	for (int i = 0; i < ACCEPT_BATCH; i++) {
		int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

		if (fd >= 0) {
			rpc_server_admit(s, fd);
			continue;
		}
		if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
			pause_accepting(s, errno);
		if (errno != ECONNABORTED && errno != EINTR)
			return;
	}
}

static void on_accept_again(evutil_socket_t fd, short what, void *arg)
{
	struct rpc_server *s = arg;

	(void)fd;
	(void)what;
	for (unsigned i = 0; i < s->nlisteners; i++)
		event_add(s->listeners[i].event, NULL);
}

/* --- life --- */

/* Half of the files at most: the fabric, HTTP and the device libraries need some, too. */
static unsigned most_connections(void)
{
	struct rlimit files;

	if (getrlimit(RLIMIT_NOFILE, &files) < 0 || files.rlim_cur / 2 > MAX_CONNS)
		return MAX_CONNS;
	return files.rlim_cur < 16 ? 8 : (unsigned)(files.rlim_cur / 2);
}

static int watch_listeners(struct rpc_server *s, struct err *err)
{
	for (unsigned i = 0; i < s->nlisteners; i++) {
		struct rpc_listener *l = &s->listeners[i];

		l->event = event_new(s->daemon->base, l->fd, EV_READ | EV_PERSIST, on_accept, s);
		if (!l->event || event_priority_set(l->event, DAEMON_PRIORITY_RPC) < 0 ||
		    event_add(l->event, NULL) < 0)
			return err_set(err, -ENOMEM, "cannot watch '%s'", l->name);
		log_info("control RPC listens on %s (%s)", l->name,
			 s->daemon->tls ? "TLS" : "plain");
	}
	return 0;
}

static int make_timers(struct rpc_server *s, struct err *err)
{
	struct event_base *base = s->daemon->base;

	s->sweep = event_new(base, -1, 0, on_sweep, s);
	s->accept_again = event_new(base, -1, 0, on_accept_again, s);
	if (!s->sweep || !s->accept_again || rpc_turns_init(&s->greetings, s, on_greeting) < 0 ||
	    rpc_turns_init(&s->later, s, on_later) < 0)
		return err_set(err, -ENOMEM, "cannot make the timers of the RPC");
	event_priority_set(s->sweep, DAEMON_PRIORITY_RPC);
	event_priority_set(s->accept_again, DAEMON_PRIORITY_RPC);
	return 0;
}

int rpc_server_init(struct rpc_server *s, struct daemon *d, struct err *err)
{
	s->daemon = d;
	s->began_ns = clock_mono_ns();
	s->max_conns = most_connections();
	for (int i = 0; i < RPC_LISTS; i++)
		TAILQ_INIT(&s->lists[i]);
	return make_timers(s, err);
}

int rpc_server_new(struct daemon *d, const int *fds, int nfds, struct rpc_server **out,
		   struct err *err)
{
	struct rpc_server *s = xcalloc(1, sizeof(*s));
	int r = rpc_server_init(s, d, err);

	if (r == 0 && nfds > 0)
		rpc_listen_inherited(s, fds, nfds);
	else if (r == 0)
		r = rpc_listen(s, err);
	if (r == 0)
		r = watch_listeners(s, err);
	if (r < 0) {
		rpc_server_free(s);
		return r;
	}
	if (nfds <= 0 && d->config->port == 0)
		log_info("System assigned port = %u", s->port);
	*out = s;
	return 0;
}

static void stop_listening(struct rpc_server *s)
{
	for (unsigned i = 0; i < s->nlisteners; i++) {
		if (s->listeners[i].event)
			event_free(s->listeners[i].event);
		close(s->listeners[i].fd);
	}
	s->nlisteners = 0;
	if (s->accept_again)
		event_del(s->accept_again);
}

/* Those that the kernel has connected already; new ones may come all the time. */
static void accept_waiting(struct rpc_server *s, int listener)
{
	uint64_t before = s->accepted - 1;

	for (unsigned i = 0; i < s->max_conns / ACCEPT_BATCH && before != s->accepted; i++) {
		before = s->accepted;
		on_accept(listener, EV_READ, s);
	}
}

unsigned rpc_server_drain(struct rpc_server *s)
{
	for (unsigned i = 0; i < s->nlisteners; i++)
		accept_waiting(s, s->listeners[i].fd);
	stop_listening(s);
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
	stop_listening(s);
	for (int i = 0; i < RPC_LISTS; i++)
		while (end_first(s, (enum rpc_list)i, RPC_END_SHUTDOWN))
			continue;
	rpc_turns_release(&s->greetings);
	rpc_turns_release(&s->later);
	if (s->sweep)
		event_free(s->sweep);
	if (s->accept_again)
		event_free(s->accept_again);
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

	for (unsigned i = 0; i < s->nlisteners; i++)
		json_array_append_new(addresses, json_string(s->listeners[i].name));
	for (int i = 0; i < RPC_ENDS; i++)
		if (end_names[i])
			json_object_set_new(refused, end_names[i],
					    json_integer((json_int_t)s->ends[i]));
	return json_pack("{si so si si sI sI sI so}", "port", (int)s->port, "addresses", addresses,
			 "connections", (int)connections(s), "max_connections", (int)s->max_conns,
			 "accepted", (json_int_t)s->accepted, "accept_failures",
			 (json_int_t)s->accept_failures, "calls", (json_int_t)s->calls, "refused",
			 refused);
}
