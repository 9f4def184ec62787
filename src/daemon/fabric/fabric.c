/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * A turn of an endpoint takes what is there, for a few milliseconds at most; one that leaves
 * something behind stands back until everything else that is ready has had its turn. So a flood on
 * one endpoint delays the others, RPC and metrics by a turn, and no more.
 */
#include "daemon/fabric/fabric.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define LOG_AREA "fabric"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "daemon/fabric/data.h"
#include "daemon/fabric/fabric_impl.h"
#include "daemon/jobs/jobs.h"
#include "wire/fabric.h"

#define TURN_NS 2000000u
#define STAND_BACK_US 1000 /* at most; less if nothing else is ready */
#define LOOK_AT_CLOCK 16 /* datagrams */
#define REPORT_TOKENS 32 /* of a sondeTop */

/* One datagram with what is known of it. */
struct incoming {
	struct jobs_sender from;
	struct fabric_peer peer;
	struct jobs_address guest; /* where from.guest points, if it is one */
	size_t bytes;
};

static void drop(struct fabric *f, const struct incoming *in, unsigned why)
{
	fabric_drop(&f->drops, &in->from, why);
}

/* --- messages --- */

static void on_context(struct fabric *f, const struct incoming *in, const struct fabric_context *c)
{
	int32_t count = jobs_context(f->daemon->jobs, &in->from, c);

	if (count < 0)
		drop(f, in, FABRIC_DROP_REFUSED);
	else
		fabric_reply(f->replies, &in->peer, "ctxt", &count, sizeof(count), 0);
}

static void on_request(struct fabric *f, const struct incoming *in, const struct fabric_message *m)
{
	struct jobs *jobs = f->daemon->jobs;
	struct buf *text = &f->text;

	buf_clear(text);
	if (jobs_request(jobs, &in->from, m->request, m->npids, text) < 0)
		buf_clear(text);
	if (!text->len) {
		fabric_reply(f->replies, &in->peer, "req", NULL, 0, 0);
		return;
	}
	/* A config that does not leave now stays with its process, for the next question. */
	bool sent =
		fabric_reply(f->replies, &in->peer, "req", text->data, text->len, FABRIC_REPLY_NOW);
	jobs_delivered(jobs, sent);
}

static void on_data(struct fabric *f, const struct incoming *in, const struct fabric_message *m)
{
	if (m->payload_bytes > FABRIC_DATA_MAX) {
		drop(f, in, FABRIC_DROP_TOO_LONG);
		return;
	}
	json_t *record = fabric_data_parse(m->payload, m->payload_bytes);
	if (!record) {
		drop(f, in, FABRIC_DROP_BAD_JSON);
		return;
	}
	f->data(f->data_arg, record);
	json_decref(record);
}

/* Types that only programs of ours send. */
static void on_own(struct fabric *f, const struct incoming *in, const struct fabric_message *m)
{
	if (!strcmp(m->type, FABRIC_CAN)) {
		if (!jobs_can(f->daemon->jobs, &in->from, m->payload, m->payload_bytes))
			drop(f, in, FABRIC_DROP_REFUSED);
		return;
	}
	if (!strcmp(m->type, FABRIC_SAID)) {
		if (!jobs_said(f->daemon->jobs, &in->from, m->payload, m->payload_bytes))
			drop(f, in, FABRIC_DROP_REFUSED);
		return;
	}
	if (strcmp(m->type, FABRIC_TOP)) {
		drop(f, in, FABRIC_DROP_UNKNOWN_TYPE);
		return;
	}
	int r = jobs_top(f->daemon->jobs, &in->from, m->payload, m->payload_bytes);
	if (r < 0 && r != -ESRCH)
		drop(f, in, r == -EINVAL ? FABRIC_DROP_BAD_JSON : FABRIC_DROP_REFUSED);
}

static void dispatch(struct fabric *f, const struct incoming *in, const struct fabric_message *m)
{
	switch (m->kind) {
	case FABRIC_CONTEXT:
		on_context(f, in, &m->context);
		return;
	case FABRIC_REQUEST:
		on_request(f, in, m);
		return;
	case FABRIC_TRACE_STATUS:
	case FABRIC_MONITOR_STATUS:
		jobs_status(f->daemon->jobs, &in->from, m->kind, &m->status);
		return;
	case FABRIC_DATA:
		on_data(f, in, m);
		return;
	case FABRIC_OTHER:
		break;
	}
	on_own(f, in, m);
}

