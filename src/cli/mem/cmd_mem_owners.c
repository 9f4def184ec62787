/* SPDX-License-Identifier: MulanPSL-2.0 */
/* sonde mem owners: who owns what at a moment, in words or as JSON. */
#include <string.h>

#include "cli/mem/analysis_command.h"
#include "memory/analysis/owners/owners.h"

struct owners_options {
	struct analysis_options common; /* first */
	struct owners_at at;
	struct groups_options groups;
};

static int parse_at(struct args *a, const struct opt *opt, const char *value, struct err *err)
{
	struct owners_options *o = a->target;

	(void)opt;
	return owners_at_parse(value, strlen(value), &o->at, err);
}

static struct analysis *make_analysis(void *options)
{
	struct owners_options *o = options;

	struct analysis *a = owners_new(&o->at);
	owners_group(a, &o->groups);
	return a;
}

static int print_owners(const struct command *cmd, const char *path, void *options)
{
	const struct owners_options *o = options;
	struct analysis_run run;
	struct err err = {0};

	if (mem_groups_option(&o->groups, &err) < 0)
		return command_fail(cmd, &err, EXIT_USAGE);
	int status = analysis_read(cmd, path, make_analysis, options, &run);

	if (status == EXIT_DONE && owners_reached(run.analysis, &err) < 0)
		status = command_fail(cmd, &err, EXIT_FAILED);
	else if (status == EXIT_DONE)
		status = analysis_print(cmd, &run, options);
	analysis_release(&run);
	return status;
}

static int mem_owners_run(const struct command *cmd, int argc, char **argv)
{
	struct owners_options o = {.common = ANALYSIS_DEFAULTS};

	return analysis_main(cmd, argc, argv, print_owners, &o);
}

static const struct opt options[] = {
	COMMAND_HELP_OPTION,
	{.group = "Analysis options",
	 .name = "at",
	 .kind = OPT_CALL,
	 .arg = "MOMENT",
	 .parse = parse_at,
	 .default_text = "peak",
	 .help = "Which moment: peak (of each device), end, step:N (the highest moment of that "
		 "step), +12.5s or +300ms (after the first row), or a time in nanoseconds since "
		 "the epoch, as rows have it."},
	ANALYSIS_GROUP_OPTIONS(struct owners_options, groups),
	ANALYSIS_OPTIONS,
	OPT_END,
};

static const struct args_example examples[] = {
	{"who holds the memory at the peak", "sonde mem owners memscopeDumpResults"},
	{"in the middle of a run", "sonde mem owners --at=+90s memscopeDumpResults"},
	{"which layers of the model", "sonde mem owners --by=module memscopeDumpResults"},
	{"in step 20, for another program",
	 "sonde mem owners --at=step:20 --json memscopeDumpResults"},
	{NULL, NULL},
};

const struct command cmd_mem_owners = {
	.name = "mem owners",
	.spec = {.name = "sonde mem owners",
		 .summary = "who owns the memory at the peak, or at any moment",
		 .description =
			 "Divides the memory that a process holds of a device at one moment among "
			 "its owners: frameworks and their pools, labels (weights, gradients, your "
			 "own), CANN modules, and what lies unused inside the pools. The parts add "
			 "up to what the driver handed out. CANN is the Ascend software below the "
			 "frameworks. Record with --analysis=decompose to have owners.",
		 ANALYSIS_SPEC},
	.run = mem_owners_run,
};
