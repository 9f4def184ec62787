/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The daemon, as a client of its fabric sees it: datagrams that may get lost, a daemon that comes
 * and goes, and answers when it likes. Nothing is kept but a socket, and a request that came late.
 *
 * An abstract name, and a name in a directory where everybody may create files, is anybody's who
 * comes first. So requests count only if they come from root or from the user of this process. Who
 * names the place by SONDE_DAEMON trusts whoever is there.
 *
 *	poll      open_socket(): ours, or a new one (daemon_socket.c)
 *	          a request that came late is taken first
 *	          poll_connected(): "req" to the daemon that answered last; 100 ms for its answer
 *	          no such daemon any more: find_daemon() tries the places in their order
 *
 *	places    SONDE_DAEMON, if it is set: that one alone
 *	          KINETO_IPC_SOCKET_DIR/dynolog, if it is set: that one alone
 *	          ~/dynolog.sock, then the abstract name "dynolog"
 *
 * An answer after 100 ms is not lost: link_wait() hears it and keeps it as `late`. A slow daemon
 * stays the one that is asked; only a refused connection makes us look elsewhere.
 */
#include "guest/monitor/monitor_impl.h"

#include "guest/runtime/env.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#define ANSWER_MS 100
#define MAX_ANCESTORS 10

static struct {
	struct fork_safe_lock lock;
	bool framework;
	_Atomic bool notified;
	struct place daemon;
	bool found; /* the daemon has answered from this place */
	char data[300];
	char late[REQUEST_MAX_BYTES]; /* a request that nobody waited for any more */
	size_t late_len;
} self;

static int open_socket(void)
{
	int r = socket_open(self.framework ? FABRIC_CLIENT_NAME : FABRIC_GUEST_NAME);

	if (r != 0) { /* a new one, or none */
		self.found = false;
		self.late_len = 0;
	}
	return r < 0 ? r : 0;
}

/* --- where the daemon may be --- */

static bool named_place(const char *where, struct place *out, char *data)
{
	struct text t = {data, data + sizeof(self.data)};
	bool abstract = where[0] == '@';

	text_str(&t, where);
	int r = abstract ? fabric_abstract_address(where + 1, &out->addr, &out->len)
			 : fabric_path_address(where, &out->addr, &out->len);
	out->trusted = true;
	return r == 0 && t.at;
}

static bool path_place(const char *dir, const char *file, const char *data_file, struct place *out,
		       char *data)
{
	char path[300];
	struct stat st;
	struct text t = {data, data + sizeof(self.data)};

	if (dir[0] != '/' || guest_join_path(path, sizeof(path), dir, file) < 0 ||
	    stat(path, &st) < 0 || !S_ISSOCK(st.st_mode))
		return false;
	out->trusted = false;
	text_str(&t, dir);
	text_str(&t, "/");
	text_str(&t, data_file);
	return t.at && fabric_path_address(path, &out->addr, &out->len) == 0;
}

/* The n-th place to try; false: there are no more. *ok says whether there is anything at all. */
static bool place_at(unsigned n, struct place *out, char *data, bool *ok)
{
	if (environment.daemon[0]) {
		*ok = n == 0 && named_place(environment.daemon, out, data);
		return n == 0;
	}
	/* Our own name is a path there then, which other daemons do not take. */
	if (environment.socket_dir[0]) {
		*ok = path_place(environment.socket_dir, FABRIC_DIR_FILE, FABRIC_DIR_FILE, out,
				 data);
		return n == 0;
	}
	switch (n) {
	case 0:
		*ok = path_place(environment.home, FABRIC_HOME_FILE, FABRIC_HOME_DATA_FILE, out,
				 data);
		return true;
	case 1:
		*ok = named_place("@" FABRIC_ABSTRACT_DATA_NAME, out, data) &&
		      fabric_abstract_address(FABRIC_ABSTRACT_NAME, &out->addr, &out->len) == 0;
		out->trusted = false;
		return true;
	default:
		return false;
	}
}

