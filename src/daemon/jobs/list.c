/* SPDX-License-Identifier: MulanPSL-2.0 */
/* What is known about processes, for people: the registry, and what /proc adds to it. */
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>

#include "activity/live/toplist.h"
#include "base/broker.h"
#include "base/mem.h"
#include "daemon/jobs/jobs_impl.h"
#include "wire/rank_env.h"

#define PAGE 256 /* processes in one reply: a longer one would hold up the others */
#define FRESH_MS 5000 /* so long, what was read of a process is not read again */

/* --- what only /proc and the password file know --- */

json_t *jobs_command_line(const struct jobs_facts *f)
{
	return f && f->command_len ? json_stringn(f->command, f->command_len) : json_null();
}

static json_t *rank_number(const struct jobs_facts *f, int32_t rank)
{
	return f && rank != RANK_ENV_UNKNOWN ? json_integer(rank) : json_null();
}

/* The rank that a monitored process has now: its recorder, which is of the same user, has looked. */
static int32_t reported_rank(const struct jobs_process *p)
{
	const struct toplist_report *r = p && p->top ? toplist_last(p->top) : NULL;

	return r && r->rank >= 0 ? r->rank : RANK_ENV_UNKNOWN;
}

/* In the sandbox nobody may look into a process: there its environment at the start has to do, unless
 * it reports. */
static void add_rank(json_t *o, const struct jobs_process *p, const struct jobs_process *guest)
{
	const struct jobs_facts *f = p->peer ? p->peer->facts : NULL;
	int32_t rank = f ? f->rank : RANK_ENV_UNKNOWN, reported = RANK_ENV_UNKNOWN;

	if (broker_lives()) {
		reported = reported_rank(p);
		if (reported == RANK_ENV_UNKNOWN)
			reported = reported_rank(guest);
	}
	bool has_reported = reported != RANK_ENV_UNKNOWN;
	rank = has_reported ? reported : rank;
	json_object_set_new(o, "rank", rank != RANK_ENV_UNKNOWN ? json_integer(rank) : json_null());
	json_object_set_new(o, "local_rank", rank_number(f, f ? f->local_rank : 0));
	json_object_set_new(
		o, "rank_at_start",
		json_boolean(rank != RANK_ENV_UNKNOWN && broker_lives() && !has_reported));
}

/* A command line is shown to whom /proc would show it. */
static bool is_command_shown(const struct access_grant *who, const struct jobs_process *p)
{
	return !who || who->command_lines || who->uid == p->uid;
}

static bool has_pid(const struct jobs_process *p, const void *arg)
{
	return p->pid == *(const int32_t *)arg && p->peer;
}

bool jobs_find_owner(const struct jobs *j, const struct access_grant *who, int32_t pid,
		     struct jobs_owner *out)
{
	size_t n;
	struct jobs_process **all = jobs_collect(j, who, has_pid, &pid, NULL, &n);

	if (n)
		*out = (struct jobs_owner){all[0]->peer->pid, all[0]->uid,
					   is_command_shown(who, all[0])};
	free(all);
	return n > 0;
}

static void add_facts(json_t *o, const struct access_grant *who, const struct jobs_process *p)
{
	const struct jobs_peer *peer = p->peer;
	const struct jobs_facts *f = peer ? peer->facts : NULL;
	bool shown = is_command_shown(who, p);

	json_object_set_new(o, "host_pid", peer ? json_integer(peer->pid) : json_null());
	json_object_set_new(o, "command", shown ? jobs_command_line(f) : json_null());
	json_object_set_new(o, "facts_pending", json_boolean(peer && peer->asked && !f));
}

static void store_facts(struct jobs *j, int64_t now_ms)
{
	struct jobs_facts *facts;
	uint64_t id;
	pid_t pid;

	while ((facts = jobs_proc_take(j->proc, &pid, &id))) {
		struct jobs_peer *peer = hmap_get_ptr(&j->peers, (uint64_t)pid);

		if (!peer || peer->id != id) {
			free(facts); /* of one that is gone */
			continue;
		}
		facts->read_ms = now_ms;
		free(peer->facts);
		peer->facts = facts;
		peer->asked = false;
	}
}

/* Only the file: a name service may be slow, and this runs in the loop. */
static json_t *user_name(uint32_t uid)
{
	json_t *name = NULL;
	struct passwd *entry;
	FILE *f = fopen("/etc/passwd", "re");

	while (f && !name && (entry = fgetpwent(f)))
		if (entry->pw_uid == uid)
			name = json_string(entry->pw_name);
	if (f)
		fclose(f);
	return name ? name : json_null();
}

