/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "cli/ctl/request.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/text/table.h"
#include "cli/ctl/values.h"

#define HEAR_MS 1500
#define HEAR_EVERY_MS 50

/* One order under way: an element of each for every host. */
struct run {
	struct ctl *c;
	const struct ctl_order *o;
	json_t **requests;
	struct ctl_answer *answers;
	struct ctl_answer *explained; /* of hosts where nothing was triggered */
	struct ctl_answer *said; /* what processes say to it, where they say anything */
	struct ctl_answer *status; /* of those that could not explain, or to see the step */
	struct ctl_outcome *outcomes;
};

static const struct ctl_host *host_or_null(const struct run *r, size_t i)
{
	return r->c->hosts.n > 1 ? &r->c->hosts.v[i] : NULL;
}

static unsigned limit_of(const struct ctl_order *o)
{
	return o->process_limit == CTL_NO_LIMIT ? CTL_USUAL_LIMIT : o->process_limit;
}

static json_t *request_for(const struct run *r, size_t i, const char *fn)
{
	struct buf config = {0};

	r->o->config(r->o->options, host_or_null(r, i), &config);
	json_t *request =
		json_pack("{s:s, s:s, s:I, s:o, s:I}", "fn", fn, "config", buf_str(&config),
			  "job_id", (json_int_t)r->o->job_id, "pids", ctl_pids(r->o->pids),
			  "process_limit", (json_int_t)limit_of(r->o));
	if (r->o->kind != CTL_GPUTRACE && r->o->process_limit == CTL_USUAL_LIMIT)
		json_object_set_new(request, "process_limit_is_meant", json_true());
	/* dyno prints the answer, and scripts know which keys it has */
	if (!ctl_is_dyno(r->c))
		json_object_set_new(request, "with_reason", json_true());
	buf_release(&config);
	return request;
}

static bool triggered(const struct run *r, size_t i)
{
	return r->outcomes[i].state == CTL_TRIGGERED;
}

/* Whether the step at which the trace was to begin is over. */
static bool step_passed(const struct run *r, size_t i)
{
	json_t *step = json_object_get(r->status[i].reply, "current_step");

	return triggered(r, i) && r->o->start_step >= 0 && json_is_integer(step) &&
	       json_integer_value(step) > r->o->start_step;
}

/* Who explains it: a daemon of ours that was asked to says why at once, while it is so. */
static const json_t *explanation(const struct run *r, size_t i)
{
	const json_t *reply = r->answers[i].reply;

	return json_is_string(json_object_get(reply, "reason")) ? reply : r->explained[i].reply;
}

/* Second questions: why nothing happened, and whether the step is over. Their failure is none. */
static int ask_further(struct run *r, struct err *err)
{
	json_t **requests = xcalloc(r->c->hosts.n, sizeof(json_t *));
	json_t *status = json_pack("{s:s}", "fn", "getStatus");

	for (size_t i = 0; i < r->c->hosts.n; i++)
		if (r->answers[i].reply && !triggered(r, i) && !explanation(r, i))
			requests[i] = request_for(r, i, "explainRequest");
	int status_code = ctl_ask(r->c, requests, r->explained, err);
	for (size_t i = 0; i < r->c->hosts.n; i++) {
		bool unexplained = requests[i] && !r->explained[i].reply;

		json_decref(requests[i]);
		requests[i] =
			unexplained || (triggered(r, i) && r->o->start_step >= 0) ? status : NULL;
	}
	if (status_code == 0)
		status_code = ctl_ask(r->c, requests, r->status, err);
	json_decref(status);
	free(requests);
	return status_code;
}

static bool someone_thinks(const struct ctl_answer *a)
{
	return json_array_size(json_object_get(a->reply, "waiting")) > 0;
}

/*
 * Libraries of ours answer within moments, and only they do: so long it is waited for them. Their
 * not answering is no failure, they may be busy.
 */
int ctl_order_hear(struct ctl *c, unsigned ms, const struct ctl_answer *answers,
		   struct ctl_answer *said, struct err *err)
{
	const struct timespec moment = {0, HEAR_EVERY_MS * 1000000};
	json_t **requests = xcalloc(c->hosts.n, sizeof(json_t *));
	int status = 0;
	bool any = true;