/* A report costs as much work as many other datagrams. */
static bool take_tokens(struct fabric *f, const struct incoming *in, const struct fabric_message *m,
			uint64_t now_ns)
{
	bool is_report = m->kind == FABRIC_OTHER && m->type && !strcmp(m->type, FABRIC_TOP);
	enum fabric_limit_class class =
		m->kind == FABRIC_DATA || is_report ? FABRIC_LIMIT_DATA : FABRIC_LIMIT_CONTROL;
	unsigned n = is_report ? REPORT_TOKENS + (unsigned)(in->bytes / 1024) : 1;

	while (n && fabric_limit_take(&f->limit, in->from.uid, in->from.pid, class, now_ns))
		n--;
	return !n;
}

static void handle(struct fabric *f, const struct incoming *in, uint64_t now_ns)
{
	struct fabric_message m = {.kind = FABRIC_OTHER};
	enum fabric_fault fault = fabric_parse(f->datagram, in->bytes, &m);

	if (!take_tokens(f, in, &m, now_ns))
		drop(f, in, FABRIC_DROP_RATE);
	else if (!in->bytes)
		drop(f, in, FABRIC_DROP_EMPTY);
	else if (fault != FABRIC_OK)
		drop(f, in, fault);
	else
		dispatch(f, in, &m);
}

/* --- datagrams --- */

static void close_descriptors(const struct cmsghdr *c)
{
	size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);

	for (size_t i = 0; i < n; i++) {
		int fd;

		memcpy(&fd, CMSG_DATA(c) + i * sizeof(fd), sizeof(fd));
		close(fd);
	}
}

/* Who sent it. There is room for credentials alone, so that descriptors are left with the kernel;
 * should some come all the same, they are closed. */
static bool read_control(struct msghdr *m, struct jobs_sender *out)
{
	bool known = false;

	for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
		struct ucred who;

		if (c->cmsg_level != SOL_SOCKET)
			continue;
		if (c->cmsg_type == SCM_RIGHTS)
			close_descriptors(c);
		if (c->cmsg_type != SCM_CREDENTIALS || c->cmsg_len < CMSG_LEN(sizeof(who)))
			continue;
		memcpy(&who, CMSG_DATA(c), sizeof(who));
		out->pid = who.pid;
		out->uid = who.uid;
		out->gid = who.gid;
		known = true;
	}
	return known;
}

/* Its name is the last part of a path, or abstract. */
static bool is_guest(const struct sockaddr_un *a, socklen_t len)
{
	static const char guest[] = FABRIC_GUEST_NAME;
	char path[sizeof(a->sun_path) + 1] = "";
	size_t n = len > sizeof(sa_family_t) ? len - sizeof(sa_family_t) : 0;

	if (n > sizeof(a->sun_path))
		n = sizeof(a->sun_path);
	memcpy(path, a->sun_path, n);
	const char *slash = path[0] ? strrchr(path, '/') : NULL;
	const char *name = path[0] ? (slash ? slash + 1 : path) : path + 1;
	return n > 1 && !strncmp(name, guest, sizeof(guest) - 1);
}

static void note_guest(struct fabric_place *e, struct incoming *in)
{
	if (!is_guest(&in->peer.address, in->peer.address_len))
		return;
	in->guest = (struct jobs_address){e, in->peer.address, in->peer.address_len};
	in->from.guest = &in->guest;
}

/* A guest is told that something waits for it. It asks from time to time in any case. */
static void poke(void *arg, uid_t uid, const struct jobs_address *to)
{
	struct fabric *f = arg;

	for (unsigned i = 0; i < f->nplaces; i++) {
		const struct fabric_place *e = &f->places[i];

		if (e != to->place || !e->readable)
			continue;
		struct fabric_peer peer = {.fd = e->socket.fd,
					   .send_bytes = e->socket.send_bytes,
					   .uid = uid,
					   .address = to->address,
					   .address_len = to->len};
		fabric_reply(f->replies, &peer, FABRIC_POKE, NULL, 0, FABRIC_REPLY_NOW);
	}
}

/* Takes one datagram from the socket; negative errno if there is none. */
static int receive(struct fabric_place *e, uint64_t now_ns)
{
	struct fabric *f = e->fabric;
	struct incoming in = {.from.endpoint = e->kind,
			      .peer.fd = e->socket.fd,
			      .peer.send_bytes = e->socket.send_bytes};
	struct iovec iov = {f->datagram, FABRIC_MAX_BYTES};
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(sizeof(struct ucred))];
	} control = {0};
	struct msghdr m = {.msg_name = &in.peer.address,
			   .msg_namelen = sizeof(in.peer.address),
			   .msg_iov = &iov,
			   .msg_iovlen = 1,
			   .msg_control = &control,
			   .msg_controllen = sizeof(control)};
	ssize_t n = recvmsg(e->socket.fd, &m, MSG_DONTWAIT | MSG_TRUNC | MSG_CMSG_CLOEXEC);

	if (n < 0)
		return -errno;
	e->received++;
	bool known = read_control(&m, &in.from);
	in.bytes = (size_t)n;
	in.peer.uid = in.from.uid;
	in.peer.address_len = m.msg_namelen;
	note_guest(e, &in);
	if (!known)
		drop(f, &in, FABRIC_DROP_NO_CREDENTIALS);
	else if (m.msg_flags & MSG_CTRUNC)
		drop(f, &in, FABRIC_DROP_DESCRIPTORS);
	else if (m.msg_flags & MSG_TRUNC || in.bytes > FABRIC_MAX_BYTES)
		drop(f, &in, FABRIC_DROP_TOO_LONG);
	else
		handle(f, &in, now_ns);
	return 0;
}

