/* SPDX-License-Identifier: MulanPSL-2.0 */
/* The registry: who is there, and who died. */
#include "daemon/jobs.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"
#include "daemon/daemon.h"
#include "daemon/jobs_impl.h"

#define LOG_AREA "jobs"
#include "base/log.h"

#define SWEEP_S 30

int64_t jobs_now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

bool jobs_is_silent(const struct jobs_process *p, int64_t now_ms)
{
	return now_ms - p->last_ms > JOBS_SILENT_S * 1000;
}

int jobs_monitor_state(const struct jobs_process *p, int64_t now_ms)
{
	if (p->monitor == FABRIC_RUNNING && p->monitor_until_ms && now_ms > p->monitor_until_ms)
		return FABRIC_IDLE;
	return p->monitor;
}

/* --- counting --- */

uint64_t jobs_count_up(struct hmap *m, uint64_t key)
{
	uint64_t n = hmap_get(m, key);

	n = n == HMAP_NONE ? 1 : n + 1;
	hmap_put(m, key, n);
	return n;
}

void jobs_count_down(struct hmap *m, uint64_t key)
{
	uint64_t n = hmap_get(m, key);

	if (n == HMAP_NONE)
		return;
	if (n > 1)
		hmap_put(m, key, n - 1);
	else
		hmap_remove(m, key);
}

static uint64_t count_of(const struct hmap *m, uint64_t key)
{
	uint64_t n = hmap_get(m, key);

	return n == HMAP_NONE ? 0 : n;
}

static uint64_t mix(uint64_t h, uint64_t v)
{
	h ^= v + 0x9e3779b97f4a7c15u + (h << 6) + (h >> 2);
	h *= 0xff51afd7ed558ccdu;
	return h ^ h >> 32;
}

uint64_t jobs_device_key(int64_t job_id, int32_t device)
{
	return mix(mix(1, (uint64_t)job_id), (uint32_t)device);
}

/* --- peers --- */

/* The processes of a peer go with it. */
static void forget_peer(struct jobs *j, struct jobs_peer *peer);

static void watch_ready(evutil_socket_t fd, short what, void *arg)
{
	struct jobs *j = arg;
	struct epoll_event ready[64];

	(void)fd;
	(void)what;
	int n = epoll_wait(j->watch_fd, ready, 64, 0);
	for (int i = 0; i < n; i++) {
		struct jobs_peer *peer = ready[i].data.ptr;

		for (const struct jobs_process *p = peer->first; p; p = p->peer_next)
			j->counts.ended++;
		forget_peer(j, peer);
	}
}

static int open_pidfd(struct jobs *j, struct jobs_peer *peer)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.ptr = peer};
	int fd = (int)syscall(SYS_pidfd_open, peer->pid, 0);

	if (fd < 0)
		return errno == ESRCH ? -ESRCH : 0; /* without: a sweep finds out */
	if (epoll_ctl(j->watch_fd, EPOLL_CTL_ADD, fd, &ev) < 0) {
		close(fd);
		return 0;
	}
	peer->pidfd = fd;
	return 0;
}

/* NULL: it is gone already. */
static struct jobs_peer *find_peer(struct jobs *j, pid_t pid)
{
	struct jobs_peer *peer = hmap_get_ptr(&j->peers, (uint64_t)pid);

	if (peer)
		return peer;
	peer = xcalloc(1, sizeof(*peer));
	peer->pid = pid;
	peer->pidfd = -1;
	if (open_pidfd(j, peer) < 0) {
		free(peer);
		return NULL;
	}
	hmap_put_ptr(&j->peers, (uint64_t)pid, peer);
	return peer;
}

/* --- who may say what --- */

/* Whether the process that the kernel calls `sender` calls itself `pid`, in whatever pid namespace.
 */
static bool is_called(pid_t sender, int32_t pid)
{
	char path[64], line[256];
	bool same = false;

	if (sender == pid)
		return true;
	snprintf(path, sizeof(path), "/proc/%d/status", (int)sender);
	FILE *f = fopen(path, "re");
	if (!f)
		return false;
	while (fgets(line, sizeof(line), f)) {
		char *at;

		if (strncmp(line, "NSpid:", 6))
			continue;
		for (char *word = strtok_r(line + 6, " \t\n", &at); word;
		     word = strtok_r(NULL, " \t\n", &at))
			same |= atoi(word) == pid;
		break;
	}
	fclose(f);
	return same;
}

