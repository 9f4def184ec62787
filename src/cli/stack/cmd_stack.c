/* SPDX-License-Identifier: MulanPSL-2.0 */
/* sonde stack: the Python stacks of running processes over time; and sonde stack run. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "cli/command.h"
#include "cli/mem/launch.h"
#include "cli/stack/detach.h"
#include "cli/stack/messages.h"
#include "cli/stack/report.h"
#include "cli/stack/session.h"
#include "sampler/session/job.h"
#include "sampler/session/signals.h"

/* One run of either command. */
struct stack_command {
	const struct command *cmd;
	struct stack_options o;
	char **words; /* of the job; NULL: there is none */
	struct stack_job job;
	int ready; /* to whoever waits in front; -1: nobody does */
};

static int fail(struct stack_command *c, const struct err *err, int status)
{
	if (c->ready >= 0)
		stack_detach_failed(c->ready, status, err);
	c->ready = -1;
	return command_fail(c->cmd, err, status);
}

static int report(struct stack_session *s)
{
	if (!s->o->json) {
		stack_report_say(s);
		return EXIT_DONE;
	}
	return command_print_json(s->cmd, stack_report_json(s));
}

/* As a shell says that a command cannot be run. */
static int exec_status(int r)
{
	return r == -ENOENT ? EXIT_NOT_FOUND : EXIT_NOT_EXECUTABLE;
}

static int start_job(struct stack_command *c, struct stack_session *s, struct err *err)
{
	int r = stack_job_start(c->words, &c->job, err);

	if (r < 0)
		return r;
	s->job = &c->job;
	stack_pid_add(&c->o.parents, getpid());
	return 0;
}

/* The session is open. The exit status. */
static int sample(struct stack_command *c, struct stack_session *s)
{
	struct err err = {0}, end = {0};
	int status = EXIT_DONE;

	if (c->words && start_job(c, s, &err) < 0)
		status = fail(c, &err, exec_status(err.code));
	else if (c->ready >= 0 && stack_detach_ready(&c->o, c->ready, c->job.pid, &err) < 0)
		status = fail(c, &err, EXIT_FAILED);
	else if (stack_session_run(s, &err) < 0)
		status = command_fail(c->cmd, &err, EXIT_FAILED);
	if (stack_session_close(s, &end) < 0 && status == EXIT_DONE)
		status = command_fail(c->cmd, &end, EXIT_FAILED);
	if (s->job && s->end != STACK_END_SIGNAL)
		stack_job_wait(&c->job);
	if (status == EXIT_DONE)
		status = report(s);
	if (s->job && c->job.ended)
		return c->job.status;
	if (status == EXIT_DONE && s->totals.refused && !s->totals.processes)
		status = EXIT_FAILED;
	return status;
}

static int run(struct stack_command *c)
{
	struct stack_session s = {.cmd = c->cmd, .o = &c->o};
	unsigned signals = c->words ? STACK_SIGNALS_JOB : 0;
	struct buf found = {0};
	struct err err = {0};

	if (c->words && launch_find_program(c->words[0], &found, &err) < 0)
		return fail(c, &err, exec_status(err.code));
	buf_release(&found);
	if (c->o.detach) {
		int status = stack_detach(c->cmd, &c->o, &c->ready);

		if (status >= 0)
			return status;
		signals |= STACK_SIGNALS_DETACHED;
	}
	stack_signals_install(signals);
	if (stack_session_open(&s, &err) < 0)
		return fail(c, &err, EXIT_FAILED);
	int status = sample(c, &s);
	stack_say_close();
	if (c->o.detach)
		unlink(c->o.pid_file);
	return status;
}

static int plan(struct stack_command *c)
{
	struct buf text = {0};

	stack_report_plan(&c->o, c->words, &text);
	json_t *words = c->o.json ? json_string(buf_str(&text)) : NULL;
	int status = words ? command_print_json(c->cmd, json_pack("{s:o}", "plan", words))
			   : command_print(c->cmd, &text);
	buf_release(&text);
	return status;
}

static int either(const struct command *cmd, int argc, char **argv, bool job)
{
	struct stack_command c = {.cmd = cmd, .ready = -1};
	struct args a = {.target = &c.o};
	struct err err = {0};

	stack_options_init(&c.o);
	int status = command_parse(cmd, &a, argc, argv);
	if (status >= 0)
		goto out;
	if (stack_options_complete(&c.o, &a, &err) < 0) {
		status = command_fail(cmd, &err, EXIT_USAGE);
		goto out;
	}
	if (!c.o.quiet)
		command_notices(cmd, &a);
	if (job && !a.nwords && !c.o.status && !c.o.stop) {
		err_set(&err, -EINVAL, "which command? usage: %s %s", cmd->spec.name,
			cmd->spec.usage[0]);
		status = command_fail(cmd, &err, EXIT_USAGE);
		goto out;
	}
	c.words = a.nwords ? a.words : NULL;
	if (c.o.status)
		status = stack_detach_status(cmd, &c.o);
	else if (c.o.stop)
		status = stack_detach_stop(cmd, &c.o);
	else
		status = c.o.dry_run ? plan(&c) : run(&c);
out:
	args_release(&a);
	stack_options_release(&c.o);
	return status;
}

