/* SPDX-License-Identifier: MulanPSL-2.0 */
/* sonde ctl ps: the processes that registered with the daemons. */
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"
#include "cli/ctl/ctl.h"
#include "cli/ctl/values.h"

#define ANY_JOB UINT64_MAX
#define READ_MS 50
#define READ_TRIES 20

struct ps_options {
	struct ctl_common common;
	uint64_t job_id;
	const char *pids;
};

const struct ctl_column ctl_process_columns[] = {
	{">PID", "pid", CTL_COUNT},	      {">RANK", "rank", CTL_COUNT},
	{">DEV", "device", CTL_COUNT},	      {">JOB", "job_id", CTL_COUNT},
	{"USER", "user", CTL_TEXT},	      {"STATE", "state", CTL_TEXT},
	{">STEP", "current_step", CTL_COUNT}, {">SEEN", "last_seen_s", CTL_SECONDS},
	{"COMMAND", "command", CTL_TEXT},     {NULL, NULL, CTL_TEXT}};

void ctl_add_process(const struct ctl *c, size_t host, const json_t *process, struct table *t)
{
	if (c->hosts.n > 1)
		table_text(t, c->hosts.v[host].label);
	ctl_add_cells(ctl_process_columns, process, t);
}

/* The answers hold the last page of a list only. */
static void set_processes(const void *lists, size_t host, json_t *row)
{
	json_t *list = ((json_t *const *)lists)[host];

	json_object_del(row, "reply");
	json_object_set(row, "processes", list ? list : json_null());
}

static int print_table(const struct ctl *c, json_t *const *lists,
		       const struct client_answer *answers, bool some)
{
	const char *titles[TABLE_COLUMNS + 1];
	struct table t = {.titles = titles};
	struct buf text = {0};
	size_t at, answered = 0, others = 0, at_start = 0;
	json_t *process;

	ctl_set_titles(ctl_process_columns, c->hosts.n > 1, false, titles);
	for (size_t i = 0; i < c->hosts.n; i++) {
		answered += answers[i].reply != NULL;
		others += client_count_others(answers[i].reply);
		json_array_foreach(lists[i], at, process)
		{
			ctl_add_process(c, i, process, &t);
			at_start += json_is_true(json_object_get(process, "rank_at_start"));
		}
	}
	table_print(&t, terminal_columns(STDOUT_FILENO, NULL), &text);
	int status = command_print(c->cmd, &text);
	for (size_t i = 0; i < c->hosts.n && c->hosts.n > 1; i++)
		if (!answers[i].reply)
			ctl_notice(c, "%s: %s", c->hosts.v[i].label, answers[i].err.text);
	if (at_start)
		ctl_notice(
			c,
			"%zu rank%s of the environment at the start: a daemon with --user does not "
			"look into processes, and knows those that have set their rank since when "
			"their monitor is on",
			at_start, at_start == 1 ? " is" : "s are");
	if (others)
		ctl_notice(c, "%zu process%s to other users and %s not listed", others,
			   others == 1 ? " belongs" : "es belong", others == 1 ? "is" : "are");
	else if (answered && !t.n && some)
		ctl_notice(c, "no registered process has that job or one of those ids; without "
			      "--job-id and --pids all are listed");
	else if (answered && !t.n)
		ctl_notice(c, "no process has registered: start jobs after the daemon, by 'sonde "
			      "monitor -- COMMAND', or with KINETO_USE_DAEMON=1 (PyTorch) or "
			      "MSMONITOR_USE_DAEMON=1 (torch_npu, MindSpore), and the daemon with "
			      "--enable-ipc-monitor");
	table_release(&t);
	buf_release(&text);
	return status;
}

static bool is_still_read(const struct ctl *c, json_t *const *lists)
{
	const json_t *row;
	size_t at;

	for (size_t i = 0; i < c->hosts.n; i++)
		json_array_foreach(
			lists[i], at,
			row) if (json_is_true(json_object_get(row, "facts_pending"))) return true;
	return false;
}

/* A daemon does not wait long for what it reads of a process that it lists for the first time:
 * rank and command come with the next list. Takes the filter. */
static int list_with_facts(struct ctl *c, json_t *filter, json_t **lists,
			   struct client_answer *answers, struct err *err)
{
	const struct timespec moment = {0, READ_MS * 1000000};
	int r = client_list_processes(&c->group, json_deep_copy(filter), lists, answers, err);

	for (int i = 0; i < READ_TRIES && r == 0 && is_still_read(c, lists); i++) {
		for (size_t k = 0; k < c->hosts.n; k++) {
			json_decref(lists[k]);
			lists[k] = NULL;
		}
		nanosleep(&moment, NULL);
		r = client_list_processes(&c->group, json_deep_copy(filter), lists, answers, err);
	}
	json_decref(filter);
	return r;
}

static int list_processes(struct ctl *c, void *options)
{
	const struct ps_options *o = options;
	struct client_answer *answers = client_answers_new(&c->group);
	json_t **lists = xcalloc(c->hosts.n, sizeof(*lists)), *filter = json_object();
	bool some = o->pids || o->job_id != ANY_JOB;
	struct err err = {0};
	int status = EXIT_DONE;

	if (o->job_id != ANY_JOB)
		json_object_set_new(filter, "job_id", json_integer((json_int_t)o->job_id));
	if (o->pids)
		json_object_set_new(filter, "pids", ctl_pids(o->pids));
	if (list_with_facts(c, filter, lists, answers, &err) < 0)
		status = ctl_fail(c, &err, EXIT_FAILED);
	else if (c->common->json)
		status = ctl_print_json(c, answers, set_processes, lists);
	else if (c->hosts.n > 1 || answers[0].reply)
		status = print_table(c, lists, answers, some);
	if (status == EXIT_DONE)
		status = ctl_failures(c, answers);
	for (size_t i = 0; i < c->hosts.n; i++)
		json_decref(lists[i]);
	free(lists);
	client_answers_free(&c->group, answers);
	return status;
}

static const struct ps_options defaults = {CTL_COMMON_DEFAULTS, .job_id = ANY_JOB};
static const struct ctl_steps steps = {&defaults, sizeof(defaults), .run = list_processes};

static const struct opt options[] = {
	OPTION_CALL("job-id", "ID", ctl_value_u64, offsetof(struct ps_options, job_id), NULL,
		    "Only those of this job.", .group = "Which processes"),
	OPTION_CALL("pids", "PIDS", ctl_value_pids, offsetof(struct ps_options, pids), NULL,
		    "Only these processes and their descendants, separated by commas."),
	CTL_COMMON_ROWS,
};

static const struct args_example examples[] = {
	{"everything that is registered on this host", "sonde ctl ps"},
	{"on eight hosts, for another program",
	 "sonde ctl ps --hostname node[1-8] --json | jq '.[].processes[].pid'"},
	{NULL, NULL},
};

const struct command cmd_ctl_ps = CTL_COMMAND(
	"ps", ctl_command_usage, options, examples, &steps,
	.summary = "list the processes that have registered",
	.description = "Lists the processes that have registered with the daemons: process id "
		       "(inside its own container, if it is in one), rank, device, job, user, "
		       "what it is doing, its step, when it was last heard of, and its command.");
