/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Datagrams of processes: who sent them, which are dropped, what is done with the others.
 *
 * An endpoint is read for a slice of a few milliseconds at most; one that leaves something behind
 * is suspended until everything else that is ready has been served. So a flood on one endpoint
 * delays the others, RPC and metrics by one slice, and no more.
 */
#define LOG_AREA "fabric"

#include "daemon/fabric/fabric.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/text/json_depth.h"
#include "daemon/fabric/fabric_impl.h"
#include "daemon/jobs/jobs.h"
#include "daemon/loop.h"
#include "wire/fabric.h"

#define SLICE_NS 2000000u /* of one endpoint */
#define SUSPEND_US 1000 /* at most; less if nothing else is ready */
#define READ_CLOCK_EVERY 16 /* datagrams */
#define REPORT_TOKENS 32 /* of a sondeTop */

/* Why a datagram is dropped: an enum fabric_fault, or one of these. The first of each is logged. */
enum drop_reason {
	DROP_EMPTY = FABRIC_FAULTS,
	DROP_TOO_LONG,
	DROP_UNKNOWN_TYPE,
	DROP_DESCRIPTORS,
	DROP_NO_CREDENTIALS,
	DROP_RATE,
	DROP_BAD_JSON,
	DROP_REFUSED,
	DROP_REASONS
};
_Static_assert(DROP_REASONS == FABRIC_DROP_REASONS, "the counters of struct fabric");

/* One datagram with what is known of it. */
struct incoming {
	struct jobs_sender from;
	struct fabric_peer peer;
	struct jobs_address guest; /* where from.guest points, if it is one */
	size_t bytes;
};

static const struct {
	const char *name; /* in JSON */
	const char *words; /* in the log; NULL: those of the fault */
} reasons[DROP_REASONS] = {
	[FABRIC_TOO_SHORT] = {"too_short", NULL},
	[FABRIC_WRONG_SIZE] = {"wrong_size", NULL},
	[FABRIC_BAD_TYPE] = {"bad_type", NULL},
	[FABRIC_BAD_PAYLOAD] = {"bad_payload", NULL},
	[DROP_EMPTY] = {"empty", "it has no bytes"},
	[DROP_TOO_LONG] = {"too_long", "it is too long"},
	[DROP_UNKNOWN_TYPE] = {"unknown_type", "its type is unknown"},
	[DROP_DESCRIPTORS] = {"descriptors", "it carries file descriptors"},
	[DROP_NO_CREDENTIALS] = {"no_credentials", "the kernel gives no credentials of its sender"},
	[DROP_RATE] = {"rate_limited", "this user sends too many"},
	[DROP_BAD_JSON] = {"bad_json", "its payload is no valid JSON object"},
	[DROP_REFUSED] = {"refused",
			  "it speaks for another process, or this user has registered too many"},
};

static void count_drop(struct fabric *f, const struct incoming *in, unsigned reason)
{
	const char *words = reasons[reason].words;

	if (f->dropped[reason]++)
		return;
	log_warn("dropped a datagram of process %d, user %u: %s; further ones are only counted",
		 (int)in->from.pid, (unsigned)in->from.uid,
		 words ? words : fabric_fault_text((enum fabric_fault)reason));
}

/* --- messages: each gives FABRIC_OK, or why it is dropped --- */

static unsigned handle_context(struct fabric *f, const struct incoming *in,
			       const struct fabric_context *c)
{
	int32_t count = jobs_context(f->daemon->jobs, &in->from, c);

	if (count < 0)
		return DROP_REFUSED;
	fabric_reply(f->replies, &in->peer, "ctxt", &count, sizeof(count), 0);
	return FABRIC_OK;
}

static void handle_request(struct fabric *f, const struct incoming *in,
			   const struct fabric_message *m)
{
	struct jobs *jobs = f->daemon->jobs;
	struct buf *text = &f->text;

	buf_clear(text);
	if (jobs_poll(jobs, &in->from, m->request, m->npids, text) < 0)
		buf_clear(text);
	/* A config that does not leave now stays with its process, for the next question. */
	bool sent = fabric_reply(f->replies, &in->peer, "req", text->data, text->len,
				 text->len ? FABRIC_REPLY_NOW : 0);
	if (text->len)
		jobs_delivered(jobs, sent);
}

