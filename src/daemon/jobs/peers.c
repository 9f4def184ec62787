/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Processes as our kernel knows them, and the end of each. A pidfd tells at once. Where there is
 * none (an old kernel, or more processes than there may be files), a few processes at a time are
 * looked at, all of them in turn: one that is a zombie, or whose pid has become another's, is gone.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/mem.h"
#include "daemon/daemon.h"
#include "daemon/jobs/jobs_impl.h"

#define LOG_AREA "jobs"
#include "base/log.h"
#include "base/proc.h"

#define LOOK_MS 250
#define LOOK_AT 64 /* processes at a time: a millisecond or two */
#define OTHER_FILES 256u /* HTTP, devices, logs; a quarter where there are few */
#define CONNECTIONS 1024u /* of the RPC; half where there are few */

/* --- whether it lives --- */

#define ENDED UINT64_MAX

/* When a process was started, in ticks since the machine was; ENDED: a zombie; 0: not known, since
 * it is gone or may not be looked at. */
static uint64_t start_of(pid_t pid)
{
	struct proc_stat s;

	if (proc_stat_read(pid, &s) < 0)
		return 0;
	return proc_stat_ended(&s) ? ENDED : s.start_ticks;
}

static bool pid_exists(pid_t pid)
{
	return kill(pid, 0) == 0 || errno != ESRCH;
}

bool jobs_peer_lives(const struct jobs_peer *peer)
{
	if (peer->pidfd >= 0)
		return syscall(SYS_pidfd_send_signal, peer->pidfd, 0, NULL, 0) == 0 ||
		       errno != ESRCH;
	uint64_t start = start_of(peer->pid);
	if (peer->start_ticks)
		return start == peer->start_ticks;
	return start != ENDED && pid_exists(peer->pid);
}

/* --- watching --- */

static void start_looking(struct jobs *j)
{
	const struct timeval wait = {.tv_usec = LOOK_MS * 1000};

	if (!TAILQ_EMPTY(&j->unwatched) && !event_pending(j->look, EV_TIMEOUT, NULL))
		event_add(j->look, &wait);
}

/* False: there is no pidfd to be had. */
static bool watch(struct jobs *j, struct jobs_peer *peer)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.ptr = peer};

	if (j->nwatched >= j->max_watched)
		return false;
	int fd = (int)syscall(SYS_pidfd_open, peer->pid, 0);
	if (fd < 0)
		return false;
	if (epoll_ctl(j->watch_fd, EPOLL_CTL_ADD, fd, &ev) < 0) {
		close(fd);
		return false;
	}
	peer->pidfd = fd;
	j->nwatched++;
	return true;
}

static void unwatch(struct jobs *j, struct jobs_peer *peer)
{
	if (peer->pidfd < 0) {
		TAILQ_REMOVE(&j->unwatched, peer, place);
		return;
	}
	/* A child that is just being started has a copy of the descriptor, and as long as it has,
	 * closing ours would not take it out of the set. */
	epoll_ctl(j->watch_fd, EPOLL_CTL_DEL, peer->pidfd, NULL);
	close(peer->pidfd);
	j->nwatched--;
}

struct jobs_peer *jobs_peer_get(struct jobs *j, pid_t pid)
{
	struct jobs_peer *peer = hmap_get_ptr(&j->peers, (uint64_t)pid);

	if (peer)
		return peer;
	peer = xcalloc(1, sizeof(*peer));
	peer->pid = pid;
	peer->pidfd = -1;
	peer->id = ++j->peer_ids;
	if (!watch(j, peer)) {
		peer->start_ticks = start_of(pid);
		if (peer->start_ticks == ENDED || !pid_exists(pid)) {
			free(peer);
			return NULL;
		}
		TAILQ_INSERT_TAIL(&j->unwatched, peer, place);
		start_looking(j);
	}
	hmap_put_ptr(&j->peers, (uint64_t)pid, peer);
	return peer;
}

void jobs_peer_forget(struct jobs *j, struct jobs_peer *peer)
{
	struct jobs_process *next;

	for (struct jobs_process *p = peer->first; p; p = next) {
		next = p->peer_next;
		jobs_guest_gone(j, p);
		jobs_process_forget(j, p);
	}
	unwatch(j, peer);
	hmap_remove(&j->peers, (uint64_t)peer->pid);
	jobs_facts_free(peer->facts);
	free(peer);
}

static void end_peer(struct jobs *j, struct jobs_peer *peer)
{
	j->counts.ended += peer->nprocesses;
	jobs_peer_forget(j, peer);
}

/* --- events --- */

static void watch_ready(evutil_socket_t fd, short what, void *arg)
{
	struct jobs *j = arg;
	struct epoll_event ready[64];

	(void)fd;
	(void)what;
	int n = epoll_wait(j->watch_fd, ready, 64, 0);
	for (int i = 0; i < n; i++)
		end_peer(j, ready[i].data.ptr);
}

/* Those that live go to the end, or get a pidfd that has become free. */
static void look_due(evutil_socket_t fd, short what, void *arg)
{
	struct jobs *j = arg;
	struct jobs_peer *peer, *last = TAILQ_LAST(&j->unwatched, jobs_unwatched);

	(void)fd;
	(void)what;
	for (int i = 0; i < LOOK_AT && (peer = TAILQ_FIRST(&j->unwatched)); i++) {
		bool is_last = peer == last;

		if (!jobs_peer_lives(peer)) {
			end_peer(j, peer);
		} else {
			TAILQ_REMOVE(&j->unwatched, peer, place);
			if (!watch(j, peer))
				TAILQ_INSERT_TAIL(&j->unwatched, peer, place);
		}
		if (is_last)
			break;
	}
	start_looking(j);
}

/* --- life --- */

static unsigned most_watched(void)
{
	struct rlimit files;

	if (getrlimit(RLIMIT_NOFILE, &files) < 0)
		return 0;
	rlim_t n = files.rlim_cur < 1u << 20 ? files.rlim_cur : 1u << 20;
	rlim_t connections = n / 2 < CONNECTIONS ? n / 2 : CONNECTIONS;
	rlim_t others = n / 4 < OTHER_FILES ? n / 4 : OTHER_FILES;
	return (unsigned)(n - connections - others);
}

void jobs_peers_init(struct jobs *j)
{
	TAILQ_INIT(&j->unwatched);
	j->max_watched = most_watched();
	j->watch_fd = epoll_create1(EPOLL_CLOEXEC);
	j->watch = event_new(j->base, j->watch_fd, EV_READ | EV_PERSIST, watch_ready, j);
	j->look = event_new(j->base, -1, 0, look_due, j);
	BUG_ON(j->watch_fd < 0 || !j->watch || !j->look);
	event_priority_set(j->watch, DAEMON_PRIORITY_RPC);
	event_priority_set(j->look, DAEMON_PRIORITY_METRICS);
	event_add(j->watch, NULL);
}

void jobs_peers_release(struct jobs *j)
{
	uint64_t key, value;
	size_t at = 0;

	while (hmap_next(&j->peers, &at, &key, &value)) {
		struct jobs_peer *peer = (struct jobs_peer *)(uintptr_t)value;

		unwatch(j, peer);
		jobs_facts_free(peer->facts);
		free(peer);
	}
	event_free(j->watch);
	event_free(j->look);
	close(j->watch_fd);
	hmap_release(&j->peers);
}
