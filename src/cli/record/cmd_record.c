/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * sonde record: everything at once in one recording, for a program and all that it starts. It becomes
 * the program, as msmemscope does; what it was asked for beyond memory is in the control page
 * (struct session_record), where the processes of the job and the recorder read it.
 */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "cli/command.h"
#include "cli/mem/msmemscope.h"
#include "cli/record/dump.h"
#include "cli/record/record_options.h"
#include "launch/monitor.h"
#include "launch/program.h"
#include "launch/recording.h"
#include "wire/control_page.h"

/* One launch, step by step. */
struct launch {
	const struct command *cmd;
	struct args args;
	struct record_options o;
	struct session_record record;
	struct monitor_environment env;
	struct buf dir; /* of the recording */
};

static int set_libraries(struct launch *l, struct err *err)
{
	struct buf lib_dir = {0}, preload = {0};
	int r = launch_lib_dir(&lib_dir, err);

	if (r == 0 && l->o.what & PART_MEMORY)
		r = launch_preload(buf_str(&lib_dir), l->o.mem.config.cpu, &l->args, &preload, err);
	if (r == 0)
		r = launch_set_environment(buf_str(&l->dir), buf_str(&preload), err);
	if (r == 0)
		r = launch_monitor_environment(l->o.mspti, launch_has_daemon(), &l->env, err);
	if (r == 0)
		r = monitor_environment_apply(&l->env, err);
	buf_release(&lib_dir);
	buf_release(&preload);
	return r;
}

