/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Our end of the fabric. It may be closed by the job, which closes descriptors that it does not
 * know, and the number may be another file by then: so before each use we look whether it still is
 * ours. It has a high number, where those that the job opens do not come soon.
 *
 * Anybody may send to a name. So the socket is connected: then the kernel takes datagrams of that
 * one socket alone, which is the one that was asked. What had come before is thrown away.
 */
#include "guest/monitor/monitor_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>

#define NUMBER 1000 /* at least, where there are so many */
#define DATAGRAM_BYTES (REQUEST_MAX_BYTES + sizeof(struct fabric_header))

static struct {
	int fd;
	uint32_t pid; /* whose it is: a forked child makes its own */
	bool open;
	struct sockaddr_un name;
	socklen_t name_len;
	_Alignas(8) char datagram[DATAGRAM_BYTES];
} self = {.fd = -1};

/* Does the number still mean what it did, whether parent or child asks? */
static bool is_still_there(void)
{
	struct sockaddr_un addr;
	socklen_t len = sizeof(addr);

	return self.open && getsockname(self.fd, (struct sockaddr *)&addr, &len) == 0 &&
	       len == self.name_len && !memcmp(&addr, &self.name, len);
}

bool socket_is_ours(void)
{
	return self.pid == (uint32_t)getpid() && is_still_there();
}

/* Not for secrecy: two processes must not have the same name. */
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

static int choose_name(const char *prefix)
{
	char name[300];
	struct text t = {name, name + sizeof(name)};
	bool is_path = environment.socket_dir[0];

	if (is_path) {
		text_str(&t, environment.socket_dir);
		text_str(&t, "/");
	}
	text_str(&t, prefix);
	add_uuid(&t);
	if (!t.at)
		return -ENAMETOOLONG;
	return is_path ? fabric_path_address(name, &self.name, &self.name_len)
		       : fabric_abstract_address(name, &self.name, &self.name_len);
}

static uint64_t cookie_of(int fd)
{
	uint64_t cookie = 0;
	socklen_t len = sizeof(cookie);

	return getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &len) < 0 ? 0 : cookie;
}

/*
 * This may take milliseconds, where the table has to grow: the low number may be the job's then.
 *
 * Jobs close low descriptors in loops, and some open files by number. The duplicate has the same
 * cookie, which proves that it is our socket and not a file that the job has opened under the low
 * number meanwhile.
 */
static bool move_up(void)
{
	struct rlimit limit;
	uint64_t cookie = cookie_of(self.fd);
	int from = NUMBER;

	if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur <= NUMBER)
		from = (int)(limit.rlim_cur / 4 * 3);
	int fd = cookie ? fcntl(self.fd, F_DUPFD_CLOEXEC, from) : -1;
	if (fd < 0)
		return true;
	bool ours = cookie_of(fd) == cookie;
	if (!ours)
		close(fd); /* of what the job has opened meanwhile */
	if (cookie_of(self.fd) == cookie)
		close(self.fd);
	self.fd = fd;
	return ours;
}

/* A path must be writable for the daemon, which may be another user: 0666. An abstract name has
 * no mode. */
static int make_socket(const char *prefix)
{
	const int on = 1;
	int r = choose_name(prefix);

	if (r < 0)
		return r;
	self.fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (self.fd < 0)
		return -errno;
	if (!move_up())
		return -EBADF;
	if (setsockopt(self.fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) < 0 ||
	    bind(self.fd, (struct sockaddr *)&self.name, self.name_len) < 0) {
		r = -errno;
		close(self.fd);
		return r;
	}
	if (self.name.sun_path[0])
		(void)!chmod(self.name.sun_path, 0666);
	self.pid = (uint32_t)getpid();
	self.open = true;
	return 0;
}

int socket_open(const char *prefix)
{
	if (socket_is_ours())
		return 0;
	/* Who shares it with its parent gives back only its own descriptor. */
	if (is_still_there())
		close(self.fd);
	self.open = false;
	int r = make_socket(prefix);
	return r < 0 ? r : 1;
}

void socket_close(void)
{
	if (socket_is_ours()) {
		if (self.name.sun_path[0])
			unlink(self.name.sun_path);
		(void)shutdown(self.fd, SHUT_RDWR); /* wakes who waits for a message */
		close(self.fd);
	}
	self.open = false;
}

/* Connecting a datagram socket makes the kernel drop what others send. What was queued before is
 * thrown away, since nobody knows who sent it. */
int socket_connect(const struct place *to)
{
	if (!socket_is_ours())
		return -EBADF;
	if (connect(self.fd, (const struct sockaddr *)&to->addr, to->len) < 0)
		return -errno;
	while (recv(self.fd, self.datagram, 0, MSG_DONTWAIT | MSG_TRUNC) >= 0)
		;
	return 0;
}

int socket_send(const char *type, const void *payload, size_t len)
{
	struct fabric_header h;
	struct iovec parts[] = {{&h, sizeof(h)}, {(void *)(uintptr_t)payload, len}};
	struct msghdr m = {.msg_iov = parts, .msg_iovlen = len ? 2 : 1};

	fabric_header_init(&h, type, len);
	if (!socket_is_ours())
		return -EBADF;
	return sendmsg(self.fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? -errno : 0;
}

bool socket_wait(uint64_t until_ns)
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

static uint32_t sender_uid(struct msghdr *m)
{
	struct cmsghdr *c = CMSG_FIRSTHDR(m);
	struct ucred who;

	if (!c || c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_CREDENTIALS ||
	    c->cmsg_len != CMSG_LEN(sizeof(who)))
		return UINT32_MAX;
	memcpy(&who, CMSG_DATA(c), sizeof(who));
	return (uint32_t)who.uid;
}

/*
 * Descriptors that came along are closed: there is no room for them.
 *
 * One datagram into a buffer of the folder's: the message points into it and lasts until the next.
 */
bool socket_take(struct message *out)
{
	const struct fabric_header *h = (const struct fabric_header *)self.datagram;
	struct iovec all = {self.datagram, sizeof(self.datagram)};
	union {
		struct cmsghdr head;
		char bytes[CMSG_SPACE(sizeof(struct ucred))];
	} control;
	struct msghdr m = {.msg_iov = &all,
			   .msg_iovlen = 1,
			   .msg_control = &control,
			   .msg_controllen = sizeof(control)};

	*out = (struct message){"", self.datagram + sizeof(*h), 0, UINT32_MAX};
	if (!socket_is_ours())
		return false;
	ssize_t n = recvmsg(self.fd, &m, MSG_DONTWAIT | MSG_TRUNC | MSG_CMSG_CLOEXEC);
	if (n < 0)
		return false;
	out->uid = sender_uid(&m);
	if ((size_t)n < sizeof(*h) || (size_t)n > sizeof(self.datagram) ||
	    h->size != (size_t)n - sizeof(*h) || !memchr(h->type, '\0', sizeof(h->type)))
		return true;
	out->type = h->type;
	out->len = (size_t)h->size;
	return true;
}