/* The same for the next process of the same user, without reading the file. */
struct last_user {
	uint32_t uid;
	json_t *name; /* NULL: none yet */
};

static json_t *user_of(struct last_user *last, uint32_t uid)
{
	if (!last->name || last->uid != uid) {
		json_decref(last->name);
		last->name = user_name(uid);
		last->uid = uid;
	}
	return json_incref(last->name);
}

/* --- one process --- */

/*
 * An NPU framework has a child that talks to the daemon for the rank: the rank reports its steps,
 * the child polls for work and knows the device. To people that is one process, the rank; and so is
 * a framework with a guest of ours beside it.
 */
struct row {
	const struct jobs_process *p;
	const struct jobs_process *poller; /* polls for it; NULL: it does itself */
	const struct jobs_process *guest; /* in the same process, beside p; NULL: none */
	bool folded; /* into another row */
};

/* Who reports steps: a framework, or the guest beside a client that does not. */
static const struct jobs_process *status_source(const struct row *r)
{
	return r->guest && !(r->p->received & (JOBS_RECEIVED_TRACE | JOBS_RECEIVED_MONITOR))
		       ? r->guest
		       : r->p;
}

/* One word for what it does. */
static const char *summary_state(const struct row *r, int64_t now_ms)
{
	const struct jobs_process *p = status_source(r), *asks = r->poller ? r->poller : r->p;

	if (p->trace == FABRIC_RUNNING || p->trace == FABRIC_READY)
		return jobs_state_name(p->trace);
	if (jobs_monitor_state(p, now_ms) == FABRIC_RUNNING)
		return "Monitoring";
	if (asks->pending || (r->guest && r->guest->pending))
		return "Pending";
	if ((asks->received & JOBS_RECEIVED_REQUEST) && !(asks->mask & FABRIC_ACTIVITIES))
		return "Busy";
	return jobs_is_silent(asks, now_ms) ? "Silent" : "Idle";
}

static const char *client_of(const struct jobs_process *p)
{
	if (p->guest)
		return "sonde";
	if (p->received & (JOBS_RECEIVED_CONTEXT | JOBS_RECEIVED_TRACE | JOBS_RECEIVED_MONITOR) ||
	    !strcmp(p->endpoint, "home"))
		return "npu";
	return "kineto";
}

static json_t *list_pids(const int32_t *n, unsigned count)
{
	json_t *out = json_array();

	for (unsigned i = 0; i < count; i++)
		json_array_append_new(out, json_integer(n[i]));
	return out;
}

static json_t *list_clients(const struct row *r)
{
	json_t *list = json_pack("[s]", client_of(r->p));

	if (r->guest)
		json_array_append_new(list, json_string(client_of(r->guest)));
	return list;
}

/* Guests do not register it; their reports have it, if there is one. */
static int32_t reported_device(const struct jobs_process *p)
{
	const struct toplist_report *r = p && p->top ? toplist_last(p->top) : NULL;

	return r && r->ndevices == 1 ? r->devices[0].device : -1;
}

static json_t *describe_row(const struct row *r, const struct access_grant *who, int64_t now_ms,
			    struct last_user *last)
{
	const struct jobs_process *p = r->p, *asks = r->poller ? r->poller : p,
				  *source = status_source(r);
	int32_t device = p->device >= 0 ? p->device : asks->device;
	int64_t last_ms = p->last_ms > asks->last_ms ? p->last_ms : asks->last_ms;
	bool pending = asks->pending || asks->after || (r->guest && r->guest->pending);

	if (r->guest && r->guest->last_ms > last_ms)
		last_ms = r->guest->last_ms;
	if (device < 0 && r->guest)
		device = r->guest->device;
	if (device < 0)
		device = reported_device(p);
	if (device < 0)
		device = reported_device(r->guest);
	json_t *o = json_pack(
		"{s:i,s:I,s:s,s:s,s:s,s:b,s:b,s:f,s:f,s:I,s:i,s:o,s:s,s:s}", "pid", p->pid,
		"job_id", (json_int_t)p->job_id, "state", summary_state(r, now_ms), "client",
		client_of(p), "endpoint", p->endpoint, "pending", pending, "polls",
		!!(asks->received & JOBS_RECEIVED_REQUEST), "last_seen_s",
		(double)(now_ms - last_ms) / 1000, "known_s", (double)(now_ms - p->first_ms) / 1000,
		"uid", (json_int_t)p->uid, "current_step", source->current_step, "pids",
		list_pids(asks->pids, asks->npids), "nputrace", jobs_state_name(source->trace),
		"npumonitor", jobs_state_name(jobs_monitor_state(source, now_ms)));

