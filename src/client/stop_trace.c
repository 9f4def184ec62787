/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "client/stop_trace.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"

#define FILES_POLL_MS 200
#define REPLY_MS 6000 /* switching a source off takes long on a busy machine */

const char *const trace_end_names[TRACE_ENDS] = {[TRACE_ENDED] = "ended",
						 [TRACE_DROPPED] = "dropped",
						 [TRACE_NOT_ENDED] = "not ended",
						 [TRACE_NONE] = "no trace"};

/* --- the outcome in each process --- */

struct rows {
	struct stopped_process *list;
	size_t n, cap;
};

static void add_process(struct rows *r, const json_t *pid, enum trace_end end, const char *words)
{
	r->list = xgrow(r->list, &r->cap, r->n + 1, sizeof(*r->list));
	r->list[r->n++] = (struct stopped_process){json_integer_value(pid), end, words ? words : "",
						   NULL, NULL};
}

static void add_pids(struct rows *r, const json_t *pids, enum trace_end end, const char *words)
{
	json_t *pid;
	size_t i;

	json_array_foreach(pids, i, pid) add_process(r, pid, end, words);
}

static void add_reasons(struct rows *r, const json_t *list)
{
	json_t *e;
	size_t i;

	json_array_foreach(list, i, e) add_process(r, json_object_get(e, "pid"), TRACE_NOT_ENDED,
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
		enum trace_end end = TRACE_NOT_ENDED;

		if (what && !strncmp(what, "ended", 5))
			end = TRACE_ENDED;
		else if (what && !strncmp(what, "dropped", 7))
			end = TRACE_DROPPED;
		else if (what && !strcmp(what, "none"))
			end = TRACE_NONE;
		add_process(r, json_object_get(e, "pid"), end, end == TRACE_NONE ? "" : what);
	}
}

static int by_pid(const void *a, const void *b)
{
	const struct stopped_process *x = a, *y = b;

	if (x->pid != y->pid)
		return x->pid < y->pid ? -1 : 1;
	return x->end < y->end ? -1 : x->end > y->end;
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
			add_process(r, pid, TRACE_NOT_ENDED,
				    "the request was sent, but its outcome is unknown: another "
				    "request came meanwhile, or the process or the daemon ended");
	}
}

/* That there is no trace is reported of a process only if nothing else is: two of its clients may
 * have been asked, and a request that was withdrawn is none that it has. */
static size_t drop_repeated(struct stopped_process *rows, size_t n)
{
	size_t kept = 0;

	for (size_t i = 0; i < n; i++)
		if (!kept || rows[i].pid != rows[kept - 1].pid ||
		    (rows[i].end != TRACE_NONE && rows[i].end != rows[kept - 1].end))
			rows[kept++] = rows[i];
	return kept;
}

struct stopped_process *stop_trace_read(const json_t *reply, const json_t *replies, size_t *out_n)
{
	struct rows r = {0};

	add_replies(&r, json_object_get(replies, "told"));
	add_reasons(&r, json_object_get(replies, "failed"));
	add_pids(&r, json_object_get(replies, "waiting"), TRACE_NOT_ENDED,
		 "the request was sent, but the process has not replied yet");
	add_silent(&r, json_object_get(reply, "activityProfilersTriggered"));
	add_pids(&r, json_object_get(reply, "tracesDropped"), TRACE_DROPPED,
		 "dropped before it was fetched");
	add_reasons(&r, json_object_get(reply, "notStopped"));
	add_pids(&r, json_object_get(reply, "processesMatched"), TRACE_NONE, "");
	if (r.n)
		qsort(r.list, r.n, sizeof(*r.list), by_pid);
	*out_n = drop_repeated(r.list, r.n);
	return r.list;
}

/* --- all hosts --- */

bool stop_is_refused(const struct stop_results *r, size_t i)
{
	const json_t *reply = r->answers[i].reply;

	return reply && !json_is_array(json_object_get(reply, "processesMatched"));
}

bool stop_is_of_others(const struct stop_results *r, size_t i)
{
	return !r->hosts[i].n && client_count_others(r->answers[i].reply);
}

const char *stop_reason(const struct stop_results *r, size_t i)
{
	const char *status = json_string_value(json_object_get(r->answers[i].reply, "status"));
	const char *reason = json_string_value(json_object_get(r->explained[i].reply, "reason"));

	if (!r->answers[i].reply)
		return r->answers[i].err.text;
	if (stop_is_refused(r, i))
		return status ? status : "the daemon does not accept the request";
	return reason ? reason : "no process matched";
}

