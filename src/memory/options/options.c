/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "memory/options/options.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>

#include "base/log.h"
#include "memory/options/values.h"
#include "wire/control_page.h"

int mem_options_init(struct mem_options *o, struct err *err)
{
	*o = (struct mem_options){0};
	return mem_config_init(&o->config, err);
}

void mem_options_for_answers(struct mem_config *c)
{
	c->format = MEM_NONE;
	c->py_stack = true;
	c->py_depth = 10;
}

int mem_options_finish(struct mem_options *o, struct err *err)
{
	struct mem_config *c = &o->config;
	const char *env = getenv(MEM_COMPAT_ENV);

	if (!o->compat_given && env && *env) {
		int compat = mem_compat_find(env);

		if (compat < 0)
			return err_set(err, -EINVAL,
				       "invalid value '%.100s' of the environment variable %s: "
				       "expected 26.0 or current",
				       env, MEM_COMPAT_ENV);
		c->compat = (enum row_compat)compat;
	}
	if (!o->report && c->compat == ROW_26_0) /* which always writes it there */
		o->report = 1 + MEM_REPORT_STDOUT;
	if (o->report)
		c->report = (enum mem_report)(o->report - 1);
	c->report_asked = o->report;
	if (!o->log_level_given && (o->verbose || o->quiet))
		c->log_level = o->verbose ? LOG_DEBUG : LOG_ERROR;
	if (c->compare && !c->inputs[0][0])
		return err_set(err, -EINVAL,
			       "--compare needs the two inputs to compare: --input-path=A,B");
	if (!c->compare && c->inputs[0][0])
		return err_set(err, -EINVAL,
			       "--input-path is for --compare only, which is missing");
	if (c->max_kib && c->format != MEM_NONE)
		return err_set(err, -EINVAL,
			       "--max-size is for the recording, and a dump beside it would grow "
			       "with every event: add --format=none; `sonde mem export` writes a "
			       "dump later");
	mem_config_link(c);
	c->effective = true;
	return 0;
}

#define CONFIG(member) offsetof(struct mem_options, config.member)

static const char *const formats[] = {"csv", "db", "none", NULL};
static const char *const reports[] = {"auto", "stderr", "stdout", "off", NULL};
static const char *const modes[] = {"immediate", "deferred", NULL};
static const char *const verbose_names[] = {"debug", NULL};
static const char *const format_names[] = {"data-format", NULL};
static const char *const output_names[] = {"output", NULL};
static const char *const input_names[] = {"input", NULL};

