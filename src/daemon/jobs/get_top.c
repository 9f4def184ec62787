/* SPDX-License-Identifier: MulanPSL-2.0 */
/* getTop: what takes the time of the devices, process by process. */
#include <stdlib.h>
#include <string.h>

#include "activity/live/toplist.h"
#include "base/clock.h"
#include "base/mem.h"
#include "daemon/jobs/jobs_impl.h"
#include "wire/request.h"
#include "wire/rpc.h"

#define ROWS 20 /* of a process, if nobody says how many */
#define MAX_ROWS 200
#define PROCESSES 256 /* in one reply */
#define MAX_REGRESSIONS 256
#define REPLY_BYTES (RPC_REPLY_MAX / 2) /* of rows; a reply has some more */
#define ROW_BYTES 300 /* of a row without its name */

struct regression {
	struct toplist_regression slow;
	const struct jobs_process *p;
};

struct reply {
	const struct jobs *j;
	const struct access_grant *who;
	int64_t now_ms;
	size_t rows; /* of each process */
	size_t bytes; /* left */
	json_t *processes;
	struct jobs_process **shown; /* PROCESSES of them, sorted; NULL: all */
	struct regression *slower; /* and what waits longer */
	size_t nslower, slower_cap;
	uint64_t lease; /* of the caller; 0: it has none */
	struct jobs_leases leases;
	json_t *stop_pending; /* pids whose monitor is not off yet, though the caller stopped it */
	json_t *refused; /* who did not carry out the caller's last request, and why */
	bool stopped_framework; /* by the caller's lease: it polls for its ranks */
	size_t not_reporting, tracing, registered;
};

static json_t *number_or_null(uint64_t n)
{
	return n ? json_integer((json_int_t)n) : json_null();
}

static json_t *row_json(const struct toplist *t, const struct toplist_row *r, double total)
{
	const struct toplist_row *before = toplist_before(t, r);

	return json_pack("{s:s,s:s,s:i,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:o,s:o,s:o,s:o}", "kind",
			 r->kind, "name", r->name, "device", r->device, "calls",
			 (json_int_t)r->calls, "total_ns", (json_int_t)r->total_ns, "inside_ns",
			 (json_int_t)r->inside_ns, "mean_ns", (json_int_t)(r->total_ns / r->calls),
			 "min_ns", (json_int_t)r->min_ns, "max_ns", (json_int_t)r->max_ns, "p50_ns",
			 (json_int_t)r->p50_ns, "p99_ns", (json_int_t)r->p99_ns, "share",
			 toplist_on_device(r) && total > 0 ? json_real((double)r->total_ns / total)
							   : json_null(),
			 "before_calls",
			 before ? json_integer((json_int_t)before->calls) : json_null(),
			 "before_total_ns",
			 before ? json_integer((json_int_t)before->total_ns) : json_null(),
			 "usual_ns", number_or_null(toplist_usual(t, r)));
}

static int by_total(const void *a, const void *b)
{
	const struct toplist_row *x = *(const struct toplist_row *const *)a;
	const struct toplist_row *y = *(const struct toplist_row *const *)b;

	return x->total_ns > y->total_ns ? -1 : x->total_ns < y->total_ns;
}

/* The first rows, and what is left of the others. */
static void add_rows(struct reply *out, const struct toplist *t, json_t *o)
{
	const struct toplist_report *r = toplist_last(t);
	const struct toplist_row **sorted = xcalloc(r->nrows + 1, sizeof(*sorted));
	double total = (double)toplist_report_total(r);
	uint64_t calls = r->other_calls, ns = r->other_ns;
	json_t *rows = json_array();

	for (size_t i = 0; i < r->nrows; i++)
		sorted[i] = &r->rows[i];
	qsort(sorted, r->nrows, sizeof(*sorted), by_total);
	for (size_t i = 0; i < r->nrows; i++) {
		size_t bytes = ROW_BYTES + strlen(sorted[i]->name);

		if (i < out->rows && bytes <= out->bytes) {
			json_array_append_new(rows, row_json(t, sorted[i], total));
			out->bytes -= bytes;
		} else if (toplist_on_device(sorted[i])) {
			calls += sorted[i]->calls;
			ns += sorted[i]->total_ns;
		}
	}
	free(sorted);
	json_object_set_new(o, "rows", rows);
	json_object_set_new(
		o, "others",
		json_pack("{s:I,s:I}", "calls", (json_int_t)calls, "total_ns", (json_int_t)ns));
}

