/* SPDX-License-Identifier: MulanPSL-2.0 */
/* sonde timeline: what all ranks did, in one file for a viewer. */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/mem.h"
#include "base/text/number_read.h"
#include "base/text/number_words.h"
#include "base/text/printable.h"
#include "cli/command.h"
#include "cli/host_path.h"
#include "cli/record/finish.h"
#include "timeline/clocks.h"
#include "timeline/explain.h"
#include "timeline/timeline.h"

#define RANKS_MAX (1u << 20)

struct timeline_command {
	unsigned format;
	const char *output;
	const char *from, *to, *ranks, *steps;
	bool json, explain;
	unsigned top;
};

static const char *const formats[] = {"perfetto", "json", NULL};

/* --- options --- */

/* "0-3,8" */
static int read_ranks(const char *text, bool **out, size_t *n, struct err *err)
{
	const char *item;
	size_t len;

	*out = xcalloc(RANKS_MAX, sizeof(**out));
	*n = RANKS_MAX;
	while (command_next_item(&text, &item, &len)) {
		const char *dash = memchr(item, '-', len);
		size_t first_len = dash ? (size_t)(dash - item) : len;
		int64_t first, last;

		if (!number_read(item, first_len, &first) || first < 0 || first >= RANKS_MAX)
			goto bad;
		last = first;
		if (dash && (!number_read(dash + 1, len - first_len - 1, &last) || last < first ||
			     last >= RANKS_MAX))
			goto bad;
		for (int64_t i = first; i <= last; i++)
			(*out)[i] = true;
		continue;
	bad:
		return err_set(err, -EINVAL, "invalid ranks '%.*s': expected numbers as in 0-3,8",
			       (int)(len < 60 ? len : 60), item);
	}
	return 0;
}

static int read_time(const char *what, const char *text, uint64_t *out, struct err *err)
{
	int64_t ns;

	if (!text)
		return 0;
	if (!number_read(text, strlen(text), &ns) || ns <= 0)
		return err_set(err, -EINVAL,
			       "invalid time '%.60s' of --%s: expected nanoseconds since 1970, as "
			       "`sonde mem show --json` prints them",
			       text, what);
	*out = (uint64_t)ns;
	return 0;
}

/* "10-20", "7" */
static int read_steps(const char *text, struct timeline_options *t, struct err *err)
{
	const char *dash = strchr(text, '-');
	size_t first_len = dash ? (size_t)(dash - text) : strlen(text);
	int64_t first, last;
	bool good = number_read(text, first_len, &first) && first > 0;

	last = first;
	if (good && dash)
		good = number_read(dash + 1, strlen(dash + 1), &last) && last >= first;
	if (!good)
		return err_set(err, -EINVAL, "invalid steps '%.60s': expected numbers as in 10-20",
			       text);
	t->first_step = (uint64_t)first;
	t->last_step = (uint64_t)last;
	return 0;
}

static bool is_gzip_name(const char *path)
{
	size_t n = strlen(path);

	return n > 3 && !strcmp(path + n - 3, ".gz");
}

static struct timeline_source read_source(const char *word)
{
	struct host_path p = host_path_read(word);

	return (struct timeline_source){p.host, p.path};
}

/* Before the output is replaced. */
static int check_sources(const struct args *a, struct err *err)
{
	struct stat st;

	for (int i = 0; i < a->nwords; i++) {
		struct timeline_source s = read_source(a->words[i]);

		if (stat(s.path, &st) < 0)
			return err_sys(err, -errno, "cannot open '%s'", s.path);
	}
	return 0;
}

/* --- the answer --- */

static void print_notes(const struct command *cmd, struct buf *notes)
{
	struct buf text = {0};

	for (const char *line = buf_str(notes); *line;) {
		size_t n = strcspn(line, "\n");

		buf_clear(&text);
		text_add_printable(&text, line, n);
		fprintf(stderr, "%s: note: %s\n", cmd->spec.name, buf_str(&text));
		line += n + (line[n] != '\0');
	}
	buf_release(&text);
}

static json_t *counts_json(const struct timeline_command *o, const struct timeline_counts *c,
			   const struct timeline_clocks *clocks)
{
	json_t *hosts = timeline_clocks_json(clocks);
	json_t *all = json_pack("{s:s, s:s, s:I, s:i, s:i, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}",
				"output", o->output, "format", formats[o->format], "bytes",
				(json_int_t)c->bytes, "processes", (int)c->processes, "tracks",
				(int)c->tracks, "slices", (json_int_t)c->slices, "instants",
				(json_int_t)c->instants, "counters", (json_int_t)c->counters,
				"arrows", (json_int_t)c->arrows, "outside", (json_int_t)c->outside,
				"left_out", (json_int_t)c->left_out, "first_ns",
				(json_int_t)c->first_ns, "last_ns", (json_int_t)c->last_ns);
	int64_t bound = hosts ? timeline_clocks_bound(clocks) : 0;
	json_object_set_new(all, "order_known_from_ns",
			    bound >= 0 ? json_integer(bound) : json_null());
	json_object_set_new(all, "hosts", hosts ? hosts : json_array());
	return all;
}

