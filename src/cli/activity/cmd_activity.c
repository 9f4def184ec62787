/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * sonde activity show and export: what a monitor has written, in words or in another form; sonde
 * activity summary: where the time of traced steps went, of all ranks together.
 */
#include "activity/files/activity.h"
#include "activity/read/convert.h"
#include "activity/read/read.h"
#include "activity/read/totals.h"
#include "activity/show/show.h"
#include "activity/steps/files.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/mem.h"
#include "base/text/number_words.h"
#include "cli/command.h"
#include "cli/host_path.h"
#include "cli/record/finish.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct show_options {
	bool json;
	unsigned top;
	struct show_by by;
};

enum format { FORMAT_CHROME, FORMAT_XLSX, FORMAT_CSV, FORMAT_JSONL, FORMAT_DB };
static const char *const formats[] = {"chrome", "xlsx", "csv", "jsonl", "db", NULL};

struct export_options {
	unsigned format;
	const char *output;
};

/* --- show --- */

static int show_files(const struct command *cmd, const struct show_options *o,
		      const struct activity_paths *p)
{
	struct activity_sum sum = {0};
	struct buf text = {0};
	struct err err = {0};
	int r = 0, status;

	for (size_t i = 0; r == 0 && i < p->n; i++)
		r = activity_sum_file(&sum, p->list[i], &err);
	if (r < 0) {
		status = command_fail(cmd, &err, EXIT_FAILED);
	} else {
		activity_sum_finish(&sum);
		bool owners = o->by.by != OWNERS_BY_NONE;

		if (o->json) {
			status = command_print_json(
				cmd, owners ? activity_owners_json(&sum, &o->by, o->top)
					    : activity_show_json(&sum, o->top));
		} else {
			if (owners)
				activity_owners_text(&sum, &o->by, o->top, &text);
			else
				activity_show_text(&sum, o->top, &text);
			status = command_print(cmd, &text);
		}
	}
	activity_sum_release(&sum);
	buf_release(&text);
	return status;
}

static int activity_show_run(const struct command *cmd, int argc, char **argv)
{
	struct show_options o = {.top = 10};
	struct args a = {.target = &o};
	struct activity_paths p = {0};
	struct err err = {0};
	int status = command_parse(cmd, &a, argc, argv);

	for (int i = 0; status < 0 && i < a.nwords; i++)
		record_finish_killed(cmd, a.words[i]);
	if (status < 0)
		status = activity_paths_find(&p, a.words, a.nwords, &err) < 0
				 ? command_fail(cmd, &err, EXIT_FAILED)
				 : show_files(cmd, &o, &p);
	activity_paths_release(&p);
	args_release(&a);
	return status;
}

/* --- export --- */

#define PIECE 65536

/* `path` does not exist yet: it may become a file, or a directory with files. */
typedef int (*stdout_make_fn)(void *arg, const char *path, struct err *err);

static int write_all(const char *data, size_t n, struct err *err)
{
	while (n) {
		ssize_t done = write(STDOUT_FILENO, data, n);

		if (done < 0 && errno == EINTR)
			continue;
		if (done < 0)
			return err_sys(err, -errno, "cannot write to the standard output");
		data += done;
		n -= (size_t)done;
	}
	return 0;
}

static int print_file(const char *path, struct err *err)
{
	int fd = fs_open(path, O_RDONLY, 0, err), r = 0;
	char piece[PIECE];
	ssize_t n = 0;

	if (fd < 0)
		return fd;
	while (r == 0 && (n = read(fd, piece, sizeof(piece))) > 0)
		r = write_all(piece, (size_t)n, err);
	if (r == 0 && n < 0)
		r = err_sys(err, -errno, "cannot read '%s'", path);
	close(fd);
	return r;
}

static int is_plain(const struct dirent *e)
{
	return e->d_name[0] != '.';
}

static int print_dir(const char *dir, struct err *err)
{
	struct dirent **found = NULL;
	int n = scandir(dir, &found, is_plain, alphasort), r = 0;

	for (int i = 0; i < n; i++) {
		char *path = xasprintf("%s/%s", dir, found[i]->d_name);

		if (r == 0)
			r = print_file(path, err);
		free(path);
		free(found[i]);
	}
	free(found);
	return r;
}

