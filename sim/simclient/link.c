/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "link.h"

#include <errno.h>
#include <pwd.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CONTROL_NAME "dynolog"
#define DATA_NAME "dynolog_data"

/* An abstract name has a NUL in front and one behind, and both count. */
static int abstract_address(const char *name, struct link_address *out)
{
	size_t n = strlen(name);
	memset(out, 0, sizeof(*out));
	out->sun.sun_family = AF_UNIX;
	if (n + 2 > sizeof(out->sun.sun_path))
		return -ENAMETOOLONG;
	memcpy(out->sun.sun_path + 1, name, n);
	out->len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n + 2);
	return 0;
}

__attribute__((format(printf, 2, 3))) static int path_address(struct link_address *out,
							      const char *fmt, ...)
{
	memset(out, 0, sizeof(*out));
	out->sun.sun_family = AF_UNIX;
	va_list ap;
	va_start(ap, fmt);
	int n = vsnprintf(out->sun.sun_path, sizeof(out->sun.sun_path), fmt, ap);
	va_end(ap);
	if (n < 0 || (size_t)n >= sizeof(out->sun.sun_path))
		return -ENAMETOOLONG;
	out->len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + (size_t)n + 1);
	return 0;
}

static int home_addresses(struct link *l, const char *home)
{
	if (!home) {
		struct passwd *pw = getpwuid(getuid());
		if (!pw)
			return -ENOENT;
		home = pw->pw_dir;
	}
	int r = path_address(&l->server, "%s/" CONTROL_NAME ".sock", home);
	return r ? r : path_address(&l->data, "%s/" DATA_NAME ".sock", home);
}

/* dynolog.sock has its dynolog_data.sock beside it; a socket of any other name takes data itself.
 */
static int socket_addresses(struct link *l, const char *path)
{
	static const char ending[] = "/" CONTROL_NAME ".sock";
	size_t n = strlen(path), e = sizeof(ending) - 1;
	int r = path_address(&l->server, "%s", path);
	if (r)
		return r;
	if (n < e || strcmp(path + n - e, ending))
		return path_address(&l->data, "%s", path);
	return path_address(&l->data, "%.*s/" DATA_NAME ".sock", (int)(n - e), path);
}

static int server_addresses(struct link *l, const struct place *p)
{
	int r;
	switch (p->kind) {
	case PLACE_HOME:
		return home_addresses(l, p->path);
	case PLACE_SOCKET:
		return socket_addresses(l, p->path);
	case PLACE_DIR:
		r = path_address(&l->server, "%s/" CONTROL_NAME, p->path);
		l->data = l->server;
		return r;
	case PLACE_ABSTRACT:
		break;
	}
	r = abstract_address(CONTROL_NAME, &l->server);
	return r ? r : abstract_address(DATA_NAME, &l->data);
}

static int own_address(struct link *l, const struct place *p, struct link_address *out)
{
	char name[64] = "dynoconfigclient", uuid[40] = "";
	FILE *f = fopen("/proc/sys/kernel/random/uuid", "re");
	if (!f)
		return -errno;
	if (!fgets(uuid, sizeof(uuid), f))
		uuid[0] = '\0';
	fclose(f);
	strncat(name, uuid, strcspn(uuid, "\n"));
	if (p->kind != PLACE_DIR)
		return abstract_address(name, out);
	int r = path_address(out, "%s/%s", p->path, name);
	if (!r)
		snprintf(l->own_path, sizeof(l->own_path), "%s", out->sun.sun_path);
	return r;
}

int link_open(struct link *l, const struct client_options *o)
{
	struct link_address own;
	memset(l, 0, sizeof(*l));
	l->fd = -1;
	l->kind = o->kind;
	int r = server_addresses(l, &o->place);
	if (!r)
		r = own_address(l, &o->place, &own);
	if (!r) {
		l->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
		if (l->fd < 0 || bind(l->fd, (struct sockaddr *)&own.sun, own.len))
			r = -errno;
	}
	if (!r && *l->own_path && chmod(l->own_path, 0666))
		r = -errno;
	if (r) {
		say("no socket: %s", strerror(-r));
		link_close(l);
	}
	return r;
}

void link_close(struct link *l)
{
	if (l->fd >= 0)
		close(l->fd);
	l->fd = -1;
	if (*l->own_path)
		unlink(l->own_path);
}

bool link_server_there(const struct link *l)
{
	return !*l->server.sun.sun_path || !access(l->server.sun.sun_path, W_OK);
}