static void announce_recording(struct launch *l)
{
	static const char *const words[] = {"memory", "kernels", "Python stacks", "counters"};
	struct buf what = {0};

	struct stat st;

	/* Also into a log: a job that is killed says no more. */
	if (l->o.mem.quiet ||
	    (!isatty(STDERR_FILENO) && (fstat(STDERR_FILENO, &st) < 0 || !S_ISREG(st.st_mode))))
		return;
	for (unsigned i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (l->o.what & 1u << i)
			buf_addf(&what, "%s%s", what.len ? ", " : "", words[i]);
	fprintf(stderr, "%s: recording %s into %s\n", l->cmd->spec.name, buf_str(&what),
		buf_str(&l->dir));
	buf_release(&what);
}

static int not_recorded(const struct launch *l, const struct err *why)
{
	command_fail(l->cmd, why, EXIT_FAILED);
	fprintf(stderr,
		"%s: The program was not run, as it could not be recorded. Choose another place "
		"with -o DIR, or run it alone.\n",
		l->cmd->spec.name);
	return EXIT_FAILED;
}

/* Returns only if the program could not be started. */
static int run_program(struct launch *l)
{
	char **argv = l->args.words;
	struct buf found = {0};
	struct err err = {0};
	int r = launch_find_program(argv[0], &found, &err);

	if (r == 0)
		l->o.mem.config.program = launch_program_kind(buf_str(&found));
	l->o.mem.config.tool = MEM_TOOL_RECORD;
	mem_config_keep_command(&l->o.mem.config, argv);
	buf_release(&found);
	command_notices(l->cmd, &l->args);
	if (r < 0)
		return command_fail(l->cmd, &err,
				    r == -ENOENT ? EXIT_NOT_FOUND : EXIT_NOT_EXECUTABLE);
	if (getenv(SESSION_ENV) && !l->o.mem.quiet)
		fprintf(stderr,
			"%s: this is recorded into %.300s already; from here on that recording has "
			"no "
			"memory and no kernels\n",
			l->cmd->spec.name, getenv(SESSION_ENV));
	r = launch_recording(&l->o.mem.config, &l->record, &l->dir, &err);
	if (r == 0)
		r = set_libraries(l, &err);
	command_notices(l->cmd, &l->args);
	if (r < 0)
		return not_recorded(l, &err);
	announce_recording(l);
	execvp(argv[0], argv);
	r = err_sys(&err, -errno, "cannot run '%s'", argv[0]);
	return command_fail(l->cmd, &err, r == -ENOENT ? EXIT_NOT_FOUND : EXIT_NOT_EXECUTABLE);
}

static int run_record(struct launch *l)
{
	struct err err = {0};

	if (l->o.dump)
		return record_dump(l->cmd, &l->args, l->o.mem.config.output_dir);
	if (record_options_finish(&l->o, &l->record, &err) < 0) {
		command_notices(l->cmd, &l->args);
		return command_fail(l->cmd, &err, EXIT_USAGE);
	}
	if (!l->args.nwords) {
		command_notices(l->cmd, &l->args);
		err_set(&err, -EINVAL, "no program to run: write it after --, with its arguments");
		return command_fail(l->cmd, &err, EXIT_USAGE);
	}
	return run_program(l);
}

static int record_run(const struct command *cmd, int argc, char **argv)
{
	struct launch *l = xcalloc(1, sizeof(*l));
	struct err err = {0};
	int status;

	l->cmd = cmd;
	l->args.target = &l->o;
	if (record_options_init(&l->o, &err) < 0) {
		status = command_fail(cmd, &err, EXIT_FAILED);
	} else {
		status = command_parse(cmd, &l->args, argc, argv);
		status = status < 0 ? run_record(l) : status;
	}
	monitor_environment_release(&l->env);
	args_release(&l->args);
	buf_release(&l->dir);
	free(l);
	return status;
}

static const char *const usage[] = {"[options] -- <program> [arguments]",
				    "--dump [<pid> | <directory>]", NULL};

static const struct args_example examples[] = {
	{"record a training script", "sonde record -- python train.py"},
	{"look at it as a page", "sonde report sonde_recordings"},
	{"look at it on one clock", "sonde timeline sonde_recordings"},
	{"all ranks of a node", "sonde record -o run1 -- torchrun --nproc-per-node 8 train.py"},
	{"each node of a Slurm job, into one shared directory",
	 "srun sonde record -o /shared/run1 -- torchrun … train.py"},
	{"the last minute alone, for as long as it takes; copies when something goes wrong",
	 "sonde record --last 60s -- python train.py"},
	{"a copy of that minute now", "sonde record --dump 4711"},
	{"kernels and stacks of some steps",
	 "sonde record --only kernels,stacks --steps 10-20 -- python train.py"},
	{NULL, NULL},
};

static const struct args_section sections[] = {
	{"OUTPUT",
	 "A directory recording_<pid>_<time>_<host> below the output path. It holds one file of "
	 "all "
	 "processes, events.sonde, which is readable at any moment, also of a job or a recorder "
	 "that "
	 "was killed; `sonde timeline`, `sonde mem …` and `sonde activity …` take the directory. "
	 "What the program prints is not touched. When it has ended, a few lines on stderr say "
	 "what "
	 "was recorded, what was found and what was lost; --quiet leaves them out."},
	{"DEVICE TIME",
	 "Kernels, communication and copies are reported by MSPTI on NPUs and by CUPTI on NVIDIA "
	 "GPUs, from the first use of a device on. While the job's own profiler has that library, "
	 "they pause, and the timeline marks the gap."},
	MSMEMSCOPE_STATUS_SECTION(", which runs in the process that sonde record was started in"),
	{"SEE ALSO", "sonde(1), sonde-timeline(1), sonde-mem(1), sonde-activity(1)"},
	{NULL, NULL},
};

const struct command cmd_record = {
	.name = "record",
	.page = "sonde-record",
	.spec = {.name = "sonde record",
		 .summary = "run a program and record all that it does: memory, kernels, stacks",
		 .description = "Runs a program and records, of it and of everything that it "
				"starts: memory, "
				"what devices execute, steps and marks, Python stacks, and "
				"counters of devices "
				"and host. All is in one file, on one clock. The program needs no "
				"change; it "
				"keeps its process id, its terminal and its exit status.",
		 .usage = usage,
		 .options = record_option_table,
		 .examples = examples,
		 .sections = sections,
		 .flags = ARGS_STOP_AT_WORD,
		 .max_words = -1},
	.run = record_run,
};