/*
 * Exports to the standard output. Writers of files go back and forth in them, so the text is made
 * in a directory of ours first, which goes afterwards. Of a directory all files are printed, in the
 * order of their names.
 */
static int export_to_stdout(stdout_make_fn make, void *arg, struct err *err)
{
	const char *tmp = getenv("TMPDIR");
	char *dir = xasprintf("%s/sonde-export-%ld-%lld", tmp && *tmp ? tmp : "/tmp",
			      (long)getpid(), (long long)clock_real_ns());
	char *path = xasprintf("%s/out", dir);
	struct stat st;
	int r = fs_mkdir(dir, 0700, err);

	if (r == 0) {
		r = make(arg, path, err);
		if (r == 0 && stat(path, &st) == 0)
			r = S_ISDIR(st.st_mode) ? print_dir(path, err) : print_file(path, err);
		(void)fs_remove_tree(dir, NULL);
	}
	free(path);
	free(dir);
	return r;
}

static const struct activity_writer_ops *ops_of(unsigned format)
{
	static const struct activity_writer_ops *const all[] = {
		[FORMAT_CHROME] = &activity_chrome_file,
		[FORMAT_XLSX] = &activity_xlsx_file,
		[FORMAT_CSV] = &activity_csv_file,
		[FORMAT_JSONL] = &activity_jsonl,
		[FORMAT_DB] = &activity_db,
	};

	return all[format];
}

struct exporting {
	const struct activity_paths *paths;
	unsigned format;
	struct converted done;
};

static int convert_files(void *arg, const char *output, struct err *err)
{
	struct exporting *e = arg;

	return activity_convert(e->paths->list, e->paths->n, ops_of(e->format), output, &e->done,
				err);
}

/* What is where now; on stderr, as the standard output may be the product. */
static void describe_written(const struct command *cmd, const struct converted *c,
			     const char *output, bool several)
{
	struct buf text = {0};

	if (!*c->path) {
		fprintf(stderr, "%s: there are no activities: nothing was written\n",
			cmd->spec.name);
		return;
	}
	words_count(&text, c->activities);
	buf_add_str(&text, c->activities == 1 ? " activity" : " activities");
	if (c->processes > 1)
		buf_addf(&text, " of %zu processes", c->processes);
	if (several)
		buf_addf(&text, " are in the directory '%s' now, a file for each process", output);
	else
		buf_addf(&text, " %s in '%s' now", c->activities == 1 ? "is" : "are", c->path);
	fprintf(stderr, "%s: %s\n", cmd->spec.name, buf_str(&text));
	buf_release(&text);
}

static bool is_of_one_process(unsigned format)
{
	return format == FORMAT_DB || format == FORMAT_JSONL;
}

static int export_to(const struct command *cmd, const struct activity_paths *p,
		     const struct export_options *o, struct err *err)
{
	struct exporting e = {.paths = p, .format = o->format};
	int r;

	if (!strcmp(o->output, "-")) {
		if (o->format == FORMAT_XLSX || o->format == FORMAT_DB)
			return err_set(err, -EINVAL,
				       "%s is no text and cannot be printed: give --output a name "
				       "('./-' for a file that is called so)",
				       formats[o->format]);
		r = export_to_stdout(convert_files, &e, err);
	} else {
		r = convert_files(&e, o->output, err);
		if (r == 0)
			describe_written(cmd, &e.done, o->output,
					 e.done.processes > 1 && is_of_one_process(o->format));
	}
	free(e.done.path);
	return r;
}

static int activity_export_run(const struct command *cmd, int argc, char **argv)
{
	struct export_options o = {0};
	struct args a = {.target = &o};
	struct activity_paths p = {0};
	struct err err = {0};
	int status = command_parse(cmd, &a, argc, argv);

	if (status < 0 && !o.output) {
		err_set(&err, -EINVAL, "option '--output' is missing: where is it to be written?");
		status = command_fail(cmd, &err, EXIT_USAGE);
	}
	if (status < 0) {
		for (int i = 0; i < a.nwords; i++)
			record_finish_killed(cmd, a.words[i]);
		int r = activity_paths_find(&p, a.words, a.nwords, &err);

		if (r == 0)
			r = export_to(cmd, &p, &o, &err);
		status = r < 0 ? command_fail(cmd, &err, EXIT_FAILED) : EXIT_DONE;
	}
	activity_paths_release(&p);
	args_release(&a);
	return status;
}

