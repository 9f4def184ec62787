/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "cli/ctl/stop.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/text/table.h"
#include "cli/ctl/request.h"
#include "cli/ctl/values.h"

#define HEAR_MS 6000 /* who has to switch a source off on a busy machine first takes longer */

const char *const ctl_stopped_names[CTL_STOPPED_STATES] = {[CTL_ENDED] = "ended",
							   [CTL_DROPPED] = "dropped",
							   [CTL_NOT_ENDED] = "not ended",
							   [CTL_NO_TRACE] = "no trace"};

/* --- what became of it --- */

struct rows {
	struct ctl_stop_row *list;
	size_t n, cap;
};

static void add(struct rows *r, const json_t *pid, enum ctl_stopped state, const char *words)
{
	r->list = xgrow(r->list, &r->cap, r->n + 1, sizeof(*r->list));
	r->list[r->n++] = (struct ctl_stop_row){json_integer_value(pid), state, words ? words : ""};
}

static void add_pids(struct rows *r, const json_t *pids, enum ctl_stopped state, const char *words)
{
	json_t *pid;
	size_t i;

	json_array_foreach(pids, i, pid) add(r, pid, state, words);
}

static void add_reasons(struct rows *r, const json_t *list)
{
	json_t *e;
	size_t i;

	json_array_foreach(list, i, e) add(r, json_object_get(e, "pid"), CTL_NOT_ENDED,
					   json_string_value(json_object_get(e, "why")));
}

/* A process says "ended …", "dropped …" or "none". */
static void add_told(struct rows *r, const json_t *list)
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
		add(r, json_object_get(e, "pid"), state, state == CTL_NO_TRACE ? "" : what);
	}
}

static int by_pid(const void *a, const void *b)
{
	const struct ctl_stop_row *x = a, *y = b;

	if (x->pid != y->pid)
		return x->pid < y->pid ? -1 : 1;
	return x->state < y->state ? -1 : x->state > y->state;
}

/* Whose answer is not there: another order came before it, which has the answer now; the process
 * has ended; the daemon was started anew. */
static void add_unheard(struct rows *r, const json_t *told)
{
	size_t heard = r->n, i;
	json_t *pid;

	json_array_foreach(told, i, pid)
	{
		bool is = false;

		for (size_t k = 0; k < heard && !is; k++)
			is = r->list[k].pid == json_integer_value(pid);
		if (!is)
			add(r, pid, CTL_NOT_ENDED,
			    "it was told, but what became of it is not known: another order came "
			    "meanwhile, or the process or the daemon ended");
	}
}

/* That there is no trace is said of a process only if nothing else is: two of its clients may have
 * been asked, and an order that was taken back is none that it has. */
static size_t without_repetition(struct ctl_stop_row *rows, size_t n)
{
	size_t kept = 0;

	for (size_t i = 0; i < n; i++)
		if (!kept || rows[i].pid != rows[kept - 1].pid ||
		    (rows[i].state != CTL_NO_TRACE && rows[i].state != rows[kept - 1].state))
			rows[kept++] = rows[i];
	return kept;
}

struct ctl_stop_row *ctl_stop_read(const json_t *reply, const json_t *said, size_t *out_n)
{
	struct rows r = {0};