/* Of several hosts: whose clock it is, and what cannot be said because of that. */
static void print_clocks(const struct timeline_clocks *clocks)
{
	size_t n;
	const struct timeline_clock *list = timeline_clocks_list(clocks, &n);
	int64_t bound = timeline_clocks_bound(clocks);
	struct buf t = {0};

	if (n < 2)
		return;
	buf_addf(&t, "sonde timeline: %zu hosts on the clock of %s\n", n, list[0].host);
	for (size_t i = 1; i < n; i++) {
		buf_addf(&t, "sonde timeline: %s: ", list[i].host);
		timeline_clock_words(&list[i], &t);
		if (list[i].known)
			buf_addf(&t, " (%s)", timeline_clock_from(&list[i]));
		buf_add_char(&t, '\n');
	}
	if (bound >= 0)
		buf_addf(&t,
			 "sonde timeline: the order of events of two hosts that are less than "
			 "%.3f ms apart is not known\n",
			 (double)bound / 1e6);
	else
		buf_add_str(&t, "sonde timeline: events of hosts with unknown clocks cannot be "
				"ordered; `sonde ctl clocks -o FILE` measures clocks\n");
	fputs(buf_str(&t), stderr);
	buf_release(&t);
}

static void print_counts(const struct timeline_command *o, const struct timeline_counts *c)
{
	struct buf t = {0};

	buf_add_str(&t, "sonde timeline: ");
	buf_addf(&t, "%u process%s in ", c->processes, c->processes == 1 ? "" : "es");
	words_time(&t, c->last_ns - c->first_ns);
	buf_add_str(&t, ": ");
	words_of(&t, c->slices, "slice");
	buf_add_str(&t, ", ");
	words_of(&t, c->counters, "counter value");
	buf_add_str(&t, ", ");
	words_of(&t, c->instants, "instant");
	if (c->left_out) {
		buf_add_str(&t, "\nsonde timeline: ");
		words_of(&t, c->left_out, "slice");
		buf_add_str(&t, " left out: too many overlap there");
	}
	buf_addf(&t, "\nsonde timeline: wrote '%s' (", o->output);
	words_bytes(&t, c->bytes);
	buf_addf(&t, "); open it at https://ui.perfetto.dev%s\n",
		 o->format ? " or in chrome://tracing" : "");
	fputs(buf_str(&t), stderr);
	buf_release(&t);
}

static int read_sources(const struct args *a, struct timeline *t, struct buf *notes,
			struct err *err)
{
	int r = 0;

	for (int i = 0; i < a->nwords && r == 0; i++) {
		struct timeline_source s = read_source(a->words[i]);

		r = timeline_read(t, &s, notes, err);
	}
	return r;
}

/* When the steps were, by reading everything once more. */
static int find_steps(const struct args *a, struct timeline_options *t, struct err *err)
{
	struct timeline_options all = *t;
	struct timeline_counts counts = {0};
	struct timeline *timeline;
	struct buf notes = {0};
	int r;

	all.path = "/dev/null";
	all.explain = NULL;
	all.json = all.gzip = false;
	r = timeline_new(&all, &timeline, err);
	if (r < 0)
		return r;
	r = read_sources(a, timeline, &notes, err);
	(void)timeline_close(timeline, &counts, NULL);
	buf_release(&notes);
	if (r == 0 && !counts.steps_end_ns)
		r = err_set(err, -ENODATA,
			    "no step of --steps has ended in these files; steps are known from "
			    "recordings of memory and from traces of steps");
	if (r < 0)
		return r;
	if (counts.steps_start_ns > t->from_ns)
		t->from_ns = counts.steps_start_ns;
	if (!t->to_ns || counts.steps_end_ns < t->to_ns)
		t->to_ns = counts.steps_end_ns;
	t->last_step = 0;
	return 0;
}

/*
 * A file is written beside its place and moved there when it is whole: a run that fails takes nothing
 * away, and what is replaced may be read. A pipe is written as it is.
 */