/* Root and the daemon's own user may speak for others, as a launcher does; everybody else only for
 * himself. A sender that is not visible from here cannot be checked. */
static bool may_speak_for(const struct jobs *j, const struct jobs_sender *from, int32_t pid)
{
	return from->uid == 0 || from->uid == j->own_uid || !from->pid || is_called(from->pid, pid);
}

/* --- processes --- */

static uint64_t identity(int64_t job_id, pid_t sender, int32_t pid)
{
	return mix(mix(mix(2, (uint64_t)job_id), (uint32_t)sender), (uint32_t)pid);
}

static pid_t sender_of(const struct jobs_process *p)
{
	return p->peer ? p->peer->pid : 0;
}

static struct jobs_process *find_process(const struct jobs *j, const struct jobs_sender *from,
					 int64_t job_id, int32_t pid)
{
	struct jobs_process *p = hmap_get_ptr(&j->processes, identity(job_id, from->pid, pid));

	while (p && (p->job_id != job_id || p->pid != pid || sender_of(p) != from->pid))
		p = p->hash_next;
	return p;
}

static void link_process(struct jobs *j, struct jobs_process *p, pid_t sender)
{
	uint64_t key = identity(p->job_id, sender, p->pid);

	p->hash_next = hmap_get_ptr(&j->processes, key);
	hmap_put_ptr(&j->processes, key, p);
	if (p->peer) {
		p->peer_next = p->peer->first;
		p->peer->first = p;
	}
	jobs_count_up(&j->per_uid, p->uid);
	if (jobs_count_up(&j->per_job, (uint64_t)p->job_id) == 1)
		j->counts.jobs++;
	j->counts.processes++;
}

static void unlink_from_chain(struct jobs *j, const struct jobs_process *p)
{
	uint64_t key = identity(p->job_id, sender_of(p), p->pid);
	struct jobs_process *first = hmap_get_ptr(&j->processes, key);

	if (first == p) {
		if (p->hash_next)
			hmap_put_ptr(&j->processes, key, p->hash_next);
		else
			hmap_remove(&j->processes, key);
		return;
	}
	while (first && first->hash_next != p)
		first = first->hash_next;
	if (first)
		first->hash_next = p->hash_next;
}

void jobs_config_release(struct jobs_config *c)
{
	if (c && --c->refs == 0)
		free(c);
}

/* Leaves the peer's list alone. */
static void forget_process(struct jobs *j, struct jobs_process *p)
{
	unlink_from_chain(j, p);
	jobs_count_down(&j->per_uid, p->uid);
	jobs_count_down(&j->per_job, (uint64_t)p->job_id);
	if (!count_of(&j->per_job, (uint64_t)p->job_id))
		j->counts.jobs--;
	if (p->heard & JOBS_HEARD_CONTEXT)
		jobs_count_down(&j->per_device, jobs_device_key(p->job_id, p->device));
	j->counts.processes--;
	if (j->delivering == p)
		j->delivering = NULL;
	jobs_config_release(p->pending);
	free(p->pids);
	free(p);
}

static void forget_peer(struct jobs *j, struct jobs_peer *peer)
{
	struct jobs_process *next;

	for (struct jobs_process *p = peer->first; p; p = next) {
		next = p->peer_next;
		forget_process(j, p);
	}
	hmap_remove(&j->peers, (uint64_t)peer->pid);
	if (peer->pidfd >= 0)
		close(peer->pidfd);
	free(peer);
}

struct jobs_process *jobs_hear(struct jobs *j, const struct jobs_sender *from, int64_t job_id,
			       int32_t pid, int *out_code)
{
	struct timeval sweep = {.tv_sec = SWEEP_S};
	struct jobs_process *p = find_process(j, from, job_id, pid);
	struct jobs_peer *peer = NULL;

	if (p) {
		p->last_ms = jobs_now_ms();
		return p;
	}
	if (count_of(&j->per_uid, from->uid) >= j->max_per_uid) {
		*out_code = -EDQUOT;
	} else if (pid <= 0 || !may_speak_for(j, from, pid)) {
		*out_code = -EPERM;
	} else if (from->pid && !(peer = find_peer(j, from->pid))) {
		*out_code = -ESRCH; /* it sent this and died */
		return NULL;
	} else {
		p = xcalloc(1, sizeof(*p));
		p->peer = peer;
		p->endpoint = from->endpoint;
		p->job_id = job_id;
		p->pid = pid;
		p->uid = from->uid;
		p->device = -1;
		p->current_step = p->start_step = p->stop_step = -1;
		p->trace = p->monitor = FABRIC_UNINITIALIZED;
		p->first_ms = p->last_ms = jobs_now_ms();
		link_process(j, p, from->pid);
		if (!event_pending(j->sweep, EV_TIMEOUT, NULL))
			event_add(j->sweep, &sweep);
		return p;
	}
	j->counts.refused++;
	log_debug("pid %d of user %u is not registered as %d: %s", (int)from->pid, from->uid,
		  (int)pid, strerror(-*out_code));
	return NULL;
}

