/* SPDX-License-Identifier: MulanPSL-2.0 */
#define LOG_AREA "daemon"

#include "daemon/notify.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/log.h"

#define FIRST_FD 3 /* where inherited sockets begin, by agreement */

static struct sockaddr_un manager;
static socklen_t manager_bytes;
static int manager_fd = -1; /* kept open: a heartbeat must not fail when files are short */
static uint64_t watchdog_us;

/* A decimal number of the environment; 0 if it is none. */
static uint64_t env_number(const char *name)
{
	const char *text = getenv(name);
	char *end;

	if (!text || *text < '0' || *text > '9')
		return 0;
	errno = 0;
	unsigned long long n = strtoull(text, &end, 10);
	return errno || *end ? 0 : n;
}

/* Whether a variable that names a process means this one; absent means everyone. */
static bool meant_for_us(const char *name, bool absent)
{
	return getenv(name) ? env_number(name) == (uint64_t)getpid() : absent;
}

static void find_manager(void)
{
	const char *path = getenv("NOTIFY_SOCKET");
	size_t len = path ? strlen(path) : 0;

	if (len < 2 || len >= sizeof(manager.sun_path) || (*path != '/' && *path != '@'))
		return;
	manager.sun_family = AF_UNIX;
	memcpy(manager.sun_path, path, len);
	if (*path == '@')
		manager.sun_path[0] = '\0';
	manager_bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len);
	manager_fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

/* Whether it is a stream socket that listens; then makes it ours. */
static bool adopt_socket(int fd)
{
	int type = 0, listens = 0;
	socklen_t bytes = sizeof(type);

	if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &bytes) < 0 || type != SOCK_STREAM)
		return false;
	bytes = sizeof(listens);
	if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &bytes) < 0 || !listens)
		return false;
	return fcntl(fd, F_SETFD, FD_CLOEXEC) == 0 && fcntl(fd, F_SETFL, O_NONBLOCK) == 0;
}

static void inherit_sockets(struct notify_sockets *out)
{
	const char *names = getenv("LISTEN_FDNAMES");
	uint64_t n = meant_for_us("LISTEN_PID", false) ? env_number("LISTEN_FDS") : 0;

	for (int fd = FIRST_FD; n > 0 && fd < FIRST_FD + NOTIFY_MAX_FDS; fd++, n--) {
		size_t len = names ? strcspn(names, ":") : 0;
		bool http = len == 4 && !strncmp(names, "http", len);

		if (!adopt_socket(fd)) {
			log_warn("inherited descriptor %d is no listening socket; not used", fd);
		} else if (http) {
			out->http[out->nhttp++] = fd;
		} else {
			out->rpc[out->nrpc++] = fd;
		}
		names = names && names[len] ? names + len + 1 : NULL;
	}
	if (n > 0)
		log_warn("%llu inherited sockets are too many; not used", (unsigned long long)n);
}

void notify_init(struct notify_sockets *out)
{
	static const char *const ours[] = {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID",
					   "LISTEN_PID",    "LISTEN_FDS",    "LISTEN_FDNAMES",
					   "LISTEN_PIDFDID"};

	*out = (struct notify_sockets){0};
	find_manager();
	if (meant_for_us("WATCHDOG_PID", true))
		watchdog_us = env_number("WATCHDOG_USEC") / 2;
	inherit_sockets(out);
	for (size_t i = 0; i < sizeof(ours) / sizeof(*ours); i++)
		unsetenv(ours[i]);
}

void notify_send(const char *fmt, ...)
{
	char text[512];
	va_list ap;

	if (manager_fd < 0)
		return;
	va_start(ap, fmt);
	int len = vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (len <= 0)
		return;
	if ((size_t)len >= sizeof(text))
		len = sizeof(text) - 1;
	if (sendto(manager_fd, text, (size_t)len, MSG_NOSIGNAL, (struct sockaddr *)&manager,
		   manager_bytes) < 0)
		log_debug("cannot notify the service manager: %s", strerror(errno));
}

uint64_t notify_watchdog_us(void)
{
	return watchdog_us;
}