	for (unsigned tries = 0; tries * HEAR_EVERY_MS < ms && any && status == 0; tries++) {
		any = false;
		for (size_t i = 0; i < c->hosts.n; i++) {
			json_t *id = json_object_get(answers[i].reply, "requestTraceId");
			bool ask = id && (!tries || someone_thinks(&said[i]));

			requests[i] =
				ask ? json_pack("{s:s, s:O}", "fn", "getAnswers", "request", id)
				    : NULL;
			any = any || ask;
			if (ask) {
				json_decref(said[i].reply);
				free(said[i].raw);
				said[i] = (struct ctl_answer){0};
			}
		}
		if (any && tries)
			nanosleep(&moment, NULL);
		if (any)
			status = ctl_ask(c, requests, said, err);
		for (size_t i = 0; i < c->hosts.n; i++)
			json_decref(requests[i]);
	}
	free(requests);
	return status;
}

static size_t failures(const struct run *r, size_t i)
{
	return json_array_size(json_object_get(r->said[i].reply, "failed"));
}

/* Of those that were told, who has not said that it cannot be done. */
static size_t takers(const struct run *r, size_t i)
{
	size_t failed = failures(r, i), told = r->outcomes[i].triggered;

	return told > failed ? told - failed : 0;
}

/* What becomes of it in so many processes. */
static void add_next(const struct ctl_order *o, size_t processes, struct buf *out)
{
	if (o->each)
		buf_addf(out, "%s %s", processes == 1 ? "it" : "each", o->each);
	else
		buf_add_str(out, o->success);
}

/* Who did not do it, and why; the first tells for all that say the same. */
static void note_failures(const struct run *r, size_t i, struct buf *out)
{
	json_t *failed = json_object_get(r->said[i].reply, "failed");
	json_t *first = json_array_get(failed, 0);
	const char *why = json_string_value(json_object_get(first, "why"));

	if (!first)
		return;
	if (out->len)
		buf_add_str(out, "; ");
	buf_addf(out, "%zu of %zu did not carry it out: %s (process %lld)", failures(r, i),
		 r->outcomes[i].triggered, why ? why : "it did not say why",
		 (long long)json_integer_value(json_object_get(first, "pid")));
}

/* What there is to know about a host, in words. */
static void note(const struct run *r, size_t i, struct buf *out)
{
	const struct ctl_outcome *o = &r->outcomes[i];
	const char *said = json_string_value(json_object_get(r->answers[i].reply, "status"));

	if (o->state == CTL_FAILED)
		buf_add_str(out, r->answers[i].err.text);
	else if (o->state != CTL_TRIGGERED)
		ctl_outcome_why(r->o->kind, o, explanation(r, i), r->status[i].reply,
				ctl_is_dyno(r->c) ? "dyno" : "sonde ctl", out);
	else if (step_passed(r, i))
		buf_addf(out,
			 "step %lld is over already, the job is at step %lld: give a later "
			 "--start-step, or -1 for the next one",
			 (long long)r->o->start_step,
			 (long long)json_integer_value(
				 json_object_get(r->status[i].reply, "current_step")));
	else
		ctl_outcome_rest(o, limit_of(r->o), out);
	if (o->state == CTL_TRIGGERED) {
		ctl_outcome_without(r->answers[i].reply, out);
		ctl_outcome_traces(r->answers[i].reply, ctl_is_dyno(r->c) ? "dyno" : "sonde ctl",
				   out);
	}
	if (o->state == CTL_TRIGGERED)
		note_failures(r, i, out);
	if (o->state == CTL_REFUSED && said)
		buf_addf(out, ": %s", said);
}

/* --- one host --- */

static const char *heading(enum ctl_kind kind)
{
	return kind == CTL_GPUTRACE   ? "Kineto config = "
	       : kind == CTL_NPUTRACE ? "NpuTrace config = "
				      : "Npu monitor config = ";
}

