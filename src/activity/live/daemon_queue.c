/* SPDX-License-Identifier: MulanPSL-2.0 */
#define LOG_AREA "activity"
#include "activity/live/daemon_queue.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "wire/fabric.h"

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NS_PER_S 1000000000ull
#define RETRY_NS NS_PER_S /* between attempts to reach a daemon that is not there */
#define TICK_NS 3000000ull /* that a tick waits at most for a daemon that is busy */
#define FREE_NS (NS_PER_S / 2)

struct datagram {
	struct datagram *next;
	size_t len;
	_Alignas(8) char bytes[];
};

struct sender {
	struct sender *next;
	char *where;
	struct sockaddr_un address;
	socklen_t address_len;
	int fd;
	bool silent; /* that it is not there has been said */
	uint64_t retry_ns; /* not before */
	uint64_t tokens_ns; /* when tokens were last counted */
	uint64_t tokens;
	struct datagram *first, **last;
	size_t waiting, bytes;
	uint64_t lost;
};

struct senders {
	struct sender *list;
	unsigned count;
};

struct senders *senders_new(void)
{
	return xcalloc(1, sizeof(struct senders));
}

static void drop_first(struct sender *s)
{
	struct datagram *d = s->first;

	s->first = d->next;
	if (!s->first)
		s->last = &s->first;
	s->waiting--;
	s->bytes -= d->len;
	free(d);
}

static void lose_first(struct sender *s)
{
	if (!s->lost++)
		log_warn("more reports wait for the daemon at '%s' than there is room for: the "
			 "oldest are dropped, and counted",
			 s->where);
	drop_first(s);
}

static int address_of(struct sender *s)
{
	if (s->where[0] == '@')
		return fabric_abstract_address(s->where + 1, &s->address, &s->address_len);
	return fabric_path_address(s->where, &s->address, &s->address_len);
}

struct sender *senders_find(struct senders *all, const struct request_text *where)
{
	if (where->len < 2 || memchr(where->at, 0, where->len) ||
	    (where->at[0] != '@' && where->at[0] != '/'))
		return NULL;
	for (struct sender *s = all->list; s; s = s->next)
		if (strlen(s->where) == where->len && !memcmp(s->where, where->at, where->len))
			return s;
	if (all->count >= SENDERS_MAX)
		return NULL;
	struct sender *s = xcalloc(1, sizeof(*s));
	s->fd = -1;
	s->last = &s->first;
	s->where = xstrndup(where->at, where->len);
	s->tokens = SENDER_RATE / 4;
	if (address_of(s) < 0) {
		free(s->where);
		free(s);
		return NULL;
	}
	s->next = all->list;
	all->list = s;
	all->count++;
	return s;
}

void sender_put(struct sender *s, const char *type, const char *payload, size_t len)
{
	struct fabric_header head;

	if (len > FABRIC_MAX_BYTES - sizeof(head)) {
		s->lost++;
		return;
	}
	fabric_header_init(&head, type, len);
	struct datagram *d = xmalloc(sizeof(*d) + sizeof(head) + len);
	d->next = NULL;
	d->len = sizeof(head) + len;
	memcpy(d->bytes, &head, sizeof(head));
	memcpy(d->bytes + sizeof(head), payload, len);
	while (s->first &&
	       (s->waiting >= SENDER_MAX_WAITING || s->bytes + d->len > SENDER_MAX_BYTES))
		lose_first(s);
	*s->last = d;
	s->last = &d->next;
	s->waiting++;
	s->bytes += d->len;
}

uint64_t sender_lost(const struct sender *s)
{
	return s->lost;
}

/* --- sending --- */

static void disconnect_daemon(struct sender *s, uint64_t now_ns, int why)
{
	if (s->fd >= 0)
		close(s->fd);
	s->fd = -1;
	s->retry_ns = now_ns + RETRY_NS;
	if (!s->silent)
		log_warn("the daemon at '%s' does not take reports: %s; they wait for it", s->where,
			 strerror(why));
	s->silent = true;
}

