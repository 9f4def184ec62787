/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The daemon, as a client of its fabric sees it: datagrams that may get lost, a daemon that comes
 * and goes. Nothing is kept but a socket. It may be closed by the job, which closes descriptors
 * that it does not know; so before each use we look whether it still is ours.
 */
#include "monitor/impl.h"

#include "guest/env.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>

#define ANSWER_MS 100
#define MAX_ANCESTORS 10
#define DATAGRAM_BYTES (ORDER_MAX_BYTES + sizeof(struct fabric_header))

struct place {
	struct sockaddr_un addr;
	socklen_t len;
};

static struct {
	struct turn turn;
	int fd;
	uint32_t pid; /* whose it is: a forked child makes its own */
	bool open, framework, poked;
	struct place own, daemon;
	bool found; /* the daemon has answered from this place */
	char data[300];
	_Alignas(8) char datagram[DATAGRAM_BYTES];
} self = {.fd = -1};

static bool is_still_ours(void)
{
	struct sockaddr_un addr;
	socklen_t len = sizeof(addr);

	return self.open && self.pid == (uint32_t)getpid() &&
	       getsockname(self.fd, (struct sockaddr *)&addr, &len) == 0 && len == self.own.len &&
	       !memcmp(&addr, &self.own.addr, len);
}

static void add_uuid(struct text *t)
{
	static const char digits[] = "0123456789abcdef";
	unsigned char raw[16];

	if (getrandom(raw, sizeof(raw), GRND_NONBLOCK) != (ssize_t)sizeof(raw)) {
		uint64_t mix[2] = {guest_now(), (uint64_t)getpid() << 32 | (uint64_t)(uintptr_t)t};
		memcpy(raw, mix, sizeof(raw));
	}
	for (int i = 0; i < 16; i++) {
		char pair[2] = {digits[raw[i] >> 4], digits[raw[i] & 15]};
		if (i == 4 || i == 6 || i == 8 || i == 10)
			text_add(t, "-", 1);
		text_add(t, pair, 2);
	}
}

static int own_name(char *out, size_t cap)
{
	struct text t = {out, out + cap};

	if (surroundings.socket_dir[0]) {
		text_str(&t, surroundings.socket_dir);
		text_str(&t, "/");
	}
	text_str(&t, self.framework ? FABRIC_CLIENT_NAME : FABRIC_GUEST_NAME);
	add_uuid(&t);
	return t.at ? 0 : -ENAMETOOLONG;
}

static void forget_socket(void)
{
	if (is_still_ours()) {
		if (self.own.addr.sun_path[0])
			unlink(self.own.addr.sun_path);
		close(self.fd);
	}
	self.open = self.found = false;
	self.fd = -1;
}

static int open_socket(void)
{
	char name[300];

	if (is_still_ours())
		return 0;
	/* Who shares it with its parent gives back only its own descriptor. */
	if (self.open && self.pid != (uint32_t)getpid())
		close(self.fd);
	self.open = self.found = false;
	int r = own_name(name, sizeof(name));
	if (r == 0)
		r = surroundings.socket_dir[0]
			    ? fabric_path_address(name, &self.own.addr, &self.own.len)
			    : fabric_abstract_address(name, &self.own.addr, &self.own.len);
	if (r < 0)
		return r;
	self.fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (self.fd < 0)
		return -errno;
	if (bind(self.fd, (struct sockaddr *)&self.own.addr, self.own.len) < 0) {
		r = -errno;
		close(self.fd);
		self.fd = -1;
		return r;
	}
	if (surroundings.socket_dir[0])
		(void)!chmod(name, 0666);
	self.pid = (uint32_t)getpid();
	self.open = true;
	return 0;
}

/* --- where the daemon may be --- */

