/* SPDX-License-Identifier: MulanPSL-2.0 */
#define LOG_AREA "net"

#include "daemon/accept.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "daemon/loop.h"

#define BATCH 8 /* connections accepted before others are served */
#define PAUSE_MS 100 /* when files have run out */

static void on_resume(evutil_socket_t fd, short what, void *arg)
{
	struct listeners *l = arg;

	(void)fd, (void)what;
	l->resting = false;
	listeners_start(l);
}

void listeners_init(struct listeners *l, struct event_base *base)
{
	l->base = base;
	l->resume = loop_event_new(base, -1, 0, DAEMON_PRIORITY_RPC, on_resume, l);
}

void listeners_release(struct listeners *l)
{
	listeners_close(l);
	loop_event_free(l->resume);
	l->resume = NULL;
}

/* Files or memory have run out. The listener would be reported again and again: it rests. */
static void pause_accepting(struct listeners *l, int error)
{
	if (!l->failures++)
		log_warn("cannot accept connections: %s; trying again every %d ms", strerror(error),
			 PAUSE_MS);
	if (l->free_one)
		l->free_one(l->arg);
	listeners_rest(l, PAUSE_MS * 1000);
}

/* Accepts up to `most` connections. */
static void accept_some(const struct listener *from, unsigned most)
{
	struct listeners *l = from->set;

	while (most && !l->resting) {
		int fd = accept4(from->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

		if (fd >= 0) {
			most--;
			l->accepted(l->arg, from, fd);
		} else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS ||
			   errno == ENOMEM) {
			pause_accepting(l, errno);
		} else if (errno != ECONNABORTED && errno != EINTR) {
			return;
		}
	}
}

static void on_connections(evutil_socket_t fd, short what, void *arg)
{
	(void)fd, (void)what;
	accept_some(arg, BATCH);
}

void listeners_accept_waiting(struct listeners *l, unsigned most)
{
	for (unsigned i = 0; i < l->n; i++)
		accept_some(&l->v[i], most);
}

void listeners_start(struct listeners *l)
{
	for (unsigned i = 0; i < l->n && !l->resting; i++) {
		struct listener *one = &l->v[i];

		if (!one->event)
			one->event = loop_event_new(l->base, one->fd, EV_READ | EV_PERSIST,
						    DAEMON_PRIORITY_RPC, on_connections, one);
		event_add(one->event, NULL);
	}
}

void listeners_rest(struct listeners *l, uint64_t us)
{
	l->resting = true;
	for (unsigned i = 0; i < l->n; i++)
		if (l->v[i].event)
			event_del(l->v[i].event);
	loop_timer_start(l->resume, us);
}

struct listener *listeners_add(struct listeners *l, int fd)
{
	struct sockaddr_storage own = {0};
	socklen_t len = sizeof(own);
	struct listener *one = &l->v[l->n];

	if (l->n == LISTENERS_MAX) {
		close(fd);
		return NULL;
	}
	*one = (struct listener){.set = l, .fd = fd};
	if (getsockname(fd, (struct sockaddr *)&own, &len) < 0)
		own.ss_family = AF_UNSPEC;
	one->is_unix = own.ss_family == AF_UNIX;
	if (one->is_unix && ((struct sockaddr_un *)&own)->sun_path[0])
		snprintf(one->name, sizeof(one->name), "%.79s",
			 ((struct sockaddr_un *)&own)->sun_path);
	else if (!address_text((struct sockaddr *)&own, len, one->name))
		snprintf(one->name, sizeof(one->name), "descriptor %d", fd);
	else
		one->port = address_port((struct sockaddr *)&own);
	l->n++;
	return one;
}

int listeners_open(struct listeners *l, const struct sockaddr *a, socklen_t len, bool v6_only,
		   struct listener **out)
{
	const int on = 1, only = v6_only;
	int fd = socket(a->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (a->sa_family == AF_INET6)
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &only, sizeof(only));
	if (bind(fd, a, len) < 0 || listen(fd, SOMAXCONN) < 0) {
		int error = errno;

		close(fd);
		return -error;
	}
	*out = listeners_add(l, fd);
	return *out ? 0 : -E2BIG;
}

int listeners_open_path(struct listeners *l, const char *path, struct err *err)
{
	struct fabric_endpoint file;
	const char *slash = strrchr(path, '/');
	char *dir = slash ? xstrndup(path, (size_t)(slash - path) + 1) : xstrdup(".");
	int r = fs_open_dir(dir, err); /* where others can replace names, they would be us */

	free(dir);
	if (r < 0)
		return r;
	close(r);
	r = fabric_endpoint_stream(&file, path, 0666, err);
	if (r < 0)
		return r;
	struct listener *one = listeners_add(l, file.fd);
	if (!one)
		return err_set(err, -E2BIG, "cannot listen on more than %d addresses",
			       LISTENERS_MAX);
	one->file = file;
	snprintf(one->name, sizeof(one->name), "%.79s", path);
	return 0;
}

void listeners_close(struct listeners *l)
{
	for (unsigned i = 0; i < l->n; i++) {
		loop_event_free(l->v[i].event);
		if (l->v[i].file.is_path)
			fabric_endpoint_close(&l->v[i].file);
		else
			close(l->v[i].fd);
	}
	l->n = 0;
	l->resting = false;
	if (l->resume)
		event_del(l->resume);
}
