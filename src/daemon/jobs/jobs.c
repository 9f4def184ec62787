/* SPDX-License-Identifier: MulanPSL-2.0 */
/* The registry: who is there, and who died. */
#include "daemon/jobs/jobs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"
#include "daemon/jobs/jobs_impl.h"
#include "daemon/loop.h"

#define LOG_AREA "jobs"
#include "base/log.h"

#define SWEEP_US 30000000 /* also for how long facts of /proc are kept */
#define LOG_LINES 60 /* of a user's processes at once */
#define LOG_LINES_PER_S 1
#define JOBS_PER_PEER 16 /* jobs in which one process of an ordinary user may be */

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
	/* One that is paused will resume: that is what Ready says of a trace, too. */
	if (p->guest && p->guest->pause != JOBS_PAUSE_NONE && p->guest->wanted &&
	    p->monitor == FABRIC_IDLE)
		return FABRIC_READY;
	if (p->monitor == FABRIC_RUNNING && p->monitor_until_ms && now_ms > p->monitor_until_ms)
		return FABRIC_IDLE;
	return p->monitor;
}

/* --- counting --- */

uint64_t jobs_count(struct hmap *m, uint64_t key, int64_t by)
{
	uint64_t before = hmap_get(m, key);
	uint64_t n = (before == HMAP_NONE ? 0 : before) + (uint64_t)by;

	if (n)
		hmap_put(m, key, n);
	else if (before != HMAP_NONE)
		hmap_remove(m, key);
	return n;
}

static uint64_t mix_hash(uint64_t h, uint64_t v)
{
	h ^= v + 0x9e3779b97f4a7c15u + (h << 6) + (h >> 2);
	h *= 0xff51afd7ed558ccdu;
	return h ^ h >> 32;
}

uint64_t jobs_device_key(const struct jobs_process *p)
{
	return mix_hash(mix_hash(mix_hash(1, (uint64_t)p->job_id), (uint32_t)p->device), p->uid);
}

/* --- who may say what --- */

bool jobs_is_trusted(const struct jobs *j, uid_t uid)
{
	(void)j;
	return uid == 0 || uid == geteuid();
}

/* --- processes --- */

/* A guest of ours and the framework in the same process are two. */
static uint64_t identity_of(int64_t job_id, pid_t sender, int32_t pid, bool guest)
{
	return mix_hash(mix_hash(mix_hash(guest ? 3 : 2, (uint64_t)job_id), (uint32_t)sender),
			(uint32_t)pid);
}

static pid_t sender_of(const struct jobs_process *p)
{
	return p->peer ? p->peer->pid : 0;
}

struct jobs_process *jobs_find(const struct jobs *j, pid_t sender, uid_t uid, int64_t job_id,
			       int32_t pid, bool guest)
{
	struct jobs_process *p =
		hmap_get_ptr(&j->processes, identity_of(job_id, sender, pid, guest));

	/* those that are not visible differ by their user alone */
	while (p && (p->job_id != job_id || p->pid != pid || sender_of(p) != sender ||
		     !p->guest == guest || (!p->peer && p->uid != uid)))
		p = p->hash_next;
	return p;
}

static void link_process(struct jobs *j, struct jobs_process *p, pid_t sender)
{
	uint64_t key = identity_of(p->job_id, sender, p->pid, p->guest != NULL);

	p->hash_next = hmap_get_ptr(&j->processes, key);
	hmap_put_ptr(&j->processes, key, p);
	if (p->peer) {
		p->peer_next = p->peer->first;
		p->peer->first = p;
		p->peer->nprocesses++;
	}
	jobs_count(&j->per_uid, p->uid, 1);
	if (jobs_count(&j->per_job, (uint64_t)p->job_id, 1) == 1)
		j->counts.jobs++;
	j->counts.processes++;
}

