/* SPDX-License-Identifier: MulanPSL-2.0 */
/* sonde activity show and export: what a monitor has written, in words or in another form. */
#include <dirent.h>
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "analyze/step_split_files.h"
#include "base/mem.h"
#include "cli/activity_show.h"
#include "cli/activity_stdout.h"
#include "cli/activity_sum.h"
#include "cli/command.h"
#include "export/activity_export.h"
#include "export/activity_read.h"

struct show_options {
	bool json;
	unsigned top;
};

enum format { FORMAT_CHROME, FORMAT_XLSX, FORMAT_CSV, FORMAT_JSONL, FORMAT_DB };
static const char *const formats[] = {"chrome", "xlsx", "csv", "jsonl", "db", NULL};

struct export_options {
	unsigned format;
	const char *output;
};

/* --- which files --- */

struct paths {
	char **list;
	size_t n, cap;
};

static void paths_release(struct paths *p)
{
	for (size_t i = 0; i < p->n; i++)
		free(p->list[i]);
	free(p->list);
}

static void paths_add(struct paths *p, char *path)
{
	p->list = xgrow(p->list, &p->cap, p->n + 1, sizeof(*p->list));
	p->list[p->n++] = path;
}

static int is_wanted(const struct dirent *e)
{
	return e->d_name[0] != '.' && activity_read_is_name(e->d_name);
}

static int is_trace(const struct dirent *e)
{
	size_t len = strlen(e->d_name), end = strlen(SPLIT_DIR_SUFFIX);

	return e->d_name[0] != '.' && len > end && !strcmp(e->d_name + len - end, SPLIT_DIR_SUFFIX);
}

/* Names have their times in them: in this order those of one process follow each other. */
static int add_files(struct paths *p, const char *dir, struct err *err)
{
	struct dirent **found = NULL;
	int n = scandir(dir, &found, is_wanted, alphasort);

	if (n < 0)
		return err_sys(err, -errno, "cannot read \"%s\"", dir);
	for (int i = 0; i < n; i++) {
		paths_add(p, xasprintf("%s/%s", dir, found[i]->d_name));
		free(found[i]);
	}
	free(found);
	return 0;
}

/* A directory below it for each process: as nputrace leaves them. */
static int add_traces(struct paths *p, const char *dir, struct err *err)
{
	struct dirent **found = NULL;
	int n = scandir(dir, &found, is_trace, alphasort), r = 0;

	for (int i = 0; i < n; i++) {
		char *path = xasprintf("%s/%s", dir, found[i]->d_name);

		if (r == 0)
			r = add_files(p, path, err);
		free(path);
		free(found[i]);
	}
	free(found);
	return r;
}

static int add_dir(struct paths *p, const char *dir, struct err *err)
{
	size_t before = p->n;
	int r = add_files(p, dir, err);

	if (r == 0 && p->n == before)
		r = add_traces(p, dir, err);
	if (r < 0 || p->n > before)
		return r;
	return err_set(err, -ENOENT,
		       "there is no .db or .jsonl file in \"%s\", nor a trace; npu-monitor and "
		       "nputrace write them with --log-file, and 'sonde activity summary' says if "
		       "a trace could not be written",
		       dir);
}

static int find_paths(struct paths *p, char **words, int n, struct err *err)
{
	struct stat st;
	int r = 0;

	for (int i = 0; r == 0 && i < n; i++) {
		if (stat(words[i], &st) < 0)
			r = err_sys(err, -errno, "cannot open \"%s\"", words[i]);
		else if (S_ISDIR(st.st_mode))
			r = add_dir(p, words[i], err);
		else
			paths_add(p, xstrdup(words[i]));
	}
	return r;
}

/* --- show --- */

static int show(const struct command *cmd, const struct show_options *o, const struct paths *p)
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
		if (o->json) {
			status = command_print_json(cmd, activity_show_json(&sum, o->top));
		} else {
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
	struct paths p = {0};
	struct err err = {0};
	int status = command_parse(cmd, &a, argc, argv);

	if (status < 0)
		status = find_paths(&p, a.words, a.nwords, &err) < 0
				 ? command_fail(cmd, &err, EXIT_FAILED)
				 : show(cmd, &o, &p);
	paths_release(&p);
	args_release(&a);
	return status;
}

/* --- export --- */

struct copying {
	const struct activity_writer_ops *ops;
	struct activity_writer *writer; /* NULL: not opened */
	struct err *err;
	uint64_t lost;
	uint64_t start_ns, end_ns;
	char *groups;
};

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

static int note_start(void *arg, const struct activity *a)
{
	struct copying *c = arg;

	if (!c->start_ns || a->start_ns < c->start_ns)
		c->start_ns = a->start_ns;
	return 0;
}

static int copy_activity(void *arg, const struct activity *a)
{
	struct copying *c = arg;
	int r = c->ops->put(c->writer, a, c->err);

	c->end_ns = a->end_ns > c->end_ns ? a->end_ns : c->end_ns;
	return r == -ENOTSUP && c->ops != &activity_xlsx_file ? 0 : r;
}

