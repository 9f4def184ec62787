/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "client/profiler_request.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

#define REPLY_MS 1500 /* how long processes may take to reply */

/* --- the outcome on one host --- */

const char *const profiler_state_names[PROFILER_STATES] = {[PROFILER_TRIGGERED] = "triggered",
							   [PROFILER_NO_MATCH] = "no match",
							   [PROFILER_BUSY] = "busy",
							   [PROFILER_HELD] = "no effect",
							   [PROFILER_INEFFECTIVE] = "ineffective",
							   [PROFILER_UNKNOWN] = "unknown",
							   [PROFILER_REFUSED] = "refused",
							   [PROFILER_FAILED] = "failed"};

struct profiler_outcome profiler_outcome_read(const json_t *reply)
{
	json_t *matched = json_object_get(reply, "processesMatched");
	struct profiler_outcome o = {.state = PROFILER_FAILED};
	json_int_t busy = json_integer_value(json_object_get(reply, "activityProfilersBusy"));

	if (!reply)
		return o;
	o.matched = json_array_size(matched);
	o.triggered = json_array_size(json_object_get(reply, "activityProfilersTriggered"));
	o.busy = busy > 0 ? (size_t)busy : 0;
	o.others = client_count_others(reply);
	if (o.others && json_is_array(matched) && !o.matched)
		o.state = PROFILER_REFUSED;
	else if (client_text_is(reply, "commandStatus", "ineffective"))
		o.state = PROFILER_INEFFECTIVE;
	else if (client_text_is(reply, "commandStatus", "unknown"))
		o.state = PROFILER_UNKNOWN;
	else if (!json_is_array(matched))
		o.state = PROFILER_REFUSED;
	else if (o.triggered)
		o.state = PROFILER_TRIGGERED;
	else if (!o.matched)
		o.state = PROFILER_NO_MATCH;
	else
		o.state = o.busy ? PROFILER_BUSY : PROFILER_HELD;
	return o;
}

const struct host_entry *profiler_host(const struct client_group *g, size_t i)
{
	return g->hosts->n > 1 ? &g->hosts->v[i] : NULL;
}

bool profiler_is_triggered(const struct profiler_results *r, size_t i)
{
	return r->outcomes[i].state == PROFILER_TRIGGERED;
}

bool profiler_step_passed(const struct profiler_results *r, const struct profiler_request *q,
			  size_t i)
{
	json_t *step = json_object_get(r->status[i].reply, "current_step");

	return profiler_is_triggered(r, i) && q->start_step >= 0 && json_is_integer(step) &&
	       json_integer_value(step) > q->start_step;
}

/* A daemon of ours that was asked for the reason has it in the answer itself. */
const json_t *profiler_explanation(const struct profiler_results *r, size_t i)
{
	const json_t *reply = r->answers[i].reply;

	return json_is_string(json_object_get(reply, "reason")) ? reply : r->explained[i].reply;
}

size_t profiler_count_failures(const struct profiler_results *r, size_t i)
{
	return json_array_size(json_object_get(r->replies[i].reply, "failed"));
}

size_t profiler_count_takers(const struct profiler_results *r, size_t i)
{
	size_t failed = profiler_count_failures(r, i), sent = r->outcomes[i].triggered;

	return sent > failed ? sent - failed : 0;
}

/* --- sending --- */

unsigned profiler_request_limit(const struct profiler_request *q)
{
	return q->process_limit == PROFILER_NO_LIMIT ? PROFILER_USUAL_LIMIT : q->process_limit;
}

static json_t *make_request(const struct client_group *g, const struct profiler_request *q,
			    size_t i, const char *fn)
{
	struct buf config = {0};

	q->config(q->options, profiler_host(g, i), &config);
	json_t *request =
		json_pack("{s:s, s:s, s:I, s:O, s:I}", "fn", fn, "config", buf_str(&config),
			  "job_id", (json_int_t)q->job_id, "pids", q->pids, "process_limit",
			  (json_int_t)profiler_request_limit(q));
	if (q->kind != PROFILER_GPUTRACE && q->process_limit == PROFILER_USUAL_LIMIT)
		json_object_set_new(request, "process_limit_is_meant", json_true());
	if (q->with_reason)
		json_object_set_new(request, "with_reason", json_true());
	buf_release(&config);
	return request;
}

/* Second questions: why nothing happened, and whether the step is over. Their failure is none. */
static int ask_further(struct client_group *g, const struct profiler_request *q,
		       struct profiler_results *r, struct err *err)
{
	json_t **requests = xcalloc(g->hosts->n, sizeof(json_t *));
	json_t *get_status = json_pack("{s:s}", "fn", "getStatus");

	for (size_t i = 0; i < g->hosts->n; i++)
		if (r->answers[i].reply && !profiler_is_triggered(r, i) &&
		    !profiler_explanation(r, i))
			requests[i] = make_request(g, q, i, "explainRequest");
	int code = client_ask(g, requests, r->explained, err);
	for (size_t i = 0; i < g->hosts->n; i++) {
		bool unexplained = requests[i] && !r->explained[i].reply;
		bool has_step = profiler_is_triggered(r, i) && q->start_step >= 0;

		json_decref(requests[i]);
		requests[i] = unexplained || has_step ? get_status : NULL;
	}
	if (code == 0)
		code = client_ask(g, requests, r->status, err);
	json_decref(get_status);
	free(requests);
	return code;
}

int profiler_request_send(struct client_group *g, const struct profiler_request *q,
			  struct profiler_results *out, struct err *err)
{
	size_t n = g->hosts->n;
	json_t **requests = xcalloc(n, sizeof(*requests));

	*out = (struct profiler_results){.answers = client_answers_new(g),
					 .explained = client_answers_new(g),
					 .replies = client_answers_new(g),
					 .status = client_answers_new(g),
					 .outcomes = xcalloc(n, sizeof(*out->outcomes))};
	for (size_t i = 0; i < n; i++)
		requests[i] = make_request(g, q, i, "setKinetOnDemandRequest");
	int code = client_ask(g, requests, out->answers, err);
	for (size_t i = 0; i < n; i++) {
		out->outcomes[i] = profiler_outcome_read(out->answers[i].reply);
		json_decref(requests[i]);
	}
	free(requests);
	if (code == 0)
		code = client_wait_replies(g, q->reply_ms ? q->reply_ms : REPLY_MS, out->answers,
					   out->replies, err);
	return code == 0 ? ask_further(g, q, out, err) : code;
}

void profiler_results_release(const struct client_group *g, struct profiler_results *r)
{
	client_answers_free(g, r->answers);
	client_answers_free(g, r->explained);
	client_answers_free(g, r->replies);
	client_answers_free(g, r->status);
	free(r->outcomes);
}
