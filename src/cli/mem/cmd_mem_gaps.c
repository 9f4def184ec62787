/* SPDX-License-Identifier: MulanPSL-2.0 */
/* sonde mem gaps: how evenly the pools are used within the steps of a job. */
#include "cli/mem/analysis_command.h"
#include "memory/analysis/gaps/gaps.h"

struct gaps_options {
	struct analysis_options common;
	unsigned spread_percent;
};

static struct analysis *make_analysis(void *options)
{
	const struct gaps_options *o = options;

	return gap_new(&(struct gap_options){o->spread_percent});
}

static int print_gaps(const struct command *cmd, const char *path, void *options)
{
	return analysis_command(cmd, path, make_analysis, options);
}

static int mem_gaps_run(const struct command *cmd, int argc, char **argv)
{
	struct gaps_options o = {.common = ANALYSIS_DEFAULTS,
				 .spread_percent = GAP_MAX_SPREAD_PERCENT};

	return analysis_main(cmd, argc, argv, print_gaps, &o);
}

static const struct opt options[] = {
	COMMAND_HELP_OPTION,
	OPTION_UINT("spread", "PERCENT", offsetof(struct gaps_options, spread_percent), 0, 100,
		    "20",
		    "Steps are uneven if the lowest and the highest ratio are more percentage "
		    "points apart than this.",
		    .group = "What counts"),
	ANALYSIS_OPTIONS,
	ANALYSIS_FAIL_OPTION("uneven", "if steps are not alike"),
	OPT_END,
};

static const struct args_example examples[] = {
	{"the newest recording of an output path", "sonde mem gaps memscopeDumpResults"},
	{"fail a CI job whose steps are not alike",
	 "sonde mem gaps --fail-on=uneven memscopeDumpResults"},
	{NULL, NULL},
};

const struct command cmd_mem_gaps = {
	.name = "mem gaps",
	.spec = {.name = "sonde mem gaps",
		 .summary = "show how much memory swings within the steps of a job",
		 .description = "For every pool of a device: the least memory in use within a "
				"step, divided by the most, in the steps where this was lowest "
				"(MinGap) and highest (MaxGap). The first step is the warm-up and "
				"left out. Steps end with msmemscope.step() in Python or with "
				"sonde_step(), or are mstx ranges named \"step start\". "
				"--fail-on=uneven: status 3 if the two differ by "
				"more than --spread.",
		 ANALYSIS_SPEC},
	.run = mem_gaps_run,
};