/* Who it was, and when it began: files have their names and times from that. */
static int look_ahead(const struct paths *p, struct copying *c, struct activity_origin *who,
		      struct err *err)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < p->n; i++) {
		struct activity_about about = {.rank = -1};

		r = activity_read(p->list[i], note_start, c, &about, err);
		if (!who->pid) {
			who->pid = about.pid;
			who->rank = about.rank;
		}
		if (about.start_ns && about.start_ns < c->start_ns)
			c->start_ns = about.start_ns;
		activity_about_release(&about);
	}
	who->start_ns = c->start_ns;
	return r;
}

static int copy_all(const struct paths *p, struct copying *c, struct err *err)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < p->n; i++) {
		struct activity_about about = {.rank = -1};

		r = activity_read(p->list[i], copy_activity, c, &about, err);
		c->lost += about.lost;
		if (about.groups && !c->groups)
			c->groups = xstrdup(about.groups);
		activity_about_release(&about);
	}
	return r;
}

struct exporting {
	const struct paths *paths;
	unsigned format;
};

static int convert(void *arg, const char *output, struct err *err)
{
	const struct exporting *e = arg;
	const struct paths *p = e->paths;
	struct copying c = {.ops = ops_of(e->format), .err = err};
	struct activity_origin who = {.rank = -1};
	const struct activity_options all = {.lines_per_file = 500000, .files = -1};
	int r = look_ahead(p, &c, &who, err);

	if (r < 0)
		return r;
	c.writer = c.ops->open(output, &who, &all);
	r = copy_all(p, &c, err);
	const struct activity_closing end = {
		.end_ns = c.end_ns, .groups = c.groups, .lost = c.lost};
	int closed = c.ops->close(c.writer, &end, r < 0 ? NULL : err);
	free(c.groups);
	return r < 0 ? r : closed;
}

static int export_to(const struct paths *p, const struct export_options *o, struct err *err)
{
	struct exporting e = {p, o->format};

	if (strcmp(o->output, "-"))
		return convert(&e, o->output, err);
	if (o->format == FORMAT_XLSX || o->format == FORMAT_DB)
		return err_set(err, -EINVAL,
			       "%s is no text and cannot be printed: give --output a name ('./-' "
			       "for a file that is called so)",
			       formats[o->format]);
	return activity_stdout(convert, &e, err);
}

static int activity_export_run(const struct command *cmd, int argc, char **argv)
{
	struct export_options o = {0};
	struct args a = {.target = &o};
	struct paths p = {0};
	struct err err = {0};
	int status = command_parse(cmd, &a, argc, argv);

	if (status < 0 && !o.output) {
		err_set(&err, -EINVAL, "option '--output' is missing: where is it to be written?");
		status = command_fail(cmd, &err, EXIT_USAGE);
	}
	if (status < 0) {
		int r = find_paths(&p, a.words, a.nwords, &err);

		if (r == 0)
			r = export_to(&p, &o, &err);
		status = r < 0 ? command_fail(cmd, &err, EXIT_FAILED) : EXIT_DONE;
	}
	paths_release(&p);
	args_release(&a);
	return status;
}

/* --- what they say about themselves --- */

static const struct opt show_option_rows[] = {
	COMMAND_HELP_OPTION,
	COMMAND_JSON_OPTION(struct show_options),
	COMMAND_TOP_OPTION(struct show_options, "How many names each table has."),
	OPT_END,
};

static const struct opt export_option_rows[] = {
	COMMAND_HELP_OPTION,
	{.group = "Output options",
	 .name = "format",
	 .kind = OPT_CHOICE,
	 .arg = "FORMAT",
	 .choices = formats,
	 .offset = offsetof(struct export_options, format),
	 .default_text = "chrome",
	 .help = "Which: chrome (a timeline for Perfetto), xlsx (a workbook with a sheet per "
		 "kind), csv "
		 "(one "
		 "table), jsonl or db."},
	{.name = "output",
	 .letters = "o",
	 .kind = OPT_TEXT,
	 .arg = "PATH",
	 .offset = offsetof(struct export_options, output),
	 .help = "The file to write, of jsonl and db the directory. A file that is there is "
		 "replaced. '-' prints chrome, csv and jsonl."},
	OPT_END,
};

static const char *const show_usage[] = {"[options] <file or directory>...", NULL};
static const char *const export_usage[] = {"[options] -o PATH <file or directory>...", NULL};

static const struct args_example show_examples[] = {
	{"where the time of devices went", "sonde activity show /tmp/monitor"},
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
		 .summary = "tell where the time of devices went",
		 .description =
			 "Reads what a monitor has written (DB or Jsonl, of this program or of "
			 "msmonitor; a directory means all of them in it, and if there are none, "
			 "in the directories of traces below it) and tells how busy the "
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
		 .description = "Reads what a monitor has written and writes it as a timeline, a "
				"workbook, a table, Jsonl or DB. Several files become one. Prints "
				"nothing when all went well.",
		 .usage = export_usage,
		 .options = export_option_rows,
		 .examples = export_examples,
		 .min_words = 1,
		 .max_words = -1},
	.run = activity_export_run,
};