static int begin_file(const char *output, struct timeline_options *t, char **out_part,
		      struct err *err)
{
	if (fs_is_stream(output))
		return 0;
	if (access(output, F_OK) == 0) { /* is it a file that we may replace? */
		int fd = fs_open_output(output, 0, 0, err);

		if (fd < 0)
			return fd;
		close(fd);
	}
	*out_part = xasprintf("%s.part", output);
	t->path = *out_part;
	return 0;
}

/* r: how it went; the outcome. */
static int end_file(const char *output, char *part, int r, struct err *err)
{
	if (part && r == 0)
		r = fs_rename(part, output, err);
	if (part && r < 0)
		(void)fs_unlink(part, NULL);
	free(part);
	return r;
}

/* The explanation, and what was written if a file was asked for. */
static int print_explained(const struct command *cmd, const struct timeline_command *o,
			   const struct timeline_counts *c, const struct timeline_options *t,
			   const struct split_job *job)
{
	struct buf text = {0};
	json_t *json;
	int status;

	if (o->json) {
		json = split_job_json(job);
		json_object_set_new(json, "written",
				    o->output ? counts_json(o, c, t->clocks) : json_null());
		return command_print_json(cmd, json);
	}
	split_job_text(job, o->top, &text);
	status = command_print(cmd, &text);
	buf_release(&text);
	if (o->output)
		print_counts(o, c);
	return status;
}

static int print_answer(const struct command *cmd, const struct timeline_command *o,
			const struct timeline_counts *c, const struct timeline_options *t)
{
	struct split_job job = {0};
	struct err err = {0};
	int status;

	if (!o->json)
		print_clocks(t->clocks);
	if (!t->explain) {
		if (o->json)
			return command_print_json(cmd, counts_json(o, c, t->clocks));
		print_counts(o, c);
		return EXIT_DONE;
	}
	if (explain_finish(t->explain, &job)) {
		status = print_explained(cmd, o, c, t, &job);
	} else {
		err_set(&err, -ENODATA,
			"these files contain no work of devices: --explain needs kernels, from "
			"`sonde record`, `dyno nputrace`, `dyno gputrace` or `dyno npu-monitor "
			"--log-file`. To see what they contain: sonde report, or leave out "
			"--explain");
		status = command_fail(cmd, &err, EXIT_FAILED);
	}
	split_job_release(&job);
	return status;
}

/* Which hosts there are, and how far their clocks are apart. */
static int find_clocks(const struct args *a, struct timeline_options *t, struct timeline_clocks *c,
		       struct buf *notes, struct err *err)
{
	int r = 0;

	for (int i = 0; i < a->nwords && r == 0; i++) {
		struct timeline_source s = read_source(a->words[i]);

		r = timeline_clocks_add(c, &s, err);
	}
	if (r == 0)
		r = timeline_clocks_solve(c, t->path, notes, err);
	t->clocks = c;
	return r;
}

static int write_timeline(const struct command *cmd, struct args *a, struct timeline_command *o,
			  struct timeline_options *t)
{
	struct timeline_counts counts = {0};
	struct timeline *timeline;
	struct buf notes = {0};
	struct err err = {0}, closed = {0};
	struct timeline_clocks *clocks = timeline_clocks_new();
	char *part = NULL;
	int r = check_sources(a, &err);

	for (int i = 0; r == 0 && i < a->nwords; i++)
		record_finish_killed(cmd, read_source(a->words[i]).path);
	if (r == 0)
		r = find_clocks(a, t, clocks, &notes, &err);
	if (r == 0 && t->last_step)
		r = find_steps(a, t, &err);
	if (r == 0 && o->output)
		r = begin_file(o->output, t, &part, &err);
	if (r == 0 && o->explain)
		t->explain = explain_new(t->from_ns, t->to_ns);
	if (r == 0)
		r = timeline_new(t, &timeline, &err);
	if (r < 0) {
		free(part);
		explain_free(t->explain);
		buf_release(&notes);
		timeline_clocks_free(clocks);
		return command_fail(cmd, &err, EXIT_FAILED);
	}
	r = read_sources(a, timeline, &notes, &err);
	int end = timeline_close(timeline, &counts, &closed);
	if (r == 0 && end < 0) {
		err = closed;
		r = end;
	}
	if (r == 0 && !counts.slices && !counts.counters && !counts.instants)
		r = err_set(&err, -ENODATA,
			    counts.outside ? "no event lies in the requested time and ranks"
					   : "there is nothing to show in these files");
	r = end_file(o->output, part, r, &err);
	print_notes(cmd, &notes);
	buf_release(&notes);
	int status;
	if (r < 0) {
		explain_free(t->explain);
		status = command_fail(cmd, &err, EXIT_FAILED);
	} else {
		status = print_answer(cmd, o, &counts, t);
	}
	timeline_clocks_free(clocks);
	return status;
}

