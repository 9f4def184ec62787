/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "client/call_hosts.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "base/text/display_width.h"
#include "base/text/json_depth.h"
#include "client/client.h"
#include "wire/rpc.h"

#define REPLY_DEPTH_MAX                                                                            \
	64 /* deeper, and readers of our JSON may fail on all hosts because of one */
#define PROCESSES_MAX 32768 /* no host has more */
#define POLL_MS 50

struct client_answer *client_answers_new(const struct client_group *g)
{
	return xcalloc(g->hosts->n, sizeof(struct client_answer));
}

static void clear_answer(struct client_answer *a)
{
	json_decref(a->reply);
	free(a->raw);
	*a = (struct client_answer){0};
}

void client_answers_free(const struct client_group *g, struct client_answer *answers)
{
	for (size_t i = 0; answers && i < g->hosts->n; i++)
		clear_answer(&answers[i]);
	free(answers);
}

bool client_text_is(const json_t *o, const char *key, const char *text)
{
	const char *value = json_string_value(json_object_get(o, key));

	return value && !strcmp(value, text);
}

size_t client_count_others(const json_t *reply)
{
	json_int_t n = json_integer_value(json_object_get(reply, "notYours"));

	return n > 0 ? (size_t)n : 0;
}

/* --- one round --- */

struct round {
	const struct client_group *group;
	size_t done, total;
};

static void count_done(void *arg, struct client_call *call)
{
	struct round *r = arg;

	(void)call;
	r->group->progress(r->group->arg, ++r->done, r->total);
}

/* Why the daemon does not answer this caller; NULL: it does. */
static const char *find_refusal(const json_t *reply)
{
	const char *status = json_string_value(json_object_get(reply, "status"));
	const size_t prefix = strlen(RPC_REFUSED);

	return status && !strncmp(status, RPC_REFUSED, prefix) ? status + prefix : NULL;
}

static void take_answer(struct client_answer *a, struct client_call *call)
{
	json_error_t why;

	a->seconds = call->seconds;
	a->asked_ns = call->asked_ns;
	a->answered_ns = call->answered_ns;
	a->err = call->err;
	if (!call->reply)
		return;
	a->reply = json_loadb(call->reply, call->reply_bytes, 0, &why);
	bool deep = a->reply && json_depth(call->reply, call->reply_bytes) > REPLY_DEPTH_MAX;
	const char *refusal = find_refusal(a->reply);
	if (json_is_object(a->reply) && !deep && !refusal) {
		struct buf raw = {0};

		text_add_terminal_json(&raw, call->reply, call->reply_bytes);
		a->raw = xstrdup(buf_str(&raw));
		a->raw_bytes = call->reply_bytes;
		buf_release(&raw);
		return;
	}
	if (refusal && !deep)
		err_set(&a->err, -EACCES, "the daemon refuses it: %s", refusal);
	else
		err_set(&a->err, -EBADMSG, "the answer is %s: is this port a daemon's?",
			deep ? "nested too deep" : "not a JSON object");
	json_decref(a->reply);
	a->reply = NULL;
}

static int check_size(const json_t *request, struct err *err)
{
	size_t n = json_dumpb(request, NULL, 0, JSON_COMPACT);

	if (n > RPC_REQUEST_MAX)
		return err_set(err, -E2BIG,
			       "the request has %zu bytes, and a daemon takes %d: shorten names "
			       "or lists",
			       n, RPC_REQUEST_MAX);
	return 0;
}

int client_ask(struct client_group *g, json_t *const *requests, struct client_answer *answers,
	       struct err *err)
{
	struct client_call *calls = xcalloc(g->hosts->n, sizeof(*calls));
	size_t *host_of = xcalloc(g->hosts->n, sizeof(*host_of));
	struct round round = {.group = g};
	struct client_options o = {.tls = g->tls,
				   .timeout_ms = g->timeout_ms,
				   .max_in_flight = g->max_in_flight,
				   .done = g->progress ? count_done : NULL,
				   .arg = &round};
	int r = 0;

	for (size_t i = 0; i < g->hosts->n && r == 0; i++) {
		if (!requests[i])
			continue;
		host_of[round.total] = i;
		calls[round.total++] = (struct client_call){.host = g->hosts->v[i].name,
							    .port = g->hosts->v[i].port,
							    .request = requests[i]};
		r = check_size(requests[i], err);
	}
	if (r == 0 && round.total)
		r = client_run(calls, round.total, &o, err);
	for (size_t i = 0; i < round.total; i++) {
		if (r == 0)
			take_answer(&answers[host_of[i]], &calls[i]);
		client_call_release(&calls[i]);
	}
	free(host_of);
	free(calls);
	return r;
}

