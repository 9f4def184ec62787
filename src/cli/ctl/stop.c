/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "cli/ctl/stop.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "cli/ctl/values.h"

#define REPLY_MS 6000 /* switching a source off takes long on a busy machine */

const char *const ctl_stopped_names[CTL_STOPPED_STATES] = {[CTL_ENDED] = "ended",
							   [CTL_DROPPED] = "dropped",
							   [CTL_NOT_ENDED] = "not ended",
							   [CTL_NO_TRACE] = "no trace"};

/* --- the outcome in each process --- */

struct rows {
	struct ctl_stop_row *list;
	size_t n, cap;
};

static void add_process(struct rows *r, const json_t *pid, enum ctl_stopped state,
			const char *words)
{
	r->list = xgrow(r->list, &r->cap, r->n + 1, sizeof(*r->list));
	r->list[r->n++] = (struct ctl_stop_row){json_integer_value(pid), state, words ? words : ""};
}

static void add_pids(struct rows *r, const json_t *pids, enum ctl_stopped state, const char *words)
{
	json_t *pid;
	size_t i;

	json_array_foreach(pids, i, pid) add_process(r, pid, state, words);
}

static void add_reasons(struct rows *r, const json_t *list)
{
	json_t *e;
	size_t i;

	json_array_foreach(list, i, e) add_process(r, json_object_get(e, "pid"), CTL_NOT_ENDED,
						   json_string_value(json_object_get(e, "why")));
}

/* A process replies "ended …", "dropped …" or "none". */
static void add_replies(struct rows *r, const json_t *list)
{
	json_t *e;
	size_t i;

	json_array_foreach(list, i, e)
	{
		const char *what = json_string_value(json_object_get(e, "what"));
		enum ctl_stopped state = CTL_NOT_ENDED;

		if (what && !strncmp(what, "ended", 5))
			state = CTL_ENDED;
		else if (what && !strncmp(what, "dropped", 7))
			state = CTL_DROPPED;
		else if (what && !strcmp(what, "none"))
			state = CTL_NO_TRACE;
		add_process(r, json_object_get(e, "pid"), state, state == CTL_NO_TRACE ? "" : what);
	}
}

static int by_pid(const void *a, const void *b)
{
	const struct ctl_stop_row *x = a, *y = b;

	if (x->pid != y->pid)
		return x->pid < y->pid ? -1 : 1;
	return x->state < y->state ? -1 : x->state > y->state;
}

/* Processes whose reply is missing: another request came before it, which has the reply now; the
 * process has ended; the daemon was restarted. */
static void add_silent(struct rows *r, const json_t *sent)
{
	size_t known = r->n, i;
	json_t *pid;

	json_array_foreach(sent, i, pid)
	{
		bool is = false;

		for (size_t k = 0; k < known && !is; k++)
			is = r->list[k].pid == json_integer_value(pid);
		if (!is)
			add_process(r, pid, CTL_NOT_ENDED,
				    "the request was sent, but its outcome is unknown: another "
				    "request came meanwhile, or the process or the daemon ended");
	}
}

/* That there is no trace is reported of a process only if nothing else is: two of its clients may
 * have been asked, and a request that was withdrawn is none that it has. */
static size_t drop_repeated(struct ctl_stop_row *rows, size_t n)
{
	size_t kept = 0;

	for (size_t i = 0; i < n; i++)
		if (!kept || rows[i].pid != rows[kept - 1].pid ||
		    (rows[i].state != CTL_NO_TRACE && rows[i].state != rows[kept - 1].state))
			rows[kept++] = rows[i];
	return kept;
}

struct ctl_stop_row *ctl_stop_read(const json_t *reply, const json_t *replies, size_t *out_n)
{
	struct rows r = {0};

	add_replies(&r, json_object_get(replies, "told"));
	add_reasons(&r, json_object_get(replies, "failed"));
	add_pids(&r, json_object_get(replies, "waiting"), CTL_NOT_ENDED,
		 "the request was sent, but the process has not replied yet");
	add_silent(&r, json_object_get(reply, "activityProfilersTriggered"));
	add_pids(&r, json_object_get(reply, "tracesDropped"), CTL_DROPPED,
		 "dropped before it was fetched");
	add_reasons(&r, json_object_get(reply, "notStopped"));
	add_pids(&r, json_object_get(reply, "processesMatched"), CTL_NO_TRACE, "");
	if (r.n)
		qsort(r.list, r.n, sizeof(*r.list), by_pid);
	*out_n = drop_repeated(r.list, r.n);
	return r.list;
}

