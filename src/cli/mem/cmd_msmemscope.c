/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * msmemscope: starts a recording and becomes the program to record, in the same process.
 *
 * Nothing is written to the program's stdout or stderr unless stderr is a terminal: what there is
 * to say goes to the log of the recording instead, so that recorded and unrecorded runs of a
 * script give the same bytes.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOG_AREA "launch"

#include "base/log.h"
#include "base/mem.h"
#include "cli/command.h"
#include "cli/mem/compare_run.h"
#include "cli/mem/msmemscope.h"
#include "launch/program.h"
#include "launch/recording.h"
#include "memory/analysis/compare/compare.h"
#include "memory/options/config.h"
#include "memory/options/options.h"
#include "wire/control_page.h"

#define TAG "[msmemscope] "
#define COMPARE_TOP 10
#define COMPARE_WAIT_S 10

/* One launch, step by step. */
struct job {
	const struct command *cmd;
	struct args args;
	struct mem_options options;
	struct buf program; /* where it was found */
	struct buf preload;
	struct buf dir; /* of the recording */
};

static void log_notices(struct job *j)
{
	const char *line = buf_str(&j->args.notices);
	char *path = xasprintf("%s/%s", buf_str(&j->dir), SESSION_LOG);

	log_set_level((enum log_level)j->options.config.log_level);
	if (*line && log_open(path, NULL) == 0) {
		while (*line) {
			int len = (int)strcspn(line, "\n");

			log_warn("%.*s", len, line);
			line += len + 1;
		}
		log_close();
	}
	free(path);
}

/* What a careful user wants to hear once: whose code is about to run. */
static void security_notices(struct job *j)
{
	const char *path = buf_str(&j->program);
	struct stat st;

	if (geteuid() == 0)
		args_notice(&j->args,
			    "Warn: Process is running as user root. Please confirm the path %s is "
			    "trusted.",
			    path);
	if (stat(path, &st) < 0)
		return;
	if (st.st_uid != geteuid() && st.st_uid != 0)
		args_notice(&j->args,
			    "Warn: %s is not owned by the current user. Please confirm it is "
			    "trusted.",
			    path);
	if (st.st_mode & (S_IWGRP | S_IWOTH))
		args_notice(
			&j->args,
			"Warn: %s can be modified by other users. Please confirm it is trusted.",
			path);
}

/* Before what is said without command_fail(). */
static const char *lead(const struct job *j)
{
	return j->cmd->tag ? TAG : "sonde mem record: ";
}

static void announce_recording(struct job *j)
{
	const char *info = j->cmd->tag ? TAG "Info: " : lead(j);

	static const char *const events[] = {"alloc", "free", "launch", "access"};
	const struct mem_config *c = &j->options.config;
	struct buf what = {0};

	for (unsigned i = 0; i < 4; i++)
		if (c->dump_events & 1u << i)
			buf_addf(&what, "%s%s", what.len ? ", " : "", events[i]);
	if (!what.len)
		buf_add_str(&what, "no events");
	const char *devices = c->npu_all     ? "every NPU and GPU"
			      : c->npu_slots ? "some NPUs or GPUs"
					     : "";
	buf_addf(&what, " of %s%s%s", devices, c->cpu && *devices ? ", and of " : "",
		 c->cpu ? "host memory" : "");
	if (c->mode == MEM_DEFERRED)
		buf_add_str(&what, ", from the moment the job asks for it");
	if (c->format == MEM_NONE)
		fprintf(stderr, "%srecording %s\n", info, buf_str(&what));
	else
		fprintf(stderr, "%srecording %s, as %s\n", info, buf_str(&what),
			mem_format_name(c->format));
	fprintf(stderr, "%sinto %s (look at it with: sonde mem show)\n", info, buf_str(&j->dir));
	buf_release(&what);
}

static int not_recorded(const struct job *j, const struct err *why)
{
	command_fail(j->cmd, why, EXIT_FAILED);
	fprintf(stderr,
		"%sThe program was not run, as it could not be recorded. Choose another place with "
		"--output-path=DIR, or run it without %s.\n",
		lead(j), j->cmd->spec.name);
	return EXIT_FAILED;
}

static int cannot_run(const struct job *j, const char *name, int code)
{
	fprintf(stderr, "%s: cannot run '%s': %s\n", j->cmd->spec.name, name, strerror(-code));
	return code == -ENOENT ? EXIT_NOT_FOUND : EXIT_NOT_EXECUTABLE;
}

