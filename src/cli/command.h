/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * A command of `sonde` is one file cmd_<name>.c with one const struct command in it, and one line
 * in commands.c. Its help and its manual page come from its spec. Commands are the only code
 * that prints or decides the exit status:
 *
 *	0 done   1 it failed   2 the command line was wrong   3 found what --fail-on names
 *	126, 127 the program could not be run
 */
#ifndef SONDE_CLI_COMMAND_H
#define SONDE_CLI_COMMAND_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/containers/buf.h"
#include "base/err.h"
#include "base/text/args.h"

enum exit_status {
	EXIT_DONE = 0,
	EXIT_FAILED = 1,
	EXIT_USAGE = 2,
	EXIT_FINDING = 3, /* what --fail-on names was found */
	EXIT_NOT_EXECUTABLE = 126,
	EXIT_NOT_FOUND = 127,
};

struct command {
	const char *name; /* "msmemscope", "mem show" */
	const char *alias; /* another name, or NULL */
	bool hidden; /* not in any list */
	const char *page; /* name of a manual page of its own, or NULL */
	const char *tag; /* before messages, as in "[tag] Error: "; NULL: "<spec.name>: " */
	struct args_spec spec;
	/* argv: the arguments behind the name. Returns the exit status. */
	int (*run)(const struct command *cmd, int argc, char **argv);
	const void *data; /* for a run() that serves several commands */
};

/* The help of `sonde` alone, of `sonde mem` alone and so on. */
struct command_group {
	const char *name; /* "" is sonde itself, "mem" holds "mem show" and so on */
	const char *page; /* name of the manual page */
	struct args_spec spec;
	/* Takes the words behind the name. NULL: they name a command, and that is all. */
	int (*run)(const struct command_group *group, int argc, char **argv);
};

extern const struct command cmd_msmemscope, cmd_mem_record, cmd_mem_show, cmd_mem_export,
	cmd_mem_recover;
extern const struct command cmd_mem_live;
extern const struct command cmd_mem_owners, cmd_mem_peak;
extern const struct command cmd_mem_oom;
extern const struct command cmd_mem_compare;
extern const struct command cmd_mem_leaks, cmd_mem_gaps;
extern const struct command cmd_mem_watch;
extern const struct command cmd_mem_inefficient;
extern const struct command cmd_ctl_status, cmd_ctl_version, cmd_ctl_ps, cmd_ctl_watch;
extern const struct command cmd_ctl_clocks;
extern const struct command cmd_ctl_gputrace, cmd_ctl_nputrace, cmd_ctl_npu_monitor;
extern const struct command cmd_ctl_dcgm_pause, cmd_ctl_dcgm_resume;
extern const struct command cmd_daemon;
extern const struct command cmd_certs;
extern const struct command cmd_recorder, cmd_bugreport, cmd_help;
extern const struct command cmd_metrics;
extern const struct command cmd_activity_show, cmd_activity_export;
extern const struct command cmd_timeline, cmd_record, cmd_report, cmd_flame;
extern const struct command cmd_stack, cmd_stack_run, cmd_stack_live;
extern const struct command cmd_snap, cmd_py_stack_snap;
extern const struct command cmd_top, cmd_monitor;
extern const struct command cmd_activity_summary;

extern const struct command *const commands[]; /* ended by NULL */
extern const struct command_group command_groups[]; /* ended by a NULL name */

/* Finds the command that the first words name, and how many words that took. NULL if none. */
const struct command *command_find(int argc, char **argv, int *out_words);
const struct command_group *command_group_find(const char *name);
bool command_in_group(const struct command *cmd, const struct command_group *group);
/* The name by which a command is known inside the group: its last word. */
const char *command_name_within(const struct command *cmd, const struct command_group *group);

/* Prints that there is no such command, with a guess what was meant. EXIT_USAGE. */
int command_unknown(const struct command_group *group, const char *word);

/* Runs the parser. Negative: go on. Otherwise the exit status: help was shown, or an error. */
int command_parse(const struct command *cmd, struct args *a, int argc, char **argv);

/* Prints the error on stderr and returns the status. */
int command_fail(const struct command *cmd, const struct err *err, int status);

/* Prints the notices of the parser on stderr, once. */
void command_notices(const struct command *cmd, struct args *a);

/* Writes to stdout, all of it; EXIT_DONE, or EXIT_FAILED with a message. */
int command_print(const struct command *cmd, struct buf *text);

/* The same for JSON, which it releases. NULL: there was no memory for it. */
int command_print_json(const struct command *cmd, json_t *o);
/* In one line, so that a reader of many knows when it has all of one. */
int command_print_json_line(const struct command *cmd, json_t *o);

/* Takes the next item off the comma list *text, without the blanks around it. False at the end. */
bool command_next_item(const char **text, const char **item, size_t *len);

/* The help of a command or of a group, for stdout or stderr. */
void command_help(const struct command *cmd, unsigned width, struct buf *out);
void command_group_help(const struct command_group *group, unsigned width, struct buf *out);

/* Shows the help of a group: on stdout if it was asked for, else on stderr, with EXIT_USAGE. */
int command_group_show(const struct command_group *group, bool asked);

/* Rows that most commands have. */
#define COMMAND_HELP_OPTION                                                                        \
	{                                                                                          \
		.group = "General options", .name = "help", .letters = "h", .kind = OPT_STOP,      \
		.help = "Show this text and exit."                                                 \
	}

/* Members bool json and unsigned top of the options' struct. */
#define COMMAND_JSON_OPTION(struct_)                                                               \
	{                                                                                          \
		.group = "Output options", .name = "json", .kind = OPT_FLAG,                       \
		.offset = offsetof(struct_, json), .help = "Print JSON instead of text."           \
	}
#define COMMAND_TOP_OPTION(struct_, help_)                                                         \
	{                                                                                          \
		.name = "top", .kind = OPT_UINT, .arg = "N", .min = 0, .max = 1000000,             \
		.offset = offsetof(struct_, top), .default_text = "10", .help = help_              \
	}

#endif