	json_object_set_new(o, "clients", list_clients(r));
	int64_t step_ms = p->step_ms > source->step_ms ? p->step_ms : source->step_ms;
	if (r->guest && r->guest->step_ms > step_ms)
		step_ms = r->guest->step_ms;
	json_object_set_new(o, "step_age_s",
			    step_ms ? json_real((double)(now_ms - step_ms) / 1000) : json_null());
	json_object_set_new(o, "traces_ended", json_integer(source->traces_ended));
	json_object_set_new(o, "device", device >= 0 ? json_integer(device) : json_null());
	if (source->trace == FABRIC_RUNNING || source->trace == FABRIC_READY) {
		json_object_set_new(o, "start_step", json_integer(source->start_step));
		json_object_set_new(o, "stop_step", json_integer(source->stop_step));
	}
	json_object_set_new(o, "poller", r->poller ? json_integer(r->poller->pid) : json_null());
	json_object_set_new(o, "user", user_of(last, p->uid));
	add_facts(o, who, p);
	add_rank(o, p, r->guest);
	return o;
}

/* --- many --- */

static bool is_polled_for(const struct jobs_process *p)
{
	return !(p->received & JOBS_RECEIVED_REQUEST);
}

/* The row of the process for which this one asks; NULL if it asks for itself. */
static struct row *rank_of(const struct hmap *ranks, struct row *rows, const struct jobs_process *p)
{
	for (unsigned i = 0; i < p->npids; i++) {
		uint64_t at = hmap_get(ranks, (uint32_t)p->pids[i]);

		if (at != HMAP_NONE && rows[at].p->job_id == p->job_id &&
		    rows[at].p->uid == p->uid && !rows[at].p->guest == !p->guest)
			return &rows[at];
	}
	return NULL;
}

static uint64_t process_key(const struct jobs_process *p)
{
	uint64_t who = p->peer ? p->peer->id << 1 | 1 : (uint64_t)p->uid << 1;

	return who << 32 ^ (uint32_t)p->pid;
}

static bool same_process(const struct jobs_process *a, const struct jobs_process *b)
{
	return a->peer == b->peer && a->pid == b->pid && a->uid == b->uid;
}

/* Puts guests into the rows of the other clients of their processes; gives the number of rows. */
static size_t fold_guests(struct row *rows, size_t n)
{
	struct hmap others = {0};
	size_t kept = 0;

	for (size_t i = 0; i < n; i++)
		if (!rows[i].p->guest)
			hmap_put(&others, process_key(rows[i].p), i);
	for (size_t i = 0; i < n; i++) {
		uint64_t at =
			rows[i].p->guest ? hmap_get(&others, process_key(rows[i].p)) : HMAP_NONE;

		if (at == HMAP_NONE || rows[at].guest || !same_process(rows[at].p, rows[i].p))
			continue;
		rows[at].guest = rows[i].p;
		rows[i].folded = true;
	}
	for (size_t i = 0; i < n; i++)
		if (!rows[i].folded)
			rows[kept++] = rows[i];
	hmap_release(&others);
	return kept;
}

/* Folds the pollers into their ranks; gives the number of rows. */
static size_t make_rows(struct jobs_process **all, size_t n, struct row *rows)
{
	struct hmap ranks = {0};
	size_t made = 0;

	for (size_t i = 0; i < n; i++)
		if (is_polled_for(all[i])) {
			hmap_put(&ranks, (uint32_t)all[i]->pid, made);
			rows[made++].p = all[i];
		}
	for (size_t i = 0; i < n; i++) {
		struct row *rank = is_polled_for(all[i]) ? NULL : rank_of(&ranks, rows, all[i]);

		if (rank)
			rank->poller = all[i];
		else if (!is_polled_for(all[i]))
			rows[made++].p = all[i];
	}
	hmap_release(&ranks);
	return fold_guests(rows, made);
}

/* Has everything read that /proc knows of them. What is not available now is as it was. */
static void read_facts(struct jobs *j, const struct row *rows, size_t n, int64_t now_ms)
{
	if (!j->proc)
		j->proc = jobs_proc_new();
	for (size_t i = 0; i < n; i++) {
		struct jobs_peer *peer = rows[i].p->peer;

		if (!peer || peer->asked ||
		    (peer->facts && now_ms - peer->facts->read_ms < FRESH_MS))
			continue;
		peer->asked = true;
		jobs_proc_ask(j->proc, peer->pid, rows[i].p->uid, peer->id);
	}
	jobs_proc_wait(j->proc);
	store_facts(j, now_ms);
}

