/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The options that say which processes are meant: the same rows in the tables of all commands
 * about stacks. The values are the first members of struct stack_options.
 */
#ifndef SONDE_CLI_STACK_WHICH_H
#define SONDE_CLI_STACK_WHICH_H

#include <limits.h>
#include <stddef.h>

#include "sampler/session/options.h"

/* `at`: offset of the struct stack_options; `least_npu`: text of its default for min_npu_mb. */
#define STACK_WHICH_AT(at, field) .offset = (at) + offsetof(struct stack_options, field)
#define STACK_WHICH_ROWS(at, least_npu)                                                            \
	{.group = "Which processes",                                                               \
	 .name = "pid",                                                                            \
	 .letters = "p",                                                                           \
	 .kind = OPT_CALL,                                                                         \
	 .arg = "PID[,PID]",                                                                       \
	 .parse = stack_parse_pids,                                                                \
	 STACK_WHICH_AT(at, pids),                                                                 \
	 .default_text = "whoever uses an NPU, or else a GPU",                                     \
	 .help = "These processes. May be given more than once."},                                 \
		{.name = "children",                                                               \
		 .kind = OPT_FLAG,                                                                 \
		 STACK_WHICH_AT(at, children),                                                     \
		 .help = "Also all descendants of what was found."},                               \
		{.name = "parent",                                                                 \
		 .kind = OPT_CALL,                                                                 \
		 .arg = "PID[,PID]",                                                               \
		 .parse = stack_parse_pids,                                                        \
		 STACK_WHICH_AT(at, parents),                                                      \
		 .help = "The descendants of these processes, and the processes themselves if "    \
			 "they run Python."},                                                      \
		{.name = "name",                                                                   \
		 .kind = OPT_CALL,                                                                 \
		 .arg = "TEXT",                                                                    \
		 .parse = stack_parse_text,                                                        \
		 STACK_WHICH_AT(at, names),                                                        \
		 .help = "Python processes whose command line has this text in it. May be given "  \
			 "more than once."},                                                       \
		{.name = "cgroup",                                                                 \
		 .kind = OPT_CALL,                                                                 \
		 .arg = "PATH|ID",                                                                 \
		 .parse = stack_parse_text,                                                        \
		 STACK_WHICH_AT(at, cgroups),                                                      \
		 .aliases = (const struct opt_alias[]){{"container", false}, {NULL, false}},       \
		 .help = "The Python processes of a cgroup (a path below /sys/fs/cgroup) or of a " \
			 "container (its id, or enough of it)."},                                  \
		{.name = "all-python",                                                             \
		 .letters = "a",                                                                   \
		 .kind = OPT_FLAG,                                                                 \
		 STACK_WHICH_AT(at, all_python),                                                   \
		 .help = "Every process that runs Python."},                                       \
		{.name = "min-hbm-usage-mb",                                                       \
		 .kind = OPT_UINT,                                                                 \
		 .arg = "MB",                                                                      \
		 .max = UINT_MAX,                                                                  \
		 STACK_WHICH_AT(at, min_npu_mb),                                                   \
		 .default_text = least_npu,                                                        \
		 .help = "Processes with less memory on an NPU do not count; 0: all count."},      \
	{                                                                                          \
		.name = "min-gpu-mem-usage-mb", .kind = OPT_UINT, .arg = "MB", .max = UINT_MAX,    \
		STACK_WHICH_AT(at, min_gpu_mb), .default_text = "0", .help = "The same for GPUs."  \
	}

#endif
