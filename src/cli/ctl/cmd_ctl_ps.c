/* SPDX-License-Identifier: MulanPSL-2.0 */
/* sonde ctl ps: the processes that registered with the daemons. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/mem.h"
#include "cli/ctl/processes.h"
#include "cli/ctl/values.h"

#define ANY_JOB UINT64_MAX

struct ps_options {
	struct ctl_common common;
	uint64_t job_id;
	const char *pids;
};

static int tell_json(const struct ctl *c, json_t *const *lists, const struct ctl_answer *answers)
{
	json_t *all = json_array();

	for (size_t i = 0; i < c->hosts.n; i++) {
		json_t *row = ctl_answer_json(c, i, &answers[i]);

		json_object_del(row, "reply");
		json_object_set(row, "processes", lists[i] ? lists[i] : json_null());
		json_array_append_new(all, row);
	}
	return command_print_json(c->cmd, all);
}

static int tell(const struct ctl *c, json_t *const *lists, const struct ctl_answer *answers,
		bool some)
{
	struct table t = {.titles = ctl_process_titles(c)};
	struct buf text = {0};
	size_t at, found = 0, answered = 0;
	json_t *process;

	for (size_t i = 0; i < c->hosts.n; i++) {
		answered += answers[i].reply != NULL;
		json_array_foreach(lists[i], at, process)
		{
			ctl_process_row(c, i, process, &t);
			found++;
		}
	}
	table_print(&t, terminal_columns(STDOUT_FILENO, NULL), &text);
	int status = command_print(c->cmd, &text);
	for (size_t i = 0; i < c->hosts.n && c->hosts.n > 1; i++)
		if (!answers[i].reply)
			ctl_say(c, "%s: %s", c->hosts.v[i].label, answers[i].err.text);
	if (answered && !found && some)
		ctl_say(c, "no registered process has that job or one of those ids; without "
			   "--job-id and --pids all are listed");
	else if (answered && !found)
		ctl_say(c, "no process has registered: start jobs after the daemon, by 'sonde "
			   "monitor -- COMMAND', or with KINETO_USE_DAEMON=1 (PyTorch) or "
			   "MSMONITOR_USE_DAEMON=1 (torch_npu, MindSpore), and the daemon with "
			   "--enable-ipc-monitor");
	table_release(&t);
	buf_release(&text);
	return status;
}

static int list(struct ctl *c, const struct ps_options *o)
{
	struct ctl_answer *answers = ctl_answers_new(c);
	json_t **lists = xcalloc(c->hosts.n, sizeof(*lists));
	json_t *filter = json_object();
	struct err err = {0};
	int status;

	if (o->job_id != ANY_JOB)
		json_object_set_new(filter, "job_id", json_integer((json_int_t)o->job_id));
	if (o->pids)
		json_object_set_new(filter, "pids", ctl_pids(o->pids));
	if (ctl_processes_ask(c, filter, lists, answers, &err) < 0)
		status = ctl_fail(c, &err, EXIT_FAILED);
	else if (c->common->json)
		status = tell_json(c, lists, answers);
	else
		status = c->hosts.n > 1 || answers[0].reply
				 ? tell(c, lists, answers, o->pids || o->job_id != ANY_JOB)
				 : EXIT_DONE;
	if (status == EXIT_DONE)
		status = ctl_failures(c, answers);
	for (size_t i = 0; i < c->hosts.n; i++)
		json_decref(lists[i]);
	free(lists);
	ctl_answers_free(c, answers);
	return status;
}

static int ps_run(const struct command *cmd, int argc, char **argv)
{
	struct ps_options o = {CTL_COMMON_DEFAULTS, .job_id = ANY_JOB};
	struct args a = {.target = &o};
	struct ctl c = {0};

	int status = ctl_begin(&c, cmd, &a, argc, argv);
	if (status < 0)
		status = ctl_open(&c, false);
	if (status < 0)
		status = list(&c, &o);
	ctl_end(&c);
	args_release(&a);
	return status;
}

static const struct opt options[] = {
	{.group = "Which processes",
	 .name = "job-id",
	 .kind = OPT_CALL,
	 .arg = "ID",
	 .parse = ctl_value_u64,
	 .offset = offsetof(struct ps_options, job_id),
	 .help = "Only those of this job."},
	{.name = "pids",
	 .kind = OPT_CALL,
	 .arg = "PIDS",
	 .parse = ctl_value_pids,
	 .offset = offsetof(struct ps_options, pids),
	 .help = "Only these processes and their descendants, separated by commas."},
	CTL_COMMON_ROWS,
};

static const char *const usage[] = {"[options]", NULL};

static const struct args_example examples[] = {
	{"everything that is registered on this host", "sonde ctl ps"},
	{"on eight hosts, for another program",
	 "sonde ctl ps --hostname node[1-8] --json | jq '.[].processes[].pid'"},
	{NULL, NULL},
};

const struct command cmd_ctl_ps = {
	.name = "ctl ps",
	.alias = "dyno ps",
	.spec = {.name = "sonde ctl ps",
		 .summary = "list the processes that have registered",
		 .description =
			 "Lists the processes that have registered with the daemons: process id "
			 "(inside its own container, if it is in one), rank, device, job, user, "
			 "what it is doing, its step, when it was last heard of, and its command.",
		 .usage = usage,
		 .options = options,
		 .examples = examples,
		 .flags = ARGS_GFLAGS},
	.run = ps_run,
};
