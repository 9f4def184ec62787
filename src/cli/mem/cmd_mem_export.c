/* SPDX-License-Identifier: MulanPSL-2.0 */
/* sonde mem export: writes the dump files of a recording anew, in the form asked for. */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/mem/analysis_command.h"
#include "memory/input/recording_path.h"
#include "memory/options/config.h"
#include "memory/outputs/outputs.h"

struct export_options {
	unsigned format;
	const char *output;
	const char *compat;
};

static const char *const formats[] = {"csv", "db", NULL};

/* Beside the recording, if nothing was said. */
static void default_output(const char *recording, struct buf *out)
{
	const char *slash = strrchr(recording, '/');
	struct stat st;

	if (stat(recording, &st) == 0 && S_ISDIR(st.st_mode))
		buf_addf(out, "%s/export", recording);
	else if (slash)
		buf_addf(out, "%.*s/export", (int)(slash - recording), recording);
	else
		buf_add_str(out, "export");
}

static int write_export(const struct command *cmd, const char *path, void *options)
{
	const struct export_options *o = options;
	struct buf where = {0}, to = {0}, notes = {0};
	struct err err = {0};

	int compat = mem_compat_option(o->compat, &err);
	if (compat < 0)
		return command_fail(cmd, &err, EXIT_USAGE);
	int r = recording_resolve(path, &where, &err);
	if (r == 0) {
		if (o->output)
			buf_add_str(&to, o->output);
		else
			default_output(buf_str(&where), &to);
		struct outputs_export what = {
			.format = formats[o->format],
			.output_dir = buf_str(&to),
			.compat = (enum row_compat)compat,
			.out_notes = &notes,
		};
		r = outputs_export(buf_str(&where), &what, &err);
	}
	fputs(buf_str(&notes), stderr);
	if (r == 0 && isatty(STDERR_FILENO))
		fprintf(stderr, "written below %s\n", buf_str(&to));
	buf_release(&where);
	buf_release(&to);
	buf_release(&notes);
	return r < 0 ? command_fail(cmd, &err, EXIT_FAILED) : EXIT_DONE;
}

static int mem_export_run(const struct command *cmd, int argc, char **argv)
{
	struct export_options o = {0};

	return analysis_main(cmd, argc, argv, write_export, &o);
}

static const struct opt options[] = {
	COMMAND_HELP_OPTION,
	{.group = "Output options",
	 .name = "format",
	 .kind = OPT_CHOICE,
	 .arg = "FORMAT",
	 .choices = formats,
	 .offset = offsetof(struct export_options, format),
	 .default_text = "csv",
	 .help = "Form of the dump: csv, or db (SQLite, for MindStudio Insight)."},
	{.name = "output-path",
	 .letters = "o",
	 .kind = OPT_TEXT,
	 .arg = "DIR",
	 .offset = offsetof(struct export_options, output),
	 .default_text = "export in the recording",
	 .help = "Directory for the files. It is created if it does not exist."},
	{.name = "compat",
	 .kind = OPT_TEXT,
	 .arg = "VERSION",
	 .offset = offsetof(struct export_options, compat),
	 .default_text = "current",
	 .help = "Write event and attribute names as another version does: 26.0, or current. The "
		 "environment variable " MEM_COMPAT_ENV " does the same."},
	OPT_END,
};

static const char *const usage[] = {"[options] <recording>", NULL};

static const struct args_example examples[] = {
	{"a database of what was recorded as csv",
	 "sonde mem export --format=db memscopeDumpResults"},
	{NULL, NULL},
};

const struct command cmd_mem_export = {
	.name = "mem export",
	.spec = {.name = "sonde mem export",
		 .summary = "write a recording as csv or db",
		 .description = "Reads a recording from its beginning and writes its dump files as "
				"if it had been recorded in that form. Prints nothing when all "
				"went well.",
		 .usage = usage,
		 .options = options,
		 .examples = examples,
		 .min_words = 1,
		 .max_words = 1},
	.run = mem_export_run,
};