static void print_files(const struct run *r, const json_t *pids)
{
	size_t n = json_array_size(pids), i;
	/* a directory for all of them, in which each makes its own */
	bool one = r->o->kind == CTL_NPUTRACE && n > 1;
	struct buf path = {0};
	json_t *pid;

	printf("Matched %zu processes\n", n);
	/* dyno has always said where, and scripts read it */
	if (!takers(r, 0) && !ctl_is_dyno(r->c))
		return;
	printf("Trace output files will be written to:\n");
	if (one) {
		r->o->file(r->o->options, host_or_null(r, 0), 0, &path);
		printf("    %s (%zu processes)\n", buf_str(&path), n);
	}
	json_array_foreach(one ? NULL : pids, i, pid)
	{
		buf_clear(&path);
		r->o->file(r->o->options, host_or_null(r, 0), json_integer_value(pid), &path);
		printf("    %s\n", buf_str(&path));
		if (r->o->memory)
			printf("    Or /tmp/memory_snapshot_%lld.pickle\n",
			       (long long)json_integer_value(pid));
	}
	buf_release(&path);
}

static void print_reply(const struct run *r)
{
	const struct ctl_answer *a = &r->answers[0];
	json_t *matched = json_object_get(a->reply, "processesMatched");

	if (r->o->kind == CTL_GPUTRACE)
		printf("response length = %zu\n", a->raw_bytes);
	printf("response = %s\n", a->raw);
	if (!json_is_array(matched) || !r->o->file)
		return;
	if (json_array_size(matched))
		print_files(r, matched);
	else
		printf("No processes were matched, please check --job-id or --pids flags\n");
}

static int tell_one(const struct run *r)
{
	const struct ctl_outcome *o = &r->outcomes[0];
	struct buf words = {0}, next = {0};
	size_t told = takers(r, 0);

	print_reply(r);
	int status = ctl_written(r->c);
	note(r, 0, &words);
	if (o->state == CTL_TRIGGERED && told && !step_passed(r, 0)) {
		add_next(r->o, told, &next);
		ctl_say(r->c, "%zu process%s told; %s", told, told == 1 ? " is" : "es are",
			buf_str(&next));
	}
	if (words.len)
		ctl_say(r->c, "%s%s", o->state == CTL_TRIGGERED ? "" : "nothing was triggered: ",
			buf_str(&words));
	buf_release(&words);
	buf_release(&next);
	return status;
}

/* --- many hosts --- */

static void add_row(const struct run *r, size_t i, struct table *t)
{
	const struct ctl_outcome *o = &r->outcomes[i];
	struct buf words = {0};

	note(r, i, &words);
	table_textf(t, "%s", r->c->hosts.v[i].label);
	table_textf(t, "%s", ctl_state_names[o->state]);
	if (o->state == CTL_FAILED) {
		table_textf(t, "-");
		table_textf(t, "-");
	} else {
		table_textf(t, "%zu", o->matched);
		table_textf(t, "%zu", o->triggered);
	}
	table_textf(t, "%s", buf_str(&words));
	buf_release(&words);
}

static int tell_many(const struct run *r)
{
	static const char *const titles[] = {"HOST",	   "STATE", ">MATCHED",
					     ">TRIGGERED", "NOTE",  NULL};
	struct table t = {.titles = titles};
	struct buf text = {0}, next = {0};
	size_t matched = 0, told = 0;

	for (int failed = 0; failed < 2; failed++)
		for (size_t i = 0; i < r->c->hosts.n; i++)
			if ((r->outcomes[i].state >= CTL_REFUSED) == failed)
				add_row(r, i, &t);
	for (size_t i = 0; i < r->c->hosts.n; i++) {
		matched += r->outcomes[i].matched;
		told += takers(r, i);
	}
	if (told)
		add_next(r->o, told, &next);
	table_print(&t, 0, &text);
	int status = command_print(r->c->cmd, &text);
	ctl_say(r->c, "%zu hosts: %zu processes matched, %zu told%s%s", r->c->hosts.n, matched,
		told, told ? "; " : "", buf_str(&next));
	table_release(&t);
	buf_release(&next);
	buf_release(&text);
	return status;
}