static bool named_place(const char *where, struct place *out, char *data)
{
	struct text t = {data, data + sizeof(self.data)};
	bool abstract = where[0] == '@';

	text_str(&t, where);
	int r = abstract ? fabric_abstract_address(where + 1, &out->addr, &out->len)
			 : fabric_path_address(where, &out->addr, &out->len);
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
	text_str(&t, dir);
	text_str(&t, "/");
	text_str(&t, data_file);
	return t.at && fabric_path_address(path, &out->addr, &out->len) == 0;
}

/* The n-th place to try; false: there are no more. *ok tells whether there is anything at all. */
static bool place_at(unsigned n, struct place *out, char *data, bool *ok)
{
	if (surroundings.daemon[0]) {
		*ok = n == 0 && named_place(surroundings.daemon, out, data);
		return n == 0;
	}
	switch (n) {
	case 0:
		*ok = path_place(surroundings.socket_dir, FABRIC_DIR_FILE, FABRIC_DIR_FILE, out,
				 data);
		return true;
	case 1:
		*ok = path_place(surroundings.home, FABRIC_HOME_FILE, FABRIC_HOME_DATA_FILE, out,
				 data);
		return true;
	case 2:
		*ok = named_place("@" FABRIC_ABSTRACT_DATA_NAME, out, data) &&
		      fabric_abstract_address(FABRIC_ABSTRACT_NAME, &out->addr, &out->len) == 0;
		return true;
	default:
		return false;
	}
}

/* --- datagrams --- */

