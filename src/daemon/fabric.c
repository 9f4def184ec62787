/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * A turn of an endpoint takes what is there, for a few milliseconds at most; one that leaves
 * something behind stands back until everything else that is ready has had its turn. So a flood on
 * one endpoint delays the others, RPC and metrics by a turn, and no more.
 */
#include "daemon/fabric.h"

#include <errno.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define LOG_AREA "fabric"
#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "daemon/fabric_data.h"
#include "daemon/fabric_drops.h"
#include "daemon/fabric_endpoint.h"
#include "daemon/fabric_limit.h"
#include "daemon/fabric_queue.h"
#include "daemon/fabric_reply.h"
#include "daemon/jobs.h"
#include "wire/fabric.h"

#define ENDPOINTS_MAX 5
#define TURN_NS 2000000u
#define STAND_BACK_US 1000 /* at most; less if nothing else is ready */
#define LOOK_AT_CLOCK 16 /* datagrams */

struct endpoint {
	struct fabric *fabric;
	struct fabric_endpoint socket;
	const char *name, *kind; /* "home-data", "home" */
	struct event *readable;
	bool standing_back;
	uint64_t received;
};

struct fabric {
	struct daemon *daemon;
	fabric_data_fn data;
	void *data_arg;
	struct endpoint endpoints[ENDPOINTS_MAX];
	unsigned nendpoints;
	/* The end of standing back: all others were served, or it is time. */
	struct event *others_served, *time_is_up;
	struct fabric_limit limit;
	struct fabric_replies *replies;
	struct fabric_drops drops;
	struct buf text; /* of a config */
	char *datagram; /* FABRIC_MAX_BYTES, aligned as malloc() does */
};

/* One datagram with what is known of it. */
struct incoming {
	struct jobs_sender from;
	struct fabric_peer peer;
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
	drop(f, in, FABRIC_DROP_UNKNOWN_TYPE);
}

static void handle(struct fabric *f, const struct incoming *in, uint64_t now_ns)
{
	struct fabric_message m = {.kind = FABRIC_OTHER};
	enum fabric_fault fault = fabric_parse(f->datagram, in->bytes, &m);
	enum fabric_limit_class class =
		m.kind == FABRIC_DATA ? FABRIC_LIMIT_DATA : FABRIC_LIMIT_CONTROL;

	if (!fabric_limit_take(&f->limit, in->from.uid, in->from.pid, class, now_ns))
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

/* Takes one datagram from the socket; negative errno if there is none. */
static int receive(struct endpoint *e, uint64_t now_ns)
{
	struct fabric *f = e->fabric;
	struct incoming in = {.from.endpoint = e->kind, .peer.fd = e->socket.fd};
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

static void stand_back(struct endpoint *e, bool until_others_served)
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
	for (unsigned i = 0; i < f->nendpoints; i++) {
		struct endpoint *e = &f->endpoints[i];

		if (e->standing_back)
			event_add(e->readable, NULL);
		e->standing_back = false;
	}
}

static void on_readable(evutil_socket_t fd, short what, void *arg)
{
	struct endpoint *e = arg;
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

/* --- endpoints --- */

/* The next free place, with a name. */
static struct endpoint *next_endpoint(struct fabric *f, const char *name, const char *kind)
{
	struct endpoint *e = &f->endpoints[f->nendpoints];

	BUG_ON(f->nendpoints == ENDPOINTS_MAX);
	*e = (struct endpoint){.fabric = f, .name = name, .kind = kind};
	return e;
}

/* Begins to listen with the endpoint that next_endpoint() gave, or leaves it out. */
static void start_endpoint(struct fabric *f, int result, const struct err *err)
{
	struct endpoint *e = &f->endpoints[f->nendpoints];
	char text[112];

	if (result < 0) {
		log_warn("no endpoint '%s': %s", e->name, err->text);
		return;
	}
	e->readable =
		event_new(f->daemon->base, e->socket.fd, EV_READ | EV_PERSIST, on_readable, e);
	BUG_ON(!e->readable);
	event_priority_set(e->readable, DAEMON_PRIORITY_FABRIC);
	event_add(e->readable, NULL);
	f->nendpoints++;
	log_info("listening to processes on '%s'", fabric_endpoint_text(&e->socket, text));
}

static void open_abstract(struct fabric *f, const char *name, const char *socket_name)
{
	struct endpoint *e = next_endpoint(f, name, "abstract");
	struct err err;

	start_endpoint(f, fabric_endpoint_abstract(&e->socket, socket_name, &err), &err);
}

static void open_path(struct fabric *f, const char *name, const char *kind, const char *dir,
		      const char *file, mode_t mode)
{
	struct endpoint *e = next_endpoint(f, name, kind);
	struct buf path = {0};
	struct err err;

	buf_addf(&path, "%s/%s", dir, file);
	start_endpoint(f, fabric_endpoint_path(&e->socket, buf_str(&path), mode, &err), &err);
	buf_release(&path);
}

static const char *socket_dir(const struct daemon_config *config)
{
	const char *dir =
		config->ipc_socket_dir ? config->ipc_socket_dir : getenv("KINETO_IPC_SOCKET_DIR");

	return dir && *dir ? dir : NULL;
}

static void open_well_known(struct fabric *f)
{
	const struct passwd *user = getpwuid(getuid());

	open_abstract(f, "abstract", FABRIC_ABSTRACT_NAME);
	open_abstract(f, "abstract-data", FABRIC_ABSTRACT_DATA_NAME);
	if (!user || !user->pw_dir || !*user->pw_dir) {
		log_warn("no endpoint 'home': user %u has no home directory", (unsigned)getuid());
		return;
	}
	open_path(f, "home", "home", user->pw_dir, FABRIC_HOME_FILE, 0600);
	open_path(f, "home-data", "home", user->pw_dir, FABRIC_HOME_DATA_FILE, 0600);
}

static void open_endpoints(struct fabric *f)
{
	const struct daemon_config *c = f->daemon->config;
	const char *dir = socket_dir(c);

	if (!c->ipc_dir_only)
		open_well_known(f);
	if (dir)
		open_path(f, "dir", "dir", dir, FABRIC_DIR_FILE, 0666);
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
	unsigned queue = fabric_queue_raise();
	open_endpoints(f);
	fabric_queue_restore(queue);
	if (!f->nendpoints) {
		fabric_free(f);
		return err_set(err, -EADDRINUSE,
			       "no endpoint for processes can be had; is another daemon running?");
	}
	*out = f;
	return 0;
}

void fabric_free(struct fabric *f)
{
	if (!f)
		return;
	for (unsigned i = 0; i < f->nendpoints; i++) {
		event_free(f->endpoints[i].readable);
		fabric_endpoint_close(&f->endpoints[i].socket);
	}
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

	for (unsigned i = 0; i < f->nendpoints; i++) {
		const struct endpoint *e = &f->endpoints[i];
		char text[112];

		json_array_append_new(endpoints, json_pack("{ss ss sI}", "name", e->name, "address",
							   fabric_endpoint_text(&e->socket, text),
							   "received", (json_int_t)e->received));
	}
	return json_pack("{so so so}", "endpoints", endpoints, "dropped",
			 fabric_drops_describe(&f->drops), "replies",
			 fabric_replies_describe(f->replies));
}