static json_t *make_request(const char *fn, uint64_t job_id, json_t *pids)
{
	return json_pack("{s:s, s:I, s:O}", "fn", fn, "job_id", (json_int_t)job_id, "pids", pids);
}

/* Where no process was found: the reason is the one for which a trace would find none. */
static int ask_reasons(struct client_group *g, uint64_t job_id, json_t *pids,
		       struct stop_results *r, struct err *err)
{
	json_t **requests = xcalloc(g->hosts->n, sizeof(json_t *));

	for (size_t i = 0; i < g->hosts->n; i++)
		if (r->answers[i].reply && !stop_is_refused(r, i) && !r->hosts[i].n) {
			requests[i] = make_request("explainRequest", job_id, pids);
			json_object_set_new(requests[i], "config",
					    json_string("PROFILE_START_STEP=-1"));
		}
	int code = client_ask(g, requests, r->explained, err);
	for (size_t i = 0; i < g->hosts->n; i++)
		json_decref(requests[i]);
	free(requests);
	return code;
}

int stop_trace(struct client_group *g, uint64_t job_id, json_t *pids, struct stop_results *out,
	       struct err *err)
{
	*out = (struct stop_results){.answers = client_answers_new(g),
				     .replies = client_answers_new(g),
				     .explained = client_answers_new(g),
				     .hosts = xcalloc(g->hosts->n, sizeof(*out->hosts))};
	int code = client_ask_all(g, make_request("stopTrace", job_id, pids), out->answers, err);

	if (code == 0)
		code = client_wait_replies(g, REPLY_MS, out->answers, out->replies, err);
	for (size_t i = 0; i < g->hosts->n && code == 0; i++) {
		struct stopped_host *h = &out->hosts[i];

		h->processes = stop_trace_read(out->answers[i].reply, out->replies[i].reply, &h->n);
		for (size_t k = 0; k < h->n; k++) {
			h->ends[h->processes[k].end]++;
			out->ends[h->processes[k].end]++;
		}
	}
	return code == 0 ? ask_reasons(g, job_id, pids, out, err) : code;
}

/* --- their files --- */

/* The text that a list of a process' files has for it; NULL: none. */
static const char *find_text(const json_t *list, int64_t pid, const char *key)
{
	json_t *e;
	size_t i;

	json_array_foreach(list, i, e) if (json_integer_value(json_object_get(e, "pid")) ==
					   pid) return json_string_value(json_object_get(e, key));
	return NULL;
}

static bool has_pid(const json_t *list, int64_t pid)
{
	json_t *e;
	size_t i;

	json_array_foreach(list, i, e) if (json_integer_value(e) == pid) return true;
	return false;
}

/* How many of those that were ended have not said where they are. */
static size_t read_files(struct stopped_host *h, const json_t *replies)
{
	size_t missing = 0;

	for (size_t i = 0; i < h->n; i++) {
		struct stopped_process *p = &h->processes[i];

		if (p->end != TRACE_ENDED)
			continue;
		p->path = find_text(json_object_get(replies, "written"), p->pid, "path");
		p->why = find_text(json_object_get(replies, "not_written"), p->pid, "why");
		if (!p->path && !p->why && !has_pid(json_object_get(replies, "expected"), p->pid))
			p->why = "the process has ended, or another trace was asked for";
		missing += !p->path && !p->why;
	}
	return missing;
}

size_t stop_trace_wait(struct client_group *g, struct stop_results *r, unsigned seconds,
		       struct err *err)
{
	const struct timespec moment = {0, FILES_POLL_MS * 1000000};
	size_t missing = r->ends[TRACE_ENDED];

	r->files = client_answers_new(g);
	for (uint64_t tries = 0; missing && tries * FILES_POLL_MS < seconds * 1000ull; tries++) {
		nanosleep(&moment, NULL);
		client_answers_free(g, r->files);
		r->files = client_answers_new(g);
		if (client_wait_replies(g, 1, r->answers, r->files, err) < 0)
			break;
		missing = 0;
		for (size_t i = 0; i < g->hosts->n; i++)
			missing += r->files[i].reply ? read_files(&r->hosts[i], r->files[i].reply)
						     : r->hosts[i].ends[TRACE_ENDED];
	}
	return missing;
}

void stop_results_release(const struct client_group *g, struct stop_results *r)
{
	for (size_t i = 0; i < g->hosts->n; i++)
		free(r->hosts[i].processes);
	free(r->hosts);
	client_answers_free(g, r->answers);
	client_answers_free(g, r->replies);
	client_answers_free(g, r->explained);
	client_answers_free(g, r->files);
}
