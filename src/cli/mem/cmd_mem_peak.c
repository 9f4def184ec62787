/* SPDX-License-Identifier: MulanPSL-2.0 */
/* sonde mem peak: what was alive when a device held most, in words or as JSON. */
#include <errno.h>
#include <string.h>

#include "cli/mem/analysis_command.h"
#include "memory/analysis/peak/peak.h"

struct peak_command {
	struct analysis_options common; /* first */
	struct peak_options peak;
};

static struct analysis *make_analysis(void *options)
{
	struct peak_command *o = options;

	return peak_new(&o->peak);
}

static int explain_peak(const struct command *cmd, const char *path, void *options)
{
	const struct peak_command *o = options;
	struct err err = {0};

	if (o->common.fail_on && !o->peak.limit_bytes) {
		err_set(&err, -EINVAL, "--fail-on=limit needs --limit=BYTES");
		return command_fail(cmd, &err, EXIT_USAGE);
	}
	if (mem_groups_option(&o->peak.groups, &err) < 0)
		return command_fail(cmd, &err, EXIT_USAGE);
	return analysis_command(cmd, path, make_analysis, options);
}

static int mem_peak_run(const struct command *cmd, int argc, char **argv)
{
	struct peak_command o = {.common = ANALYSIS_DEFAULTS};

	return analysis_main(cmd, argc, argv, explain_peak, &o);
}

static const struct opt options[] = {
	COMMAND_HELP_OPTION,
	{.group = "Analysis options",
	 .name = "limit",
	 .kind = OPT_SIZE,
	 .arg = "BYTES",
	 .min = 1,
	 .offset = offsetof(struct peak_command, peak.limit_bytes),
	 .help = "What a device may peak at in one process: bytes, or 60GiB, 900MiB, 60G "
		 "(GiB), 64GB (of 1000). --fail-on=limit checks it."},
	ANALYSIS_GROUP_OPTIONS(struct peak_command, peak.groups),
	ANALYSIS_OPTIONS,
	ANALYSIS_FAIL_OPTION("limit", "if a device peaked above --limit"),
	OPT_END,
};

static const struct args_example examples[] = {
	{"what to make smaller", "sonde mem peak memscopeDumpResults"},
	{"which layers of the model", "sonde mem peak --by=module memscopeDumpResults"},
	{"in a CI job", "sonde mem peak --limit=30GiB --fail-on=limit memscopeDumpResults"},
	{NULL, NULL},
};

const struct command cmd_mem_peak = {
	.name = "mem peak",
	.spec = {.name = "sonde mem peak",
		 .summary = "what was alive at the peak, and what would lower it",
		 .description =
			 "Explains the highest moment of each device: when it was, how much the "
			 "driver and the pools held, by owner and by call stack, the blocks that "
			 "weigh most with their age and how long they lived on, and how far below "
			 "the next highest step lies. Record with --analysis=decompose to see "
			 "owners, and with --call-stack=c to see places. --fail-on=limit: status 3 "
			 "if a device peaked above --limit.",
		 ANALYSIS_SPEC},
	.run = mem_peak_run,
};