	add_told(&r, json_object_get(said, "told"));
	add_reasons(&r, json_object_get(said, "failed"));
	add_pids(&r, json_object_get(said, "waiting"), CTL_NOT_ENDED,
		 "it was told, and has not answered yet");
	add_unheard(&r, json_object_get(reply, "activityProfilersTriggered"));
	add_pids(&r, json_object_get(reply, "tracesDropped"), CTL_DROPPED,
		 "dropped before it was fetched");
	add_reasons(&r, json_object_get(reply, "notStopped"));
	add_pids(&r, json_object_get(reply, "processesMatched"), CTL_NO_TRACE, "");
	if (r.n)
		qsort(r.list, r.n, sizeof(*r.list), by_pid);
	*out_n = without_repetition(r.list, r.n);
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
	struct ctl_answer *answers, *said, *explained;
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

/* Where nobody was found: the reason is that for which a trace would find nobody. */
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

static int carry_out(struct run *r, struct err *err)
{
	int status = ctl_ask_all(r->c, request_for(r, "stopTrace"), r->answers, err);

	if (status == 0)
		status = ctl_order_hear(r->c, HEAR_MS, r->answers, r->said, err);
	for (size_t i = 0; i < r->c->hosts.n && status == 0; i++) {
		struct host *h = &r->hosts[i];

		h->rows = ctl_stop_read(r->answers[i].reply, r->said[i].reply, &h->n);
		for (size_t k = 0; k < h->n; k++) {
			h->states[h->rows[k].state]++;
			r->states[h->rows[k].state]++;
		}
	}
	return status == 0 ? ask_why(r, err) : status;
}

/* --- words --- */

/* What there is to say of a host without a process. */
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
			table_textf(t, "%s", r->c->hosts.v[i].label);
		table_textf(t, "%lld", (long long)h->rows[k].pid);
		table_textf(t, "%s", ctl_stopped_names[h->rows[k].state]);
		table_textf(t, "%s", h->rows[k].words);
	}
	if (h->n || !several)
		return;
	table_textf(t, "%s", r->c->hosts.v[i].label);
	table_textf(t, "-");
	table_textf(t, "%s", r->answers[i].reply && !is_refused(r, i) ? "no match" : "failed");
	table_textf(t, "%s", note_of(r, i));
}

static void say_sum(const struct run *r)
{
	const size_t *n = r->states;
	const char *name = ctl_is_dyno(r->c) ? "dyno" : "sonde ctl";

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

static int tell_text(const struct run *r)
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
	say_sum(r);
	table_release(&t);
	buf_release(&text);
	return status;
}

static int tell_json(const struct run *r)
{
	json_t *list = json_array();

	for (size_t i = 0; i < r->c->hosts.n; i++) {
		json_t *row = ctl_answer_json(r->c, i, &r->answers[i]), *all = json_array();
		const struct host *h = &r->hosts[i];

		for (size_t k = 0; k < h->n; k++)
			json_array_append_new(all, json_pack("{s:I, s:s, s:s}", "pid",
							     (json_int_t)h->rows[k].pid, "trace",
							     ctl_stopped_names[h->rows[k].state],
							     "note", h->rows[k].words));
		json_object_set_new(row, "processes", all);
		json_object_set_new(row, "note", h->n ? json_null() : json_string(note_of(r, i)));
		json_array_append_new(list, row);
	}
	return command_print_json(r->c->cmd, list);
}

/* --- all of it --- */

/* A trace that goes on, or a host on which there was none to end, is what status 3 is for. */
static int exit_status(const struct run *r)
{
	bool strict = r->c->common->strict || !ctl_is_dyno(r->c);
	bool refused = false, without = false;

	for (size_t i = 0; i < r->c->hosts.n; i++) {
		const size_t *n = r->hosts[i].states;

		refused = refused || is_refused(r, i);
		without = without || n[CTL_NOT_ENDED] || !(n[CTL_ENDED] + n[CTL_DROPPED]);
	}
	if (ctl_failures(r->c, r->answers) != EXIT_DONE || refused)
		return EXIT_FAILED;
	return without && strict ? EXIT_FINDING : EXIT_DONE;
}

int ctl_stop_run(struct ctl *c, const struct ctl_stop *o)
{
	struct run r = {.c = c,
			.o = o,
			.answers = ctl_answers_new(c),
			.said = ctl_answers_new(c),
			.explained = ctl_answers_new(c),
			.hosts = xcalloc(c->hosts.n, sizeof(struct host))};
	struct err err = {0};
	int status;

	if (carry_out(&r, &err) < 0) {
		status = ctl_fail(c, &err, EXIT_FAILED);
	} else {
		status = c->common->json ? tell_json(&r) : tell_text(&r);
		if (status == EXIT_DONE)
			status = exit_status(&r);
	}
	for (size_t i = 0; i < c->hosts.n; i++)
		free(r.hosts[i].rows);
	free(r.hosts);
	ctl_answers_free(c, r.answers);
	ctl_answers_free(c, r.said);
	ctl_answers_free(c, r.explained);
	return status;
}