static json_t *devices_json(const struct toplist_report *r)
{
	json_t *list = json_array();

	for (size_t i = 0; i < r->ndevices; i++) {
		const struct toplist_device *d = &r->devices[i];

		json_array_append_new(list, json_pack("{s:i,s:I,s:I,s:I,s:I,s:I}", "device",
						      d->device, "busy_ns", (json_int_t)d->busy_ns,
						      "kernel_ns", (json_int_t)d->kernel_ns,
						      "comm_ns", (json_int_t)d->comm_ns, "copy_ns",
						      (json_int_t)d->copy_ns, "late_ns",
						      (json_int_t)d->late_ns));
	}
	return list;
}

static json_t *kinds_json(const struct toplist_report *r)
{
	json_t *list = r->kinds ? json_array() : json_null();

	for (uint32_t kind = 0; kind < ACTIVITY_KIND_END; kind++)
		if (r->kinds & ACTIVITY_BIT(kind))
			json_array_append_new(list, json_string(activity_kind_name(kind)));
	return list;
}

static void add_losses(json_t *o, const uint64_t *losses)
{
	for (unsigned i = 0; i < TOPLIST_LOSSES; i++)
		json_object_set_new(o, toplist_loss_names[i], json_integer((json_int_t)losses[i]));
}

static void add_process(struct reply *out, const struct jobs_process *p)
{
	const struct toplist_report *r = toplist_last(p->top);
	json_t *steps = json_null();

	if (r->steps)
		steps = json_pack("{s:I,s:I}", "count", (json_int_t)r->steps, "mean_ns",
				  (json_int_t)r->step_mean_ns);
	json_t *o = json_pack(
		"{s:i,s:o,s:I,s:I,s:o,s:I,s:I,s:f,s:f,s:b,s:I,s:s,s:o,s:o}", "pid", p->pid,
		"host_pid", p->peer ? json_integer(p->peer->pid) : json_null(), "job_id",
		(json_int_t)p->job_id, "uid", (json_int_t)p->uid, "rank",
		r->rank >= 0 ? json_integer(r->rank) : json_null(), "from", (json_int_t)r->from_ns,
		"to", (json_int_t)r->to_ns, "interval_s", (double)r->interval_ns / 1e9, "age_s",
		(double)(out->now_ms - r->taken_ms) / 1000, "late",
		jobs_report_is_late(r, out->now_ms), "names", (json_int_t)r->names, "npumonitor",
		jobs_state_name(jobs_monitor_state(p, out->now_ms)), "steps", steps, "devices",
		devices_json(r));
	json_object_set_new(o, "kinds", kinds_json(r));
	json_object_set_new(o, "filter", json_boolean(r->filtered));
	add_losses(o, r->losses);
	add_rows(out, p->top, o);
	json_array_append_new(out->processes, o);
}

static void add_slower(struct reply *out, const struct jobs_process *p)
{
	struct toplist_regression slow;
	size_t at = 0;

	while (toplist_next_slower(p->top, &at, &slow))
		*XPUSH(out->slower, out->nslower, out->slower_cap) = (struct regression){slow, p};
}

static int by_cause(const void *a, const void *b)
{
	const struct regression *x = a, *y = b;
	int order = toplist_by_cause(&x->slow, &y->slow);

	return order ? order : x->p->pid < y->p->pid ? -1 : x->p->pid > y->p->pid;
}