json_t *fabric_data_parse(const char *text, size_t len)
{
	json_error_t error;

	if (len > FABRIC_DATA_MAX || json_depth(text, len) > FABRIC_DATA_DEPTH)
		return NULL;
	json_t *record = json_loadb(text, len, 0, &error);
	if (record && !json_is_object(record)) {
		json_decref(record);
		return NULL;
	}
	return record;
}

static unsigned handle_data(struct fabric *f, const struct incoming *in,
			    const struct fabric_message *m)
{
	if (m->payload_bytes > FABRIC_DATA_MAX)
		return DROP_TOO_LONG;
	json_t *record = fabric_data_parse(m->payload, m->payload_bytes);
	if (!record)
		return DROP_BAD_JSON;
	f->data(f->data_arg, in->from.uid, record);
	json_decref(record);
	return FABRIC_OK;
}

/* Types that only programs of ours send. */
static unsigned handle_own(struct fabric *f, const struct incoming *in,
			   const struct fabric_message *m)
{
	struct jobs *jobs = f->daemon->jobs;

	if (!strcmp(m->type, FABRIC_CAN))
		return jobs_can(jobs, &in->from, m->payload, m->payload_bytes) ? FABRIC_OK
									       : DROP_REFUSED;
	if (!strcmp(m->type, FABRIC_SAID))
		return jobs_replied(jobs, &in->from, m->payload, m->payload_bytes) ? FABRIC_OK
										   : DROP_REFUSED;
	if (!strcmp(m->type, FABRIC_FILES))
		return jobs_files(jobs, &in->from, m->payload, m->payload_bytes) ? FABRIC_OK
										 : DROP_REFUSED;
	if (strcmp(m->type, FABRIC_TOP))
		return DROP_UNKNOWN_TYPE;
	int r = jobs_top(jobs, &in->from, m->payload, m->payload_bytes);
	if (r >= 0 || r == -ESRCH)
		return FABRIC_OK;
	return r == -EINVAL ? DROP_BAD_JSON : DROP_REFUSED;
}

