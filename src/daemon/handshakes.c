/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 *	SILENT --first bytes--> QUEUED --a step of the handshake--> ANSWERED --bytes--> QUEUED …
 *
 * The time of sources is kept as in fair queueing: each has a clock that runs while it is served.
 * The one whose clock is behind is next; one that comes back after a pause begins where the others
 * are, so that nothing can be saved up.
 */
#include "daemon/handshakes.h"

#include <errno.h>
#include <event2/event_struct.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/queue.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/containers/hmap.h"
#include "base/mem.h"
#include "daemon/loop.h"
#include "net/stream.h"
#include "net/tls/tls.h"
#include "wire/rpc.h"

#define TIMEOUT_NS (RPC_TIMEOUT_S * UINT64_C(1000000000))
#define LONGEST_STEP_NS 100000000u /* the machine slept, or the process was stopped */
#define LEAST_STEP_NS 50000u /* that a source is charged for */
#define PROVEN_NS (3600 * UINT64_C(1000000000)) /* so long a good certificate counts */
#define PROVEN_WEIGHT 8 /* its source is charged this part */
#define SOURCES_MAX 4096 /* that are remembered */

enum state { SILENT, ANSWERED, QUEUED, STATES };

struct handshake {
	TAILQ_ENTRY(handshake) link; /* in its source's list of its state */
	TAILQ_ENTRY(handshake) by_age;
	struct handshakes *handshakes;
	struct handshakes_server *server;
	struct source *source;
	struct caller caller;
	struct event event;
	uint64_t deadline_ns;
	SSL *ssl; /* NULL: nothing was computed for it so far */
	int fd;
	short waits; /* what `event` is added for; 0: it is not */
	enum state state;
};

TAILQ_HEAD(handshaking, handshake);

struct source {
	TAILQ_ENTRY(source) link; /* among handshakes.active, while it has handshaking */
	uint64_t key;
	struct handshaking lists[STATES];
	unsigned n, counts[STATES]; /* handshaking */
	uint64_t clock_ns;
	uint64_t proven_until_ns; /* 0: no good certificate has come from it */
};

TAILQ_HEAD(sources, source);

struct handshakes {
	struct daemon *daemon;
	struct hmap sources; /* by key; those without handshaking for what they have used */
	struct sources active;
	struct handshaking by_age; /* the next deadline first */
	unsigned n, places;
	uint64_t clock_ns; /* of the source that was served last */
	uint64_t rest_until_ns;
	struct event *serve, *sweep;
};

/* --- sources --- */

static void forget_idle(struct handshakes *g, bool all)
{
	struct hmap kept = {0};
	uint64_t key, value;

	for (size_t at = 0; hmap_next(&g->sources, &at, &key, &value);) {
		struct source *s = (struct source *)(uintptr_t)value;

		if (!s->n && (all || s->clock_ns <= g->clock_ns))
			free(s);
		else
			hmap_put(&kept, key, value);
	}
	hmap_release(&g->sources);
	g->sources = kept;
}

static struct source *find_source(struct handshakes *g, uint64_t key)
{
	struct source *s = hmap_get_ptr(&g->sources, key);

	if (s)
		return s;
	for (int all = 0; all < 2 && g->sources.count >= SOURCES_MAX; all++)
		forget_idle(g, all);
	s = xcalloc(1, sizeof(*s));
	s->key = key;
	s->clock_ns = g->clock_ns;
	for (int i = 0; i < STATES; i++)
		TAILQ_INIT(&s->lists[i]);
	hmap_put_ptr(&g->sources, key, s);
	return s;
}

/* Who has most places; of several who has used most time. */
static struct source *largest_source(const struct handshakes *g)
{
	struct source *s, *most = NULL;

	TAILQ_FOREACH(s, &g->active, link)
	if (!most || s->n > most->n || (s->n == most->n && s->clock_ns > most->clock_ns))
		most = s;
	return most;
}

/* Who wants a step and has used least time; NULL: nobody. */
static struct source *next_source(const struct handshakes *g)
{
	struct source *s, *least = NULL;

	TAILQ_FOREACH(s, &g->active, link)
	if (!TAILQ_EMPTY(&s->lists[QUEUED]) && (!least || s->clock_ns < least->clock_ns))
		least = s;
	return least;
}

/* --- one handshake --- */

static void schedule_serving(struct handshakes *g)
{
	uint64_t now = clock_mono_ns();

	if (!event_pending(g->serve, EV_TIMEOUT, NULL))
		loop_timer_start(g->serve,
				 g->rest_until_ns > now ? (g->rest_until_ns - now) / 1000 : 0);
}