/* --- summary --- */

struct summary_options {
	const char *request;
	unsigned top;
	bool json;
};

/* Who has made the file has not looked at the hosts. */
static void add_advice(struct split_job *j, const struct args *a)
{
	struct buf line = {0};

	for (size_t i = 0; i < j->nranks; i++)
		if (j->ranks[i]->idle.looked)
			return;
	buf_add_str(&line, "Why devices idle: sonde timeline --explain");
	for (int i = 0; i < a->nwords; i++)
		buf_addf(&line, " %s", a->words[i]);
	split_job_note(j, buf_str(&line));
	buf_release(&line);
}

static int summarize_trace(const struct command *cmd, const struct args *a,
			   const struct summary_options *o)
{
	struct split_job job = {0};
	struct buf text = {0};
	struct err err = {0};
	int status;

	for (int i = 0; i < a->nwords; i++) {
		struct host_path p = host_path_read(a->words[i]);

		if (!o->request)
			record_finish_killed(cmd, p.path);
		if (split_job_add_host(&job, p.host, p.path, o->request, &err) < 0) {
			split_job_release(&job);
			return command_fail(cmd, &err, EXIT_FAILED);
		}
	}
	add_advice(&job, a);
	split_job_judge(&job);
	if (o->json) {
		status = command_print_json(cmd, split_job_json(&job));
	} else {
		split_job_text(&job, o->top, &text);
		status = command_print(cmd, &text);
	}
	buf_release(&text);
	split_job_release(&job);
	return status;
}

static int activity_summary_run(const struct command *cmd, int argc, char **argv)
{
	struct summary_options o = {.top = SPLIT_TOP};
	struct args a = {.target = &o};

	int status = command_parse(cmd, &a, argc, argv);
	if (status < 0)
		status = summarize_trace(cmd, &a, &o);
	args_release(&a);
	return status;
}

/* --- what they say about themselves --- */

static const struct opt show_option_rows[] = {
	COMMAND_HELP_OPTION,
	COMMAND_JSON_OPTION(struct show_options),
	COMMAND_TOP_OPTION(struct show_options, "How many names each table has."),
	OPTION_CHOICE("by", "WHAT", owners_by_names, offsetof(struct show_options, by.by), "name",
		      "Which: name (kernels, copies, calls), module of the model (equal layers as "
		      "one: h.*.mlp) or line of the program. The last two need activities that "
		      "were collected with --attribute."),
	OPTION_UINT("depth", "N", offsetof(struct show_options, by.depth), 1, 64, NULL,
		    "With --by=module: parts of a module's path; all of them otherwise."),
	OPT_END,
};

static const struct opt export_option_rows[] = {
	COMMAND_HELP_OPTION,
	OPTION_CHOICE("format", "FORMAT", formats, offsetof(struct export_options, format),
		      "chrome",
		      "Which: chrome (a timeline for Perfetto), xlsx (a workbook with a sheet per "
		      "kind), csv (one table), jsonl or db.",
		      .group = "Output options"),
	OPTION_TEXT("output", "PATH", offsetof(struct export_options, output), NULL,
		    "The file to write, of jsonl and db the directory, in which each process gets "
		    "its own. A file that is there is replaced. '-' prints chrome, csv and jsonl.",
		    .letters = "o"),
	OPT_END,
};

static const char *const show_usage[] = {"[options] <file or directory>...", NULL};
static const char *const export_usage[] = {"[options] -o PATH <file or directory>...", NULL};

static const struct args_example show_examples[] = {
	{"where the time of devices went", "sonde activity show /tmp/monitor"},
	{"which layers of the model, which lines", "sonde activity show --by=module /tmp/monitor"},
	{"for another program", "sonde activity show --json --top=100 /tmp/monitor/*.db"},
	{NULL, NULL},
};

