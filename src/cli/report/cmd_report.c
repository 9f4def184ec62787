/* SPDX-License-Identifier: MulanPSL-2.0 */
/* sonde report: everything that was recorded, as one page of pictures. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/text/number_words.h"
#include "cli/command.h"
#include "cli/mem/analysis_command.h"
#include "cli/report/open_page.h"
#include "report/page.h"

#define SEVERAL_TRACES                                                                             \
	"The memory of a traced job is shown for one process: name the directory of its trace."

struct report_command {
	const char *output, *title, *rank;
	unsigned pid, wait_s;
	bool json, redact, keep_own, open;
};

static json_t *written_json(const struct report_command *o, const struct page_written *w)
{
	json_t *notes = json_array();

	if (w->several_traces)
		json_array_append_new(notes, json_string(SEVERAL_TRACES));
	return json_pack("{s:s, s:I, s:I, s:i, s:i, s:i, s:b, s:o}", "output", o->output, "bytes",
			 (json_int_t)w->bytes, "rows", (json_int_t)w->rows, "recordings",
			 (int)w->memories, "activities", (int)w->activities, "profiles",
			 (int)w->profiles, "redacted", o->redact, "notes", notes);
}

static void print_written(const struct report_command *o, const struct page_written *w)
{
	struct buf t = {0};

	buf_addf(&t, "sonde report: wrote '%s' (", o->output);
	words_bytes(&t, w->bytes);
	buf_add_str(&t, "); open it in a browser: it needs no network\n");
	if (w->several_traces)
		buf_add_str(&t, "sonde report: note: " SEVERAL_TRACES "\n");
	fputs(buf_str(&t), stderr);
	buf_release(&t);
}

static int write_report(const struct command *cmd, struct args *a, const struct report_command *o)
{
	struct input_choice choice = {0};
	struct page_written written = {0};
	struct err err = {0};

	if (mem_choice_option(o->pid, o->rank, &choice, &err) < 0)
		return command_fail(cmd, &err, EXIT_USAGE);
	struct page_options options = {.redact = o->redact,
				       .keep_own = o->keep_own,
				       .title = o->title,
				       .wait_s = o->wait_s,
				       .choice = o->pid || o->rank ? &choice : NULL};
	struct page *r = page_new(&options);
	int status = 0;
	for (int i = 0; i < a->nwords && status == 0; i++) {
		input_choice_reset(&choice);
		status = page_add(r, a->words[i], &err);
	}
	if (status == 0)
		status = page_write(r, o->output, &written, &err);
	page_free(r);
	input_choice_release(&choice);
	if (status < 0)
		return command_fail(cmd, &err, EXIT_FAILED);
	if (o->json)
		return command_print_json(cmd, written_json(o, &written));
	if (strcmp(o->output, "-"))
		print_written(o, &written);
	if (o->open)
		open_page(cmd->spec.name, o->output);
	return EXIT_DONE;
}

static int report_run(const struct command *cmd, int argc, char **argv)
{
	struct report_command o = {.output = "report.html", .wait_s = 10};
	struct args a = {.target = &o};
	int status = command_parse(cmd, &a, argc, argv);

	if (status < 0)
		status = write_report(cmd, &a, &o);
	args_release(&a);
	return status;
}

static const struct opt options[] = {
	COMMAND_HELP_OPTION,
	OPTION_TEXT("output", "FILE", offsetof(struct report_command, output), "report.html",
		    "The page; it is replaced. '-' is the standard output.",
		    .group = "Output options", .letters = "o"),
	OPTION_TEXT("title", "TEXT", offsetof(struct report_command, title),
		    "the names of what is in it", "What stands above the page."),
	OPTION_FLAG("redact", offsetof(struct report_command, redact),
		    "Leave out names of hosts, users, paths and arguments, and give your own "
		    "functions, files, modules and labels other names, so that the page can be "
		    "handed to a stranger. Names of frameworks stay."),
	OPTION_FLAG("keep-own-names", offsetof(struct report_command, keep_own),
		    "With --redact: functions, modules and labels of your own keep their names, "
		    "and files the last part of theirs."),
	OPTION_FLAG("open", offsetof(struct report_command, open),
		    "Open it in the browser of the desktop (xdg-open); where there is none, say "
		    "where the file is."),
	OPTION_FLAG("json", offsetof(struct report_command, json),
		    "Print what was written as JSON."),
	OPTION_UINT("pid", "PID", offsetof(struct report_command, pid), 1, UINT32_MAX - 1,
		    "all processes", "Only this process of a recording of memory.",
		    .group = "What is shown"),
	MEM_RANK_OPTION(struct report_command),
	MEM_WAIT_OPTION(struct report_command,
			"How long to wait for a recorder that is still finishing its files."),
	OPT_END,
};

static const char *const usage[] = {"[options] PATH…", NULL};

static const struct args_example examples[] = {
	{"the newest recording as a page", "sonde report memscopeDumpResults"},
	{"memory, device time and Python stacks of a job together",
	 "sonde report -o job.html memscopeDumpResults /tmp/trace stacks.txt"},
	{"what differs between two runs", "sonde report yesterday/ today/"},
	{"without your own names, to hand on",
	 "sonde report --redact -o ticket.html memscopeDumpResults"},
	{NULL, NULL},
};

const struct command cmd_report = {
	.name = "report",
	.page = "sonde-report",
	.spec = {.name = "sonde report",
		 .summary = "everything that was recorded, as one page of pictures",
		 .description =
			 "Writes one HTML file that opens in any browser, from a disk and without "
			 "a "
			 "network: the answers of `sonde mem` in words, memory over time in bands, "
			 "flame graphs of any moment or range, the map of a pool's addresses, "
			 "tables of call sites, leaks and waste; of traces and files of activities "
			 "the device time of every rank and step; of profiles their stacks. A PATH "
			 "is a recording or a dump of memory, a file of activities, a trace of "
			 "steps, a profile (collapsed text or speedscope), a Chrome trace of "
			 "`sonde stack`, or a directory that is searched for them. Two recordings "
			 "are compared: the first is the base. The file grows with what happened, "
			 "not with how often: it holds sums over time, not events.",
		 .usage = usage,
		 .options = options,
		 .examples = examples,
		 .min_words = 1,
		 .max_words = -1},
	.run = report_run,
};