static int stack_run_run(const struct command *cmd, int argc, char **argv)
{
	return either(cmd, argc, argv, true);
}

static int stack_run(const struct command *cmd, int argc, char **argv)
{
	/* under its other name, where main() has not looked for a second word */
	if (argc && !strcmp(argv[0], "run"))
		return either(&cmd_stack_run, argc - 1, argv + 1, true);
	return either(cmd, argc, argv, false);
}

static const char *const stack_usage[] = {"[-p PID[,PID]] [-i SECONDS] [-d SECONDS] [-o FILE] "
					  "[options]",
					  "run [options] -- command [arguments]",
					  "--status|--stop [-o FILE]", NULL};
static const struct args_example stack_examples[] = {
	{"everybody on the NPUs of this node, once a minute, until Ctrl-C",
	 "sonde stack -i 60 --npu-usage --cpu-mem-usage --all-threads"},
	{"two processes, 100 times per second for ten seconds",
	 "sonde stack -p 44002,44003 -i 0.01 -d 10 -o trace.json"},
	{"a job from its first moment on, with all its workers",
	 "sonde stack run -o trace.json -- torchrun --nproc-per-node 8 train.py"},
	{"a flame graph of all threads, with functions of C",
	 "sonde stack -p 44002 --rate 200 -d 30 --all-threads --native --format collapsed -o "
	 "stacks.txt"},
	{"in the background for days, the last ten hours kept",
	 "sonde stack --name train.py --detach --gzip --rotate-time 1h --keep 10"},
	{NULL, NULL},
};
static const struct args_section stack_sections[] = {
	{"FILES", "  FILE             the timeline, or the profile\n"
		  "  FILE.log         messages, and how long everything took\n"
		  "  FILE.pids        who runs in the background\n"
		  "  FILE.wrapper.log what a job in the background prints\n\n"
		  "A timeline can be loaded at every moment, also after the sampler was killed. "
		  "Viewers take it as "
		  "it is. For other readers of JSON one character may be missing at its end: ']' "
		  "if the file begins with a "
		  "blank, '}' if it begins with a brace."},
	{"SIGNALS", "SIGINT, SIGTERM and SIGHUP end the sampling and complete the file. SIGUSR1 "
		    "saves a copy with the time in its name at once. 'run' passes signals on to "
		    "the job and ends when the job does."},
	{"EXIT STATUS",
	 "0 when the file is complete, also after Ctrl-C; 1 when it failed, or when none of the "
	 "processes named could be read; 2 when the command line was wrong. 'run' gives the exit "
	 "status of the job, 128 and the signal if one killed it, 127 if it was not found and 126 "
	 "if it could not be run. --status gives 1 when nothing runs."},
	{"SEE ALSO", "sonde(1), sonde-snap(1)"},
	{NULL, NULL},
};

const struct command cmd_stack = {
	.name = "stack",
	.alias = "python_stack_sniffer",
	.page = "sonde-stack",
	.spec = {.name = "sonde stack",
		 .summary = "sample the Python stacks of running processes as a timeline",
		 .description =
			 "Looks at the stacks of any number of Python processes many times per "
			 "second, without stopping or changing them, and writes what ran when as "
			 "one timeline, together with what NPUs, GPUs and the host do. 'run' "
			 "starts a job and samples it and all its descendants.\n\n"
			 "Without -p or another rule those processes are sampled that use an NPU, "
			 "or else a GPU; new ones are followed, and it ends when there has been "
			 "none for three minutes.",
		 .usage = stack_usage,
		 .options = stack_option_rows,
		 .examples = stack_examples,
		 .sections = stack_sections},
	.run = stack_run,
};

static const char *const run_usage[] = {"[options] -- command [arguments]",
					"--status|--stop [-o FILE]", NULL};
static const struct args_example run_examples[] = {
	{"a job with all its workers",
	 "sonde stack run -o trace.json -- torchrun --nproc-per-node 8 train.py"},
	{"the same in the background", "sonde stack run --detach -o trace.json -- python train.py"},
	{"does it still run", "sonde stack run --status -o trace.json"},
	{NULL, NULL},
};

const struct command cmd_stack_run = {
	.name = "stack run",
	.spec = {.name = "sonde stack run",
		 .summary = "start a job and sample its Python stacks",
		 .description =
			 "Starts the command with the files, the terminal and the signals it "
			 "would have without us, samples it and all its descendants, and "
			 "ends with its exit status. Takes the options of 'sonde stack'.",
		 .usage = run_usage,
		 .options = stack_option_rows,
		 .examples = run_examples,
		 .flags = ARGS_STOP_AT_WORD,
		 .max_words = -1},
	.run = stack_run_run,
};
