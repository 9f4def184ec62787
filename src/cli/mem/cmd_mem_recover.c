/* SPDX-License-Identifier: MulanPSL-2.0 */
/* sonde mem recover: finishes what a killed recorder left behind. */
#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/command.h"
#include "memory/input/recording_path.h"
#include "recorder/recover.h"

/* What was found in the directory that the person named must lie there. */
static int check_found(const char *named, const char *found, struct err *err)
{
	struct stat st;

	if (!strcmp(named, found) || (lstat(found, &st) == 0 && S_ISDIR(st.st_mode)))
		return 0;
	return err_set(err, -ELOOP, "'%s' is a link: name what it points to if you mean that",
		       found);
}

static int mem_recover_run(const struct command *cmd, int argc, char **argv)
{
	struct buf where = {0}, report = {0};
	struct recover_options o = {0};
	struct args a = {.target = &o};
	struct err err = {0};

	int status = command_parse(cmd, &a, argc, argv);
	if (status >= 0)
		goto out;
	int r = recording_resolve(a.words[0], &where, &err);
	if (r == 0)
		r = check_found(a.words[0], buf_str(&where), &err);
	if (r == 0)
		r = recover_recording(buf_str(&where), &o, &report, &err);
	status = r < 0 ? command_fail(cmd, &err, EXIT_FAILED) : command_print(cmd, &report);
out:
	buf_release(&where);
	buf_release(&report);
	args_release(&a);
	return status;
}

static const struct opt options[] = {
	COMMAND_HELP_OPTION,
	OPTION_TEXT("output-path", "DIR", offsetof(struct recover_options, output),
		    "the directory that holds the recording",
		    "Write dumps where the recording says, if that is DIR or below it, and all "
		    "others into DIR.",
		    .letters = "o", .group = "Places"),
	OPTION_TEXT("rings", "DIR", offsetof(struct recover_options, rings),
		    "beside the recording, or its own directory of buffers",
		    "Take the last events from the buffers (*.ring) in DIR, and delete them "
		    "there."),
	OPT_END,
};

static const char *const usage[] = {"[options] <recording>", NULL};

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
				"found. It does no harm to a recording that is complete.\n\n"
				"A recording may come from anybody, so what it says about other "
				"places is not believed: files are written and deleted in its "
				"directory and the one that holds it alone, unless an option names "
				"another. Links in them are not followed. Root recovers the "
				"recording of another user with that user's rights.",
		 .usage = usage,
		 .options = options,
		 .examples = examples,
		 .min_words = 1,
		 .max_words = 1},
	.run = mem_recover_run,
};
