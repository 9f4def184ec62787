/* SPDX-License-Identifier: MulanPSL-2.0 */
/* sonde recorder: the process behind a recording. Started by launchers and by guests, not by hand.
 */
#include <stdlib.h>

#include "base/log.h"
#include "cli/command.h"
#include "recorder/recorder.h"

static int recorder_run(const struct command *cmd, int argc, char **argv)
{
	const char *levels = getenv("SONDE_LOG");
	struct args a = {0};

	int status = command_parse(cmd, &a, argc, argv);
	if (status < 0) {
		if (levels)
			(void)log_configure(levels, NULL);
		status = recorder_main(a.words[0]) == 0 ? EXIT_DONE : EXIT_FAILED;
	}
	args_release(&a);
	return status;
}

static const struct opt options[] = {COMMAND_HELP_OPTION, OPT_END};

static const char *const usage[] = {"<session directory>", NULL};

const struct command cmd_recorder = {
	.name = "recorder",
	.hidden = true,
	.spec = {.name = "sonde recorder",
		 .summary = "serve one recording (internal)",
		 .description = "Reads the events of all processes of a job and writes its "
				"recording. Started by msmemscope.",
		 .usage = usage,
		 .options = options,
		 .min_words = 1,
		 .max_words = 1},
	.run = recorder_run,
};
