/* SPDX-License-Identifier: MulanPSL-2.0 */
/* sonde mem recover: finishes what a killed recorder left behind. */
#include <errno.h>

#include "cli/command.h"
#include "memory/input/recording_path.h"
#include "recorder/recover.h"

static int mem_recover_run(const struct command *cmd, int argc, char **argv)
{
	struct buf where = {0}, report = {0};
	struct args a = {0};
	struct err err = {0};

	int status = command_parse(cmd, &a, argc, argv);
	if (status >= 0)
		goto out;
	int r = recording_resolve(a.words[0], &where, &err);
	if (r == 0)
		r = recover_recording(buf_str(&where), &report, &err);
	status = r < 0 ? command_fail(cmd, &err, EXIT_FAILED) : command_print(cmd, &report);
out:
	buf_release(&where);
	buf_release(&report);
	args_release(&a);
	return status;
}

static const struct opt options[] = {COMMAND_HELP_OPTION, OPT_END};

static const char *const usage[] = {"<recording>", NULL};

static const struct args_example examples[] = {
	{"after the scheduler killed everything", "sonde mem recover memscopeDumpResults"},
	{NULL, NULL},
};

const struct command cmd_mem_recover = {
	.name = "mem recover",
	.spec = {.name = "sonde mem recover",
		 .summary = "finish a recording whose recorder was killed",
		 .description = "When job and recorder are killed in the same instant, the last "
				"events are still in the memory files beside the recording. This "
				"moves them into it, finishes its dump files and reports what was "
				"found. It does no harm to a recording that is complete.",
		 .usage = usage,
		 .options = options,
		 .examples = examples,
		 .min_words = 1,
		 .max_words = 1},
	.run = mem_recover_run,
};
