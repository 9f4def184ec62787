/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Requests with one short answer for each host: sonde ctl status, version, dcgm-pause, dcgm-resume.
 * One host's answer is printed as it came, as scripts know it; many are a table.
 */
#include <string.h>

#include "cli/ctl/ctl.h"

struct query_options {
	struct ctl_common common;
	unsigned duration_s; /* 0: the request has none */
};

struct query {
	struct ctl_steps steps; /* first: command.data */
	const char *fn; /* of the daemon */
	bool wrapped; /* one host's answer is printed as "response = …", else as it is */
	const struct ctl_column *columns; /* for many hosts */
	/* Adds plain words for one host; NULL: none. */
	void (*explain)(struct ctl *c, const json_t *reply, struct buf *out);
	bool has_effect; /* "status" of the reply says whether it had one; else it is a question */
};

static bool had_effect(const json_t *reply)
{
	return json_is_true(json_object_get(reply, "status"));
}

static int print_one(struct ctl *c, const struct query *q, const struct client_answer *a)
{
	struct buf text = {0}, words = {0};

	if (!a->reply)
		return EXIT_DONE;
	if (q->wrapped)
		buf_addf(&text, "response length = %zu\nresponse = ", a->raw_bytes);
	buf_addf(&text, "%s\n", a->raw);
	int status = command_print(c->cmd, &text);
	if (q->explain)
		q->explain(c, a->reply, &words);
	if (words.len)
		ctl_notice(c, "%s", buf_str(&words));
	buf_release(&text);
	buf_release(&words);
	return status;
}

/* Hosts that failed come last. */
static int print_many(const struct ctl *c, const struct query *q,
		      const struct client_answer *answers)
{
	const char *titles[TABLE_COLUMNS + 1];
	struct table t = {.titles = titles};
	struct buf text = {0};

	ctl_set_titles(q->columns, true, true, titles);
	for (int failed = 0; failed < 2; failed++)
		for (size_t i = 0; i < c->hosts.n; i++) {
			const struct client_answer *a = &answers[i];

			if ((a->reply == NULL) != failed)
				continue;
			table_text(&t, c->hosts.v[i].label);
			if (a->reply)
				ctl_add_cells(q->columns, a->reply, &t);
			for (int n = 0; failed && q->columns[n].title; n++)
				table_text(&t, "-");
			table_textf(&t, "%s%s", failed ? "failed: " : "",
				    failed ? a->err.text : "");
		}
	table_print(&t, 0, &text);
	int status = command_print(c->cmd, &text);
	table_release(&t);
	buf_release(&text);
	return status;
}

static int exit_status(const struct ctl *c, const struct query *q,
		       const struct client_answer *answers)
{
	int status = ctl_failures(c, answers);

	for (size_t i = 0; i < c->hosts.n && q->has_effect && status == EXIT_DONE; i++)
		if (ctl_is_strict(c) && !had_effect(answers[i].reply))
			status = EXIT_FINDING;
	return status;
}

static int run_query(struct ctl *c, void *options)
{
	const struct query_options *o = options;
	const struct query *q = c->cmd->data;
	json_t *request = json_pack("{s:s}", "fn", q->fn);
	struct client_answer *answers = client_answers_new(&c->group);
	struct err err = {0};
	int status;

	if (o->duration_s)
		json_object_set_new(request, "duration_s", json_integer(o->duration_s));
	if (client_ask_all(&c->group, request, answers, &err) < 0) {
		status = ctl_fail(c, &err, EXIT_FAILED);
	} else {
		status = c->common->json  ? ctl_print_json(c, answers, NULL, NULL)
			 : c->hosts.n > 1 ? print_many(c, q, answers)
					  : print_one(c, q, &answers[0]);
		if (status == EXIT_DONE)
			status = exit_status(c, q, answers);
	}
	client_answers_free(&c->group, answers);
	return status;
}

static const struct query_options defaults = {CTL_COMMON_DEFAULTS, 0};
#define STEPS(defaults_, announce_)                                                                \
	{                                                                                          \
		&(defaults_), sizeof(defaults_), .announce = announce_, .run = run_query           \
	}

/* --- status --- */

static const char *text_of(const json_t *reply, const char *key)
{
	const char *value = json_string_value(json_object_get(reply, key));

	return value ? value : "-";
}

/* Requests that wait for the next poll of a process change no state that is reported. */
static size_t count_pending(struct ctl *c)
{
	struct client_answer *answers = client_answers_new(&c->group);
	json_t *list = NULL, *row;
	size_t n = 0, i;

	if (client_list_processes(&c->group, json_object(), &list, answers, NULL) == 0)
		json_array_foreach(list, i, row) n += json_is_true(json_object_get(row, "pending"));
	json_decref(list);
	client_answers_free(&c->group, answers);
	return n;
}

static void explain_idle(struct ctl *c, struct buf *out)
{
	size_t n = count_pending(c);

	if (n)
		buf_addf(out,
			 "%zu process%s yet to fetch a request: Pending in '%s ps', and Idle here "
			 "until then",
			 n, n == 1 ? " has" : "es have", ctl_name(c));
	else
		buf_add_str(out, "nothing is being collected now, and no request is pending");
}