/* A program in which nothing can be recorded: better said now than at the end of a long job. */
static void warn_of_program(struct job *j)
{
	enum mem_program kind = launch_program_kind(buf_str(&j->program));

	j->options.config.program = kind;
	j->options.config.machine =
		launch_inspect_machine("/dev", getenv("LD_LIBRARY_PATH"), "/etc/ld.so.cache");
	mem_config_keep_command(&j->options.config, j->args.words);
	j->options.config.tool =
		j->cmd == &cmd_mem_record ? MEM_TOOL_MEM_RECORD : MEM_TOOL_MSMEMSCOPE;
	if (kind == MEM_PROGRAM_STATIC)
		args_notice(&j->args,
			    "Warn: %s is statically linked: it cannot be recorded, only programs "
			    "that it starts.",
			    buf_str(&j->program));
	else if (kind == MEM_PROGRAM_PRIVILEGED)
		args_notice(&j->args,
			    "Warn: %s gets rights of its own when it starts (setuid or "
			    "capabilities): it cannot be recorded.",
			    buf_str(&j->program));
}

/* Returns only if the program could not be started. */
static int run_program(struct job *j)
{
	bool terminal = isatty(STDERR_FILENO);
	char **argv = j->args.words;
	struct buf lib_dir = {0};
	struct err err = {0};

	int r = launch_find_program(argv[0], &j->program, &err);
	if (r < 0) {
		command_notices(j->cmd, &j->args);
		return cannot_run(j, argv[0], r);
	}
	warn_of_program(j);
	r = launch_lib_dir(&lib_dir, &err);
	if (r == 0)
		r = launch_preload(buf_str(&lib_dir), j->options.config.cpu, &j->args, &j->preload,
				   &err);
	buf_release(&lib_dir);
	if (r == 0)
		r = launch_recording(&j->options.config, NULL, &j->dir, &err);
	if (r == 0)
		r = launch_set_environment(buf_str(&j->dir), buf_str(&j->preload), &err);
	if (r < 0) {
		command_notices(j->cmd, &j->args);
		return not_recorded(j, &err);
	}
	log_notices(j);
	if (terminal) {
		security_notices(j);
		command_notices(j->cmd, &j->args);
		announce_recording(j);
	}
	execvp(argv[0], argv);
	return cannot_run(j, argv[0], -errno);
}

static int run_compare(struct job *j)
{
	const struct mem_config *c = &j->options.config;
	struct compare_job job = {
		.input = {c->inputs[0], c->inputs[1]},
		.output_dir = c->output_dir,
		.top = COMPARE_TOP,
		.wait_s = COMPARE_WAIT_S,
	};

	if (c->level & MEM_LEVEL_OP)
		job.level |= COMPARE_OPERATORS;
	if (c->level & MEM_LEVEL_KERNEL)
		job.level |= COMPARE_KERNELS;
	command_notices(j->cmd, &j->args);
	return compare_run(j->cmd, &job);
}

static int show_version(void)
{
	printf("msmemscope records the memory of AI jobs and finds out who holds it.\n\n"
	       "msmemscope version %s\n",
	       SONDE_VERSION);
	return fflush(stdout) ? EXIT_FAILED : EXIT_DONE;
}

static int run_job(struct job *j)
{
	struct err err = {0};

	if (mem_options_finish(&j->options, &err) < 0) {
		command_notices(j->cmd, &j->args);
		return command_fail(j->cmd, &err, EXIT_USAGE);
	}
	if (j->options.config.compare)
		return run_compare(j);
	if (!j->args.nwords) {
		command_notices(j->cmd, &j->args);
		err_set(&err, -EINVAL,
			"no program to run; usage: msmemscope [options] -- <program> [arguments]");
		return command_fail(j->cmd, &err, EXIT_USAGE);
	}
	return run_program(j);
}

/*
 * Is a last line wanted where stderr is no terminal? A file is a log that people read. What is behind a
 * pipe may be a script that knows msMemScope: it gets that line only from `sonde mem record`.
 */
static bool wants_closing(const struct mem_options *o, bool record)
{
	struct stat st;

	if (o->quiet)
		return false;
	return record || (fstat(STDERR_FILENO, &st) == 0 && S_ISREG(st.st_mode));
}

