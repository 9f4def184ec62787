/* SPDX-License-Identifier: MulanPSL-2.0 */
/* sonde mem compare: two recordings or dumps, call by call. */
#include <errno.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/text/number_read.h"
#include "cli/mem/analysis_command.h"
#include "cli/mem/compare_by.h"
#include "cli/mem/compare_run.h"
#include "memory/analysis/compare/compare.h"
#include "memory/options/config.h"
#include "wire/control_page.h"

struct compare_options {
	bool json;
	unsigned top;
	unsigned wait_s;
	unsigned level; /* index in levels */
	struct groups_options groups; /* by: call, or as in owners */
	unsigned fail_on;
	const char *output;
	const char *pids, *rank;
};

static const char *const levels[] = {"op", "kernel", "op,kernel", "site", NULL};
static const unsigned level_bits[] = {COMPARE_OPERATORS, COMPARE_KERNELS,
				      COMPARE_OPERATORS | COMPARE_KERNELS, COMPARE_SITES};
#define LEVEL_NOT_GIVEN UINT_MAX
static const char *const findings[] = {"nothing", "diff", NULL};

/* "12" or "12,34": of base and of compare; 0: all. */
static int parse_pids(const char *text, unsigned pid[2], struct err *err)
{
	const char *comma = text ? strchr(text, ',') : NULL;
	int64_t number[2] = {0};

	pid[0] = pid[1] = 0;
	if (!text)
		return 0;
	size_t first = comma ? (size_t)(comma - text) : strlen(text);
	bool good = number_read(text, first, &number[0]);
	number[1] = number[0];
	if (good && comma)
		good = number_read(comma + 1, strlen(comma + 1), &number[1]);
	for (unsigned i = 0; i < 2; i++) {
		good = good && number[i] > 0 && number[i] < UINT32_MAX;
		pid[i] = (unsigned)number[i];
	}
	return good ? 0
		    : err_set(err, -EINVAL, "invalid pid '%.100s': expected PID or PID,PID", text);
}

static const char *const divisions[] = {"call", "module", "line", "type", NULL};

/* In place of call by call. */
static int compare_groups(const struct command *cmd, const struct compare_options *o,
			  char *const input[2])
{
	struct compare_by job = {.input = {input[0], input[1]},
				 .groups = o->groups,
				 .rank = o->rank,
				 .top = o->top,
				 .wait_s = o->wait_s,
				 .json = o->json,
				 .fail_on_difference = o->fail_on != 0};
	struct err err = {0};

	if (parse_pids(o->pids, job.pid, &err) < 0)
		return command_fail(cmd, &err, EXIT_USAGE);
	return compare_by_run(cmd, &job);
}

static int choose_runs(const struct compare_options *o, struct compare_job *job, struct err *err)
{
	unsigned pid[2];
	int r = parse_pids(o->pids, pid, err);

	for (unsigned i = 0; i < 2 && r == 0; i++)
		r = mem_choice_option(pid[i], o->rank, &job->choice[i], err);
	return r;
}

static int mem_compare_run(const struct command *cmd, int argc, char **argv)
{
	struct compare_options o = {
		.top = 10, .wait_s = 10, .output = SESSION_OUTPUT, .level = LEVEL_NOT_GIVEN};
	struct args a = {.target = &o};
	char output[MEM_PATH_BYTES];
	struct err err = {0};

	int status = command_parse(cmd, &a, argc, argv);
	if (status < 0 && mem_groups_option(&o.groups, &err) < 0)
		status = command_fail(cmd, &err, EXIT_USAGE);
	if (status < 0 && mem_path(o.output, output, &err) < 0)
		status = command_fail(cmd, &err, EXIT_USAGE);
	if (status < 0) {
		struct compare_job job = {
			.input = {a.words[0], a.words[1]},
			.output_dir = output,
			.level = o.level == LEVEL_NOT_GIVEN ? 0 : level_bits[o.level],
			.top = o.top,
			.wait_s = o.wait_s,
			.json = o.json,
			.fail_on_difference = o.fail_on != 0,
		};

		if (o.groups.by != GROUPS_BY_OWNER)
			status = compare_groups(cmd, &o, a.words);
		else if (choose_runs(&o, &job, &err) < 0)
			status = command_fail(cmd, &err, EXIT_USAGE);
		else
			status = compare_run(cmd, &job);
	}
	args_release(&a);
	return status;
}