static void unlink_from_chain(struct jobs *j, const struct jobs_process *p)
{
	uint64_t key = identity_of(p->job_id, sender_of(p), p->pid, p->guest != NULL);
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

static void forget_user(struct jobs *j, uid_t uid)
{
	if (!jobs_count(&j->per_uid, uid, -1))
		hmap_remove(&j->lookups, uid);
}

void jobs_process_forget(struct jobs *j, struct jobs_process *p)
{
	jobs_arbiter_forget(j, p);
	jobs_top_forget(j, p);
	unlink_from_chain(j, p);
	forget_user(j, p->uid);
	if (!jobs_count(&j->per_job, (uint64_t)p->job_id, -1))
		j->counts.jobs--;
	if (p->received & JOBS_RECEIVED_CONTEXT)
		jobs_count(&j->per_device, jobs_device_key(p), -1);
	j->counts.processes--;
	if (j->delivering == p)
		j->delivering = NULL;
	jobs_config_release(p->pending);
	jobs_config_release(p->after);
	jobs_guest_free(p->guest);
	free(p->pids);
	free(p);
}

static void unlink_from_peer(const struct jobs_process *p)
{
	struct jobs_process **at = &p->peer->first;

	while (*at != p)
		at = &(*at)->peer_next;
	*at = p->peer_next;
	p->peer->nprocesses--;
}

static struct jobs_process *process_new(struct jobs *j, const struct jobs_sender *from,
					struct jobs_peer *peer, int64_t job_id, int32_t pid)
{
	struct jobs_process *p = xcalloc(1, sizeof(*p));

	p->peer = peer;
	p->endpoint = from->endpoint;
	p->job_id = job_id;
	p->pid = pid;
	p->uid = from->uid;
	p->device = -1;
	p->current_step = p->start_step = p->stop_step = -1;
	p->trace = p->monitor = FABRIC_UNINITIALIZED;
	p->first_ms = p->last_ms = jobs_now_ms();
	if (from->guest)
		p->guest = jobs_guest_new(p, from->guest);
	link_process(j, p, from->pid);
	if (!event_pending(j->sweep, EV_TIMEOUT, NULL))
		loop_timer_start(j->sweep, SWEEP_US);
	return p;
}

/* The first message of a process. NULL, and *out_code says why. */
static struct jobs_process *admit_process(struct jobs *j, const struct jobs_sender *from,
					  int64_t job_id, int32_t pid, int *out_code)
{
	bool trusted = jobs_is_trusted(j, from->uid), itself = false;
	struct jobs_peer *peer = NULL;

	*out_code = -EDQUOT;
	if (jobs_count(&j->per_uid, from->uid, 0) >= j->max_per_uid)
		return NULL;
	if (from->pid && !trusted) {
		peer = hmap_get_ptr(&j->peers, (uint64_t)from->pid);
		if (peer && peer->nprocesses >= JOBS_PER_PEER)
			return NULL;
	}
	*out_code = -EPERM;
	if (pid > 0) /* one that is not visible from here cannot be checked */
		itself = !from->pid || jobs_has_pid(from->pid, pid);
	if (pid <= 0 || (!itself && !trusted))
		return NULL;
	*out_code = -ESRCH; /* it sent this and died */
	if (from->pid && !(peer = jobs_peer_get(j, from->pid)))
		return NULL;
	struct jobs_process *p = process_new(j, from, peer, job_id, pid);
	if (!itself)
		p->received |= JOBS_FOR_ANOTHER;
	return p;
}

static void drop_foreign(struct jobs_config **config, uid_t uid)
{
	if (!*config || (*config)->asker == JOBS_ANY_USER || (*config)->asker == uid)
		return;
	jobs_config_release(*config);
	*config = NULL;
}

/* It has become another user since: what an ordinary user asked for the one that it was is not for this one. */
static void change_user(struct jobs *j, struct jobs_process *p, uid_t uid)
{
	jobs_top_forget(j, p);
	drop_foreign(&p->pending, uid);
	drop_foreign(&p->after, uid);
	if (!p->pending) {
		p->pending = p->after;
		p->after = NULL;
	}
	if (p->guest)
		drop_foreign(&p->guest->stop, uid);
	forget_user(j, p->uid);
	p->uid = uid;
	jobs_count(&j->per_uid, uid, 1);
}

struct jobs_process *jobs_register(struct jobs *j, const struct jobs_sender *from, int64_t job_id,
				   int32_t pid, int *out_code)
{
	struct jobs_process *p =
		jobs_find(j, from->pid, from->uid, job_id, pid, from->guest != NULL);

	if (p) {
		p->last_ms = jobs_now_ms();
		if (p->guest)
			jobs_guest_polled(p->guest, from->guest);
		if (p->uid != from->uid)
			change_user(j, p, from->uid);
		return p;
	}
	p = admit_process(j, from, job_id, pid, out_code);
	if (p || *out_code == -ESRCH)
		return p;
	j->counts.refused++;
	log_debug("pid %d of user %u is not registered as %d: %s", (int)from->pid, from->uid,
		  (int)pid, strerror(-*out_code));
	return NULL;
}

/* --- processes whose end the kernel does not report --- */

/* Its sender is not visible, or may live for long after it; and it would not report what it does.
 */
static bool is_unseen_and_silent(const struct jobs_process *p, const void *now_ms)
{
	bool busy = p->trace == FABRIC_RUNNING || p->monitor == FABRIC_RUNNING;

	if (!jobs_is_silent(p, *(const int64_t *)now_ms))
		return false;
	return !p->peer || ((p->received & JOBS_FOR_ANOTHER) && !busy);
}

static void sweep_facts(struct jobs *j, int64_t now_ms)
{
	uint64_t key, value;
	size_t at = 0;

	while (hmap_next(&j->peers, &at, &key, &value)) {
		struct jobs_peer *peer = (struct jobs_peer *)(uintptr_t)value;

		if (!peer->facts || now_ms - peer->facts->read_ms < SWEEP_US / 1000)
			continue;
		free(peer->facts);
		peer->facts = NULL;
	}
}

static void on_sweep(evutil_socket_t fd, short what, void *arg)
{
	struct jobs *j = arg;
	int64_t now = jobs_now_ms();
	size_t n;

	(void)fd, (void)what;
	sweep_facts(j, now);
	struct jobs_process **unseen = jobs_collect(j, NULL, is_unseen_and_silent, &now, NULL, &n);
	for (size_t i = 0; i < n; i++) {
		if (unseen[i]->peer)
			unlink_from_peer(unseen[i]);
		jobs_guest_gone(j, unseen[i]);
		jobs_process_forget(j, unseen[i]);
	}
	j->counts.silent += n;
	free(unseen);
	if (j->counts.processes)
		loop_timer_start(j->sweep, SWEEP_US);
}

/* --- life --- */

struct jobs *jobs_new(struct event_base *base, unsigned max_per_uid)
{
	struct jobs *j = xcalloc(1, sizeof(*j));

	j->base = base;
	j->max_per_uid = max_per_uid;
	j->log_limit = user_limit_new(base, "lines", LOG_LINES_PER_S, LOG_LINES);
	jobs_peers_init(j);
	jobs_arbiter_init(j);
	j->sweep = loop_event_new(base, -1, 0, DAEMON_PRIORITY_METRICS, on_sweep, j);
	return j;
}

void jobs_free(struct jobs *j)
{
	size_t n;

	if (!j)
		return;
	struct jobs_process **all = jobs_collect(j, NULL, NULL, NULL, NULL, &n);
	for (size_t i = 0; i < n; i++)
		jobs_process_forget(j, all[i]);
	free(all);
	jobs_arbiter_release(j);
	jobs_peers_release(j);
	hmap_release(&j->top_bytes);
	user_limit_free(j->log_limit);
	jobs_proc_free(j->proc);
	event_free(j->sweep);
	hmap_release(&j->processes);
	hmap_release(&j->lookups);
	hmap_release(&j->per_uid);
	hmap_release(&j->per_job);
	hmap_release(&j->per_device);
	free(j);
}

struct jobs_process *jobs_next(const struct jobs *j, struct jobs_cursor *c)
{
	uint64_t key, value;
	struct jobs_process *p;

	do {
		if (!c->next && hmap_next(&j->processes, &c->at, &key, &value))
			c->next = (struct jobs_process *)(uintptr_t)value;
		p = c->next;
		if (p)
			c->next = p->hash_next;
	} while (p && !access_covers(c->who, p->uid));
	return p;
}

struct jobs_process **jobs_collect(const struct jobs *j, const struct access_grant *who,
				   jobs_want_fn want, const void *arg, jobs_compare_fn compare,
				   size_t *out_n)
{
	struct jobs_process **all = xcalloc(j->counts.processes + 1, sizeof(struct jobs_process *));
	struct jobs_process *p;
	size_t n = 0;

	for (struct jobs_cursor c = {.who = who}; (p = jobs_next(j, &c));)
		if (!want || want(p, arg))
			all[n++] = p;
	if (compare)
		qsort(all, n, sizeof(struct jobs_process *), compare);
	*out_n = n;
	return all;
}

size_t jobs_count_others(const struct jobs *j, const struct access_grant *who, jobs_want_fn want,
			 const void *arg)
{
	const struct jobs_process *p;
	size_t n = 0;

	if (!who || who->right >= ACCESS_VIEW)
		return 0;
	for (struct jobs_cursor c = {0}; (p = jobs_next(j, &c));)
		n += !access_covers(who, p->uid) && (!want || want(p, arg));
	return n;
}

void jobs_set_others(json_t *reply, size_t n)
{
	if (n)
		json_object_set_new(reply, "notYours", json_integer((json_int_t)n));
}

struct jobs_counts jobs_counts(const struct jobs *j)
{
	return j->counts;
}
