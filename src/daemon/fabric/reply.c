/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "daemon/fabric/fabric_impl.h"

#include <errno.h>
#include <linux/sockios.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "daemon/loop.h"
#include "wire/fabric.h"

#define NS_PER_MS 1000000u
#define WAIT_NS                                                                                    \
	(50 * NS_PER_MS) /* later, today's clients have given up, and would take it for another */
#define RETRY_US 2000
#define WAITING_MAX 256
#define WAITING_PER_UID 64
#define PAYLOAD_MAX 8 /* of what may wait: counts and empty answers */

struct waiting {
	struct fabric_peer to;
	uint64_t until_ns;
	size_t bytes;
	struct {
		struct fabric_header header;
		char payload[PAYLOAD_MAX];
	} datagram;
};

struct fabric_replies {
	struct event *timer;
	struct waiting *waiting; /* in the order in which they came */
	size_t nwaiting, cap;
	uint64_t sent;
	uint64_t no_address;
	uint64_t gone; /* nobody is at that address any more */
	uint64_t delayed; /* had to wait, sent or not */
	uint64_t late; /* did not fit within the time */
	uint64_t full; /* too many wait */
	uint64_t not_taken; /* was to be sent now or never */
};

enum outcome { SENT, AGAIN, GONE };

/* Whether this user's share of the buffer has room. */
static bool has_room(const struct fabric_peer *to, bool is_config)
{
	int used, most = is_config ? to->send_bytes / 4 * 3 : to->send_bytes / 2;

	if (to->uid == 0 || to->uid == geteuid() || ioctl(to->fd, SIOCOUTQ, &used) < 0)
		return true;
	return used < most;
}

/*
 * Guests obey root and their own user. A daemon that root started in a sandbox (--user) is neither,
 * but has kept root as its saved user id: the kernel lets it write that into the credentials of its
 * datagrams.
 */
union signature {
	struct cmsghdr header;
	char bytes[CMSG_SPACE(sizeof(struct ucred))];
};

static void sign_as_root(union signature *s, struct msghdr *m)
{
	struct ucred who = {.pid = getpid(), .gid = getegid()};
	uid_t real, effective, saved;

	if (getresuid(&real, &effective, &saved) < 0 || effective == 0 || saved != 0)
		return;
	*s = (union signature){.header = {.cmsg_len = CMSG_LEN(sizeof(who)),
					  .cmsg_level = SOL_SOCKET,
					  .cmsg_type = SCM_CREDENTIALS}};
	memcpy(CMSG_DATA(&s->header), &who, sizeof(who));
	m->msg_control = s;
	m->msg_controllen = sizeof(*s);
}

static enum outcome send_datagram(const struct fabric_peer *to, const struct iovec *iov, size_t n)
{
	struct msghdr m = {.msg_name = (void *)(uintptr_t)&to->address,
			   .msg_namelen = to->address_len,
			   .msg_iov = (struct iovec *)(uintptr_t)iov,
			   .msg_iovlen = n};
	union signature signature;

	sign_as_root(&signature, &m);
	if (!has_room(to, n > 1 && iov[1].iov_len > PAYLOAD_MAX))
		return AGAIN;
	if (sendmsg(to->fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0)
		return SENT;
	return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? AGAIN : GONE;
}

/* Tries what waits once more and closes the gaps. */
static void retry_waiting(evutil_socket_t fd, short what, void *arg)
{
	struct fabric_replies *r = arg;
	uint64_t now = clock_mono_ns();
	size_t kept = 0;

	(void)fd, (void)what;
	for (size_t i = 0; i < r->nwaiting; i++) {
		struct waiting *w = &r->waiting[i];
		struct iovec iov = {&w->datagram, w->bytes};
		enum outcome outcome = send_datagram(&w->to, &iov, 1);

		if (outcome == SENT)
			r->sent++;
		else if (outcome == GONE)
			r->gone++;
		else if (now >= w->until_ns)
			r->late++;
		else
			r->waiting[kept++] = *w;
	}
	r->nwaiting = kept;
	if (kept)
		loop_timer_start(r->timer, RETRY_US);
}

static bool may_wait(const struct fabric_replies *r, uid_t uid)
{
	size_t of_uid = 0;

	if (r->nwaiting >= WAITING_MAX)
		return false;
	for (size_t i = 0; i < r->nwaiting; i++)
		of_uid += r->waiting[i].to.uid == uid;
	return of_uid < WAITING_PER_UID;
}

static void queue_reply(struct fabric_replies *r, const struct fabric_peer *to,
			const struct fabric_header *header, const void *payload)
{
	if (!may_wait(r, to->uid)) {
		r->full++;
		return;
	}
	r->waiting = xgrow(r->waiting, &r->cap, r->nwaiting + 1, sizeof(*r->waiting));
	struct waiting *w = &r->waiting[r->nwaiting++];
	w->to = *to;
	w->until_ns = clock_mono_ns() + WAIT_NS;
	w->bytes = sizeof(*header) + header->size;
	w->datagram.header = *header;
	if (header->size)
		memcpy(w->datagram.payload, payload, header->size);
	r->delayed++;
	if (r->nwaiting == 1)
		loop_timer_start(r->timer, RETRY_US);
}

bool fabric_reply(struct fabric_replies *r, const struct fabric_peer *to, const char *type,
		  const void *payload, size_t payload_bytes, unsigned flags)
{
	struct fabric_header header;
	struct iovec iov[2] = {{&header, sizeof(header)},
			       {(void *)(uintptr_t)payload, payload_bytes}};

	if (to->address_len <= sizeof(sa_family_t)) {
		r->no_address++;
		return false;
	}
	fabric_header_init(&header, type, payload_bytes);
	switch (send_datagram(to, iov, payload_bytes ? 2 : 1)) {
	case SENT:
		r->sent++;
		return true;
	case GONE:
		r->gone++;
		return false;
	case AGAIN:
		break;
	}
	if ((flags & FABRIC_REPLY_NOW) || payload_bytes > PAYLOAD_MAX)
		r->not_taken++;
	else
		queue_reply(r, to, &header, payload);
	return false;
}

void fabric_replies_forget(struct fabric_replies *r, int fd)
{
	size_t kept = 0;

	for (size_t i = 0; i < r->nwaiting; i++)
		if (r->waiting[i].to.fd != fd)
			r->waiting[kept++] = r->waiting[i];
	r->gone += r->nwaiting - kept;
	r->nwaiting = kept;
}

struct fabric_replies *fabric_replies_new(struct event_base *base)
{
	struct fabric_replies *r = xcalloc(1, sizeof(*r));

	r->timer = loop_event_new(base, -1, 0, DAEMON_PRIORITY_FABRIC, retry_waiting, r);
	return r;
}

void fabric_replies_free(struct fabric_replies *r)
{
	if (!r)
		return;
	event_free(r->timer);
	free(r->waiting);
	free(r);
}

json_t *fabric_replies_describe(const struct fabric_replies *r)
{
	return json_pack("{sI sI sI sI sI sI sI si}", "sent", (json_int_t)r->sent, "no_address",
			 (json_int_t)r->no_address, "gone", (json_int_t)r->gone, "delayed",
			 (json_int_t)r->delayed, "late", (json_int_t)r->late, "queue_full",
			 (json_int_t)r->full, "config_kept", (json_int_t)r->not_taken, "waiting",
			 (int)r->nwaiting);
}
