/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Processes as our kernel knows them: the end of each, and whether their claims about pids hold.
 *
 * A pidfd reports the end at once. Where there is none (an old kernel, or more processes than there
 * may be files), a few processes at a time are polled, all of them one after another: one that is a
 * zombie, or whose pid has become another's, is gone.
 */
#define LOG_AREA "jobs"

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

#include "base/log.h"
#include "base/mem.h"
#include "base/proc.h"
#include "daemon/jobs/jobs_impl.h"
#include "daemon/loop.h"

#define POLL_MS 250
#define POLL_AT_ONCE 64 /* processes at a time: a millisecond or two */
#define STATUS_BYTES 2048 /* of /proc/PID/status; what is wanted stands in its first lines */
#define NAMESPACES_MAX 32 /* that the kernel nests */
#define ANCESTORS_MAX 24 /* libkineto names ten */
#define OTHER_FILES 256u /* HTTP, devices, logs; a quarter where there are few */
#define CONNECTIONS 1024u /* of the RPC; half where there are few */

/* --- whether it lives --- */

#define ENDED UINT64_MAX

/* When a process was started, in ticks since the machine was; ENDED: a zombie; 0: not known, since
 * it is gone or may not be inspected. */
static uint64_t start_of(pid_t pid)
{
	struct proc_stat s;

	if (!proc_is_ours() || proc_stat_read(pid, &s) < 0)
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

static void schedule_poll(struct jobs *j)
{
	if (!TAILQ_EMPTY(&j->unwatched) && !event_pending(j->poll, EV_TIMEOUT, NULL))
		loop_timer_start(j->poll, POLL_MS * 1000);
}

/* False: no pidfd is available. */
static bool watch_peer(struct jobs *j, struct jobs_peer *peer)
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

static void unwatch_peer(struct jobs *j, struct jobs_peer *peer)
{
	if (peer->pidfd < 0) {
		TAILQ_REMOVE(&j->unwatched, peer, link);
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
	if (!watch_peer(j, peer)) {
		peer->start_ticks = start_of(pid);
		if (peer->start_ticks == ENDED || !pid_exists(pid)) {
			free(peer);
			return NULL;
		}
		TAILQ_INSERT_TAIL(&j->unwatched, peer, link);
		schedule_poll(j);
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
	unwatch_peer(j, peer);
	hmap_remove(&j->peers, (uint64_t)peer->pid);
	free(peer->facts);
	free(peer);
}

static void end_peer(struct jobs *j, struct jobs_peer *peer)
{
	j->counts.ended += peer->nprocesses;
	jobs_peer_forget(j, peer);
}

/* --- events --- */

static void on_peers_ended(evutil_socket_t fd, short what, void *arg)
{
	struct jobs *j = arg;
	struct epoll_event ready[64];

	(void)fd, (void)what;
	int n = epoll_wait(j->watch_fd, ready, 64, 0);
	for (int i = 0; i < n; i++)
		end_peer(j, ready[i].data.ptr);
}

/* Those that live go to the end, or get a pidfd that has become free. */
static void poll_unwatched(evutil_socket_t fd, short what, void *arg)
{
	struct jobs *j = arg;
	struct jobs_peer *peer, *last = TAILQ_LAST(&j->unwatched, jobs_unwatched);

	(void)fd, (void)what;
	for (int i = 0; i < POLL_AT_ONCE && (peer = TAILQ_FIRST(&j->unwatched)); i++) {
		bool is_last = peer == last;

		if (!jobs_peer_lives(peer)) {
			end_peer(j, peer);
		} else {
			TAILQ_REMOVE(&j->unwatched, peer, link);
			if (!watch_peer(j, peer))
				TAILQ_INSERT_TAIL(&j->unwatched, peer, link);
		}
		if (is_last)
			break;
	}
	schedule_poll(j);
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
	BUG_ON(j->watch_fd < 0);
	j->watch = loop_event_new(j->base, j->watch_fd, EV_READ | EV_PERSIST, DAEMON_PRIORITY_RPC,
				  on_peers_ended, j);
	j->poll = loop_event_new(j->base, -1, 0, DAEMON_PRIORITY_METRICS, poll_unwatched, j);
	event_add(j->watch, NULL);
}

void jobs_peers_release(struct jobs *j)
{
	uint64_t key, value;
	size_t at = 0;

	while (hmap_next(&j->peers, &at, &key, &value)) {
		struct jobs_peer *peer = (struct jobs_peer *)(uintptr_t)value;

		unwatch_peer(j, peer);
		free(peer->facts);
		free(peer);
	}
	event_free(j->watch);
	event_free(j->poll);
	close(j->watch_fd);
	hmap_release(&j->peers);
}

/* --- ancestry --- */

/*
 * Which pids a process and its ancestors have, as /proc says. What a process claims decides which
 * requests it gets, so it is verified; its numbers are those of its own pid namespace, and the
 * kernel knows a process by one number in each that it is in.
 */

struct process_pids {
	int32_t numbers[NAMESPACES_MAX];
	unsigned n;
	pid_t parent;
};

/* False: it is gone, or may not be inspected. */
static bool read_pids(pid_t pid, struct process_pids *out)
{
	char text[STATUS_BYTES], *line, *next = text, *at;

	*out = (struct process_pids){0};
	if (!proc_is_ours() || proc_read(pid, "status", text, sizeof(text)) < 0)
		return false;
	while (!out->n && (line = strsep(&next, "\n")))
		if (!strncmp(line, "PPid:", 5))
			out->parent = (pid_t)atoi(line + 5);
		else if (!strncmp(line, "NSpid:", 6))
			for (char *word = strtok_r(line + 6, " \t", &at);
			     word && out->n < NAMESPACES_MAX; word = strtok_r(NULL, " \t", &at))
				out->numbers[out->n++] = (int32_t)atoi(word);
	return out->n > 0;
}

static bool is_among(const struct process_pids *found, int32_t pid)
{
	for (unsigned i = 0; i < found->n; i++)
		if (found->numbers[i] == pid)
			return true;
	return false;
}

bool jobs_has_pid(pid_t sender, int32_t pid)
{
	struct process_pids found;

	return sender == pid || (read_pids(sender, &found) && is_among(&found, pid));
}

unsigned jobs_verify_ancestors(pid_t sender, const int32_t *pids, unsigned n, int32_t *out)
{
	bool good[FABRIC_MAX_PIDS] = {true};
	unsigned left = n - 1, kept = 0;
	struct process_pids found;

	for (unsigned depth = 0; left && depth < ANCESTORS_MAX; depth++) {
		if (sender <= 0 || !read_pids(sender, &found))
			break;
		for (unsigned i = 1; i < n; i++)
			if (!good[i] && is_among(&found, pids[i])) {
				good[i] = true;
				left--;
			}
		sender = found.parent;
	}
	for (unsigned i = 0; i < n; i++)
		if (good[i])
			out[kept++] = pids[i];
	return kept;
}
