/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "client/wait.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/text/printable.h"

#define NS_PER_S UINT64_C(1000000000)
#define POLL_NS (NS_PER_S / 4)
#define IDLE_NS (60 * NS_PER_S) /* of one that has fetched a request, and does nothing */
#define QUIET_S 2 /* nobody has written to a file for so long: it is complete */
#define KINETO_IDLE_NS (25 * NS_PER_S) /* warm-up, two polls, writing; beyond the trace's time */

const char *const wait_state_names[WAIT_STATES] = {[WAIT_GOES_ON] = "not done",
						   [WAIT_DONE] = "done",
						   [WAIT_LEFT_OUT] = "left out",
						   [WAIT_FAILED] = "failed"};

/* Words may be a daemon's, which may be anybody's. */
static void settle_process(struct wait_process *p, enum wait_state state, const char *words)
{
	struct buf shown = {0};

	text_add_printable(&shown, words ? words : "", words ? strlen(words) : 0);
	p->state = state;
	free(p->words);
	p->words = words ? xstrdup(buf_str(&shown)) : NULL;
	buf_release(&shown);
}

/* --- what the daemon knows of it --- */

static bool has_pid(const json_t *list, int64_t pid)
{
	const json_t *v;
	size_t i;

	json_array_foreach(list, i, v) if (json_integer_value(v) == pid) return true;
	return false;
}

/* The text that a list of objects has for it; NULL: it is not in the list. */
static const char *text_of(const json_t *list, int64_t pid, const char *key)
{
	const json_t *v;
	size_t i;

	json_array_foreach(list, i, v) if (json_integer_value(json_object_get(v, "pid")) == pid)
	{
		const char *text = json_string_value(json_object_get(v, key));

		return text ? text : "";
	}
	return NULL;
}

static bool has_client(const json_t *row, const char *client)
{
	const json_t *v;
	size_t i;

	json_array_foreach(json_object_get(row, "clients"), i, v)
	{
		const char *name = json_string_value(v);

		if (name && !strcmp(name, client))
			return true;
	}
	return false;
}

/* What a process, or all of a framework, of which one process asks for the others, is doing. */
struct activity_now {
	bool there, pending, tracing, monitoring, busy;
	json_int_t ended;
};

static bool is_state(const json_t *row, const char *key, const char *state)
{
	return client_text_is(row, key, state);
}

static struct activity_now look_at(const json_t *rows, int64_t pid, bool framework)
{
	struct activity_now a = {0};
	const json_t *row;
	size_t i;

	json_array_foreach(rows, i, row)
	{
		bool own = json_integer_value(json_object_get(row, "pid")) == pid ||
			   json_integer_value(json_object_get(row, "poller")) == pid;

		a.there = a.there || own;
		a.pending = a.pending || (own && json_is_true(json_object_get(row, "pending")));
		a.busy = a.busy || (own && is_state(row, "state", "Busy"));
		if (!own && !(framework && has_client(row, "npu")))
			continue;
		a.tracing = a.tracing || is_state(row, "nputrace", "Running") ||
			    is_state(row, "nputrace", "Ready");
		a.monitoring = a.monitoring || is_state(row, "npumonitor", "Running") ||
			       is_state(row, "npumonitor", "Ready");
		a.ended += json_integer_value(json_object_get(row, "traces_ended"));
	}
	return a;
}

/* --- who replies --- */

static bool judge_files(struct wait_process *p, const json_t *replies)
{
	const char *path = text_of(json_object_get(replies, "written"), p->pid, "path");
	const char *why = text_of(json_object_get(replies, "not_written"), p->pid, "why");
	const char *what = text_of(json_object_get(replies, "told"), p->pid, "what");

	if (path)
		settle_process(p, WAIT_DONE, path);
	else if (why)
		settle_process(p, WAIT_FAILED, why);
	else if (what && !strncmp(what, "left out", 8))
		settle_process(p, WAIT_LEFT_OUT, what);
	return p->state != WAIT_GOES_ON;
}

/* Whether it has done nothing for so long that nothing more will come. */
static bool is_stuck(struct wait_process *p, bool idle, uint64_t now_ns, uint64_t limit_ns)
{
	if (!idle)
		p->idle_ns = 0;
	else if (!p->idle_ns)
		p->idle_ns = now_ns;
	return idle && now_ns - p->idle_ns > limit_ns;
}