static void explain_status(struct ctl *c, const json_t *reply, struct buf *out)
{
	const json_t *upstream = json_object_get(reply, "status");
	const char *trace = text_of(reply, "nputrace"), *monitor = text_of(reply, "npumonitor");
	long long step = json_integer_value(json_object_get(reply, "current_step"));
	long long start = json_integer_value(json_object_get(reply, "start_step"));
	long long stop = json_integer_value(json_object_get(reply, "stop_step"));

	if (!strcmp(trace, "Running"))
		buf_addf(out, "a trace of steps %lld to %lld is being taken, now at step %lld",
			 start, stop, step);
	else if (!strcmp(trace, "Ready"))
		buf_addf(out, "a trace waits for step %lld, now at step %lld", start, step);
	else if (!strcmp(monitor, "Running"))
		buf_add_str(out, "npu-monitor is running; stop it before nputrace");
	else if (!strcmp(trace, "Uninitialized"))
		buf_addf(out,
			 "no NPU process that you may see has reported to this daemon; '%s ps' "
			 "lists all that have "
			 "registered",
			 ctl_name(c));
	else if (!strcmp(trace, "Idle"))
		explain_idle(c, out);
	else if (json_is_integer(upstream) && !json_integer_value(upstream))
		buf_add_str(out, "the daemon is up, but its last sample of the GPUs had gaps");
	else if (!json_object_get(reply, "nputrace"))
		buf_add_str(out, "the daemon is up; it does not report states of profilers");
}

static const struct ctl_column status_columns[] = {
	{"NPUTRACE", "nputrace", CTL_TEXT},   {"NPUMONITOR", "npumonitor", CTL_TEXT},
	{">STEP", "current_step", CTL_COUNT}, {">START", "start_step", CTL_COUNT},
	{">STOP", "stop_step", CTL_COUNT},    {NULL, NULL, CTL_TEXT}};
static const struct query status_query = {STEPS(defaults, true), "getStatus",
					  .columns = status_columns, .explain = explain_status};

static const struct args_example status_examples[] = {
	{"one host", "sonde ctl --hostname node1 status"},
	{"all nodes of a Slurm job", "sonde ctl status --slurm-job 4711"},
	{NULL, NULL},
};

const struct command cmd_ctl_status = CTL_COMMAND(
	"status", ctl_command_usage, ctl_options, status_examples, &status_query,
	.summary = "what the profilers and monitors of hosts are doing",
	.description = "Prints the state of nputrace and npu-monitor and the current step. "
		       "Uninitialized: no process has reported. Idle: nothing is being "
		       "collected. Ready: a trace waits for its first step. Running: data is "
		       "being collected. Of many processes the busiest is shown.");

/* --- version --- */

static const struct ctl_column version_columns[] = {{"VERSION", "version", CTL_TEXT},
						    {NULL, NULL, CTL_TEXT}};
static const struct query version_query = {STEPS(defaults, true), "getVersion",
					   .columns = version_columns};

const struct command cmd_ctl_version = CTL_COMMAND(
	"version", ctl_command_usage, ctl_options, NULL, &version_query,
	.summary = "the version of the daemons of hosts",
	.description = "Prints the version of the daemon. That of this program: --version.");

/* --- dcgm-pause and dcgm-resume: a profiler may use the GPU's profiling counters meanwhile --- */

static void explain_dcgm(struct ctl *c, const json_t *reply, struct buf *out)
{
	(void)c;
	if (!had_effect(reply))
		buf_add_str(out, "no effect: the daemon does not read profiling counters of a GPU");
}

static const struct ctl_column dcgm_columns[] = {{"RESULT", "status", CTL_EFFECT},
						 {NULL, NULL, CTL_TEXT}};
static const struct query_options pause_defaults = {CTL_COMMON_DEFAULTS, .duration_s = 300};
static const struct query pause_query = {
	STEPS(pause_defaults, false), "dcgmProfPause", true, dcgm_columns, explain_dcgm, true};
static const struct query resume_query = {STEPS(defaults, false), "dcgmProfResume", true,
					  dcgm_columns,		  explain_dcgm,	    true};

static const struct opt pause_options[] = {
	OPTION_UINT("duration-s", "SECONDS", offsetof(struct query_options, duration_s), 1,
		    INT32_MAX, "300", "It resumes by itself after this time.", .group = "Pause"),
	CTL_COMMON_ROWS,
};

const struct command cmd_ctl_dcgm_pause = CTL_COMMAND(
	"dcgm-pause", ctl_command_usage, pause_options, NULL, &pause_query,
	.summary = "pause the daemon's use of the GPU's profiling counters",
	.description = "Pauses the daemon's use of the profiling counters of the GPUs, so "
		       "that a profiler such as Nsight Compute can use them.");

const struct command cmd_ctl_dcgm_resume =
	CTL_COMMAND("dcgm-resume", ctl_command_usage, ctl_options, NULL, &resume_query,
		    .summary = "resume the daemon's use of the GPU's profiling counters",
		    .description = "Ends a dcgm-pause before its time.");