static unsigned handle_message(struct fabric *f, const struct incoming *in,
			       const struct fabric_message *m)
{
	switch (m->kind) {
	case FABRIC_CONTEXT:
		return handle_context(f, in, &m->context);
	case FABRIC_REQUEST:
		handle_request(f, in, m);
		return FABRIC_OK;
	case FABRIC_TRACE_STATUS:
	case FABRIC_MONITOR_STATUS:
		jobs_status(f->daemon->jobs, &in->from, m->kind, &m->status);
		return FABRIC_OK;
	case FABRIC_DATA:
		return handle_data(f, in, m);
	case FABRIC_OTHER:
		break;
	}
	return handle_own(f, in, m);
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

static unsigned handle_datagram(struct fabric *f, const struct incoming *in, uint64_t now_ns)
{
	struct fabric_message m = {.kind = FABRIC_OTHER};
	enum fabric_fault fault = fabric_parse(f->datagram, in->bytes, &m);

	if (!take_tokens(f, in, &m, now_ns))
		return DROP_RATE;
	if (!in->bytes)
		return DROP_EMPTY;
	return fault != FABRIC_OK ? fault : handle_message(f, in, &m);
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

static void recognize_guest(struct fabric_listener *e, struct incoming *in)
{
	if (!is_guest(&in->peer.address, in->peer.address_len))
		return;
	in->guest = (struct jobs_address){e, in->peer.address, in->peer.address_len};
	in->from.guest = &in->guest;
}

/* Notifies a guest that something waits for it. It asks from time to time in any case. */
static void notify_guest(void *arg, uid_t uid, const struct jobs_address *to)
{
	struct fabric *f = arg;

	for (unsigned i = 0; i < f->nlisteners; i++) {
		const struct fabric_listener *e = &f->listeners[i];

		if (e != to->listener || !e->readable)
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
static int receive_datagram(struct fabric_listener *e, uint64_t now_ns)
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
	recognize_guest(e, &in);
	unsigned reason = !known		     ? DROP_NO_CREDENTIALS
			  : m.msg_flags & MSG_CTRUNC ? DROP_DESCRIPTORS
			  : m.msg_flags & MSG_TRUNC || in.bytes > FABRIC_MAX_BYTES
				  ? DROP_TOO_LONG
				  : handle_datagram(f, &in, now_ns);
	if (reason != FABRIC_OK)
		count_drop(f, &in, reason);
	return 0;
}

static void suspend_listener(struct fabric_listener *e, bool until_others_served)
{
	struct fabric *f = e->fabric;

	e->suspended = true;
	event_del(e->readable);
	if (!evtimer_pending(f->suspended_enough, NULL))
		loop_timer_start(f->suspended_enough, SUSPEND_US);
	if (until_others_served)
		event_active(f->others_served, EV_TIMEOUT, 0);
}

static void resume_listeners(evutil_socket_t fd, short what, void *arg)
{
	struct fabric *f = arg;

	(void)fd, (void)what;
	evtimer_del(f->suspended_enough);
	event_del(f->others_served);
	for (unsigned i = 0; i < f->nlisteners; i++) {
		struct fabric_listener *e = &f->listeners[i];

		if (e->suspended)
			event_add(e->readable, NULL);
		e->suspended = false;
	}
}

void fabric_on_readable(evutil_socket_t fd, short what, void *arg)
{
	struct fabric_listener *e = arg;
	uint64_t now = clock_mono_ns(), end = now + SLICE_NS;

	(void)fd, (void)what;
	for (unsigned n = 1; now < end; n++) {
		int r = receive_datagram(e, now);

		if (r == -EAGAIN)
			return;
		if (r < 0 && r != -EINTR) {
			log_debug("receiving by '%s' failed: %s", e->name, strerror(-r));
			suspend_listener(e, false);
			return;
		}
		if (n % READ_CLOCK_EVERY == 0)
			now = clock_mono_ns();
	}
	suspend_listener(e, true);
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
	f->others_served =
		loop_event_new(d->base, -1, 0, DAEMON_PRIORITY_METRICS, resume_listeners, f);
	f->suspended_enough =
		loop_event_new(d->base, -1, 0, DAEMON_PRIORITY_FABRIC, resume_listeners, f);
	if (!fabric_sockets_open(f)) {
		fabric_free(f);
		return err_set(err, -EADDRINUSE,
			       "no endpoint for processes could be opened, for the reasons above");
	}
	jobs_on_notify(d->jobs, notify_guest, f);
	jobs_on_gone(d->jobs, fabric_sockets_tidy, f);
	*out = f;
	return 0;
}

void fabric_free(struct fabric *f)
{
	if (!f)
		return;
	jobs_on_notify(f->daemon->jobs, NULL, NULL);
	jobs_on_gone(f->daemon->jobs, NULL, NULL);
	fabric_sockets_close(f);
	event_free(f->others_served);
	event_free(f->suspended_enough);
	fabric_replies_free(f->replies);
	fabric_limit_release(&f->limit);
	buf_release(&f->text);
	free(f->datagram);
	free(f);
}

json_t *fabric_describe(const struct fabric *f)
{
	json_t *endpoints = json_array(), *dropped = json_object();

	for (unsigned i = 0; i < f->nlisteners; i++) {
		const struct fabric_listener *e = &f->listeners[i];
		char text[112];

		if (!e->readable)
			continue;
		json_array_append_new(endpoints, json_pack("{ss ss sI}", "name", e->name, "address",
							   fabric_endpoint_text(&e->socket, text),
							   "received", (json_int_t)e->received));
	}
	for (unsigned i = 0; i < DROP_REASONS; i++)
		if (reasons[i].name)
			json_object_set_new(dropped, reasons[i].name,
					    json_integer((json_int_t)f->dropped[i]));
	return json_pack("{so so so}", "endpoints", endpoints, "dropped", dropped, "replies",
			 fabric_replies_describe(f->replies));
}