/* Of those that are sorted. */
static json_t *slower_json(const struct reply *out, bool waits)
{
	json_t *list = json_array();

	for (size_t i = 0; i < out->nslower && json_array_size(list) < MAX_REGRESSIONS; i++) {
		const struct toplist_regression *slow = &out->slower[i].slow;
		const struct jobs_process *p = out->slower[i].p;
		int32_t rank = toplist_last(p->top)->rank;

		if (slow->waits != waits)
			continue;
		json_array_append_new(
			list,
			json_pack("{s:i,s:o,s:s,s:s,s:i,s:I,s:I,s:I,s:I}", "pid", p->pid, "rank",
				  rank >= 0 ? json_integer(rank) : json_null(), "kind", slow->kind,
				  "name", slow->name, "device", slow->device, "mean_ns",
				  (json_int_t)slow->mean_ns, "baseline_ns",
				  (json_int_t)slow->baseline_ns, "calls", (json_int_t)slow->calls,
				  "since", (json_int_t)slow->since_ns));
	}
	return list;
}

static json_t *slowest_json(const struct reply *out, struct jobs_process *const *all, size_t n)
{
	struct jobs_slowest s;

	if (!jobs_find_slowest(all, n, out->now_ms, &s))
		return json_null();
	return json_pack("{s:i,s:i,s:s,s:f,s:o}", "rank", s.rank, "pid", s.pid, "by", s.by, "ratio",
			 s.ratio, "behind_ns", number_or_null(s.behind_ns));
}

static bool can_be_monitored(const struct jobs_process *p)
{
	return p->top || p->guest || p->received & JOBS_RECEIVED_MONITOR;
}

static bool is_selected(const struct jobs_process *p, const void *target)
{
	return jobs_target_has_job(target, p) && can_be_monitored(p) &&
	       jobs_target_matches(target, p);
}

static int by_rank(const void *a, const void *b)
{
	const struct jobs_process *x = *(struct jobs_process *const *)a;
	const struct jobs_process *y = *(struct jobs_process *const *)b;
	int64_t r = x->top ? (uint32_t)toplist_last(x->top)->rank : INT64_MAX;
	int64_t s = y->top ? (uint32_t)toplist_last(y->top)->rank : INT64_MAX;

	if (r != s)
		return r < s ? -1 : 1;
	return x->pid < y->pid ? -1 : x->pid > y->pid;
}

/* What counts whatever processes are asked for. */
static void count_registered(struct reply *out)
{
	const struct jobs_process *p;

	for (struct jobs_cursor c = {.who = out->who}; (p = jobs_next(out->j, &c));) {
		out->registered += can_be_monitored(p);
		if (!p->guest && p->stopped_lease && p->stopped_lease == out->lease)
			out->stopped_framework = true;
	}
}

/* Of a framework one process gets the request, and another reports its state. */
static bool is_stop_pending(const struct reply *out, const struct jobs_process *p, int state)
{
	bool is_polled_for = !p->guest && !(p->received & JOBS_RECEIVED_REQUEST);

	return jobs_lease_stop_pending(p, out->lease, out->now_ms) ||
	       (out->stopped_framework && is_polled_for && !p->switched && state == FABRIC_RUNNING);
}

static void add_refusal(struct reply *out, const struct jobs_process *p, int state)
{
	const struct jobs_guest *g = p->guest;

	if (!out->refused && g && g->reply && !g->succeeded && g->replied_id == g->request_id &&
	    state != FABRIC_RUNNING)
		out->refused = json_pack("{s:i,s:s}", "pid", p->pid, "why", g->reply);
}

static int compare_pointers(const void *a, const void *b)
{
	uintptr_t x = (uintptr_t) * (struct jobs_process *const *)a;
	uintptr_t y = (uintptr_t) * (struct jobs_process *const *)b;

	return x < y ? -1 : x > y;
}

static bool is_shown(const struct reply *out, const struct jobs_process *p)
{
	return !out->shown ||
	       bsearch(&p, out->shown, PROCESSES, sizeof(*out->shown), compare_pointers);
}

