/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "base/broker.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#define LOG_AREA "broker"
#include "base/log.h"

#define PATH_BYTES 512
#define WAIT_MS 250 /* the daemon's loop may be the one that waits */

struct question {
	uint32_t number;
	char path[PATH_BYTES]; /* ended by a NUL; of the message only what it takes */
};

struct answer {
	uint32_t number;
	int32_t error; /* 0, and a descriptor comes along; or an errno */
};

union control {
	struct cmsghdr header;
	char bytes[CMSG_SPACE(sizeof(int))];
};

/* --- who asks --- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* one question at a time */
static int broker_fd = -1;
static bool broker_sees_more;
static uint32_t last_number;

void broker_use(int fd, bool sees_more)
{
	const struct timeval wait = {.tv_usec = WAIT_MS * 1000};

	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait));
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof(wait));
	pthread_mutex_lock(&lock);
	broker_fd = fd;
	broker_sees_more = sees_more;
	pthread_mutex_unlock(&lock);
}

bool broker_lives(void)
{
	pthread_mutex_lock(&lock);
	bool lives = broker_fd >= 0;
	pthread_mutex_unlock(&lock);
	return lives;
}

/* One answer and its descriptor, -1 if none came. Negative errno if there is no answer. */
static int receive_answer(struct answer *out, int *out_fd)
{
	union control control = {0};
	struct iovec iov = {out, sizeof(*out)};
	struct msghdr m = {.msg_iov = &iov,
			   .msg_iovlen = 1,
			   .msg_control = &control,
			   .msg_controllen = sizeof(control)};
	ssize_t n;

	*out_fd = -1;
	do
		n = recvmsg(broker_fd, &m, MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);
	if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
		memcpy(out_fd, CMSG_DATA(c), sizeof(*out_fd));
	return n == (ssize_t)sizeof(*out) ? 0 : -EPIPE;
}

/* An answer to an earlier question, for which nobody waited any longer, is thrown away. */
static int ask_locked(const struct question *q, size_t bytes)
{
	struct answer a;
	int fd, r;

	if (send(broker_fd, q, bytes, MSG_NOSIGNAL) < 0)
		return -errno;
	for (;;) {
		r = receive_answer(&a, &fd);
		if (r < 0)
			return r;
		if (a.number == q->number)
			break;
		if (fd >= 0)
			close(fd);
	}
	return fd >= 0 ? fd : a.error ? -a.error : -EIO;
}

/* -ENOTCONN: there is none, or not any more. */
static int ask_broker(const char *path)
{
	struct question q;
	size_t len = strlen(path);
	int r = -ENOTCONN;

	if (len >= sizeof(q.path))
		return -ENAMETOOLONG;
	memcpy(q.path, path, len + 1);
	pthread_mutex_lock(&lock);
	if (broker_fd >= 0) {
		q.number = ++last_number;
		r = ask_locked(&q, offsetof(struct question, path) + len + 1);
	}
	if (r == -EPIPE || r == -ECONNRESET) {
		log_err("the process that opens files for the daemon has ended: what the daemon "
			"may not open itself is missing from now on; restart it");
		close(broker_fd);
		broker_fd = -1;
		r = -ENOTCONN;
	}
	pthread_mutex_unlock(&lock);
	return r;
}

int broker_open(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	int error = fd < 0 ? errno : 0;

	if (!error)
		return fd;
	if (error != EACCES && error != EPERM && !(error == ENOENT && broker_sees_more))
		return -error;
	int r = ask_broker(path);
	return r == -ENOTCONN || r == -EAGAIN ? -error : r;
}

/* --- who answers --- */

static bool send_answer(int fd, const struct answer *a, int file)
{
	union control control = {0};
	struct iovec iov = {(void *)(uintptr_t)a, sizeof(*a)};
	struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};

	if (file >= 0) {
		m.msg_control = &control;
		m.msg_controllen = sizeof(control);
		*CMSG_FIRSTHDR(&m) = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof(file)),
						      .cmsg_level = SOL_SOCKET,
						      .cmsg_type = SCM_RIGHTS};
		memcpy(CMSG_DATA(CMSG_FIRSTHDR(&m)), &file, sizeof(file));
	}
	return sendmsg(fd, &m, MSG_NOSIGNAL) >= 0;
}

void broker_serve(int fd, int (*open_for)(void *arg, const char *path), void *arg)
{
	const size_t head = offsetof(struct question, path);
	struct question q;
	ssize_t n;

	while ((n = recv(fd, &q, sizeof(q), 0)) > 0 || (n < 0 && errno == EINTR)) {
		if (n <= (ssize_t)head || ((const char *)&q)[n - 1])
			continue;
		int file = open_for(arg, q.path);
		struct answer a = {q.number, file < 0 ? -file : 0};
		bool sent = send_answer(fd, &a, file);

		if (file >= 0)
			close(file);
		if (!sent)
			return;
	}
}
