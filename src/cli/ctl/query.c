/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "cli/ctl/query.h"

#include <stdio.h>
#include <string.h>

static int tell_one(const struct ctl *c, const struct ctl_query *q, const struct ctl_answer *a)
{
	struct buf words = {0};

	if (!a->reply)
		return EXIT_DONE;
	if (q->wrapped)
		printf("response length = %zu\nresponse = %s\n", a->raw_bytes, a->raw);
	else
		printf("%s\n", a->raw);
	int status = ctl_written(c);
	if (q->words)
		q->words(c, a->reply, &words);
	if (words.len)
		ctl_say(c, "%s", buf_str(&words));
	buf_release(&words);
	return status;
}

static void add_row(const struct ctl *c, const struct ctl_query *q, const struct ctl_answer *a,
		    size_t i, struct table *t)
{
	table_textf(t, "%s", c->hosts.v[i].label);
	if (a->reply)
		q->cells(a->reply, t);
	for (int n = 0; !a->reply && q->titles[n]; n++)
		table_textf(t, "-");
	table_textf(t, "%s%s", a->reply ? "" : "failed: ", a->reply ? "" : a->err.text);
}

static int tell_many(const struct ctl *c, const struct ctl_query *q,
		     const struct ctl_answer *answers)
{
	const char *titles[TABLE_COLUMNS + 1] = {"HOST"};
	struct table t = {.titles = titles};
	struct buf text = {0};
	int n = 1;

	for (; q->titles[n - 1]; n++)
		titles[n] = q->titles[n - 1];
	titles[n] = "NOTE";
	for (int failed = 0; failed < 2; failed++)
		for (size_t i = 0; i < c->hosts.n; i++)
			if ((answers[i].reply == NULL) == failed)
				add_row(c, q, &answers[i], i, &t);
	table_print(&t, 0, &text);
	int status = command_print(c->cmd, &text);
	table_release(&t);
	buf_release(&text);
	return status;
}

static int tell_json(const struct ctl *c, const struct ctl_answer *answers)
{
	json_t *list = json_array();

	for (size_t i = 0; i < c->hosts.n; i++)
		json_array_append_new(list, ctl_answer_json(c, i, &answers[i]));
	return command_print_json(c->cmd, list);
}

static int exit_status(const struct ctl *c, const struct ctl_query *q,
		       const struct ctl_answer *answers)
{
	bool strict = c->common->strict || !ctl_is_dyno(c);
	int status = ctl_failures(c, answers);

	for (size_t i = 0; i < c->hosts.n && q->effect && strict && status == EXIT_DONE; i++)
		if (!q->effect(answers[i].reply))
			status = EXIT_FINDING;
	return status;
}

static int ask_and_tell(struct ctl *c, const struct ctl_query *q, json_t *request)
{
	struct ctl_answer *answers = ctl_answers_new(c);
	struct err err = {0};
	int status = EXIT_DONE;

	if (ctl_ask_all(c, request, answers, &err) < 0) {
		status = ctl_fail(c, &err, EXIT_FAILED);
		goto out;
	}
	if (c->common->json)
		status = tell_json(c, answers);
	else if (c->hosts.n > 1)
		status = tell_many(c, q, answers);
	else
		status = tell_one(c, q, &answers[0]);
	if (status == EXIT_DONE)
		status = exit_status(c, q, answers);
out:
	ctl_answers_free(c, answers);
	return status;
}

int ctl_query_command(const struct ctl_query *q, const struct command *cmd, void *options, int argc,
		      char **argv)
{
	struct args a = {.target = options};
	struct ctl c = {0};

	int status = ctl_begin(&c, cmd, &a, argc, argv);
	if (status < 0)
		status = ctl_open(&c, true);
	if (status < 0)
		status = ask_and_tell(&c, q, q->request(options));
	ctl_end(&c);
	args_release(&a);
	return status;
}