/* --- all hosts --- */

struct host {
	struct ctl_stop_row *rows;
	size_t n;
	size_t states[CTL_STOPPED_STATES];
};

struct run {
	struct ctl *c;
	const struct ctl_stop *o;
	struct ctl_answer *answers, *replies, *explained;
	struct host *hosts;
	size_t states[CTL_STOPPED_STATES];
};

static json_t *request_for(const struct run *r, const char *fn)
{
	return json_pack("{s:s, s:I, s:o}", "fn", fn, "job_id", (json_int_t)r->o->job_id, "pids",
			 ctl_pids(r->o->pids));
}

static bool is_refused(const struct run *r, size_t i)
{
	const json_t *reply = r->answers[i].reply;

	return reply && !json_is_array(json_object_get(reply, "processesMatched"));
}

static bool is_of_others(const struct run *r, size_t i)
{
	return !r->hosts[i].n && ctl_others(r->answers[i].reply);
}

/* Where no process was found: the reason is the one for which a trace would find none. */
static int ask_why(struct run *r, struct err *err)
{
	json_t **requests = xcalloc(r->c->hosts.n, sizeof(json_t *));

	for (size_t i = 0; i < r->c->hosts.n; i++)
		if (r->answers[i].reply && !is_refused(r, i) && !r->hosts[i].n) {
			requests[i] = request_for(r, "explainRequest");
			json_object_set_new(requests[i], "config",
					    json_string("PROFILE_START_STEP=-1"));
		}
	int status = ctl_ask(r->c, requests, r->explained, err);
	for (size_t i = 0; i < r->c->hosts.n; i++)
		json_decref(requests[i]);
	free(requests);
	return status;
}

static int send_stop(struct run *r, struct err *err)
{
	struct client_group group = ctl_group(r->c);
	int status = client_ask_all(&group, request_for(r, "stopTrace"), r->answers, err);

	if (status == 0)
		status = client_wait_replies(&group, REPLY_MS, r->answers, r->replies, err);
	for (size_t i = 0; i < r->c->hosts.n && status == 0; i++) {
		struct host *h = &r->hosts[i];

		h->rows = ctl_stop_read(r->answers[i].reply, r->replies[i].reply, &h->n);
		for (size_t k = 0; k < h->n; k++) {
			h->states[h->rows[k].state]++;
			r->states[h->rows[k].state]++;
		}
	}
	return status == 0 ? ask_why(r, err) : status;
}

/* --- what is printed --- */

/* The note of a host without a process. */
static const char *note_of(const struct run *r, size_t i)
{
	const char *status = json_string_value(json_object_get(r->answers[i].reply, "status"));
	const char *reason = json_string_value(json_object_get(r->explained[i].reply, "reason"));

	if (!r->answers[i].reply)
		return r->answers[i].err.text;
	if (is_refused(r, i))
		return status ? status : "the daemon does not accept the request";
	return reason ? reason : "no process matched";
}

static void add_rows(const struct run *r, size_t i, struct table *t)
{
	const struct host *h = &r->hosts[i];
	bool several = r->c->hosts.n > 1;

	for (size_t k = 0; k < h->n; k++) {
		if (several)
			table_text(t, r->c->hosts.v[i].label);
		table_textf(t, "%lld", (long long)h->rows[k].pid);
		table_text(t, ctl_stopped_names[h->rows[k].state]);
		table_text(t, h->rows[k].words);
	}
	if (h->n || !several)
		return;
	table_text(t, r->c->hosts.v[i].label);
	table_text(t, "-");
	table_text(t, r->answers[i].reply && !is_refused(r, i) && !is_of_others(r, i) ? "no match"
										      : "failed");
	table_text(t, note_of(r, i));
}