/* The wait between tries doubles. */
static int send_to(struct link *l, struct link_address *to, const char *type, const void *payload,
		   size_t len, int first_ms, int sleeps)
{
	struct wire_header h = {.size = len};
	snprintf(h.type, sizeof(h.type), "%s", type);
	struct iovec parts[2] = {{&h, sizeof(h)}, {(void *)(uintptr_t)payload, len}};
	struct msghdr m = {.msg_name = &to->sun,
			   .msg_namelen = to->len,
			   .msg_iov = parts,
			   .msg_iovlen = len ? 2 : 1};
	for (int i = 0, wait = first_ms;; i++, wait *= 2) {
		if (sendmsg(l->fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0)
			return 0;
		if ((errno != EAGAIN && errno != ECONNREFUSED) || i == sleeps || stop_asked())
			return -errno;
		nap_ms(wait);
	}
}

int link_send(struct link *l, const char *type, const void *payload, size_t len)
{
	return send_to(l, &l->server, type, payload, len, 10, 10);
}

int link_send_data(struct link *l, const char *json, size_t len)
{
	return send_to(l, &l->data, "data", json, len, 1, 5);
}

/* The NPU client listens to nobody but sockets in the directory of the one that it writes to. A
 * daemon that replaced a dead one has bound its socket there under another name. */
static bool is_stranger(const struct link *l, const struct sockaddr_un *from)
{
	const char *server = l->server.sun.sun_path;
	const char *slash = strrchr(server, '/');

	return l->kind == CLIENT_NPU && slash &&
	       strncmp(from->sun_path, server, (size_t)(slash - server) + 1);
}

static ssize_t receive_one(struct link *l, char *buf, size_t size)
{
	struct wire_header h;
	struct sockaddr_un from = {0};
	struct iovec parts[2] = {{&h, sizeof(h)}, {buf, size}};
	struct msghdr m = {
		.msg_name = &from, .msg_namelen = sizeof(from), .msg_iov = parts, .msg_iovlen = 2};
	ssize_t n = recvmsg(l->fd, &m, MSG_DONTWAIT | MSG_PEEK);
	if (n < 0)
		return -errno;
	if (is_stranger(l, &from))
		return -EPERM;
	n = recvmsg(l->fd, &m, MSG_DONTWAIT);
	if (n < (ssize_t)sizeof(h) || h.size != (uint64_t)n - sizeof(h))
		return -EBADMSG;
	return n - (ssize_t)sizeof(h);
}

ssize_t link_receive(struct link *l, int tries, char *buf, size_t size)
{
	ssize_t n = -EAGAIN;
	for (int i = 0; i < tries; i++) {
		n = receive_one(l, buf, size);
		if (n != -EAGAIN || stop_asked())
			break;
		nap_ms(10);
	}
	return n;
}

static int64_t job_id(const struct link *l)
{
	const char *slurm = getenv("SLURM_JOB_ID");
	return l->kind == CLIENT_KINETO && slurm ? strtoll(slurm, NULL, 10) : 0;
}

int link_context(struct link *l, int gpu)
{
	struct wire_context c = {.gpu = gpu, .pid = getpid(), .job = job_id(l)};
	return link_send(l, "ctxt", &c, sizeof(c));
}

static int parent_of(int pid)
{
	char path[64], text[512] = "";
	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	FILE *f = fopen(path, "re");
	if (!f)
		return 0;
	size_t n = fread(text, 1, sizeof(text) - 1, f);
	fclose(f);
	text[n] = '\0';
	/* the name in parentheses may hold anything */
	char *end = strrchr(text, ')');
	int parent = 0;
	return end && sscanf(end + 1, " %*c %d", &parent) == 1 ? parent : 0;
}

int link_request(struct link *l, int mask)
{
	struct wire_request r = {.mask = mask, .job = job_id(l)};
	int max = l->kind == CLIENT_KINETO ? WIRE_MAX_PIDS : 6;
	r.pids[r.npids++] = getpid();
	for (int p = parent_of(getpid()); p > 1 && r.npids < max; p = parent_of(p))
		r.pids[r.npids++] = p;
	return link_send(l, "req", &r,
			 offsetof(struct wire_request, pids) + (size_t)r.npids * sizeof(r.pids[0]));
}

static void status(struct link *l, const char *type, const struct wire_status *s)
{
	struct wire_status_old old = {.state = s->state, .pid = s->pid, .job = s->job};
	if (!link_server_there(l))
		return;
	if (l->kind == CLIENT_NPU_OLD)
		link_send(l, type, &old, sizeof(old));
	else
		link_send(l, type, s, sizeof(*s));
}

void link_trace_status(struct link *l, enum wire_state state, int current, int start, int stop)
{
	struct wire_status s = {.state = state,
				.current_step = current,
				.start_step = start,
				.stop_step = stop,
				.pid = getpid()};
	status(l, "npuTraceStatus", &s);
}

void link_monitor_status(struct link *l, enum wire_state state)
{
	struct wire_status s = {.state = state,
				.current_step = -1,
				.start_step = -1,
				.stop_step = -1,
				.pid = getpid()};
	status(l, "npuMonitorStatus", &s);
}