static const struct opt options[] = {
	COMMAND_HELP_OPTION,
	OPTION_CHOICE("level", "LEVEL", levels, offsetof(struct compare_options, level),
		      "op, or site where no operator was recorded",
		      "What is compared: op (calls of operators: rows ATEN_END and ATB_END), "
		      "kernel (launches: KERNEL_LAUNCH), op,kernel (both in one sequence), or "
		      "site: what the blocks of each call site held at most, for any recording.",
		      .group = "Analysis options"),
	OPTION_CHOICE(
		"by", "WHAT", divisions, offsetof(struct compare_options, groups.by),
		"call, as --level says",
		"Compare what is held at the peaks instead: by module (paths in the models of "
		"PyTorch), line (the call site) or type (weights, gradients, ...), of two "
		"recordings with --analysis=decompose."),
	OPTION_UINT("depth", "N", offsetof(struct compare_options, groups.depth), 1, 64,
		    "4, without parameters",
		    "With --by=module: how many parts of a path are shown."),
	COMMAND_JSON_OPTION(struct compare_options),
	OPTION_TEXT("output-path", "DIR", offsetof(struct compare_options, output), SESSION_OUTPUT,
		    "Where the result is written, as compare/memory_compare_<time>.csv.",
		    .letters = "o"),
	COMMAND_TOP_OPTION(struct compare_options,
			   "How many names, and how many single differences, are listed."),
	OPTION_CHOICE(
		"fail-on", "WHAT", findings, offsetof(struct compare_options, fail_on),
		"nothing, findings do not change the status",
		"Exit with status 3 if there is a difference (diff), for scripts and CI jobs."),
	OPTION_TEXT("pid", "PID[,PID]", offsetof(struct compare_options, pids), "all processes",
		    "Compare this process of base with this one of compare. With one number: the "
		    "same in both."),
	MEM_RANK_OPTION(struct compare_options),
	MEM_WAIT_OPTION(struct compare_options,
			"How long to wait for a recorder that is still finishing its files."),
	OPT_END,
};

static const char *const usage[] = {"[options] <base> <compare>", NULL};

static const struct args_example examples[] = {
	{"two runs, by their output paths", "sonde mem compare before after"},
	{"which layers hold more", "sonde mem compare --by=module before after"},
	{"kernel by kernel, and fail if anything differs",
	 "sonde mem compare --level=kernel --fail-on=diff before after"},
	{"two dump files, for another program", "sonde mem compare --json a.csv b.db"},
	{NULL, NULL},
};

const struct command cmd_mem_compare = {
	.name = "mem compare",
	.spec = {.name = "sonde mem compare",
		 .summary = "compare two runs call by call",
		 .description =
			 "Pairs the operator calls (or kernel launches) of two runs, device by "
			 "device, and lists which stand in one of them only and where the memory "
			 "of a call differs. Runs without operators are compared by call site. The "
			 "result is written as a csv file, too.\n\n"
			 "Each of the two is a dump file (csv or db), a recording, or a directory: "
			 "then the newest dump below it is taken, with those of the other devices "
			 "of that process, or, without dumps, the newest recording. By call site, "
			 "and with --pid or --rank, the newest recording comes first, which has "
			 "all "
			 "processes. The last lines of the answer say what was compared.",
		 .usage = usage,
		 .options = options,
		 .examples = examples,
		 .min_words = 2,
		 .max_words = 2},
	.run = mem_compare_run,
};