static void stand_back(struct fabric_place *e, bool until_others_served)
{
	const struct timeval at_most = {.tv_usec = STAND_BACK_US};
	struct fabric *f = e->fabric;

	e->standing_back = true;
	event_del(e->readable);
	if (!evtimer_pending(f->time_is_up, NULL))
		evtimer_add(f->time_is_up, &at_most);
	if (until_others_served)
		event_active(f->others_served, EV_TIMEOUT, 0);
}

static void on_resume(evutil_socket_t fd, short what, void *arg)
{
	struct fabric *f = arg;

	(void)fd;
	(void)what;
	evtimer_del(f->time_is_up);
	event_del(f->others_served);
	for (unsigned i = 0; i < f->nplaces; i++) {
		struct fabric_place *e = &f->places[i];

		if (e->standing_back)
			event_add(e->readable, NULL);
		e->standing_back = false;
	}
}

void fabric_on_readable(evutil_socket_t fd, short what, void *arg)
{
	struct fabric_place *e = arg;
	uint64_t now = clock_mono_ns(), end = now + TURN_NS;

	(void)fd;
	(void)what;
	for (unsigned n = 1; now < end; n++) {
		int r = receive(e, now);

		if (r == -EAGAIN)
			return;
		if (r < 0 && r != -EINTR) {
			log_debug("receiving by '%s' failed: %s", e->name, strerror(-r));
			stand_back(e, false);
			return;
		}
		if (n % LOOK_AT_CLOCK == 0)
			now = clock_mono_ns();
	}
	stand_back(e, true);
}

static bool any_open(const struct fabric *f)
{
	for (unsigned i = 0; i < f->nplaces; i++)
		if (f->places[i].readable)
			return true;
	return false;
}

int fabric_open(struct daemon *d, fabric_data_fn data, void *arg, struct fabric **out,
		struct err *err)
{
	struct fabric *f = xcalloc(1, sizeof(*f));

	f->daemon = d;
	f->data = data;
	f->data_arg = arg;
	f->datagram = xmalloc(FABRIC_MAX_BYTES);
	f->replies = fabric_replies_new(d->base);
	f->others_served = event_new(d->base, -1, 0, on_resume, f);
	f->time_is_up = evtimer_new(d->base, on_resume, f);
	BUG_ON(!f->others_served || !f->time_is_up);
	event_priority_set(f->others_served, DAEMON_PRIORITY_METRICS);
	event_priority_set(f->time_is_up, DAEMON_PRIORITY_FABRIC);
	fabric_places_open(f);
	if (!any_open(f)) {
		fabric_free(f);
		return err_set(err, -EADDRINUSE,
			       "no endpoint for processes can be had, for the reasons above");
	}
	jobs_on_poke(d->jobs, poke, f);
	jobs_on_gone(d->jobs, fabric_places_tidy, f);
	*out = f;
	return 0;
}

void fabric_free(struct fabric *f)
{
	if (!f)
		return;
	jobs_on_poke(f->daemon->jobs, NULL, NULL);
	jobs_on_gone(f->daemon->jobs, NULL, NULL);
	fabric_places_close(f);
	event_free(f->others_served);
	event_free(f->time_is_up);
	fabric_replies_free(f->replies);
	fabric_limit_release(&f->limit);
	buf_release(&f->text);
	free(f->datagram);
	free(f);
}

json_t *fabric_describe(const struct fabric *f)
{
	json_t *endpoints = json_array();

	for (unsigned i = 0; i < f->nplaces; i++) {
		const struct fabric_place *e = &f->places[i];
		char text[112];

		if (!e->readable)
			continue;
		json_array_append_new(endpoints, json_pack("{ss ss sI}", "name", e->name, "address",
							   fabric_endpoint_text(&e->socket, text),
							   "received", (json_int_t)e->received));
	}
	return json_pack("{so so so}", "endpoints", endpoints, "dropped",
			 fabric_drops_describe(&f->drops), "replies",
			 fabric_replies_describe(f->replies));
}