static void set_state(struct handshake *c, enum state state)
{
	struct source *s = c->source;

	TAILQ_REMOVE(&s->lists[c->state], c, link);
	s->counts[c->state]--;
	/* one that was begun goes first: it frees its place */
	if (state == QUEUED && c->ssl)
		TAILQ_INSERT_HEAD(&s->lists[state], c, link);
	else
		TAILQ_INSERT_TAIL(&s->lists[state], c, link);
	c->state = state;
	s->counts[state]++;
}

static void queue_greeting(struct handshake *c)
{
	struct source *s = c->source;

	if (TAILQ_EMPTY(&s->lists[QUEUED]) && s->clock_ns < c->handshakes->clock_ns)
		s->clock_ns = c->handshakes->clock_ns;
	set_state(c, QUEUED);
	schedule_serving(c->handshakes);
}

static void wait_for(struct handshake *c, short what, event_callback_fn fn)
{
	if (c->waits)
		event_del(&c->event);
	c->waits = what;
	if (!what)
		return;
	event_assign(&c->event, c->handshakes->daemon->base, c->fd, what, fn, c);
	event_priority_set(&c->event, DAEMON_PRIORITY_RPC);
	event_add(&c->event, NULL);
}

static void on_bytes(evutil_socket_t fd, short what, void *arg)
{
	struct handshake *c = arg;

	(void)fd, (void)what;
	c->waits = 0;
	queue_greeting(c);
}

/* Leaves the socket and the SSL to the caller. */
static void unlink_greeting(struct handshake *c)
{
	struct handshakes *g = c->handshakes;
	struct source *s = c->source;

	wait_for(c, 0, NULL);
	TAILQ_REMOVE(&s->lists[c->state], c, link);
	s->counts[c->state]--;
	TAILQ_REMOVE(&g->by_age, c, by_age);
	if (--s->n == 0)
		TAILQ_REMOVE(&g->active, s, link);
	g->n--;
	c->server->pending--;
}

static void close_greeting(struct handshake *c)
{
	unlink_greeting(c);
	SSL_free(c->ssl);
	close(c->fd);
	free(c);
}

static void refuse_greeting(struct handshake *c, enum greeting_refusal why, const char *words)
{
	struct handshakes_server *server = c->server;
	struct sockaddr_storage address;
	socklen_t len = sizeof(address);
	char peer[ADDRESS_TEXT_BYTES] = "unknown";

	if (getpeername(c->fd, (struct sockaddr *)&address, &len) == 0)
		address_text((struct sockaddr *)&address, len, peer);
	close_greeting(c);
	server->refused(server->arg, why, peer, words);
}

static void finish_greeting(struct handshake *c)
{
	bool proven = tls_peer_verified(c->ssl);

	unlink_greeting(c);
	if (proven)
		c->source->proven_until_ns = clock_mono_ns() + PROVEN_NS;
	c->server->greeted(c->server->arg, c->fd, c->ssl, &c->caller);
	free(c);
}

static bool begin_tls(struct handshake *c)
{
	struct tls_server *tls = c->handshakes->daemon->tls;

	c->ssl = c->server->certificate_optional ? tls_server_ssl_optional(tls)
						 : tls_server_ssl(tls);
	if (!c->ssl || SSL_set_fd(c->ssl, c->fd) != 1)
		return false;
	SSL_set_accept_state(c->ssl);
	return true;
}

static void do_step(struct handshake *c)
{
	struct err err = {0};
	short wait = EV_READ;

	if (!c->ssl && !begin_tls(c)) {
		refuse_greeting(c, GREETING_FAILED, "there is no memory for TLS");
		return;
	}
	int r = stream_handshake(c->ssl, &wait);
	if (r == 0) {
		finish_greeting(c);
	} else if (r == -EAGAIN) {
		set_state(c, ANSWERED);
		wait_for(c, wait, on_bytes);
	} else {
		tls_failure(c->ssl, &err);
		refuse_greeting(c, GREETING_FAILED, err.text);
	}
}

/* --- time --- */

static void charge_source(struct source *s, uint64_t cost_ns, uint64_t now_ns)
{
	uint64_t ns = cost_ns > LEAST_STEP_NS ? cost_ns : LEAST_STEP_NS;

	s->clock_ns += s->proven_until_ns > now_ns ? ns / PROVEN_WEIGHT : ns;
}

static void on_serve(evutil_socket_t fd, short what, void *arg)
{
	struct handshakes *g = arg;
	struct source *s = next_source(g);
	uint64_t start = clock_mono_ns();

	(void)fd, (void)what;
	if (!s)
		return;
	g->clock_ns = s->clock_ns;
	do_step(TAILQ_FIRST(&s->lists[QUEUED]));
	uint64_t now = clock_mono_ns(), cost = now - start;
	if (cost > LONGEST_STEP_NS)
		cost = LONGEST_STEP_NS;
	charge_source(s, cost, now);
	g->rest_until_ns = now + cost; /* half of the time is for all others */
	if (next_source(g))
		schedule_serving(g);
}