static json_t *files_json(const struct run *r, size_t i)
{
	json_t *list = json_array(), *pid;
	struct buf path = {0};
	size_t at;

	json_array_foreach(json_object_get(r->answers[i].reply, "activityProfilersTriggered"), at,
			   pid)
	{
		buf_clear(&path);
		r->o->file(r->o->options, host_or_null(r, i), json_integer_value(pid), &path);
		json_array_append_new(list, json_string(buf_str(&path)));
	}
	buf_release(&path);
	return list;
}

static int tell_json(const struct run *r)
{
	json_t *list = json_array();

	for (size_t i = 0; i < r->c->hosts.n; i++) {
		const struct ctl_outcome *o = &r->outcomes[i];
		json_t *row = ctl_answer_json(r->c, i, &r->answers[i]);
		struct buf words = {0};

		note(r, i, &words);
		json_object_set_new(row, "state", json_string(ctl_state_names[o->state]));
		json_object_set_new(row, "matched", json_integer((json_int_t)o->matched));
		json_object_set_new(row, "triggered", json_integer((json_int_t)o->triggered));
		json_object_set_new(row, "note",
				    words.len ? json_string(buf_str(&words)) : json_null());
		if (r->o->file)
			json_object_set_new(row, "files", files_json(r, i));
		json_array_append_new(list, row);
		buf_release(&words);
	}
	return command_print_json(r->c->cmd, list);
}

/* --- all of it --- */

static int exit_status(const struct run *r)
{
	bool strict = r->c->common->strict || !ctl_is_dyno(r->c);
	bool refused = false, without = false, unmatched = false;

	for (size_t i = 0; i < r->c->hosts.n; i++) {
		enum ctl_state s = r->outcomes[i].state;

		refused = refused || s == CTL_REFUSED;
		without = without || !triggered(r, i) || step_passed(r, i) || failures(r, i);
		unmatched = unmatched || (s < CTL_REFUSED && !r->outcomes[i].matched);
	}
	int status = ctl_failures(r->c, r->answers);
	if (status != EXIT_DONE || refused || (unmatched && r->o->fail_on_no_process))
		return EXIT_FAILED;
	return without && strict ? EXIT_FINDING : EXIT_DONE;
}

static int tell(const struct run *r)
{
	if (r->c->common->json)
		return tell_json(r);
	if (r->c->hosts.n > 1)
		return tell_many(r);
	return r->answers[0].reply ? tell_one(r) : EXIT_DONE;
}

static int carry_out(struct run *r, struct err *err)
{
	for (size_t i = 0; i < r->c->hosts.n; i++)
		r->requests[i] = request_for(r, i, "setKinetOnDemandRequest");
	if (r->c->hosts.n == 1 && !r->c->common->json) {
		printf("%s\n%s\n", heading(r->o->kind),
		       json_string_value(json_object_get(r->requests[0], "config")));
		fflush(stdout);
	}
	int status = ctl_ask(r->c, r->requests, r->answers, err);
	for (size_t i = 0; i < r->c->hosts.n; i++)
		r->outcomes[i] = ctl_outcome_read(r->answers[i].reply);
	if (status == 0)
		status = ctl_order_hear(r->c, HEAR_MS, r->answers, r->said, err);
	return status == 0 ? ask_further(r, err) : status;
}

int ctl_order_run(struct ctl *c, const struct ctl_order *o)
{
	struct run r = {.c = c,
			.o = o,
			.requests = xcalloc(c->hosts.n, sizeof(json_t *)),
			.answers = ctl_answers_new(c),
			.explained = ctl_answers_new(c),
			.said = ctl_answers_new(c),
			.status = ctl_answers_new(c),
			.outcomes = xcalloc(c->hosts.n, sizeof(struct ctl_outcome))};
	struct err err = {0};
	int status;

	if (carry_out(&r, &err) < 0) {
		status = ctl_fail(c, &err, EXIT_FAILED);
	} else {
		status = tell(&r);
		if (status == EXIT_DONE)
			status = exit_status(&r);
	}
	for (size_t i = 0; i < c->hosts.n; i++)
		json_decref(r.requests[i]);
	free(r.requests);
	ctl_answers_free(c, r.answers);
	ctl_answers_free(c, r.explained);
	ctl_answers_free(c, r.said);
	ctl_answers_free(c, r.status);
	free(r.outcomes);
	return status;
}