const struct opt mem_option_table[] = {
	{.group = "General options",
	 .name = "help",
	 .letters = "h",
	 .kind = OPT_STOP,
	 .help = "Show this text and exit."},
	{.name = "version",
	 .letters = "vV",
	 .kind = OPT_STOP,
	 .help = "Show the version and exit."},
	OPTION_FLAG("verbose", offsetof(struct mem_options, verbose),
		    "Write everything to the log, as --log-level=debug (also --debug).",
		    .aliases = verbose_names),
	OPTION_FLAG("quiet", offsetof(struct mem_options, quiet),
		    "Write only errors to the log, as --log-level=error, and no last line to a "
		    "stderr that is no terminal, if all went well. The findings of analyses are "
		    "reported all the same; see --report."),
	OPTION_CALL(
		"log-level", "LEVEL", mem_parse_log_level, 0, "warn",
		"What is written to the log: debug, info, warn (or warning) or error. Wins over "
		"--verbose and --quiet."),
	OPTION_CALL("steps", "LIST", mem_parse_steps, 0, "all",
		    "Record only these training steps: up to five step numbers, separated by "
		    "commas. The first step has the number 1.",
		    .group = "Collection options"),
	OPTION_CALL("device", "LIST", mem_parse_device, 0, "every NPU and GPU that the job uses",
		    "Whose memory is recorded: npu, gpu or cuda (every NPU or GPU that there is), "
		    "npu:ID, gpu:ID or cuda:ID with ID from 0 to 31, cpu (host memory). npu "
		    "together with npu:ID means every NPU."),
	OPTION_FLAG("python-objects", CONFIG(python_objects),
		    "Record every block of CPython's own allocator, with host memory, and not only "
		    "the arenas that it cuts them from.",
		    .arg = "true|false"),
	OPTION_CALL("level", "LIST", mem_parse_level, 0, "op",
		    "Which launches are recorded: op or 0 (operators), kernel or 1, or both: "
		    "op,kernel."),
	OPTION_CALL("events", "LIST", mem_parse_events, 0, "alloc,free,launch",
		    "What is recorded: alloc, free, launch, access, traceback (calls of Python "
		    "functions); none for nothing. alloc and free come together, and access brings "
		    "both."),
	OPTION_CALL("call-stack", "LIST", mem_parse_call_stack, 0, "off",
		    "Record where memory is asked for: c[:DEPTH], python[:DEPTH], or both. DEPTH "
		    "is the number of frames, from 0 to 1000, 50 if left out."),
	OPTION_CHOICE("collect-mode", "MODE", modes, CONFIG(mode), "immediate",
		      "immediate: record from the start. deferred: record when the job calls "
		      "sonde_start(), in Python msmemscope.start()."),
	OPTION_UINT(
		"buffer-mb", "N", CONFIG(buffer_mb), 1, MEM_MAX_BUFFER_MB, "256",
		"Memory for events that are not yet on disk, in MiB for each process of the job."),
	OPTION_CALL("max-size", "SIZE", mem_parse_max_size, 0, "any size",
		    "The largest that the recording may become, such as 2G or 500MiB, from 1MiB "
		    "on. The "
		    "oldest finished steps are dropped, as often as needed; blocks that are alive "
		    "are kept, and every answer says what was dropped. For recordings without a "
		    "dump (--format=none), as sonde mem record makes them."),
	OPTION_UINT("wait-ms", "N", CONFIG(wait_ms), 0, MEM_MAX_WAIT_MS, "100",
		    "How many milliseconds an event may wait when that memory is full. After that, "
		    "or at once with 0, events are dropped and counted."),
	OPTION_CALL(
		"analysis", "LIST", mem_parse_analysis, 0, "leaks",
		"What is looked for: leaks (memory that grows step by step), decompose (who owns "
		"the memory: written into the rows), inefficient (blocks held too early, too late "
		"or idle: written into the rows), oom[:K] (why memory ran out, with the K largest "
		"and the K newest blocks, 10 if left out); none or an empty value for nothing.",
		.group = "Analysis options"),
	OPTION_CALL("watch", "[OP[:ID]],OP[,full-content]", mem_parse_watch, 0, "off",
		    "Check the memory of a tensor between two operators: from the first (its "
		    "output ID, written as 0 or out0) to the second. full-content keeps the bytes, "
		    "not only their hash."),
	OPTION_FLAG("compare", CONFIG(compare),
		    "Compare the two runs of --input-path instead of running a program: operator "
		    "by operator, or kernel by kernel (--level=kernel)."),
	OPTION_CALL("input-path", "DIR", mem_parse_input, 0, NULL,
		    "For --compare: two recordings, dump files or directories of which the newest "
		    "dump is taken, separated by a comma (also --input).",
		    .group = "Input / Output options", .letters = "i", .aliases = input_names),
	OPTION_CALL(
		"output-path", "DIR", mem_parse_output, 0, "./" SESSION_OUTPUT,
		"Directory for the recording. It is created if it does not exist (also --output).",
		.letters = "o", .aliases = output_names),
	OPTION_CHOICE("format", "FORMAT", formats, CONFIG(format), "csv; of sonde mem record: none",
		      "Form of the dump: csv, db (SQLite, for MindStudio Insight), or none: the "
		      "recording alone. Every question can be put to it, and sonde mem export "
		      "makes the other forms of it later.",
		      .aliases = format_names),
	OPTION_CHOICE(
		"report", "WHERE", reports, offsetof(struct mem_options, report), "auto",
		"Where the findings of the analyses are reported when the job has ended: stderr, "
		"stdout or off. auto is stderr, and only if something was found or it is a "
		"terminal; "
		"with "
		"--compat=26.0 it is stdout. The file " SESSION_REPORT
		" of the recording always has it."),
	OPTION_CALL(
		"compat", "VERSION", mem_parse_compat, 0, "current",
		"Write event and attribute names as another version does: 26.0, or current. The "
		"environment variable " MEM_COMPAT_ENV " does the same."),
	OPT_END,
};