int client_ask_all(struct client_group *g, json_t *request, struct client_answer *answers,
		   struct err *err)
{
	json_t **requests = xcalloc(g->hosts->n, sizeof(*requests));

	for (size_t i = 0; i < g->hosts->n; i++)
		requests[i] = request;
	int r = client_ask(g, requests, answers, err);
	free(requests);
	json_decref(request);
	return r;
}

/* --- lists of processes --- */

/* Adds the page that began at `offset` to the list. Where the next one begins, or 0 if it was the
 * last. */
static json_int_t add_page(json_t **list, json_int_t offset, const struct client_answer *a)
{
	json_t *rows = json_object_get(a->reply, "processes");
	json_int_t next = json_integer_value(json_object_get(a->reply, "next"));

	if (!json_is_array(rows)) {
		json_decref(*list);
		*list = NULL;
		return 0;
	}
	if (!*list)
		*list = json_array();
	json_array_extend(*list, rows);
	return next > offset && json_array_size(rows) && json_array_size(*list) < PROCESSES_MAX
		       ? next
		       : 0;
}

/* A host whose answer has no list is one that failed. */
static void check_list(struct client_answer *a)
{
	if (!a->reply || json_is_array(json_object_get(a->reply, "processes")))
		return;
	const char *status = json_string_value(json_object_get(a->reply, "status"));
	err_set(&a->err, -EPROTO, "the daemon did not list its processes%s%.300s",
		status ? ": " : "", status ? status : "");
	json_decref(a->reply);
	a->reply = NULL;
}

int client_list_processes(struct client_group *g, json_t *filter, json_t **lists,
			  struct client_answer *answers, struct err *err)
{
	size_t n = g->hosts->n;
	json_t **requests = xcalloc(n, sizeof(*requests));
	bool more = true;
	int r = 0;

	json_object_set_new(filter, "fn", json_string("listProcesses"));
	for (size_t i = 0; i < n; i++)
		requests[i] = json_incref(filter);
	for (int page = 0; more && r == 0 && page < PROCESSES_MAX; page++) {
		for (size_t i = 0; i < n; i++)
			if (requests[i])
				clear_answer(&answers[i]);
		r = client_ask(g, requests, answers, err);
		more = false;
		for (size_t i = 0; i < n && r == 0; i++) {
			if (!requests[i])
				continue;
			json_int_t offset =
				json_integer_value(json_object_get(requests[i], "offset"));
			json_decref(requests[i]);
			requests[i] = NULL;
			json_int_t next = add_page(&lists[i], offset, &answers[i]);
			check_list(&answers[i]);
			if (!next)
				continue;
			requests[i] = json_copy(filter);
			json_object_set_new(requests[i], "offset", json_integer(next));
			more = true;
		}
	}
	for (size_t i = 0; i < n; i++)
		json_decref(requests[i]);
	free(requests);
	json_decref(filter);
	return r;
}

/* --- replies of processes --- */

/* Not replying in time is no failure: a process may be busy. */
int client_wait_replies(struct client_group *g, unsigned ms, const struct client_answer *answers,
			struct client_answer *replies, struct err *err)
{
	const struct timespec moment = {0, POLL_MS * 1000000};
	json_t **requests = xcalloc(g->hosts->n, sizeof(json_t *));
	int r = 0;
	bool any = true;

	for (unsigned tries = 0; tries * POLL_MS < ms && any && r == 0; tries++) {
		any = false;
		for (size_t i = 0; i < g->hosts->n; i++) {
			json_t *id = json_object_get(answers[i].reply, "requestTraceId");
			json_t *waiting = json_object_get(replies[i].reply, "waiting");

			requests[i] = NULL;
			if (!id || (tries && !json_array_size(waiting)))
				continue;
			requests[i] = json_pack("{s:s, s:O}", "fn", "getAnswers", "request", id);
			clear_answer(&replies[i]);
			any = true;
		}
		if (any && tries)
			nanosleep(&moment, NULL);
		if (any)
			r = client_ask(g, requests, replies, err);
		for (size_t i = 0; i < g->hosts->n; i++)
			json_decref(requests[i]);
	}
	free(requests);
	return r;
}