static void judge_guest(struct wait_process *p, const struct wait *w, const struct activity_now *a,
			const json_t *replies, uint64_t now_ns)
{
	const char *why = text_of(json_object_get(replies, "failed"), p->pid, "why");
	bool waits = has_pid(json_object_get(replies, "waiting"), p->pid);

	if (why) {
		settle_process(p, WAIT_FAILED, why);
	} else if (waits) {
		return;
	} else if (w->what == WAIT_FILES) {
		if (!judge_files(p, replies) && is_stuck(p, !a->tracing, now_ns, IDLE_NS))
			settle_process(
				p, WAIT_FAILED,
				"its trace is over, but it has not said where the files are");
	} else if (w->what == WAIT_MONITOR_ON || !a->monitoring) {
		settle_process(p, WAIT_DONE, NULL); /* it has replied: its state came before that */
	}
}

/* --- who does not --- */

static void judge_framework(struct wait_process *p, const struct wait *w,
			    const struct activity_now *a, json_int_t ended_before, uint64_t now_ns)
{
	bool active = w->what == WAIT_FILES ? a->tracing : a->monitoring;
	bool ended = w->what == WAIT_FILES && a->ended > ended_before;

	p->was_active = p->was_active || active;
	if (a->pending)
		return;
	if (w->what == WAIT_MONITOR_ON ? active : !active && (p->was_active || ended))
		settle_process(p, WAIT_DONE, NULL);
	else if (w->what == WAIT_MONITOR_OFF && !active)
		settle_process(p, WAIT_DONE, NULL); /* it was off */
	else if (is_stuck(p, !active, now_ns, IDLE_NS))
		settle_process(
			p, WAIT_FAILED,
			"it has fetched the request, but reports no effect: it may have passed the "
			"first step; its own log says more");
}

/* Only whether it is busy is known, when it polls. */
static void judge_kineto(struct wait_process *p, const struct wait *w, const struct activity_now *a,
			 uint64_t now_ns)
{
	p->was_active = p->was_active || a->busy;
	if (a->pending || a->busy)
		return;
	if (p->was_active || (w->duration_ms &&
			      is_stuck(p, true, now_ns, KINETO_IDLE_NS + w->duration_ms * 1000000)))
		settle_process(p, WAIT_DONE, NULL);
	else if (!w->duration_ms && is_stuck(p, true, now_ns, IDLE_NS))
		settle_process(
			p, WAIT_FAILED,
			"it has fetched the request, but was not seen at work: no optimizer has "
			"made "
			"a step, or its file cannot be seen from here");
}

void wait_judge(struct wait_process *p, const struct wait *w, enum profiler_kind kind,
		const json_t *rows, const json_t *replies, json_int_t ended_before, uint64_t now_ns)
{
	bool expected = has_pid(json_object_get(replies, "expected"), p->pid);
	struct activity_now a = look_at(rows, p->pid, kind != PROFILER_GPUTRACE && !p->is_guest);

	p->is_guest = p->is_guest || expected;
	if (p->is_guest && w->what == WAIT_FILES && judge_files(p, replies))
		return;
	if (!a.there)
		settle_process(p, WAIT_FAILED,
			       w->what == WAIT_FILES
				       ? "the process has ended; if its trace had begun, what "
					 "was recorded is written"
				       : "the process has ended");
	else if (p->is_guest && !expected)
		settle_process(p, WAIT_FAILED, "another request has taken the place of this one");
	else if (p->is_guest)
		judge_guest(p, w, &a, replies, now_ns);
	else if (kind == PROFILER_GPUTRACE)
		judge_kineto(p, w, &a, now_ns);
	else
		judge_framework(p, w, &a, ended_before, now_ns);
}

/* --- files that can be looked at from here --- */

static bool is_here(const struct host_entry *h)
{
	char name[256] = "";

	gethostname(name, sizeof(name) - 1);
	return !strcmp(h->name, "localhost") || !strcmp(h->name, "127.0.0.1") ||
	       !strcmp(h->name, "::1") || !strncmp(h->name, HOST_UNIX, strlen(HOST_UNIX)) ||
	       !strcmp(h->name, name);
}

/* Written since the request, and not any more. */
static bool is_written(const char *path, int64_t begun_ns)
{
	struct stat st;
	int64_t now_s = clock_real_ns() / (int64_t)NS_PER_S;

	return stat(path, &st) == 0 && st.st_mtim.tv_sec + 1 >= begun_ns / (int64_t)NS_PER_S &&
	       now_s - st.st_mtim.tv_sec >= QUIET_S;
}

/* PyTorch's profiler says nothing about its file, and is not seen at work between two of its polls.
 * A file that was written since is its trace; one that is not there when it is idle again never
 * comes. */
