/* SPDX-License-Identifier: MulanPSL-2.0 */
/* sonde ctl status: what the profilers and monitors of a host are doing. */
#include "cli/ctl/query.h"

#include <string.h>

struct status_options {
	struct ctl_common common;
};

static const char *text(const json_t *reply, const char *key)
{
	const char *value = json_string_value(json_object_get(reply, key));

	return value ? value : "-";
}

static void cell_step(const json_t *reply, const char *key, struct table *t)
{
	const json_t *n = json_object_get(reply, key);

	if (json_is_integer(n) && json_integer_value(n) >= 0)
		table_textf(t, "%lld", (long long)json_integer_value(n));
	else
		table_textf(t, "-");
}

static void cells(const json_t *reply, struct table *t)
{
	table_textf(t, "%s", text(reply, "nputrace"));
	table_textf(t, "%s", text(reply, "npumonitor"));
	cell_step(reply, "current_step", t);
	cell_step(reply, "start_step", t);
	cell_step(reply, "stop_step", t);
}

static void words(const struct ctl *c, const json_t *reply, struct buf *out)
{
	const json_t *upstream = json_object_get(reply, "status");
	const char *trace = text(reply, "nputrace"), *monitor = text(reply, "npumonitor");
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
			 "no NPU process has reported to this daemon; '%s ps' lists all that "
			 "have registered",
			 ctl_is_dyno(c) ? "dyno" : "sonde ctl");
	else if (!strcmp(trace, "Idle"))
		buf_addf(out,
			 "nothing is being collected now; a request that a process has yet to "
			 "fetch shows as Pending in '%s ps'",
			 ctl_is_dyno(c) ? "dyno" : "sonde ctl");
	else if (json_is_integer(upstream) && !json_integer_value(upstream))
		buf_add_str(out, "the daemon is up, but its last sample of the GPUs had gaps");
	else if (!json_object_get(reply, "nputrace"))
		buf_add_str(out, "the daemon is up; it is one that tells no states of profilers");
}

static json_t *request(const void *options)
{
	(void)options;
	return json_pack("{s:s}", "fn", "getStatus");
}

static int status_run(const struct command *cmd, int argc, char **argv)
{
	static const char *const titles[] = {"NPUTRACE", "NPUMONITOR", ">STEP",
					     ">START",	 ">STOP",      NULL};
	static const struct ctl_query query = {
		.request = request, .titles = titles, .cells = cells, .words = words};
	struct status_options o = {CTL_COMMON_DEFAULTS};

	return ctl_query_command(&query, cmd, &o, argc, argv);
}

static const char *const usage[] = {"[options]", NULL};

static const struct args_example examples[] = {
	{"one host", "sonde ctl --hostname node1 status"},
	{"all nodes of a Slurm job", "sonde ctl status --slurm-job 4711"},
	{NULL, NULL},
};

const struct command cmd_ctl_status = {
	.name = "ctl status",
	.alias = "dyno status",
	.spec = {.name = "sonde ctl status",
		 .summary = "what the profilers and monitors of hosts are doing",
		 .description = "Tells the state of nputrace and npu-monitor and the current step. "
				"Uninitialized: no process has reported. Idle: nothing is being "
				"collected. "
				"Ready: a trace waits for its first step. Running: data is being "
				"collected. Of many processes the busiest is told.",
		 .usage = usage,
		 .options = ctl_options,
		 .examples = examples,
		 .flags = ARGS_GFLAGS},
	.run = status_run,
};
