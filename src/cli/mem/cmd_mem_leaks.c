/* SPDX-License-Identifier: MulanPSL-2.0 */
/* sonde mem leaks: which places of a job lose memory. */
#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "cli/mem/analysis_command.h"
#include "memory/analysis/leaks/leaks.h"
#include "memory/analysis/leaks/marks.h"
#include "memory/options/config.h"

struct leak_options {
	struct analysis_options common;
	struct leaks_options leaks;
	const char *mark;
	unsigned start;
	bool start_given;
	const char *compat;
};

static struct analysis *make_analysis(void *options)
{
	const struct leak_options *o = options;

	return o->mark ? leaks_marks_new(o->mark, o->start) : leaks_new(&o->leaks);
}

static int parse_start(struct args *a, const struct opt *opt, const char *value, struct err *err)
{
	struct leak_options *o = a->target;

	(void)opt;
	if (!args_number(value, strlen(value), 0, 1000000000, &o->start))
		return err_set(err, -EINVAL, "--start '%s' is not a number from 0 to 1000000000",
			       value);
	o->start_given = true;
	return 0;
}

static int find_leaks(const struct command *cmd, const char *path, void *options)
{
	struct leak_options *o = options;
	struct analysis_run run;
	struct err err = {0};
	int compat = mem_compat_option(o->compat, &err);

	if (compat < 0)
		return command_fail(cmd, &err, EXIT_USAGE);
	o->common.literal = compat == ROW_26_0;

	if (o->start_given && !o->mark) {
		err_set(&err, -EINVAL, "--start counts the marks that --mark names: give both");
		return command_fail(cmd, &err, EXIT_USAGE);
	}
	if (o->leaks.by && o->mark) {
		err_set(&err, -EINVAL, "--by is about steps, --mark about marks: give one of them");
		return command_fail(cmd, &err, EXIT_USAGE);
	}
	int status = analysis_read(cmd, path, make_analysis, options, &run);
	if (status == EXIT_DONE) {
		status = analysis_print(cmd, &run, o);
		if (o->mark && leaks_marks_failed(run.analysis))
			status = EXIT_FAILED;
	}
	analysis_release(&run);
	return status;
}

static int mem_leaks_run(const struct command *cmd, int argc, char **argv)
{
	struct leak_options o = {.common = ANALYSIS_DEFAULTS, .leaks = LEAKS_OPTIONS_DEFAULT};

	return analysis_main(cmd, argc, argv, find_leaks, &o);
}

static const struct opt options[] = {
	COMMAND_HELP_OPTION,
	{.group = "What counts",
	 .name = "min-bytes",
	 .kind = OPT_SIZE,
	 .arg = "BYTES",
	 .offset = offsetof(struct leak_options, leaks.min_bytes),
	 .default_text = "0; for host memory 1024 in a step",
	 .help = "Leave out call sites that lost fewer bytes in all."},
	OPTION_CHOICE("by", "WHAT", leaks_by_names, offsetof(struct leak_options, leaks.by), "site",
		      "What the answer adds up: site (one call stack), line (all call stacks of a "
		      "line of your code), or module (paths in the models of PyTorch, equal layers "
		      "as one: h.*.mlp), which needs a recording with --analysis=decompose."),
	OPTION_TEXT(
		"mark", "TEXT", offsetof(struct leak_options, mark), NULL,
		"Compare marks of the program instead of steps: find what was allocated between "
		"the first and the second mark with this text and not freed by the third."),
	{.name = "start",
	 .kind = OPT_CALL,
	 .arg = "N",
	 .parse = parse_start,
	 .default_text = "0",
	 .help = "With --mark: which of these marks is the first, counted from 0."},
	OPTION_TEXT("compat", "VERSION", offsetof(struct leak_options, compat), "current",
		    "With 26.0 also print the lines of msMemScope, one for each block (\"Direct … "
		    "leak of … Mb(s)\"), which scripts may look for. The environment "
		    "variable " MEM_COMPAT_ENV " does the same."),
	ANALYSIS_OPTIONS,
	ANALYSIS_FAIL_OPTION("leak", "if a place leaks"),
	OPT_END,
};

static const struct args_example examples[] = {
	{"the newest recording of an output path", "sonde mem leaks memscopeDumpResults"},
	{"fail a CI job that leaks", "sonde mem leaks --fail-on=leak memscopeDumpResults"},
	{"which layers of the model grow", "sonde mem leaks --by=module memscopeDumpResults"},
	{"a job without steps that calls mstxMarkA(\"round\", NULL)",
	 "sonde mem leaks --mark=round --start=1 memscopeDumpResults"},
	{NULL, NULL},
};

const struct command cmd_mem_leaks = {
	.name = "mem leaks",
	.spec = {.name = "sonde mem leaks",
		 .summary = "find the places of a job that lose memory",
		 .description =
			 "Finds out whether a job leaks, where, and how much in a step: which "
			 "places (call stacks) add, step by step, to what is alive when the last "
			 "step ends. Memory that was taken once, a cache that has filled up and a "
			 "buffer of the last few steps are listed apart. The first step is the "
			 "warm-up. Steps end with msmemscope.step() in Python or with "
			 "sonde_step(), or are mstx ranges named \"step start\"; those of PyTorch "
			 "programs without any are detected. --fail-on=leak: "
			 "status 3 if the memory of a place grows. Growth needs at least three "
			 "steps: with fewer, no leak is reported. Without steps, places that grow "
			 "over time are named. --fail-on=leak ends with 1 where the answer is not "
			 "known: too few steps, growth without steps, host memory that is not "
			 "covered, or an incomplete recording.\n\n"
			 "With --mark three marks take the place of steps. The exit status is 1 if "
			 "a device has fewer than three of them.",
		 ANALYSIS_SPEC},
	.run = mem_leaks_run,
};
