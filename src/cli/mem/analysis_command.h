/* SPDX-License-Identifier: MulanPSL-2.0 */
/* What the commands that analyse a recording or a dump have in common. */
#ifndef SONDE_CLI_MEM_ANALYSIS_COMMAND_H
#define SONDE_CLI_MEM_ANALYSIS_COMMAND_H

#include <stddef.h>

#include "cli/command.h"
#include "memory/analysis/common/analysis.h"
#include "memory/input/input.h"

/* The options of every such command: the first member of its own struct. */
struct analysis_options {
	bool json;
	const char *json_file;
	unsigned top;
	unsigned wait_s;
	unsigned fail_on; /* 0: never */
	bool literal; /* as in struct analysis_style */
	unsigned pid; /* 0: all processes */
	const char *rank; /* NULL: all */
	const char *frames; /* of call stacks; NULL: as people read them */
};

#define ANALYSIS_DEFAULTS                                                                          \
	{                                                                                          \
		.top = 10, .wait_s = 10                                                            \
	}

/* --wait into the member wait_s. */
#define MEM_WAIT_OPTION(type_, help_)                                                              \
	{                                                                                          \
		.name = "wait", .kind = OPT_UINT, .arg = "SECONDS", .min = 0, .max = 86400,        \
		.offset = offsetof(type_, wait_s), .default_text = "10", .help = help_             \
	}

/* --pid and --rank into the members of these names. */
#define MEM_PROCESS_OPTIONS(type_)                                                                 \
	{.name = "pid",                                                                            \
	 .kind = OPT_UINT,                                                                         \
	 .arg = "PID",                                                                             \
	 .min = 1,                                                                                 \
	 .max = UINT32_MAX - 1,                                                                    \
	 .offset = offsetof(type_, pid),                                                           \
	 .default_text = "all processes",                                                          \
	 .help = "Answer about this process of the recording alone."},                             \
		MEM_RANK_OPTION(type_)
#define MEM_RANK_OPTION(type_)                                                                     \
	{                                                                                          \
		.name = "rank", .kind = OPT_TEXT, .arg = "RANK", .offset = offsetof(type_, rank),  \
		.default_text = "all ranks",                                                       \
		.help = "Answer about the processes of this rank alone, its workers included "     \
			"(RANK of the environment, and what other launchers set)."                 \
	}

/* The rows of an option table that fill them. */
#define ANALYSIS_OPTIONS                                                                           \
	COMMAND_JSON_OPTION(struct analysis_options),                                              \
		{.name = "json-file",                                                              \
		 .kind = OPT_TEXT,                                                                 \
		 .arg = "FILE",                                                                    \
		 .offset = offsetof(struct analysis_options, json_file),                           \
		 .help = "Also write the answer to this file as JSON. The file has the complete "  \
			 "lists: --top does not shorten them."},                                   \
		COMMAND_TOP_OPTION(struct analysis_options, "How many of each kind are listed."),  \
		{.name = "frames",                                                                 \
		 .kind = OPT_TEXT,                                                                 \
		 .arg = "all|user|N",                                                              \
		 .offset = offsetof(struct analysis_options, frames),                              \
		 .default_text = "the useful ones, from your own code on",                         \
		 .help = "Which frames of call stacks are shown: all that were recorded, those "   \
			 "of your own code, or at most N."},                                       \
		MEM_PROCESS_OPTIONS(struct analysis_options),                                      \
		MEM_WAIT_OPTION(struct analysis_options,                                           \
				"How long to wait for a recorder that is still finishing its "     \
				"files.")

/* --by and --depth into a struct groups_options (memory/analysis/groups/groups.h). */
#define ANALYSIS_GROUP_OPTIONS(type_, member_)                                                     \
	{.name = "by",                                                                             \
	 .kind = OPT_CHOICE,                                                                       \
	 .arg = "WHAT",                                                                            \
	 .choices = groups_by_names,                                                               \
	 .offset = offsetof(type_, member_.by),                                                    \
	 .default_text = "owner",                                                                  \
	 .help = "How the memory is divided: owner; module (paths in the models of PyTorch, "      \
		 "equal "                                                                          \
		 "layers as one: h.*.mlp), line (the call site) or type (weights, gradients, "     \
		 "optimizer states, activations), which need a recording with "                    \
		 "--analysis=decompose."},                                                         \
	{                                                                                          \
		.name = "depth", .kind = OPT_UINT, .arg = "N", .min = 1, .max = 64,                \
		.offset = offsetof(type_, member_.depth), .default_text = "4, without parameters", \
		.help = "With --by=module: how many parts of a path are shown. A number that is "  \
			"large enough shows each parameter."                                       \
	}

/* And --fail-on: what_ is the finding that counts, if_ says when there is one. */
#define ANALYSIS_FAIL_OPTION(what_, if_)                                                           \
	{                                                                                          \
		.name = "fail-on", .kind = OPT_CHOICE, .arg = "WHAT",                              \
		.choices = (const char *const[]){"nothing", what_, NULL},                          \
		.offset = offsetof(struct analysis_options, fail_on),                              \
		.default_text = "nothing, findings do not change the status",                      \
		.help = "Exit with status 3 " if_ " (" what_                                       \
			"), and with 1 if that is unknown (insufficient data, or an input that "   \
			"is "                                                                      \
			"incomplete): for scripts and CI jobs."                                    \
	}

/* What the spec of such a command has besides its texts. */
extern const char *const analysis_usage[];
#define ANALYSIS_SPEC                                                                              \
	.usage = analysis_usage, .options = options, .examples = examples, .min_words = 1,         \
	.max_words = 1

/*
 * The whole of such a command: reads its options, which begin with struct analysis_options, then
 * run() has the path and the options and returns the exit status.
 */
int analysis_main(const struct command *cmd, int argc, char **argv,
		  int (*run)(const struct command *cmd, const char *path, void *options),
		  void *options);
/* What most of them run: prints the answer of the analysis that make(options) returns. */
int analysis_command(const struct command *cmd, const char *path,
		     struct analysis *(*make)(void *options), void *options);

/*
 * analysis_command() in two halves, for a command that does something with the analysis in between:
 * 0 or an exit status, its message already printed.
 */
struct analysis_run {
	struct analysis *analysis;
	struct buf path; /* what was read … */
	bool resolved; /* … which is not what was named, but in it */
	struct buf notes; /* sentences for the reader, one per line */
	struct processes processes;
	struct input_choice choice;
	struct loss loss;
	struct frame_choice frames;
};
int analysis_read(const struct command *cmd, const char *path,
		  struct analysis *(*make)(void *options), void *options, struct analysis_run *out);
int analysis_print(const struct command *cmd, struct analysis_run *run, const void *options);
void analysis_release(struct analysis_run *run);
/* Sentences for the reader, one per line, as text and as a list. */
void analysis_add_notes(struct buf *notes, struct buf *text);
json_t *analysis_notes_value(struct buf *notes);

/* The status of --fail-on, and its message. What is not known must not look like good news. */
int mem_fail_status(const struct command *cmd, bool found, bool judged, bool complete);

struct groups_options;
/* Do --by and --depth fit together? -EINVAL. */
int mem_groups_option(const struct groups_options *o, struct err *err);

/* What --pid and --rank say; -EINVAL. */
int mem_choice_option(unsigned pid, const char *rank, struct input_choice *out, struct err *err);

/* The value of --compat (NULL: not given), else of its environment variable; -EINVAL. */
int mem_compat_option(const char *text, struct err *err);

#endif
