/* SPDX-License-Identifier: MulanPSL-2.0 */
/* What the commands that analyse a recording or a dump have in common. */
#ifndef SONDE_CLI_MEM_ANALYSIS_COMMAND_H
#define SONDE_CLI_MEM_ANALYSIS_COMMAND_H

#include <stddef.h>

#include "cli/command.h"
#include "memory/analysis/common/analysis.h"

/* The options of every such command: the first member of its own struct. */
struct analysis_options {
	bool json;
	const char *json_file;
	unsigned top;
	unsigned wait_s;
	unsigned fail_on; /* 0: never */
};

#define ANALYSIS_DEFAULTS                                                                          \
	{                                                                                          \
		.top = 10, .wait_s = 10                                                            \
	}

/* The rows of an option table that fill them. */
#define ANALYSIS_OPTIONS                                                                           \
	COMMAND_JSON_OPTION(struct analysis_options),                                              \
		{.name = "json-file",                                                              \
		 .kind = OPT_TEXT,                                                                 \
		 .arg = "FILE",                                                                    \
		 .offset = offsetof(struct analysis_options, json_file),                           \
		 .help = "Also write the answer to this file, as JSON and uncut by --top."},       \
		COMMAND_TOP_OPTION(struct analysis_options, "How many of each kind are listed."),  \
	{                                                                                          \
		.name = "wait", .kind = OPT_UINT, .arg = "SECONDS", .min = 0, .max = 86400,        \
		.offset = offsetof(struct analysis_options, wait_s), .default_text = "10",         \
		.help = "How long to wait for a recorder that is still finishing its files."       \
	}

/* And --fail-on: choices_ is {"nothing", "leak", NULL}, if_ says when. */
#define ANALYSIS_FAIL_OPTION(choices_, if_)                                                        \
	{                                                                                          \
		.name = "fail-on", .kind = OPT_CHOICE, .arg = "WHAT", .choices = choices_,         \
		.offset = offsetof(struct analysis_options, fail_on), .default_text = "nothing",   \
		.help = "Exit with status 3 " if_ ", and with 1 if that cannot be told: for "      \
			"scripts and CI jobs."                                                     \
	}

/*
 * The whole of such a command: reads `path`, prints the answer of the analysis that make(options)
 * gives, and returns the exit status. options begins with struct analysis_options.
 */
int analysis_command(const struct command *cmd, const char *path,
		     struct analysis *(*make)(void *options), void *options);

/*
 * The same in two halves, for a command that does something with the analysis in between:
 * 0 or an exit status that is already told.
 */
struct analysis_run {
	struct analysis *analysis;
	struct buf path; /* what was read … */
	bool resolved; /* … which is not what was named, but in it */
	struct buf notes; /* sentences for the reader, one per line */
};
int analysis_read(const struct command *cmd, const char *path,
		  struct analysis *(*make)(void *options), void *options, struct analysis_run *out);
int analysis_tell(const struct command *cmd, struct analysis_run *run, const void *options);
void analysis_release(struct analysis_run *run);

#endif
