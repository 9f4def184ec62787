/* SPDX-License-Identifier: MulanPSL-2.0 */
/* sonde activity summary: where the time of traced steps went, of all ranks together. */
#include <stddef.h>
#include <string.h>

#include "activity/steps/files.h"
#include "cli/command.h"

struct summary_options {
	const char *request;
	unsigned top;
	bool json;
};

static int tell(const struct command *cmd, const char *dir, const struct summary_options *o)
{
	struct split_job job = {0};
	struct buf text = {0};
	struct err err = {0};
	int status;

	if (split_job_read(&job, dir, o->request, &err) < 0) {
		split_job_release(&job);
		return command_fail(cmd, &err, EXIT_FAILED);
	}
	split_job_judge(&job);
	if (o->json) {
		status = command_print_json(cmd, split_job_json(&job));
	} else {
		split_job_text(&job, o->top, &text);
		status = command_print(cmd, &text);
	}
	buf_release(&text);
	split_job_release(&job);
	return status;
}

static int activity_summary_run(const struct command *cmd, int argc, char **argv)
{
	struct summary_options o = {.top = SPLIT_TOP};
	struct args a = {.target = &o};

	int status = command_parse(cmd, &a, argc, argv);
	if (status < 0)
		status = tell(cmd, a.words[0], &o);
	args_release(&a);
	return status;
}

static const struct opt options[] = {
	COMMAND_HELP_OPTION,
	{.group = "What to show",
	 .name = "request",
	 .kind = OPT_TEXT,
	 .arg = "ID",
	 .offset = offsetof(struct summary_options, request),
	 .default_text = "the newest",
	 .help = "Which order of nputrace, if there are traces of several: the number in the name "
		 "of its summary."},
	{.name = "top",
	 .kind = OPT_UINT,
	 .arg = "N",
	 .offset = offsetof(struct summary_options, top),
	 .min = 1,
	 .max = 1000000,
	 .default_text = "25",
	 .help = "How many lines a table has at most."},
	{.name = "json",
	 .kind = OPT_FLAG,
	 .offset = offsetof(struct summary_options, json),
	 .help = "Print JSON, with nothing left out."},
	OPT_END,
};

static const char *const usage[] = {"[options] <directory>", NULL};

static const struct args_example examples[] = {
	{"the newest trace below a --log-file of nputrace", "sonde activity summary /tmp/trace"},
	{"one rank of it", "sonde activity summary /tmp/trace/node0_4711_20260131120000123_sonde"},
	{"which rank is slowest, for a program",
	 "sonde activity summary --json /tmp/trace | jq .slowest"},
	{NULL, NULL},
};

const struct command cmd_activity_summary = {
	.name = "activity summary",
	.spec = {.name = "sonde activity summary",
		 .summary = "where the time of traced steps went, of all ranks",
		 .description =
			 "Tells from the traces that nputrace has left, of all ranks together, "
			 "where the time of a step goes: compute, communication that no compute "
			 "hides, copies, idle; how much of the communication runs behind compute; "
			 "which rank is slowest, by how much and in what; and which kernels took "
			 "the time. Ranks that have left no trace come first, with where the "
			 "others stand: in a hang, those wait for them. The directory is the "
			 "--log-file of nputrace, or that of one "
			 "rank below it. With --analyse the same is left there as "
			 "summary_<request>.txt and .json.",
		 .usage = usage,
		 .options = options,
		 .examples = examples,
		 .min_words = 1,
		 .max_words = 1},
	.run = activity_summary_run,
};