static int send_to(const struct place *to, const char *type, const void *payload, size_t len)
{
	struct fabric_header h;
	struct iovec parts[] = {{&h, sizeof(h)}, {(void *)(uintptr_t)payload, len}};
	struct msghdr m = {.msg_name = (void *)(uintptr_t)&to->addr,
			   .msg_namelen = to->len,
			   .msg_iov = parts,
			   .msg_iovlen = len ? 2 : 1};

	fabric_header_init(&h, type, len);
	return sendmsg(self.fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? -errno : 0;
}

static bool wait_readable(uint64_t until_ns)
{
	struct pollfd p = {.fd = self.fd, .events = POLLIN};

	for (;;) {
		uint64_t now = guest_now();
		int ms = now >= until_ns ? 0 : (int)((until_ns - now + MS_NS - 1) / MS_NS);
		int r = poll(&p, 1, ms);
		if (r > 0)
			return p.revents & POLLIN;
		if (r == 0 || errno != EINTR)
			return false;
	}
}

struct message {
	const char *type; /* "": no message that can be read */
	const char *payload;
	size_t len;
};

/* The next message, if one is there; false: none. */
static bool take_message(struct message *m)
{
	const struct fabric_header *h = (const struct fabric_header *)self.datagram;
	ssize_t n = recv(self.fd, self.datagram, sizeof(self.datagram), MSG_DONTWAIT | MSG_TRUNC);

	*m = (struct message){"", self.datagram + sizeof(*h), 0};
	if (n < 0)
		return false;
	if ((size_t)n < sizeof(*h) || (size_t)n > sizeof(self.datagram) ||
	    h->size != (size_t)n - sizeof(*h) || !memchr(h->type, '\0', sizeof(h->type)))
		return true;
	m->type = h->type;
	m->len = (size_t)h->size;
	if (!strcmp(m->type, FABRIC_POKE))
		self.poked = true;
	return true;
}

static int fill_request(char *out, bool free)
{
	struct fabric_request *r = (struct fabric_request *)out;
	uint32_t pid = (uint32_t)getpid();
	int32_t n = 0;

	r->mask = free ? FABRIC_EVENTS | FABRIC_ACTIVITIES : FABRIC_EVENTS;
	r->job_id = 0;
	while (pid > 0 && (n == 0 || pid > 1) && n <= MAX_ANCESTORS) {
		r->pids[n++] = (int32_t)pid;
		pid = n == 1 ? (uint32_t)getppid() : guest_parent(pid);
	}
	r->npids = n;
	return (int)(sizeof(*r) + (size_t)n * sizeof(r->pids[0]));
}

/* The answer of type "req" within the time; -ETIMEDOUT. An order that came late counts, too. */
static int await_answer(char *out, size_t cap)
{
	uint64_t until = guest_now() + ANSWER_MS * MS_NS;
	struct message m;

	while (wait_readable(until)) {
		if (!take_message(&m) || strcmp(m.type, "req") != 0)
			continue;
		if (m.len > cap)
			return 0; /* longer than any order */
		memcpy(out, m.payload, m.len);
		return (int)m.len;
	}
	return -ETIMEDOUT;
}

static int ask_place(const struct place *to, bool free, char *out, size_t cap)
{
	_Alignas(8) char
		request[sizeof(struct fabric_request) + (MAX_ANCESTORS + 2) * sizeof(int32_t)];
	int len = fill_request(request, free);
	int r = send_to(to, "req", request, (size_t)len);

	return r < 0 ? r : await_answer(out, cap);
}

int link_ask(bool free, char *out, size_t cap)
{
	struct place to;
	char data[sizeof(self.data)];
	bool ok;

	turn_take(&self.turn);
	self.poked = false;
	int r = open_socket();
	if (r == 0 && self.found)
		r = ask_place(&self.daemon, free, out, cap);
	/* A daemon that is slow is not another daemon. */
	if (r < 0 && r != -ETIMEDOUT)
		self.found = false;
	for (unsigned i = 0; self.open && !self.found && place_at(i, &to, data, &ok); i++) {
		if (!ok || (r = ask_place(&to, free, out, cap)) < 0)
			continue;
		self.daemon = to;
		memcpy(self.data, data, sizeof(data));
		self.found = true;
	}
	if (!self.found && r >= 0)
		r = -ENOENT;
	turn_give(&self.turn);
	return r;
}

/* In a rank whose framework asks elsewhere nobody has asked yet: who takes a message is there. */
static bool find_by_sending(const char *type, const void *payload, size_t len)
{
	struct place to;
	char data[sizeof(self.data)];
	bool ok;

	for (unsigned i = 0; place_at(i, &to, data, &ok); i++) {
		if (!ok || send_to(&to, type, payload, len) < 0)
			continue;
		self.daemon = to;
		memcpy(self.data, data, sizeof(data));
		return true;
	}
	return false;
}

void link_send(const char *type, const void *payload, size_t len)
{
	turn_take(&self.turn);
	if (open_socket() == 0 && (!self.found || send_to(&self.daemon, type, payload, len) < 0))
		self.found = find_by_sending(type, payload, len);
	turn_give(&self.turn);
}

void link_tell(const char *type, const struct fabric_status *s)
{
	struct fabric_status all = *s;

	all.pid = (int32_t)getpid();
	link_send(type, &all, sizeof(all));
}

int link_register(int32_t device)
{
	struct fabric_context c = {.gpu = device, .pid = (int32_t)getpid()};
	char none[ORDER_MAX_BYTES];
	/* Found by asking for nothing. */
	int r = link_ask(false, none, sizeof(none));

	if (r >= 0)
		link_send("ctxt", &c, sizeof(c));
	return r < 0 ? r : 0;
}

bool link_wait(uint32_t ms)
{
	uint64_t until = guest_now() + ms * MS_NS;
	struct message m;

	if (!is_still_ours()) {
		struct timespec t = {ms / 1000, (long)(ms % 1000) * 1000000};
		syscall(SYS_nanosleep, &t, NULL);
		return false;
	}
	while (!self.poked && wait_readable(until)) {
		turn_take(&self.turn);
		bool any = is_still_ours() && take_message(&m);
		turn_give(&self.turn);
		if (!any)
			break;
	}
	return self.poked;
}

const char *link_data_address(void)
{
	return self.found ? self.data : "";
}

void link_be_framework(void)
{
	turn_take(&self.turn);
	if (!self.framework)
		forget_socket();
	self.framework = true;
	turn_give(&self.turn);
}

void link_close(void)
{
	turn_take(&self.turn);
	forget_socket();
	turn_give(&self.turn);
}
