/* SPDX-License-Identifier: MulanPSL-2.0 */
/* sonde mem oom: why a job ran out of device memory. */
#include "cli/mem/analysis_command.h"
#include "memory/analysis/oom/oom.h"

static struct analysis *make_analysis(void *options)
{
	(void)options;
	return oom_new();
}

static int explain_oom(const struct command *cmd, const char *path, void *options)
{
	return analysis_command(cmd, path, make_analysis, options);
}

static int mem_oom_run(const struct command *cmd, int argc, char **argv)
{
	struct analysis_options o = ANALYSIS_DEFAULTS;

	return analysis_main(cmd, argc, argv, explain_oom, &o);
}

static const struct opt options[] = {
	COMMAND_HELP_OPTION,
	ANALYSIS_OPTIONS,
	ANALYSIS_FAIL_OPTION("oom", "if the job ran out of memory"),
	OPT_END,
};

static const struct args_example examples[] = {
	{"why the job ended", "sonde mem oom memscopeDumpResults"},
	{"record with more blocks and their call stacks",
	 "msmemscope --analysis=oom:50 --call-stack=c -- python train.py"},
	{"in a CI job", "sonde mem oom --fail-on=oom memscopeDumpResults"},
	{NULL, NULL},
};

const struct command cmd_mem_oom = {
	.name = "mem oom",
	.spec = {.name = "sonde mem oom",
		 .summary = "explain why memory of a device or of the host ran out",
		 .description =
			 "For every request for memory that was refused, by a driver or on the "
			 "host: "
			 "what was asked for and where, what held the memory at that moment, why "
			 "there was "
			 "not enough, and the numbers that prove it. The first verdict that "
			 "applies is given:\n\n"
			 "oversized request: more than the device, or the machine, has in all.\n\n"
			 "leak: what was allocated step by step and never freed would have been "
			 "enough.\n\n"
			 "fragmentation: enough is free inside a pool or on the device, but no "
			 "piece is large enough.\n\n"
			 "other process: without what others hold on the device the request would "
			 "have fitted.\n\n"
			 "real exhaustion: none of these; the job needs more memory than there "
			 "is.\n\n"
			 "A recording holds refused requests whatever the options were, a dump "
			 "file (csv or db) only with --analysis=oom. How much a device has and "
			 "what others hold is known if the vendor's management library "
			 "(libdcmi.so) could be loaded while recording. --fail-on=oom: status 3 "
			 "if memory ran out.",
		 ANALYSIS_SPEC},
	.run = mem_oom_run,
};