/* --- looking after those whose death nobody tells --- */

static bool is_gone(const struct jobs_peer *peer)
{
	return peer->pidfd < 0 && kill(peer->pid, 0) < 0 && errno == ESRCH;
}

static bool is_unseen_and_silent(const struct jobs_process *p, const void *now_ms)
{
	return !p->peer && jobs_is_silent(p, *(const int64_t *)now_ms);
}

static void sweep_peers(struct jobs *j)
{
	uint64_t key, value;
	size_t at = 0;

	while (hmap_next(&j->peers, &at, &key, &value)) {
		struct jobs_peer *peer = (struct jobs_peer *)(uintptr_t)value;

		if (!is_gone(peer))
			continue;
		for (const struct jobs_process *p = peer->first; p; p = p->peer_next)
			j->counts.ended++;
		forget_peer(j, peer);
		at = 0; /* the map has changed */
	}
}

static void sweep_due(evutil_socket_t fd, short what, void *arg)
{
	struct timeval again = {.tv_sec = SWEEP_S};
	struct jobs *j = arg;
	int64_t now = jobs_now_ms();
	size_t n;

	(void)fd;
	(void)what;
	sweep_peers(j);
	struct jobs_process **unseen = jobs_collect(j, is_unseen_and_silent, &now, NULL, &n);
	for (size_t i = 0; i < n; i++)
		forget_process(j, unseen[i]);
	j->counts.silent += n;
	free(unseen);
	if (j->counts.processes)
		event_add(j->sweep, &again);
}

/* --- life --- */

struct jobs *jobs_new(struct event_base *base, unsigned max_per_uid)
{
	struct jobs *j = xcalloc(1, sizeof(*j));

	j->base = base;
	j->max_per_uid = max_per_uid;
	j->own_uid = getuid();
	j->watch_fd = epoll_create1(EPOLL_CLOEXEC);
	j->watch = event_new(base, j->watch_fd, EV_READ | EV_PERSIST, watch_ready, j);
	j->sweep = event_new(base, -1, 0, sweep_due, j);
	BUG_ON(j->watch_fd < 0 || !j->watch || !j->sweep);
	event_priority_set(j->watch, DAEMON_PRIORITY_RPC);
	event_priority_set(j->sweep, DAEMON_PRIORITY_METRICS);
	event_add(j->watch, NULL);
	return j;
}

void jobs_free(struct jobs *j)
{
	uint64_t key, value;
	size_t n, at = 0;

	if (!j)
		return;
	struct jobs_process **all = jobs_collect(j, NULL, NULL, NULL, &n);
	for (size_t i = 0; i < n; i++)
		forget_process(j, all[i]);
	free(all);
	while (hmap_next(&j->peers, &at, &key, &value)) {
		struct jobs_peer *peer = (struct jobs_peer *)(uintptr_t)value;

		if (peer->pidfd >= 0)
			close(peer->pidfd);
		free(peer);
	}
	event_free(j->watch);
	event_free(j->sweep);
	close(j->watch_fd);
	hmap_release(&j->processes);
	hmap_release(&j->peers);
	hmap_release(&j->per_uid);
	hmap_release(&j->per_job);
	hmap_release(&j->per_device);
	free(j);
}

struct jobs_process **jobs_collect(const struct jobs *j, jobs_want_fn want, const void *arg,
				   jobs_order_fn order, size_t *out_n)
{
	struct jobs_process **all = xcalloc(j->counts.processes + 1, sizeof(struct jobs_process *));
	uint64_t key, value;
	size_t at = 0, n = 0;

	while (hmap_next(&j->processes, &at, &key, &value))
		for (struct jobs_process *p = (struct jobs_process *)(uintptr_t)value; p;
		     p = p->hash_next)
			if (!want || want(p, arg))
				all[n++] = p;
	if (order)
		qsort(all, n, sizeof(struct jobs_process *), order);
	*out_n = n;
	return all;
}

struct jobs_counts jobs_counts(const struct jobs *j)
{
	return j->counts;
}
