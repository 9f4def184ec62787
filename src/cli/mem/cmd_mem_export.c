/* SPDX-License-Identifier: MulanPSL-2.0 */
/* sonde mem export: writes the dump files of a recording anew, or a file for another viewer. */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text/printable.h"
#include "cli/mem/analysis_command.h"
#include "memory/analysis/common/report.h"
#include "memory/export/block_profile.h"
#include "memory/export/torch_snapshot.h"
#include "memory/input/recording_path.h"
#include "memory/options/config.h"
#include "memory/outputs/outputs.h"

struct export_options {
	struct analysis_options common; /* first */
	unsigned format;
	const char *output;
	const char *compat;
	const char *at;
	struct torch_snapshot_options torch;
	struct block_profile_options profile;
};

enum format {
	FORMAT_CSV,
	FORMAT_DB,
	FORMAT_TORCH, /* from here on files of one moment, for other viewers */
	FORMAT_PPROF,
	FORMAT_COLLAPSED,
	FORMAT_SPEEDSCOPE,
	FORMAT_SVG,
};
static const char *const formats[] = {"csv",	   "db",	 "torch", "pprof",
				      "collapsed", "speedscope", "svg",	  NULL};

static const struct {
	const char *name; /* of the file, if none is given */
	enum profile_format profile;
	const char *viewer;
} viewers[] = {
	[FORMAT_TORCH] = {"memory_snapshot.pickle", 0,
			  "open it at https://pytorch.org/memory_viz, or: python -m "
			  "torch.cuda._memory_viz trace_plot FILE"},
	[FORMAT_PPROF] = {"memory.pb.gz", PROFILE_PPROF, "open it with: pprof -http=: FILE"},
	[FORMAT_COLLAPSED] = {"memory.collapsed.txt", PROFILE_COLLAPSED,
			      "flame graph programs read it, bytes are its counts"},
	[FORMAT_SPEEDSCOPE] = {"memory.speedscope.json", PROFILE_SPEEDSCOPE,
			       "open it at https://www.speedscope.app"},
	[FORMAT_SVG] = {"memory.svg", PROFILE_FLAME, "open it in a browser"},
};

static struct analysis *make_viewer_file(void *options)
{
	struct export_options *o = options;

	return o->format == FORMAT_TORCH ? torch_snapshot_new(&o->torch)
					 : block_profile_new(&o->profile);
}

static void print_written(const struct export_options *o, const struct export_sums *sums,
			  struct buf *files, struct buf *notes)
{
	struct buf t = {0};

	add_text(&t, "wrote {} of {} block{}", BYTES(sums->bytes), NUMBER(sums->blocks),
		 TEXT(sums->blocks == 1 ? "" : "s"));
	if (o->format == FORMAT_TORCH)
		add_text(&t, " and {} events", NUMBER(sums->events));
	buf_add_str(&t, " to ");
	for (const char *line = buf_str(files); *line;) {
		size_t n = strcspn(line, "\n");

		text_add_printable(&t, line, n);
		line += n + (line[n] != '\0');
		buf_add_str(&t, *line ? ", " : "");
	}
	fprintf(stderr, "sonde mem export: %s; %s\n", buf_str(&t), viewers[o->format].viewer);
	buf_clear(&t);
	analysis_add_notes(notes, &t);
	fputs(buf_str(&t), stderr);
	buf_release(&t);
}

