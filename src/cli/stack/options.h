/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The command line of `sonde stack` and `sonde stack run`: one table for both. The options that say
 * which processes are meant are the same for all commands about stacks.
 */
#ifndef SONDE_CLI_STACK_OPTIONS_H
#define SONDE_CLI_STACK_OPTIONS_H

#include <limits.h>
#include <stddef.h>

#include "cli/command.h"
#include "cli/stack/seconds.h"
#include "sampler/session/options.h"

struct stack_command_options {
	struct stack_options s;
	bool quiet, json;
	bool detach, status, stop, dry_run;
	const char *pid_file, *detach_log;
	/* accepted for scripts of the programs that sonde replaces */
	unsigned npu_smi_refresh;
	uint64_t host_timeout_ns;
	const char *python, *sniffer_script;
	struct stack_texts sniffer_args;
	/* made by stack_command_options_complete() */
	char *output_made, *pid_file_made, *detach_log_made;
};

extern const struct opt stack_option_rows[]; /* of a struct stack_command_options */

void stack_command_options_init(struct stack_command_options *c);
void stack_command_options_release(struct stack_command_options *c);
/* Applies --sniffer-arg, fills in what depends on other options, and refuses what does not fit. */
int stack_command_options_complete(struct stack_command_options *c, struct args *a,
				   struct err *err);

/* opt.parse: adds the pids of a comma list to the struct stack_pids at opt.offset, each once. */
int stack_parse_pids(struct args *a, const struct opt *opt, const char *value, struct err *err);
/* opt.parse: adds the text to the struct stack_texts at opt.offset. */
int stack_parse_text(struct args *a, const struct opt *opt, const char *value, struct err *err);

/* A row of an option whose value is a time. */
#define STACK_SECONDS(name, at, ...)                                                               \
	OPTION_CALL(name, "SECONDS", stack_parse_seconds, at, __VA_ARGS__)

/* Which processes. `at`: offset of the struct stack_options; `least_npu`: default of min_npu_mb. */
#define STACK_AT(at, field) ((at) + offsetof(struct stack_options, field))
#define STACK_WHICH_ROWS(at, least_npu)                                                            \
	OPTION_CALL("pid", "PID[,PID]", stack_parse_pids, STACK_AT(at, pids),                      \
		    "those that use an NPU, or else a GPU",                                        \
		    "These processes. May be given more than once.", .group = "Which processes",   \
		    .letters = "p"),                                                               \
		OPTION_FLAG("children", STACK_AT(at, children),                                    \
			    "Also all descendants of what was found."),                            \
		OPTION_CALL("parent", "PID[,PID]", stack_parse_pids, STACK_AT(at, parents), NULL,  \
			    "The descendants of these processes, and the processes themselves if " \
			    "they run Python."),                                                   \
		OPTION_CALL("name", "TEXT", stack_parse_text, STACK_AT(at, names), NULL,           \
			    "Python processes whose command line has this text in it, and what "   \
			    "these have started with multiprocessing. May be given more than "     \
			    "once."),                                                              \
		OPTION_CALL("cgroup", "PATH|ID", stack_parse_text, STACK_AT(at, cgroups), NULL,    \
			    "The Python processes of a cgroup (a path below /sys/fs/cgroup) or "   \
			    "of a container (its id, or enough of it).",                           \
			    .aliases = (const char *const[]){"container", NULL}),                  \
		OPTION_FLAG("all-python", STACK_AT(at, all_python),                                \
			    "Every process that runs Python.", .letters = "a"),                    \
		OPTION_UINT("min-hbm-usage-mb", "MB", STACK_AT(at, min_npu_mb), 0, UINT_MAX,       \
			    least_npu,                                                             \
			    "Processes with less memory on an NPU do not count; 0: all count."),   \
		OPTION_UINT("min-gpu-mem-usage-mb", "MB", STACK_AT(at, min_gpu_mb), 0, UINT_MAX,   \
			    "0", "The same for GPUs.")

#endif