/*
 * --- messages ---
 *
 * The kernel's credentials of each datagram, not of the connection: the name may change hands.
 */
static bool may_send_requests(const struct place *at, uint32_t uid)
{
	static _Atomic bool warned;
	char name[sizeof(at->addr.sun_path) + 2];
	struct text t = {name, name + sizeof(name)};

	if (at->trusted || uid == 0 || uid == (uint32_t)geteuid())
		return true;
	if (atomic_exchange(&warned, true))
		return false;
	bool abstract = !at->addr.sun_path[0];
	text_str(&t, abstract ? "@" : "");
	text_str(&t, at->addr.sun_path + abstract);
	print_notice(
		"the daemon '", name,
		"' belongs to another user: its requests are ignored, unless SONDE_DAEMON=", name);
	return false;
}

/* The next message of whom we may listen to; its type is "" otherwise. False: there is none. */
static bool take_message(const struct place *from, struct message *m)
{
	if (!socket_take(m))
		return false;
	if (m->type[0] && !may_send_requests(from, m->uid))
		m->type = "";
	if (!strcmp(m->type, FABRIC_POKE))
		atomic_store(&self.notified, true);
	return true;
}

static int32_t find_ancestors(int32_t *out)
{
	uint32_t pid = (uint32_t)getppid();
	int32_t n = 0;

	out[n++] = (int32_t)getpid();
	while (pid > 1 && n <= MAX_ANCESTORS) {
		out[n++] = (int32_t)pid;
		pid = guest_parent(pid);
	}
	return n;
}

/*
 * Looked for once: they change when the first of them does, at best.
 *
 * The daemon matches a request by any of the ancestors: a launcher's pid is what users know.
 */
static int fill_request(char *out, bool free)
{
	static int32_t known[MAX_ANCESTORS + 2], n, parent;
	struct fabric_request *r = (struct fabric_request *)out;

	if (!n || known[0] != getpid() || parent != getppid()) {
		parent = getppid();
		n = find_ancestors(known);
	}
	r->mask = free ? FABRIC_EVENTS | FABRIC_ACTIVITIES : FABRIC_EVENTS;
	r->job_id = 0;
	r->npids = n;
	memcpy(r->pids, known, (size_t)n * sizeof(known[0]));
	return (int)(sizeof(*r) + (size_t)n * sizeof(r->pids[0]));
}

/* The answer of type "req" within the time; -ETIMEDOUT. A request that came late counts, too. */
static int await_answer(const struct place *from, char *out, size_t cap)
{
	uint64_t until = guest_now() + ANSWER_MS * MS_NS;
	struct message m;

	while (socket_wait(until)) {
		if (!take_message(from, &m))
			return -ETIMEDOUT; /* the job has closed it: anew next time */
		if (strcmp(m.type, "req") != 0)
			continue;
		if (m.len > cap)
			return 0; /* longer than any request */
		memcpy(out, m.payload, m.len);
		return (int)m.len;
	}
	return -ETIMEDOUT;
}

static int poll_connected(bool free, char *out, size_t cap)
{
	_Alignas(8) char
		request[sizeof(struct fabric_request) + (MAX_ANCESTORS + 2) * sizeof(int32_t)];
	int len = fill_request(request, free);
	int r = socket_send("req", request, (size_t)len);

	return r < 0 ? r : await_answer(&self.daemon, out, cap);
}

static int poll_place(const struct place *to, bool free, char *out, size_t cap)
{
	int r = socket_connect(to);

	self.daemon = *to;
	return r < 0 ? r : poll_connected(free, out, cap);
}

static int find_daemon(bool free, char *out, size_t cap)
{
	struct place to;
	char data[sizeof(self.data)];
	bool ok;
	int r = -ENOENT;

	for (unsigned i = 0; place_at(i, &to, data, &ok); i++) {
		if (!ok || (r = poll_place(&to, free, out, cap)) < 0)
			continue;
		memcpy(self.data, data, sizeof(data));
		self.found = true;
		return r;
	}
	return r < 0 ? r : -ENOENT;
}

