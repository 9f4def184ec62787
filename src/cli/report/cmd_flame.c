/* SPDX-License-Identifier: MulanPSL-2.0 */
/* sonde flame: a flame graph of a recording, a dump or a profile; one picture, and quickly. */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/text/number_words.h"
#include "base/text/text.h"
#include "cli/mem/analysis_command.h"
#include "cli/report/open_page.h"
#include "memory/export/block_profile.h"
#include "report/page.h"
#include "report/profiles.h"

struct flame_command {
	struct analysis_options common; /* first */
	const char *output, *at;
	bool open;
	struct block_profile_options profile;
};

static bool is_profile(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 && !S_ISDIR(st.st_mode) && !text_ends_with(path, ".csv") &&
	       !text_ends_with(path, ".db") && !text_ends_with(path, ".sonde") &&
	       profile_input_of(path);
}

static struct analysis *make_profile(void *options)
{
	return block_profile_new(&((struct flame_command *)options)->profile);
}

/* Memory of a moment as a picture alone. */
static int write_memory_svg(const struct command *cmd, const char *path, struct flame_command *o)
{
	const char *at = o->at ? o->at : "peak";
	struct export_sums sums = {0};
	struct analysis_run run;
	struct buf title = {0};
	struct err err = {0};

	if (owners_at_parse(at, strlen(at), &o->profile.at, &err) < 0)
		return command_fail(cmd, &err, EXIT_USAGE);
	buf_addf(&title, "Memory at %s%s", at[0] == 'p' || at[0] == 'e' ? "the " : "", at);
	o->profile.format = PROFILE_FLAME;
	o->profile.title = buf_str(&title);
	int status = analysis_read(cmd, path, make_profile, o, &run);
	if (status == EXIT_DONE && block_profile_write(run.analysis, o->output, &sums, &err) < 0)
		status = command_fail(cmd, &err, EXIT_FAILED);
	analysis_release(&run);
	buf_release(&title);
	return status;
}

static int write_page(const struct command *cmd, const char *path, const struct flame_command *o)
{
	struct input_choice choice = {0};
	struct page_written written = {0};
	struct err err = {0};

	if (mem_choice_option(o->common.pid, o->common.rank, &choice, &err) < 0)
		return command_fail(cmd, &err, EXIT_USAGE);
	struct page_options options = {.flame = true,
				       .wait_s = o->common.wait_s,
				       .choice = o->common.pid || o->common.rank ? &choice : NULL};
	struct page *page = page_new(&options);
	int r = page_add(page, path, &err);
	if (r == 0)
		r = page_write(page, o->output, &written, &err);
	page_free(page);
	input_choice_release(&choice);
	return r < 0 ? command_fail(cmd, &err, EXIT_FAILED) : EXIT_DONE;
}

static int write_flame(const struct command *cmd, const char *path, void *options)
{
	struct flame_command *o = options;
	bool svg = text_ends_with(o->output, ".svg"), profile = is_profile(path);
	struct err err = {0};
	int status;

	if (text_ends_with(o->output, ".png") || text_ends_with(o->output, ".pdf") ||
	    text_ends_with(o->output, ".jpg")) {
		err_set(&err, -EINVAL,
			"'%s': the name must end with .svg (a picture) or .html (a page); a "
			"browser "
			"prints both to PDF",
			o->output);
		return command_fail(cmd, &err, EXIT_USAGE);
	}
	if (o->at && (!svg || profile)) {
		err_set(&err, -EINVAL,
			"--at is for a picture of memory, -o FILE.svg: the page has every moment");
		return command_fail(cmd, &err, EXIT_USAGE);
	}
	if (svg && profile)
		status = profiles_write_svg(path, o->output, &err) < 0
				 ? command_fail(cmd, &err, EXIT_FAILED)
				 : EXIT_DONE;
	else
		status = svg ? write_memory_svg(cmd, path, o) : write_page(cmd, path, o);
	if (status == EXIT_DONE && o->open)
		open_page(cmd->spec.name, o->output);
	else if (status == EXIT_DONE)
		fprintf(stderr, "sonde flame: wrote '%s'; open it in a browser\n", o->output);
	return status;
}

static int flame_run(const struct command *cmd, int argc, char **argv)
{
	struct flame_command o = {.common = ANALYSIS_DEFAULTS, .output = "flame.html"};

	return analysis_main(cmd, argc, argv, write_flame, &o);
}

static const struct opt options[] = {
	COMMAND_HELP_OPTION,
	OPTION_TEXT("output", "FILE", offsetof(struct flame_command, output), "flame.html",
		    "The file; it is replaced. A name that ends with .svg: a picture of one "
		    "moment, for a chat or a ticket; else a page, with every moment.",
		    .group = "Output options", .letters = "o"),
	OPTION_TEXT("at", "WHEN", offsetof(struct flame_command, at), "peak",
		    "With .svg, of memory: peak, end, step:3 (its highest moment), +12.5s after "
		    "the first row, or a time in nanoseconds since the epoch."),
	OPTION_FLAG("open", offsetof(struct flame_command, open),
		    "Open it in the browser of the desktop (xdg-open); where there is none, say "
		    "where the file is."),
	MEM_PROCESS_OPTIONS(struct analysis_options),
	MEM_WAIT_OPTION(struct analysis_options,
			"How long to wait for a recorder that is still finishing its files."),
	OPT_END,
};

static const char *const usage[] = {"[options] <recording, dump or profile>", NULL};

static const struct args_example examples[] = {
	{"who holds the memory, at any moment", "sonde flame --open memscopeDumpResults"},
	{"the peak as a picture for a ticket", "sonde flame -o peak.svg memscopeDumpResults"},
	{"of a Python profile", "sonde flame -o stacks.html flame.txt"},
	{NULL, NULL},
};

const struct command cmd_flame = {
	.name = "flame",
	.page = "sonde-flame",
	.spec = {.name = "sonde flame",
		 .summary = "a flame graph of a recording, a dump or a profile",
		 .description =
			 "Draws call stacks as boxes that are as wide as what they hold: the "
			 "memory of "
			 "a recording or a dump, or the samples of a profile (collapsed text, "
			 "speedscope, a Chrome trace of `sonde stack`). It is the flame graph of "
			 "`sonde report` alone.",
		 .usage = usage,
		 .options = options,
		 .examples = examples,
		 .min_words = 1,
		 .max_words = 1},
	.run = flame_run,
};