static void print_totals(const struct run *r)
{
	const size_t *n = r->states;
	const char *name = ctl_name(r->c);

	if (n[CTL_ENDED])
		ctl_say(r->c,
			"%zu trace%s ended: the files are complete within some seconds, when '%s "
			"status' says Idle",
			n[CTL_ENDED], n[CTL_ENDED] == 1 ? " is" : "s are", name);
	if (n[CTL_DROPPED])
		ctl_say(r->c, "%zu trace%s dropped that had not begun: nothing is written",
			n[CTL_DROPPED], n[CTL_DROPPED] == 1 ? " is" : "s are");
	if (n[CTL_NOT_ENDED])
		ctl_say(r->c, "%zu %s not ended", n[CTL_NOT_ENDED],
			n[CTL_NOT_ENDED] == 1 ? "trace is" : "traces are");
	if (n[CTL_NO_TRACE] && !n[CTL_ENDED] && !n[CTL_DROPPED] && !n[CTL_NOT_ENDED])
		ctl_say(r->c, "nothing was ended: no trace waits or runs in %zu process%s",
			n[CTL_NO_TRACE], n[CTL_NO_TRACE] == 1 ? "" : "es");
}

static int print_text(const struct run *r)
{
	static const char *const titles[] = {"HOST", ">PID", "TRACE", "NOTE", NULL};
	struct table t = {.titles = titles + (r->c->hosts.n == 1)};
	struct buf text = {0};

	if (r->c->hosts.n == 1 && r->answers[0].reply)
		buf_addf(&text, "response = %s\n", r->answers[0].raw);
	for (size_t i = 0; i < r->c->hosts.n; i++)
		add_rows(r, i, &t);
	if (t.n)
		table_print(&t, 0, &text);
	int status = command_print(r->c->cmd, &text);
	if (r->c->hosts.n == 1 && r->answers[0].reply && !r->hosts[0].n)
		ctl_say(r->c, "nothing was ended: %s", note_of(r, 0));
	print_totals(r);
	table_release(&t);
	buf_release(&text);
	return status;
}

static void set_processes(const void *run, size_t i, json_t *row)
{
	const struct run *r = run;
	const struct host *h = &r->hosts[i];
	json_t *all = json_array();

	for (size_t k = 0; k < h->n; k++)
		json_array_append_new(all, json_pack("{s:I, s:s, s:s}", "pid",
						     (json_int_t)h->rows[k].pid, "trace",
						     ctl_stopped_names[h->rows[k].state], "note",
						     h->rows[k].words));
	json_object_set_new(row, "processes", all);
	json_object_set_new(row, "note", h->n ? json_null() : json_string(note_of(r, i)));
}

/* --- all of it --- */

/* A trace that goes on, or a host on which there was none to end, is what status 3 is for. */
static int exit_status(const struct run *r)
{
	bool refused = false, without = false;

	for (size_t i = 0; i < r->c->hosts.n; i++) {
		const size_t *n = r->hosts[i].states;

		refused = refused || is_refused(r, i) || is_of_others(r, i);
		without = without || n[CTL_NOT_ENDED] || !(n[CTL_ENDED] + n[CTL_DROPPED]);
	}
	if (ctl_failures(r->c, r->answers) != EXIT_DONE || refused)
		return EXIT_FAILED;
	return without && ctl_is_strict(r->c) ? EXIT_FINDING : EXIT_DONE;
}

int ctl_stop_run(struct ctl *c, const struct ctl_stop *o)
{
	struct run r = {.c = c,
			.o = o,
			.answers = ctl_answers_new(c),
			.replies = ctl_answers_new(c),
			.explained = ctl_answers_new(c),
			.hosts = xcalloc(c->hosts.n, sizeof(struct host))};
	struct err err = {0};
	int status;

	if (send_stop(&r, &err) < 0) {
		status = ctl_fail(c, &err, EXIT_FAILED);
	} else {
		status = c->common->json ? ctl_print_json(c, r.answers, set_processes, &r)
					 : print_text(&r);
		if (status == EXIT_DONE)
			status = exit_status(&r);
	}
	for (size_t i = 0; i < c->hosts.n; i++)
		free(r.hosts[i].rows);
	free(r.hosts);
	ctl_answers_free(c, r.answers);
	ctl_answers_free(c, r.replies);
	ctl_answers_free(c, r.explained);
	return status;
}