static bool is_listed(const struct jobs_process *p, const void *target)
{
	return jobs_target_has_job(target, p) &&
	       (jobs_target_matches(target, p) || jobs_target_names(target, p->pid));
}

static struct row *collect_rows(const struct jobs *j, const struct access_grant *who,
				const struct jobs_target *t, size_t *out_n)
{
	size_t n;
	struct jobs_process **all = jobs_collect(j, who, is_listed, t, NULL, &n);
	struct row *rows = xcalloc(n + 1, sizeof(*rows));

	*out_n = make_rows(all, n, rows);
	free(all);
	return rows;
}

/* Rows of other users' processes: no row has clients of two users. */
static size_t count_other_rows(const struct jobs *j, const struct access_grant *who,
			       const struct jobs_target *t, size_t own)
{
	size_t all = own;

	if (who && who->right < ACCESS_VIEW)
		free(collect_rows(j, NULL, t, &all));
	return all - own;
}

static int by_job_and_pid(const void *a, const void *b)
{
	const struct jobs_process *x = ((const struct row *)a)->p;
	const struct jobs_process *y = ((const struct row *)b)->p;

	if (x->job_id != y->job_id)
		return x->job_id < y->job_id ? -1 : 1;
	if (x->pid != y->pid)
		return x->pid < y->pid ? -1 : 1;
	pid_t p = x->peer ? x->peer->pid : 0, q = y->peer ? y->peer->pid : 0;
	return p < q ? -1 : p > q;
}

static json_t *read_bound(const json_t *request, const char *key, int64_t max, int64_t *out)
{
	const json_t *value = json_object_get(request, key);
	json_t *fault = value ? jobs_read_int(value, out) : NULL;

	if (*out < 0)
		*out = 0;
	if (*out > max)
		*out = max;
	return fault;
}

json_t *jobs_list(struct jobs *j, const struct access_grant *who, const json_t *request)
{
	struct last_user last = {0};
	struct jobs_target target;
	int64_t offset = 0, limit = PAGE, now = jobs_now_ms();
	json_t *fault = read_bound(request, "offset", INT32_MAX, &offset);
	size_t n;

	if (!fault)
		fault = read_bound(request, "limit", PAGE, &limit);
	if (fault || !jobs_target_read(request, false, &target, &fault))
		return fault;
	struct row *rows = collect_rows(j, who, &target, &n);
	qsort(rows, n, sizeof(*rows), by_job_and_pid);
	json_t *processes = json_array();
	size_t end = (size_t)(offset + limit) < n ? (size_t)(offset + limit) : n;
	if ((size_t)offset < end)
		read_facts(j, rows + offset, end - (size_t)offset, now);
	for (size_t i = (size_t)offset; i < end; i++)
		json_array_append_new(processes, describe_row(&rows[i], who, now, &last));
	free(rows);
	json_decref(last.name);
	json_t *reply =
		json_pack("{s:o,s:I,s:o}", "processes", processes, "total", (json_int_t)n, "next",
			  end < n && limit ? json_integer((json_int_t)end) : json_null());
	jobs_set_others(reply, count_other_rows(j, who, &target, n));
	jobs_target_release(&target);
	return reply;
}

json_t *jobs_get_process(struct jobs *j, const struct access_grant *who, const json_t *request)
{
	const json_t *pid = json_object_get(request, "pid");
	struct last_user last = {0};
	int64_t n64, now = jobs_now_ms();
	int32_t number;
	size_t n;

	if (!pid)
		return json_pack("{s:s}", "status", "failed: no pid given");
	json_t *fault = jobs_read_int(pid, &n64);
	if (fault)
		return fault;
	number = n64 > 0 && n64 <= INT32_MAX ? (int32_t)n64 : -1; /* no process has that */
	struct jobs_target target = {.any_job = true, .pids = &number, .npids = 1};
	struct row *rows = collect_rows(j, who, &target, &n);
	/* the process itself before those that descend from it */
	size_t best = 0;
	for (size_t i = 0; i < n; i++)
		if (rows[i].p->pid == number)
			best = i;
	if (n)
		read_facts(j, &rows[best], 1, now);
	json_t *reply = n ? describe_row(&rows[best], who, now, &last)
			  : json_pack("{s:o}", "status",
				      json_sprintf("failed: no process %lld is registered",
						   (long long)n64));
	free(rows);
	json_decref(last.name);
	return reply;
}
