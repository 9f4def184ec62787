/* SPDX-License-Identifier: MulanPSL-2.0 */
/* sonde mem watch: who changed watched memory. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/fs.h"
#include "cli/mem/analysis_command.h"
#include "memory/analysis/watch/watch.h"
#include "memory/input/input.h"
#include "memory/input/recording_path.h"

#define MAX_CSV_BYTES (1ull << 30)

/* --- a recording: rows and looks --- */

struct reading {
	struct analysis *analysis;
	struct buf *notes;
	bool is_dump;
};

static void on_process(void *arg, uint32_t pid, const char *command)
{
	struct reading *r = arg;

	r->analysis->ops->process(r->analysis, pid, command);
}

static void on_row(void *arg, const struct row *row)
{
	struct reading *r = arg;

	r->analysis->ops->row(r->analysis, row);
}

static void on_watch(void *arg, uint32_t pid, const struct watch_sample *s)
{
	struct reading *r = arg;

	watch_add(r->analysis, pid, s);
}

static void on_lost(void *arg, uint32_t pid, uint64_t events, uint64_t stacks, uint64_t damaged)
{
	struct reading *r = arg;

	(void)stacks;
	if (events || damaged)
		buf_addf(r->notes,
			 "%llu events of process %u are missing%s, so an operator that announces a "
			 "change may be among them.\n",
			 (unsigned long long)events, pid,
			 damaged ? ", and those in damaged buffers" : "");
}

static void on_lost_more(void *arg)
{
	struct reading *r = arg;

	buf_add_str(r->notes, "How many more events are missing is unknown.\n");
}

static void on_note(void *arg, const char *text)
{
	struct reading *r = arg;

	buf_addf(r->notes, "%s\n", text);
}

static void on_file(void *arg, const char *path, bool is_dump)
{
	struct reading *r = arg;

	(void)path;
	r->is_dump |= is_dump;
}

static int read_recording(struct analysis_run *run, struct err *err)
{
	struct reading rd = {run->analysis, &run->notes, false};
	const struct input_sink sink = {
		.choice = &run->choice,
		.loss = &run->loss,
		.processes = &run->processes,
		.process = on_process,
		.row = on_row,
		.watch = on_watch,
		.lost = on_lost,
		.lost_more = on_lost_more,
		.note = on_note,
		.file = on_file,
		.arg = &rd,
	};
	int r = input_choose(buf_str(&run->path), &run->choice, err);

	if (r == 0)
		r = input_read(buf_str(&run->path), &sink, err);

	/* "Nothing was watched" would be the wrong answer: it does not say. */
	if (r == 0 && rd.is_dump)
		r = err_set(err, -EINVAL,
			    "'%s' is a dump of memory events, which has no checksums: name the "
			    "recording, or a file watch_dump_data_check_sum_*.csv",
			    buf_str(&run->path));
	return r;
}

/* --- the file of checksums --- */

static bool is_checksums(const char *path)
{
	char head[sizeof(WATCH_CSV_HEADER) - 1];
	int fd = fs_open(path, O_RDONLY, 0, NULL);

	if (fd < 0)
		return false;
	ssize_t n = pread(fd, head, sizeof(head), 0);
	close(fd);
	return n == (ssize_t)sizeof(head) && !memcmp(head, WATCH_CSV_HEADER, sizeof(head));
}

static int read_checksums(struct analysis_run *run, struct err *err)
{
	struct buf text = {0};
	struct err why = {0};
	int r = fs_read_file(buf_str(&run->path), MAX_CSV_BYTES, &text, err);

	if (r == 0) {
		r = watch_read_csv(run->analysis, buf_str(&text), text.len, &why);
		if (r < 0)
			err_set(err, r, "cannot read '%s': %s", buf_str(&run->path), why.text);
	}
	buf_release(&text);
	return r;
}

/* --- the command --- */

static int judge_watched(const struct command *cmd, const char *path, void *options)
{
	const struct analysis_options *o = options;
	struct analysis_run run = {.analysis = watch_new()};
	struct err err = {0};
	int status;

	int r = mem_choice_option(o->pid, o->rank, &run.choice, &err);
	if (r < 0) {
		analysis_release(&run);
		return command_fail(cmd, &err, EXIT_USAGE);
	}
	r = recording_resolve(path, &run.path, &err);
	if (r == 0 && is_checksums(buf_str(&run.path))) {
		r = read_checksums(&run, &err);
	} else if (r == 0) {
		if (recording_wait(buf_str(&run.path), o->wait_s))
			buf_add_str(&run.notes, "The recorder is still writing; this is what "
						"there is so far.\n");
		r = read_recording(&run, &err);
	}
	status = r < 0 ? command_fail(cmd, &err, EXIT_FAILED) : analysis_print(cmd, &run, o);
	analysis_release(&run);
	return status;
}

static int mem_watch_run(const struct command *cmd, int argc, char **argv)
{
	struct analysis_options o = ANALYSIS_DEFAULTS;

	return analysis_main(cmd, argc, argv, judge_watched, &o);
}

static const struct opt options[] = {
	COMMAND_HELP_OPTION,
	ANALYSIS_OPTIONS,
	ANALYSIS_FAIL_OPTION("corruption", "if memory was corrupted"),
	OPT_END,
};

static const char *const usage[] = {"[options] <recording or checksums>", NULL};

static const struct args_example examples[] = {
	{"watch what an operator gives until the optimizer is through",
	 "msmemscope --watch=aten.mm.default:out0,aten._fused_adamw_.default -- python train.py"},
	{"who changed it", "sonde mem watch memscopeDumpResults"},
	{"in a CI job", "sonde mem watch --fail-on=corruption memscopeDumpResults"},
	{NULL, NULL},
};

const struct command cmd_mem_watch = {
	.name = "mem watch",
	.spec = {.name = "sonde mem watch",
		 .summary = "find who changed watched memory",
		 .description =
			 "For memory that was watched (msmemscope --watch, sonde_watch()): which "
			 "blocks changed, during which operator, and whether that operator should "
			 "have written them.\n\n"
			 "A block that differs between two looks was written in between. If an "
			 "operator that ran then announces the write, the change is counted. If "
			 "none does, it is a corruption: the operator that ran is named, and what "
			 "it writes right beside the block. --fail-on=corruption: status 3 if "
			 "there is one.\n\n"
			 "Reads a recording, or a file watch_dump_data_check_sum_<time>.csv. That "
			 "holds names and checksums alone: it gives the changes without a "
			 "judgement, and --fail-on ends with status 1.",
		 .usage = usage,
		 .options = options,
		 .examples = examples,
		 .min_words = 1,
		 .max_words = 1},
	.run = mem_watch_run,
};
