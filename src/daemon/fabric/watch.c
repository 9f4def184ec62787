/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "daemon/fabric/watch.h"

#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "base/mem.h"
#include "daemon/daemon.h"

#define GOES (IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO | IN_DELETE_SELF | IN_MOVE_SELF)

struct fabric_watch {
	int fd; /* -1: the system has none to give */
	struct event *readable;
	void (*fn)(void *arg);
	void *arg;
};

static void on_readable(evutil_socket_t fd, short what, void *arg)
{
	struct fabric_watch *w = arg;
	char events[4096];

	(void)what;
	while (read(fd, events, sizeof(events)) > 0)
		continue;
	w->fn(w->arg);
}

struct fabric_watch *fabric_watch_new(struct event_base *base, void (*fn)(void *arg), void *arg)
{
	struct fabric_watch *w = xcalloc(1, sizeof(*w));

	w->fn = fn;
	w->arg = arg;
	w->fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
	if (w->fd < 0)
		return w;
	w->readable = event_new(base, w->fd, EV_READ | EV_PERSIST, on_readable, w);
	BUG_ON(!w->readable);
	event_priority_set(w->readable, DAEMON_PRIORITY_METRICS);
	event_add(w->readable, NULL);
	return w;
}

void fabric_watch_free(struct fabric_watch *w)
{
	if (!w)
		return;
	if (w->readable)
		event_free(w->readable);
	if (w->fd >= 0)
		close(w->fd);
	free(w);
}

bool fabric_watch_file(struct fabric_watch *w, const char *path)
{
	const char *slash = strrchr(path, '/');

	if (w->fd < 0 || !slash)
		return false;
	char *dir = xstrndup(path, slash == path ? 1 : (size_t)(slash - path));
	bool good = inotify_add_watch(w->fd, dir, GOES | IN_ONLYDIR) >= 0;
	free(dir);
	return good;
}