static int take_late(char *out, size_t cap)
{
	size_t n = self.late_len;

	self.late_len = 0;
	if (n > cap)
		return 0;
	memcpy(out, self.late, n);
	return (int)n;
}

/* A request that came late is what was asked for before: it is taken without asking again. */
int link_poll(bool free, char *out, size_t cap)
{
	fork_safe_lock_take(&self.lock);
	atomic_store(&self.notified, false);
	int r = open_socket();
	if (r == 0 && self.late_len) {
		r = take_late(out, cap);
	} else if (r == 0) {
		r = self.found ? poll_connected(free, out, cap) : -ENOENT;
		/* A daemon that is slow is not another daemon. */
		if (r < 0 && r != -ETIMEDOUT)
			self.found = false;
		if (!self.found)
			r = find_daemon(free, out, cap);
	}
	fork_safe_lock_release(&self.lock);
	return r;
}

/* In a rank whose framework asks elsewhere nobody has asked yet: who takes a message is there. */
static bool find_by_sending(const char *type, const void *payload, size_t len)
{
	struct place to;
	char data[sizeof(self.data)];
	bool ok;

	for (unsigned i = 0; place_at(i, &to, data, &ok); i++) {
		if (!ok || socket_connect(&to) < 0 || socket_send(type, payload, len) < 0)
			continue;
		self.daemon = to;
		memcpy(self.data, data, sizeof(data));
		return true;
	}
	return false;
}

/* Nothing is repeated here; what matters is sent again by its owner, every few polls. */
void link_send(const char *type, const void *payload, size_t len)
{
	fork_safe_lock_take(&self.lock);
	if (open_socket() == 0) {
		int r = self.found ? socket_send(type, payload, len) : -ENOENT;
		/* One that has no room now is there; what it is sent is sent again. */
		if (r < 0 && r != -EAGAIN)
			self.found = find_by_sending(type, payload, len);
	}
	fork_safe_lock_release(&self.lock);
}

void link_send_status(const char *type, const struct fabric_status *s)
{
	struct fabric_status all = *s;

	all.pid = (int32_t)getpid();
	link_send(type, &all, sizeof(all));
}

int link_register(int32_t device)
{
	struct fabric_context c = {.gpu = device, .pid = (int32_t)getpid()};
	char none[REQUEST_MAX_BYTES];
	/* Found by asking for nothing. */
	int r = link_poll(false, none, sizeof(none));

	if (r >= 0)
		link_send("ctxt", &c, sizeof(c));
	return r < 0 ? r : 0;
}

static void keep_late(const struct message *m)
{
	if (strcmp(m->type, "req") != 0 || !m->len || m->len > sizeof(self.late))
		return;
	memcpy(self.late, m->payload, m->len);
	self.late_len = m->len;
	atomic_store(&self.notified, true);
}

bool link_wait(uint32_t ms)
{
	uint64_t until = guest_now() + ms * MS_NS;
	struct message m;

	if (!socket_is_ours()) {
		struct timespec t = {ms / 1000, (long)(ms % 1000) * 1000000};
		syscall(SYS_nanosleep, &t, NULL);
		return false;
	}
	while (!atomic_load(&self.notified) && socket_wait(until)) {
		fork_safe_lock_take(&self.lock);
		bool any = take_message(&self.daemon, &m);
		if (any)
			keep_late(&m);
		fork_safe_lock_release(&self.lock);
		if (!any)
			break;
	}
	return atomic_load(&self.notified);
}

const char *link_data_address(void)
{
	return self.found ? self.data : "";
}

void link_be_framework(void)
{
	fork_safe_lock_take(&self.lock);
	if (!self.framework) {
		socket_close();
		self.found = false;
	}
	self.framework = true;
	fork_safe_lock_release(&self.lock);
}

void link_close(uint32_t wait_ms)
{
	if (!fork_safe_lock_try(&self.lock, wait_ms))
		return;
	socket_close();
	self.found = false;
	fork_safe_lock_release(&self.lock);
}