int msmemscope_run(const struct command *cmd, int argc, char **argv)
{
	struct job *j = xcalloc(1, sizeof(*j));
	struct err err = {0};
	int status;

	j->cmd = cmd;
	j->args.target = &j->options;
	if (mem_options_init(&j->options, &err) < 0) {
		status = command_fail(cmd, &err, EXIT_FAILED);
		goto out;
	}
	if (cmd == &cmd_mem_record)
		mem_options_for_answers(&j->options.config);
	status = command_parse(cmd, &j->args, argc, argv);
	j->options.config.closing = wants_closing(&j->options, cmd == &cmd_mem_record);
	if (status < 0)
		status = j->args.stopped ? show_version() : run_job(j);
out:
	args_release(&j->args);
	buf_release(&j->program);
	buf_release(&j->preload);
	buf_release(&j->dir);
	free(j);
	return status;
}

static const char *const usage[] = {
	"[options] <program>",
	"[options] bash user.sh",
	"[options] -- <program> [arguments]",
	"--compare --input-path=A,B [options]",
	NULL,
};

static const struct args_example examples[] = {
	{"record a training script with the defaults", "msmemscope -- python train.py"},
	{"with 20 frames of C call stack, into /tmp/run1",
	 "msmemscope --call-stack=c:20 -o /tmp/run1 -- python train.py"},
	{"two NPUs and host memory, as a database",
	 "msmemscope --device=npu:0,npu:1,cpu --format=db bash user.sh"},
	{"steps 2 and 3 only, with kernel launches",
	 "msmemscope --steps=2,3 --level=op,kernel -- python train.py"},
	{"look at the result", "sonde mem show memscopeDumpResults"},
	{NULL, NULL},
};

static const struct args_section sections[] = {
	{"LISTS", "The items of a list are separated by commas; the full-width comma (U+FF0C) does "
		  "as well. Options may be cut short as long as they stay unambiguous."},
	{"USE FROM PYTHON AND FROM SCRIPTS",
	 "Jobs that cannot be started by msmemscope are recorded by the environment alone. In bash "
	 "or zsh,\n\n"
	 "  source msmemscope --load-api-env\n\n"
	 "puts the five libraries into LD_PRELOAD and their directory into LD_LIBRARY_PATH of the "
	 "shell (and tells ASan by ASAN_OPTIONS that this is meant), and\n\n"
	 "  source msmemscope --unload-api-env\n\n"
	 "takes them out again. Both may be repeated and leave the entries of others alone."},
	{"OUTPUT",
	 "Each recording is a directory recording_<pid>_<time> below the output path. Neither it "
	 "nor "
	 "the options change what the program prints: messages of msmemscope are shown only when "
	 "stderr is a terminal and are kept in msmemscope.log in that directory otherwise. "
	 "Findings, "
	 "and one line if something was lost, are shown everywhere, unless --report=off."},
	MSMEMSCOPE_STATUS_SECTION(", which runs in the process that msmemscope was started in"),
	{"ENVIRONMENT",
	 "SONDE_COMPAT has the meaning of --compat.\n\n"
	 "ATB_HOME_PATH selects the library that records ATB: it ends in atb/cxx_abi_0 or "
	 "atb/cxx_abi_1.\n\n"
	 "LD_PRELOAD_PATH names the directory of the libraries if it is not lib or lib64 beside "
	 "the program.\n\n"
	 "For the program, SONDE_SESSION and MSMEMSCOPE_CONFIG_PATH are set, and LD_PRELOAD is "
	 "extended. ASAN_OPTIONS is told that libraries may be preloaded "
	 "(verify_asan_link_order=0); without AddressSanitizer it means nothing."},
	{"SEE ALSO", "sonde(1), sonde-mem(1)"},
	{NULL, NULL},
};

const struct command cmd_msmemscope = {
	.name = "msmemscope",
	.tag = "msmemscope",
	.spec = {.name = "msmemscope",
		 .summary = "run a program and record the life of its memory",
		 .description =
			 "Runs a program and records every block of device memory that it and its "
			 "children allocate and free: when, where, how large, by whom. The program "
			 "needs no change. It keeps its process id, its terminal and its exit "
			 "status, "
			 "and what it prints is not touched. Everything is on disk even if it is "
			 "killed.",
		 .usage = usage,
		 .options = mem_option_table,
		 .examples = examples,
		 .sections = sections,
		 .flags = ARGS_STOP_AT_WORD,
		 .max_words = -1},
	.run = msmemscope_run,
};
