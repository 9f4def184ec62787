/* SPDX-License-Identifier: MulanPSL-2.0 */
/* sonde mem show: what is in a recording or a dump, in words or as JSON. */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <unistd.h>

#include "cli/mem/analysis_command.h"
#include "memory/input/recording_path.h"
#include "memory/outputs/show.h"

struct show_options {
	bool json;
	unsigned top;
	unsigned wait_s;
	unsigned pid;
	const char *rank;
};

static int show_summary(const struct command *cmd, const char *path, void *options)
{
	const struct show_options *o = options;
	struct buf where = {0}, text = {0};
	struct input_choice choice;
	struct err err = {0};
	int status;

	if (mem_choice_option(o->pid, o->rank, &choice, &err) < 0)
		return command_fail(cmd, &err, EXIT_USAGE);
	int r = recording_resolve(path, &where, &err);
	if (r == 0) {
		if (recording_wait(buf_str(&where), o->wait_s))
			fprintf(stderr,
				"%s: the recorder is still writing; this is what there is\n",
				cmd->spec.name);
		r = input_choose(buf_str(&where), &choice, &err);
	}
	struct show_style style = {o->json, isatty(STDOUT_FILENO), o->top, &choice};
	if (r == 0)
		r = show_recording(buf_str(&where), &style, &text, &err);
	status = r < 0 ? command_fail(cmd, &err, EXIT_FAILED) : command_print(cmd, &text);
	input_choice_release(&choice);
	buf_release(&where);
	buf_release(&text);
	return status;
}

static int mem_show_run(const struct command *cmd, int argc, char **argv)
{
	struct show_options o = {.top = 10, .wait_s = 10};

	return analysis_main(cmd, argc, argv, show_summary, &o);
}

static const struct opt options[] = {
	COMMAND_HELP_OPTION,
	COMMAND_JSON_OPTION(struct show_options),
	COMMAND_TOP_OPTION(struct show_options,
			   "How many call sites that still hold memory are listed for each pool."),
	MEM_PROCESS_OPTIONS(struct show_options),
	MEM_WAIT_OPTION(struct show_options, "How long to wait for a recorder that is still "
					     "finishing its files after the end of the job."),
	OPT_END,
};

static const struct args_example examples[] = {
	{"the newest recording of an output path", "sonde mem show memscopeDumpResults"},
	{"for another program", "sonde mem show --json --top=100 memscopeDumpResults"},
	{NULL, NULL},
};

const struct command cmd_mem_show = {
	.name = "mem show",
	.spec = {.name = "sonde mem show",
		 .summary = "summarise a recording or a dump",
		 .description =
			 "Shows what a recording or a dump file (csv or db) holds; begin here. For "
			 "every device and pool the events, the peak and when it was, how it got "
			 "there over time, what was "
			 "still alive at the end and from where, and how many events were "
			 "lost, if any.",
		 ANALYSIS_SPEC},
	.run = mem_show_run,
};