static void schedule_sweep(struct handshakes *g)
{
	const struct handshake *first = TAILQ_FIRST(&g->by_age);
	uint64_t now = clock_mono_ns();

	if (first && !event_pending(g->sweep, EV_TIMEOUT, NULL))
		loop_timer_start(g->sweep, first->deadline_ns > now
						   ? (first->deadline_ns - now) / 1000 + 1
						   : 1);
}

static void on_sweep(evutil_socket_t fd, short what, void *arg)
{
	struct handshakes *g = arg;
	struct handshake *c;
	uint64_t now = clock_mono_ns();

	(void)fd, (void)what;
	while ((c = TAILQ_FIRST(&g->by_age)) && c->deadline_ns <= now)
		refuse_greeting(c, GREETING_LATE, NULL);
	schedule_sweep(g);
}

/* --- places --- */

/* The one that waits for longest of those for which nothing was computed so far. */
static struct handshake *oldest_not_begun(const struct source *s)
{
	struct handshake *c;

	TAILQ_FOREACH(c, &s->lists[QUEUED], link)
	if (!c->ssl)
		return c;
	return TAILQ_LAST(&s->lists[QUEUED], handshaking);
}

/*
 * Whom a source loses: who has sent nothing, the oldest first. Then, while most are still to be
 * served, the oldest that was not begun, so that peers that leave things half done keep nobody out
 * who comes later; else who has not answered for longest. With half of the places for those that
 * were served, an honest peer beside a flood of its own source has time for its answer.
 */
static struct handshake *choose_loser(const struct source *s)
{
	if (!TAILQ_EMPTY(&s->lists[SILENT]))
		return TAILQ_FIRST(&s->lists[SILENT]);
	if (s->counts[QUEUED] > s->n / 2)
		return oldest_not_begun(s);
	return TAILQ_FIRST(&s->lists[ANSWERED]);
}

static bool has_bytes(int fd)
{
	char byte;

	return recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
}

void handshakes_add(struct handshakes *g, struct handshakes_server *server, int fd,
		    const struct caller *caller)
{
	struct source *s = find_source(g, caller->source);
	struct handshake *c = xcalloc(1, sizeof(*c));

	*c = (struct handshake){.handshakes = g, .server = server, .source = s, .caller = *caller};
	c->fd = fd;
	c->deadline_ns = clock_mono_ns() + TIMEOUT_NS;
	TAILQ_INSERT_TAIL(&s->lists[SILENT], c, link);
	s->counts[SILENT]++;
	TAILQ_INSERT_TAIL(&g->by_age, c, by_age);
	if (s->n++ == 0)
		TAILQ_INSERT_TAIL(&g->active, s, link);
	g->n++;
	server->pending++;
	if (has_bytes(fd))
		queue_greeting(c);
	else
		wait_for(c, EV_READ, on_bytes);
	if (s->n > GREETER_PER_SOURCE)
		refuse_greeting(choose_loser(s), GREETING_CROWDED, NULL);
	else if (g->n > g->places)
		refuse_greeting(choose_loser(largest_source(g)), GREETING_CROWDED, NULL);
	schedule_sweep(g);
}

/* --- life --- */

struct handshakes *handshakes_new(struct daemon *d)
{
	struct handshakes *g = xcalloc(1, sizeof(*g));
	struct rlimit files;

	g->daemon = d;
	g->places = GREETER_PLACES;
	if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur / 8 < g->places)
		g->places = files.rlim_cur < 64 ? 8 : (unsigned)(files.rlim_cur / 8);
	TAILQ_INIT(&g->active);
	TAILQ_INIT(&g->by_age);
	g->serve = loop_event_new(d->base, -1, 0, DAEMON_PRIORITY_RPC, on_serve, g);
	g->sweep = loop_event_new(d->base, -1, 0, DAEMON_PRIORITY_RPC, on_sweep, g);
	return g;
}

void handshakes_forget(struct handshakes *g, struct handshakes_server *server)
{
	struct handshake *c, *next;

	for (c = g ? TAILQ_FIRST(&g->by_age) : NULL; c; c = next) {
		next = TAILQ_NEXT(c, by_age);
		if (c->server == server)
			close_greeting(c);
	}
}

void handshakes_free(struct handshakes *g)
{
	if (!g)
		return;
	BUG_ON(g->n);
	forget_idle(g, true);
	hmap_release(&g->sources);
	event_free(g->serve);
	event_free(g->sweep);
	free(g);
}
