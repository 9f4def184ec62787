/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * sonde monitor: runs a job so that it can be monitored while it runs. It becomes the job: exit
 * status and signals are the job's own. Nothing is recorded until somebody asks for it.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/command.h"
#include "launch/monitor.h"
#include "launch/program.h"

struct monitor_options {
	const char *mspti;
	bool attribute, print_env, quiet;
};

struct monitor_run {
	const struct command *cmd;
	struct monitor_options o;
	struct monitor_environment env;
};

/* --- messages --- */

/* A value as a shell reads it back. */
static void add_quoted(struct buf *out, const char *value)
{
	buf_add_char(out, '\'');
	for (; *value; value++)
		if (*value == '\'')
			buf_add_str(out, "'\\''");
		else
			buf_add_char(out, *value);
	buf_add_char(out, '\'');
}

static int print_env(const struct monitor_run *m)
{
	struct buf text = {0};

	for (unsigned i = 0; i < m->env.n; i++) {
		buf_addf(&text, "export %s=", m->env.settings[i].name);
		add_quoted(&text, m->env.settings[i].value);
		buf_add_char(&text, '\n');
	}
	int status = command_print(m->cmd, &text);
	buf_release(&text);
	return status;
}

static void print_advice(const struct monitor_run *m, const char *program)
{
	if (m->o.quiet)
		return;
	fprintf(stderr,
		"%s: '%s' can be monitored while it runs: %s'sonde top' shows where the "
		"time goes%s\n",
		m->cmd->spec.name, program,
		launch_has_daemon()
			? ""
			: "start 'sonde daemon --enable-ipc-monitor' on this node, then ",
		m->env.no_mspti && !launch_has_cuda()
			? ". " MONITOR_MSPTI ", which NPUs need, was not found: name it with "
			  "--mspti PATH, or source set_env.sh of CANN"
			: "");
}

/* --- running --- */

static int run_program(struct monitor_run *m, char **argv)
{
	struct buf found = {0};
	struct err err = {0};
	int r = launch_find_program(argv[0], &found, &err);

	buf_release(&found);
	if (r == 0)
		r = monitor_environment_apply(&m->env, &err);
	if (r == 0) {
		print_advice(m, argv[0]);
		execvp(argv[0], argv);
		r = err_sys(&err, -errno, "cannot run '%s'", argv[0]);
	}
	return command_fail(m->cmd, &err, r == -ENOENT ? EXIT_NOT_FOUND : EXIT_NOT_EXECUTABLE);
}

static int monitor_run(const struct command *cmd, int argc, char **argv)
{
	struct monitor_run m = {.cmd = cmd};
	struct args a = {.target = &m.o};
	struct err err = {0};

	int status = command_parse(cmd, &a, argc, argv);
	if (status >= 0)
		goto out;
	command_notices(cmd, &a);
	if (!a.nwords && !m.o.print_env) {
		err_set(&err, -EINVAL, "no program to run: write it after --, with its arguments");
		status = command_fail(cmd, &err, EXIT_USAGE);
		goto out;
	}
	if (m.o.attribute)
		launch_prepare_attribute(&m.env);
	if (launch_monitor_environment(m.o.mspti, true, &m.env, &err) < 0)
		status = command_fail(cmd, &err, EXIT_FAILED);
	else
		status = m.o.print_env ? print_env(&m) : run_program(&m, a.words);
out:
	monitor_environment_release(&m.env);
	args_release(&a);
	return status;
}

#define AT(member) offsetof(struct monitor_options, member)
static const struct opt options[] = {
	OPTION_TEXT("mspti", "LIBRARY", AT(mspti),
		    "$ASCEND_HOME_PATH/lib64/" MONITOR_MSPTI ", if it is there",
		    "The CANN library that reports NPU activities. It is preloaded into the job as "
		    "well; 'none' preloads none.",
		    .group = "Monitor"),
	OPTION_FLAG(
		"attribute", AT(attribute),
		"Prepare the job for --attribute of npu-monitor, nputrace and sonde top on NVIDIA "
		"GPUs: launches cost it less then than where that is asked for later, and a little "
		"while it is off.",
		.group = "Monitor"),
	OPTION_FLAG("print-env", AT(print_env),
		    "Run nothing: print the environment that the job needs, as export lines for a "
		    "shell."),
	OPTION_FLAG("quiet", AT(quiet), "Do not say what to do next."),
	COMMAND_HELP_OPTION,
	OPT_END,
};

static const char *const usage[] = {"[options] -- <program> [arguments]", "--print-env", NULL};

static const struct args_section sections[] = {
	{"ENVIRONMENT",
	 "For the job MSMONITOR_USE_DAEMON=1 is set, " MONITOR_LIBRARY " (and " MONITOR_MSPTI
	 ", where there is "
	 "one) is added to LD_PRELOAD, and KINETO_USE_DAEMON, CUDA_INJECTION64_PATH and "
	 "NVTX_INJECTION64_PATH are set unless they are. ASAN_OPTIONS is told that libraries may "
	 "be preloaded (verify_asan_link_order=0); without AddressSanitizer it means nothing. "
	 "Launchers such as torchrun hand all that "
	 "on to their ranks; where ranks are started on other nodes, put the command in front of "
	 "theirs, or the lines of --print-env into their script."},
	{"EXIT STATUS",
	 "That of the program; 127 if it was not found, 126 if it could not be run, 2 when the "
	 "command line was wrong, 1 when the library is missing."},
	{"SEE ALSO", "sonde(1), sonde-top(1), sonde-ctl(1), dyno(1)"},
	{NULL, NULL},
};

static const struct args_example examples[] = {
	{"a job that can be monitored", "sonde monitor -- torchrun --nproc-per-node 8 train.py"},
	{"look at it", "sonde top"},
	{"in a script that starts ranks itself", "eval \"$(sonde monitor --print-env)\""},
	{NULL, NULL},
};

const struct command cmd_monitor = {
	.name = "monitor",
	.page = "sonde-monitor",
	.spec = {.name = "sonde monitor",
		 .summary = "run a job so that it can be monitored",
		 .description =
			 "Runs a program with sonde's monitor in it. The monitor does nothing "
			 "until "
			 "it is asked to: by 'sonde top', 'sonde ctl npu-monitor' or 'sonde ctl "
			 "nputrace', as often as you like and without stopping the job. On NPUs "
			 "and "
			 "on NVIDIA GPUs, in Python, C or C++; the program needs no change.",
		 .usage = usage,
		 .options = options,
		 .examples = examples,
		 .sections = sections,
		 .flags = ARGS_STOP_AT_WORD,
		 .max_words = -1},
	.run = monitor_run,
};