static void check_file(struct wait_process *p, const struct wait *w, struct client_group *g,
		       const struct profiler_request *q, size_t host)
{
	bool here = is_here(&g->hosts->v[host]), over = p->state == WAIT_DONE;
	struct buf path = {0};
	struct stat st;

	w->file(q->options, profiler_host(g, host), p->pid, &path);
	bool fresh = here && stat(buf_str(&path), &st) == 0 &&
		     st.st_mtim.tv_sec + 1 >= w->begun_ns / (int64_t)NS_PER_S;
	if (over ? fresh || !here : here && is_written(buf_str(&path), w->begun_ns)) {
		settle_process(p, WAIT_DONE, buf_str(&path));
	} else if (over) {
		buf_add_str(&path, " is not there: the job cannot write it, writes elsewhere, or "
				   "has traced nothing; its own log says more");
		settle_process(p, WAIT_FAILED, buf_str(&path));
	}
	buf_release(&path);
}

/* --- all hosts --- */

static json_t *list_request(const struct profiler_request *q)
{
	return json_pack("{s:I}", "job_id", (json_int_t)q->job_id);
}

int wait_begin(struct wait *w, struct client_group *g, const struct profiler_request *q,
	       struct err *err)
{
	json_t **rows = xcalloc(g->hosts->n, sizeof(*rows));
	struct client_answer *answers = client_answers_new(g);
	int r = client_list_processes(g, list_request(q), rows, answers, err);

	w->hosts = xcalloc(g->hosts->n, sizeof(*w->hosts));
	w->begun_ns = clock_real_ns();
	for (size_t i = 0; i < g->hosts->n; i++) {
		w->hosts[i].ended_before = look_at(rows[i], 0, true).ended;
		json_decref(rows[i]);
	}
	client_answers_free(g, answers);
	free(rows);
	return r;
}

static void add_processes(struct wait_host *h, const json_t *reply)
{
	const json_t *triggered = json_object_get(reply, "activityProfilersTriggered"), *pid;
	size_t i;

	h->processes = xcalloc(json_array_size(triggered) + 1, sizeof(*h->processes));
	json_array_foreach(triggered, i, pid) h->processes[h->n++].pid = json_integer_value(pid);
}

/* A host that does not answer this time is asked again. */
static void judge_host(struct wait *w, struct client_group *g, const struct profiler_request *q,
		       size_t i, const json_t *rows, const json_t *replies)
{
	struct wait_host *h = &w->hosts[i];

	for (size_t k = 0; k < h->n && rows; k++) {
		struct wait_process *p = &h->processes[k];

		if (p->state != WAIT_GOES_ON)
			continue;
		wait_judge(p, w, q->kind, rows, replies, h->ended_before, clock_mono_ns());
		if (q->kind == PROFILER_GPUTRACE && w->file && p->state != WAIT_FAILED)
			check_file(p, w, g, q, i);
	}
}

static int look_once(struct wait *w, struct client_group *g, const struct profiler_request *q,
		     const struct profiler_results *r, struct err *err)
{
	size_t n = g->hosts->n;
	json_t **rows = xcalloc(n, sizeof(*rows));
	struct client_answer *lists = client_answers_new(g), *replies = client_answers_new(g);
	/* the replies first: who has ended since has told its last */
	int code = client_wait_replies(g, 1, r->answers, replies, err);

	if (code == 0)
		code = client_list_processes(g, list_request(q), rows, lists, err);
	for (size_t i = 0; i < n; i++) {
		bool replied =
			replies[i].reply || !json_object_get(r->answers[i].reply, "requestTraceId");

		if (code == 0 && replied)
			judge_host(w, g, q, i, rows[i], replies[i].reply);
		json_decref(rows[i]);
	}
	client_answers_free(g, lists);
	client_answers_free(g, replies);
	free(rows);
	return code;
}

int wait_run(struct wait *w, struct client_group *g, const struct profiler_request *q,
	     const struct profiler_results *r, struct err *err)
{
	const struct timespec moment = {0, POLL_NS};
	uint64_t until = clock_mono_ns() + w->timeout_s * NS_PER_S;
	int code = 0;

	for (size_t i = 0; i < g->hosts->n; i++)
		add_processes(&w->hosts[i], r->answers[i].reply);
	while (code == 0 && wait_count(w, g, WAIT_GOES_ON)) {
		code = look_once(w, g, q, r, err);
		if (clock_mono_ns() >= until)
			break;
		if (code == 0 && wait_count(w, g, WAIT_GOES_ON))
			nanosleep(&moment, NULL);
	}
	return code;
}

size_t wait_count(const struct wait *w, const struct client_group *g, enum wait_state state)
{
	size_t n = 0;

	for (size_t i = 0; i < g->hosts->n; i++)
		for (size_t k = 0; k < w->hosts[i].n; k++)
			n += w->hosts[i].processes[k].state == state;
	return n;
}

void wait_release(struct wait *w, const struct client_group *g)
{
	for (size_t i = 0; w->hosts && i < g->hosts->n; i++) {
		for (size_t k = 0; k < w->hosts[i].n; k++)
			free(w->hosts[i].processes[k].words);
		free(w->hosts[i].processes);
	}
	free(w->hosts);
}