static int timeline_run(const struct command *cmd, int argc, char **argv)
{
	struct timeline_command o = {.top = 10};
	struct timeline_options t = {0};
	struct args a = {.target = &o};
	struct err err = {0};
	bool *ranks = NULL;
	int status = command_parse(cmd, &a, argc, argv);

	if (status < 0) {
		if (!o.output && !o.explain)
			o.output = o.format ? "timeline.json" : "timeline.pftrace";
		t.path = o.output ? o.output : "/dev/null";
		t.json = o.format == 1;
		t.gzip = is_gzip_name(t.path);
		if (read_time("from", o.from, &t.from_ns, &err) < 0 ||
		    read_time("to", o.to, &t.to_ns, &err) < 0 ||
		    (o.steps && read_steps(o.steps, &t, &err) < 0) ||
		    (o.ranks && read_ranks(o.ranks, &ranks, &t.nranks, &err) < 0)) {
			status = command_fail(cmd, &err, EXIT_USAGE);
		} else {
			t.ranks = ranks;
			status = write_timeline(cmd, &a, &o, &t);
		}
	}
	free(ranks);
	args_release(&a);
	return status;
}

static const struct opt options[] = {
	COMMAND_HELP_OPTION,
	OPTION_TEXT("output", "FILE", offsetof(struct timeline_command, output),
		    "timeline.pftrace, timeline.json",
		    "The file; it is replaced. A name that ends with .gz: compressed.",
		    .group = "Output options", .letters = "o"),
	OPTION_CHOICE("format", "FORMAT", formats, offsetof(struct timeline_command, format),
		      "perfetto",
		      "Form of the file: perfetto (protobuf: small, and quick to open), or json (a "
		      "Chrome trace, which HTA, TensorBoard and chrome://tracing read)."),
	OPTION_FLAG("explain", offsetof(struct timeline_command, explain),
		    "Say where the time goes: compute, communication, copies, and why devices "
		    "idle: what the Python of their hosts does meanwhile. A file is written only "
		    "with --output."),
	COMMAND_TOP_OPTION(struct timeline_command, "With --explain: lines of a table."),
	OPTION_FLAG("json", offsetof(struct timeline_command, json),
		    "Print what was written, or the explanation, as JSON."),
	OPTION_TEXT("ranks", "0-3,8", offsetof(struct timeline_command, ranks), "all processes",
		    "Only processes of these ranks.", .group = "What is shown"),
	OPTION_TEXT("steps", "10-20", offsetof(struct timeline_command, steps), NULL,
		    "Only the time of these steps, from the first process that begins them to the "
		    "last that ends them. All files are read twice for it."),
	OPTION_TEXT("from", "NS", offsetof(struct timeline_command, from), NULL,
		    "Leave out what ended before this time, in nanoseconds since 1970."),
	OPTION_TEXT("to", "NS", offsetof(struct timeline_command, to), NULL,
		    "Leave out what began after this time."),
	OPT_END,
};

static const char *const usage[] = {"[options] [HOST=]PATH…", NULL};

static const struct args_example examples[] = {
	{"memory of a recording and the kernels of a monitor",
	 "sonde timeline memscopeDumpResults /tmp/monitor"},
	{"with a trace of PyTorch's profiler", "sonde timeline rec/ kineto_rank0.json"},
	{"why devices idle", "sonde timeline --explain /tmp/trace"},
	{"of two hosts", "sonde timeline -o job.pftrace node1=/data/node1 node2=/data/node2"},
	{NULL, NULL},
};

const struct command cmd_timeline = {
	.name = "timeline",
	.page = "sonde-timeline",
	.spec = {.name = "sonde timeline",
		 .summary = "put all that was recorded into one timeline; --explain says why "
			    "devices idle",
		 .description =
			 "Merges what was recorded into one file for ui.perfetto.dev: memory "
			 "recordings and dumps (a counter for each pool, steps, marks, out of "
			 "memory), files of activities (kernels, communication and copies by "
			 "stream, with arrows from the calls that launched them), traces of "
			 "`dyno nputrace` and `gputrace`, of `sonde stack` and of PyTorch's "
			 "profiler. A PATH is such a file, or a directory that is searched for "
			 "them. Times are those of the wall clock, which all files of a host "
			 "share. Several hosts are put on the clock of the first one, as far as "
			 "round "
			 "trips (`sonde ctl clocks`) and collectives tell; the answer states the "
			 "bound of that.",
		 .usage = usage,
		 .options = options,
		 .examples = examples,
		 .min_words = 1,
		 .max_words = -1},
	.run = timeline_run,
};
