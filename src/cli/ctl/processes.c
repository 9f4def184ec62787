/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "cli/ctl/processes.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

#define ROWS_MAX 32768 /* no host has more processes */

const char *const *ctl_process_titles(const struct ctl *c)
{
	static const char *const titles[] = {"HOST",  ">PID",  ">RANK", ">DEV",	   ">JOB", "USER",
					     "STATE", ">STEP", ">SEEN", "COMMAND", NULL};

	return titles + (c->hosts.n == 1);
}

static void cell_number(const json_t *process, const char *key, struct table *t)
{
	const json_t *n = json_object_get(process, key);

	if (json_is_integer(n) && json_integer_value(n) >= 0)
		table_textf(t, "%lld", (long long)json_integer_value(n));
	else
		table_textf(t, "-");
}

static void cell_text(const json_t *process, const char *key, struct table *t)
{
	const char *text = json_string_value(json_object_get(process, key));

	table_textf(t, "%s", text ? text : "-");
}

void ctl_process_row(const struct ctl *c, size_t host, const json_t *process, struct table *t)
{
	double seen = json_number_value(json_object_get(process, "last_seen_s"));

	if (c->hosts.n > 1)
		table_textf(t, "%s", c->hosts.v[host].label);
	cell_number(process, "pid", t);
	cell_number(process, "rank", t);
	cell_number(process, "device", t);
	cell_number(process, "job_id", t);
	cell_text(process, "user", t);
	cell_text(process, "state", t);
	cell_number(process, "current_step", t);
	table_textf(t, "%.0f s", seen >= 0 ? seen : 0);
	cell_text(process, "command", t);
}

/* Takes the page that began at `offset` into the list; gives where the next one begins, or 0 when
 * it was the last. */
static json_int_t take_page(json_t **list, json_int_t offset, const struct ctl_answer *a)
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
	return next > offset && json_array_size(rows) && json_array_size(*list) < ROWS_MAX ? next
											   : 0;
}

/* A host whose answer has no list is one that failed. */
static void check_answer(struct ctl_answer *a)
{
	if (!a->reply || json_is_array(json_object_get(a->reply, "processes")))
		return;
	const char *said = json_string_value(json_object_get(a->reply, "status"));
	err_set(&a->err, -EPROTO, "the daemon did not list its processes%s%.300s", said ? ": " : "",
		said ? said : "");
	json_decref(a->reply);
	a->reply = NULL;
}

static void answer_clear(struct ctl_answer *a)
{
	json_decref(a->reply);
	free(a->raw);
	*a = (struct ctl_answer){0};
}

int ctl_processes_ask(struct ctl *c, json_t *filter, json_t **lists, struct ctl_answer *answers,
		      struct err *err)
{
	json_t **requests = xcalloc(c->hosts.n, sizeof(*requests));
	bool more = true;
	int r = 0;

	json_object_set_new(filter, "fn", json_string("listProcesses"));
	for (size_t i = 0; i < c->hosts.n; i++)
		requests[i] = json_incref(filter);
	for (int page = 0; more && r == 0 && page < ROWS_MAX; page++) {
		for (size_t i = 0; i < c->hosts.n; i++)
			if (requests[i])
				answer_clear(&answers[i]);
		r = ctl_ask(c, requests, answers, err);
		more = false;
		for (size_t i = 0; i < c->hosts.n && r == 0; i++) {
			if (!requests[i])
				continue;
			json_int_t offset =
				json_integer_value(json_object_get(requests[i], "offset"));
			json_decref(requests[i]);
			requests[i] = NULL;
			json_int_t next = take_page(&lists[i], offset, &answers[i]);
			check_answer(&answers[i]);
			if (!next)
				continue;
			requests[i] = json_copy(filter);
			json_object_set_new(requests[i], "offset", json_integer(next));
			more = true;
		}
	}
	for (size_t i = 0; i < c->hosts.n; i++)
		json_decref(requests[i]);
	free(requests);
	json_decref(filter);
	return r;
}