/* A file for another viewer: what was alive at a moment, and for torch how it came to that. */
static int write_viewer_file(const struct command *cmd, const char *path, struct export_options *o)
{
	const char *output = o->output ? o->output : viewers[o->format].name;
	const char *at = o->at ? o->at : o->format == FORMAT_TORCH ? "end" : "peak";
	struct export_sums sums = {0};
	struct analysis_run run;
	struct buf files = {0}, title = {0};
	struct err err = {0};
	int r, status;

	if (owners_at_parse(at, strlen(at), &o->torch.at, &err) < 0)
		return command_fail(cmd, &err, EXIT_USAGE);
	o->torch.path = output;
	o->profile.at = o->torch.at;
	o->profile.format = viewers[o->format].profile;
	buf_addf(&title, "Memory at %s%s", at[0] == 'p' || at[0] == 'e' ? "the " : "", at);
	o->profile.title = buf_str(&title);
	status = analysis_read(cmd, path, make_viewer_file, o, &run);
	if (status == EXIT_DONE && o->format == FORMAT_TORCH) {
		r = torch_snapshot_write(run.analysis, &sums, &files, &err);
	} else if (status == EXIT_DONE) {
		r = block_profile_write(run.analysis, output, &sums, &err);
		buf_addf(&files, "%s\n", output);
	}
	if (status == EXIT_DONE && r < 0)
		status = command_fail(cmd, &err, EXIT_FAILED);
	else if (status == EXIT_DONE)
		print_written(o, &sums, &files, &run.notes);
	analysis_release(&run);
	buf_release(&files);
	buf_release(&title);
	return status;
}

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
	struct export_options *o = options;
	struct buf where = {0}, to = {0}, notes = {0};
	struct err err = {0};

	if (o->format >= FORMAT_TORCH)
		return write_viewer_file(cmd, path, o);
	if (o->at || o->common.pid || o->common.rank) {
		err_set(&err, -EINVAL,
			"--at, --pid and --rank are for files of viewers: add "
			"--format=torch, pprof, collapsed, speedscope or svg");
		return command_fail(cmd, &err, EXIT_USAGE);
	}
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
	struct export_options o = {.common = ANALYSIS_DEFAULTS};

	return analysis_main(cmd, argc, argv, write_export, &o);
}

static const struct opt options[] = {
	COMMAND_HELP_OPTION,
	OPTION_CHOICE("format", "FORMAT", formats, offsetof(struct export_options, format), "csv",
		      "Dump files: csv, or db (SQLite, for MindStudio Insight). Or one file of "
		      "what was alive at a moment: torch (a snapshot for PyTorch's memory viewer, "
		      "with all allocations and frees before), svg (a flame graph, opened in a "
		      "browser), pprof, collapsed, speedscope.",
		      .group = "Output options"),
	OPTION_TEXT("output-path", "PATH", offsetof(struct export_options, output),
		    "export in the recording; memory.pb.gz and so on here",
		    "Directory for dump files, which is created if it does not exist; else the "
		    "file. Torch's snapshots are of one process: if there are several, their pids "
		    "are added to its name.",
		    .letters = "o"),
	OPTION_TEXT("at", "WHEN", offsetof(struct export_options, at), "peak; of torch: end",
		    "The moment: peak, end, step:3 (its highest moment), +12.5s after the first "
		    "row, or a time in nanoseconds since the epoch. Of peak and step each device "
		    "has its own."),
	MEM_PROCESS_OPTIONS(struct analysis_options),
	MEM_WAIT_OPTION(struct analysis_options,
			"How long to wait for a recorder that is still finishing its files."),
	OPTION_TEXT("compat", "VERSION", offsetof(struct export_options, compat), "current",
		    "Write event and attribute names as another version does: 26.0, or current. "
		    "The environment variable " MEM_COMPAT_ENV " does the same."),
	OPT_END,
};

static const char *const usage[] = {"[options] <recording>",
				    "--format=torch|svg|pprof|collapsed|speedscope [options] "
				    "<recording or dump>",
				    NULL};

static const struct args_example examples[] = {
	{"a database of what was recorded as csv",
	 "sonde mem export --format=db memscopeDumpResults"},
	{"for PyTorch's memory viewer",
	 "sonde mem export --format=torch -o snapshot.pickle memscopeDumpResults"},
	{"a flame graph of the peak",
	 "sonde mem export --format=svg -o peak.svg memscopeDumpResults"},
	{NULL, NULL},
};

const struct command cmd_mem_export = {
	.name = "mem export",
	.spec = {.name = "sonde mem export",
		 .summary = "write a recording as csv or db, or for memory_viz, pprof, speedscope",
		 .description = "Reads a recording from its beginning and writes its dump files as "
				"if it had been recorded in that form; then it prints nothing when "
				"all went well. Or writes what was alive at a moment, by call "
				"stack and in bytes, for viewers that people have; dumps of any "
				"version of msmemscope can be read for these, too.",
		 .usage = usage,
		 .options = options,
		 .examples = examples,
		 .min_words = 1,
		 .max_words = 1},
	.run = mem_export_run,
};