static bool connect_sender(struct sender *s, uint64_t now_ns)
{
	if (s->fd >= 0)
		return true;
	if (now_ns < s->retry_ns)
		return false;
	s->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (s->fd >= 0 && connect(s->fd, (const struct sockaddr *)&s->address, s->address_len) == 0)
		return true;
	disconnect_daemon(s, now_ns, errno);
	return false;
}

/* Waits for room in the daemon's queue; false: there is no more time. */
static bool wait_for_room(const struct sender *s, uint64_t until_ns)
{
	struct pollfd p = {.fd = s->fd, .events = POLLOUT};
	uint64_t now = clock_mono_ns();

	return now < until_ns && poll(&p, 1, (int)((until_ns - now) / 1000000 + 1)) > 0;
}

/* 1: the first has gone, or never will. 0: not now. */
static int send_first(struct sender *s, uint64_t now_ns, uint64_t until_ns)
{
	const struct datagram *d = s->first;

	if (send(s->fd, d->bytes, d->len, MSG_NOSIGNAL) >= 0) {
		s->silent = false;
		drop_first(s);
		return 1;
	}
	switch (errno) {
	case EAGAIN:
	case ENOBUFS:
		return wait_for_room(s, until_ns);
	case EINTR:
		return 1;
	case EMSGSIZE:
		lose_first(s);
		return 1;
	default:
		disconnect_daemon(s, now_ns, errno);
		return 0;
	}
}

/* Sends up to `max` datagrams; returns how many. */
static uint64_t send_waiting(struct sender *s, uint64_t max, uint64_t now_ns, uint64_t until_ns)
{
	uint64_t before = s->waiting;

	while (s->first && before - s->waiting < max) {
		if (!connect_sender(s, now_ns) || !send_first(s, now_ns, until_ns))
			break;
	}
	return before - s->waiting;
}

static void earn_tokens(struct sender *s, uint64_t now_ns)
{
	uint64_t passed = now_ns > s->tokens_ns ? now_ns - s->tokens_ns : 0;
	uint64_t earned = passed > NS_PER_S ? SENDER_RATE : passed * SENDER_RATE / NS_PER_S;

	if (!earned)
		return;
	s->tokens_ns = now_ns;
	s->tokens = s->tokens + earned < SENDER_RATE / 2 ? s->tokens + earned : SENDER_RATE / 2;
}

void senders_tick(struct senders *all, uint64_t now_ns)
{
	for (struct sender *s = all->list; s; s = s->next) {
		if (!s->first)
			continue;
		earn_tokens(s, now_ns);
		s->tokens -= send_waiting(s, s->tokens, now_ns, clock_mono_ns() + TICK_NS);
	}
}

void senders_flush(struct senders *all, uint64_t max_ns)
{
	uint64_t now = clock_mono_ns(), until = now + max_ns;

	for (struct sender *s = all->list; s; s = s->next)
		send_waiting(s, UINT64_MAX, now, until);
}

static void sender_free(struct sender *s)
{
	while (s->first)
		lose_first(s);
	if (s->lost)
		log_warn("%llu reports did not reach the daemon at '%s'",
			 (unsigned long long)s->lost, s->where);
	if (s->fd >= 0)
		close(s->fd);
	free(s->where);
	free(s);
}

void senders_free(struct senders *all)
{
	if (!all)
		return;
	senders_flush(all, FREE_NS);
	while (all->list) {
		struct sender *s = all->list;
		all->list = s->next;
		sender_free(s);
	}
	free(all);
}

void sender_send_one(const struct request_text *where, const char *type, const char *payload,
		     size_t len)
{
	struct senders *all = senders_new();
	struct sender *s = senders_find(all, where);

	if (s)
		sender_put(s, type, payload, len);
	senders_free(all);
}