/* Of more processes than a reply has room for, as many of each user. */
static void choose_shown(struct reply *out, struct jobs_process **all, size_t n)
{
	struct jobs_process **shown = xcalloc(n + 1, sizeof(*shown));
	size_t reported = 0;

	for (size_t i = 0; i < n; i++)
		if (all[i]->top)
			shown[reported++] = all[i];
	if (reported <= PROCESSES) {
		free(shown);
		return;
	}
	jobs_take_turns(shown, reported);
	qsort(shown, PROCESSES, sizeof(*shown), compare_pointers);
	out->shown = shown;
}

static json_t *make_reply(struct reply *out, struct jobs_process **all, size_t n)
{
	size_t reported = 0, running = 0, paused = 0;

	for (size_t i = 0; i < n; i++) {
		const struct jobs_process *p = all[i];
		int state = jobs_monitor_state(p, out->now_ms);

		running += state == FABRIC_RUNNING;
		paused += state == FABRIC_READY;
		jobs_lease_count(p, out->lease, out->now_ms, &out->leases);
		add_refusal(out, p, state);
		if (is_stop_pending(out, p, state))
			json_array_append_new(out->stop_pending, json_integer(p->pid));
		out->tracing += p->trace == FABRIC_RUNNING || p->trace == FABRIC_READY;
		out->not_reporting += state == FABRIC_RUNNING && !p->top && !p->guest;
		if (!p->top)
			continue;
		add_slower(out, p);
		reported++;
		if (is_shown(out, p))
			add_process(out, p);
	}
	if (out->nslower)
		qsort(out->slower, out->nslower, sizeof(*out->slower), by_cause);
	return json_pack(
		"{s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I}", "processes",
		out->processes, "regressions", slower_json(out, false), "waits",
		slower_json(out, true), "orders", jobs_leases_json(&out->leases), "lingering",
		out->stop_pending, "slowest", slowest_json(out, all, n), "refused",
		out->refused ? out->refused : json_null(), "total", (json_int_t)reported, "known",
		(json_int_t)n, "running", (json_int_t)running, "paused", (json_int_t)paused, "mute",
		(json_int_t)out->not_reporting, "tracing", (json_int_t)out->tracing, "registered",
		(json_int_t)out->registered, "now", (json_int_t)clock_real_ns());
}

/* A link has no lists: ?pids=12 is meant as [12]. */
static bool read_target(const json_t *request, struct jobs_target *out, json_t **fault)
{
	const json_t *pids = json_object_get(request, "pids");
	json_t *one = NULL;

	if (json_is_integer(pids)) {
		one = json_copy((json_t *)(uintptr_t)request);
		json_object_set_new(one, "pids", json_pack("[I]", json_integer_value(pids)));
	}
	bool good = jobs_target_read(one ? one : request, false, out, fault);
	json_decref(one);
	return good;
}

json_t *jobs_get_top(struct jobs *j, const struct access_grant *who, const json_t *request)
{
	const json_t *limit = json_object_get(request, "limit");
	struct jobs_target target;
	int64_t rows = ROWS;
	json_int_t lease = json_integer_value(json_object_get(request, "lease"));
	json_t *fault = limit ? jobs_read_int(limit, &rows) : NULL;
	size_t n;

	if (fault || !read_target(request, &target, &fault))
		return fault;
	rows = rows < 0 ? 0 : rows > MAX_ROWS ? MAX_ROWS : rows;
	struct jobs_process **all = jobs_collect(j, who, is_selected, &target, by_rank, &n);
	struct reply out = {.j = j,
			    .who = who,
			    .now_ms = jobs_now_ms(),
			    .rows = (size_t)rows,
			    .bytes = REPLY_BYTES,
			    .processes = json_array(),
			    .stop_pending = json_array(),
			    .lease = lease > 0 ? (uint64_t)lease : 0};
	count_registered(&out);
	choose_shown(&out, all, n);
	json_t *reply = make_reply(&out, all, n);
	jobs_set_others(reply, jobs_count_others(j, who, is_selected, &target));
	free(out.shown);
	free(out.slower);
	free(all);
	jobs_target_release(&target);
	return reply;
}