static const struct args_example export_examples[] = {
	{"a timeline for ui.perfetto.dev",
	 "sonde activity export -o trace.json msmonitor_4711_20260131120000000_0.db"},
	{"kernels by their time, with other tools",
	 "sonde activity export --format=csv -o - /tmp/monitor | grep ^Kernel | sort -t, -k5 -n"},
	{"a workbook of the files of one process",
	 "sonde activity export --format=xlsx -o kernels.xlsx msmonitor_4711_*.jsonl"},
	{NULL, NULL},
};

const struct command cmd_activity_show = {
	.name = "activity show",
	.spec = {.name = "sonde activity show",
		 .summary = "show where the time of devices went",
		 .description =
			 "Reads what a monitor has written (DB or Jsonl, of this program or of "
			 "msmonitor; a directory means all of them in it, and if there are none, "
			 "in the directories of traces below it) and shows how busy the "
			 "devices were, which kernels and collectives took how much of their time, "
			 "and how many activities were lost. Files that are still being written, "
			 "and those of a job that was killed, are read like all others.",
		 .usage = show_usage,
		 .options = show_option_rows,
		 .examples = show_examples,
		 .min_words = 1,
		 .max_words = -1},
	.run = activity_show_run,
};

const struct command cmd_activity_export = {
	.name = "activity export",
	.spec = {.name = "sonde activity export",
		 .summary = "write activities in another form",
		 .description =
			 "Reads what a monitor has written and writes it as a timeline, a "
			 "workbook, a table, Jsonl or DB. Several files become one, of Jsonl "
			 "and DB those of each process. A line on stderr says what was "
			 "written.",
		 .usage = export_usage,
		 .options = export_option_rows,
		 .examples = export_examples,
		 .min_words = 1,
		 .max_words = -1},
	.run = activity_export_run,
};

static const struct opt summary_option_rows[] = {
	COMMAND_HELP_OPTION,
	OPTION_TEXT("request", "ID", offsetof(struct summary_options, request), "the newest",
		    "Which request of nputrace, if there are traces of several: the number in the "
		    "name of its summary.",
		    .group = "What to show"),
	OPTION_UINT("top", "N", offsetof(struct summary_options, top), 1, 1000000, "25",
		    "How many lines a table has at most."),
	OPTION_FLAG("json", offsetof(struct summary_options, json),
		    "Print JSON, with nothing left out."),
	OPT_END,
};

static const char *const summary_usage[] = {"[options] [HOST=]DIRECTORY…", NULL};

static const struct args_example summary_examples[] = {
	{"the newest trace below a --log-file of nputrace", "sonde activity summary /tmp/trace"},
	{"one rank of it", "sonde activity summary /tmp/trace/node0_4711_20260131120000123_sonde"},
	{"of two hosts", "sonde activity summary node1=/data/node1/trace node2=/data/node2/trace"},
	{"which rank is slowest, for a program",
	 "sonde activity summary --json /tmp/trace | jq .slowest"},
	{NULL, NULL},
};

const struct command cmd_activity_summary = {
	.name = "activity summary",
	.spec = {.name = "sonde activity summary",
		 .summary =
			 "where the time of traced steps went, of all ranks, and why devices idle",
		 .description =
			 "Shows from the traces that nputrace has left, of all ranks together, "
			 "where the time of a step goes: compute, communication that no compute "
			 "hides, copies, idle; how much of the communication overlaps with "
			 "compute; why devices idle, with --with-stack by the Python of their "
			 "hosts; "
			 "which rank is slowest, by how much and in what; and which kernels took "
			 "the time. Ranks that have left no trace come first, with where the "
			 "others stand: in a hang, those wait for them. A directory is the "
			 "--log-file of nputrace, or that of one "
			 "rank below it; name one of each host if they have no common file system. "
			 "For other traces there is 'sonde timeline --explain'. With --analyse the "
			 "same is left there as "
			 "summary_<request>.txt and .json.",
		 .usage = summary_usage,
		 .options = summary_option_rows,
		 .examples = summary_examples,
		 .min_words = 1,
		 .max_words = -1},
	.run = activity_summary_run,
};
