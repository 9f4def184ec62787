/* SPDX-License-Identifier: MulanPSL-2.0 */
/* sonde snap: where all ranks are, in one line; and the same under the name py_stack_snap. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include "cli/snap/run.h"
#include "sampler/session/signals.h"

#define TOP_SNAP 20
#define TOP_PY_STACK_SNAP 10
#define RULE "============================================================"

/* How two names show the same. */
typedef void (*layout_fn)(const struct snap_look *l, const struct snapshot *s, struct buf *out);

static void grouped(const struct snap_look *l, const struct snapshot *s, struct buf *out)
{
	snapshot_text(s, out);
	if (snapshot_processes(s) > 1)
		buf_addf(out, "\nAll stacks were copied within %.*f ms.\n",
			 l->skew_ns < 100000 ? 3 : 1, (double)l->skew_ns / 1e6);
}

static void per_process(const struct snap_look *l, const struct snapshot *s, struct buf *out)
{
	unsigned n = 0;

	buf_addf(out, "%s\nPython stack snapshot\n%s\n", RULE, RULE);
	buf_add_str(out, "PIDs: ");
	for (unsigned i = 0; i < l->targets->n; i++)
		if (l->targets->list[i]->state == TARGET_OPEN)
			buf_addf(out, "%s%d", n++ ? ", " : "", l->targets->list[i]->pid);
	buf_add_char(out, '\n');
	snapshot_answer(s, out);
	snapshot_dump(s, out);
}

static int look_once(const struct command *cmd, struct snap_look *l, layout_fn layout)
{
	bool color = isatty(STDOUT_FILENO) && !l->o->json;
	struct err err = {0};
	struct buf text = {0};
	int status;

	/* The first round learns where things lie; the second copies them all in less time. */
	snap_look_round(l);
	snap_look_round(l);
	struct snapshot *s = snap_look_take(l, color);
	if (l->native_err.code < 0) {
		err_set(&err, l->native_err.code, "some native frames are missing: %.400s",
			l->native_err.text);
		command_fail(cmd, &err, EXIT_DONE);
	}
	if (l->o->json) {
		json_t *o = snapshot_json(s);

		json_object_set_new(o, "skew_ns", json_integer((json_int_t)l->skew_ns));
		status = command_print_json(cmd, o);
	} else {
		layout(l, s, &text);
		status = command_print(cmd, &text);
	}
	if (status == EXIT_DONE && !snapshot_processes(s))
		status = EXIT_FAILED;
	snapshot_free(s);
	buf_release(&text);
	return status;
}

static int look(const struct command *cmd, const struct snap_options *o, layout_fn layout)
{
	struct snap_look l;
	struct err err = {0};
	int status;

	snap_look_init(&l, o);
	if (snap_look_find(&l, &err) < 0) {
		status = command_fail(cmd, &err, EXIT_FAILED);
	} else if (o->watch || o->hang_ns) {
		stack_signals_install(0);
		status = o->watch ? snap_watch(cmd, &l) : snap_hang(cmd, &l);
	} else {
		status = look_once(cmd, &l, layout);
	}
	snap_look_release(&l);
	return status;
}

static int run(const struct command *cmd, int argc, char **argv, unsigned top, layout_fn layout)
{
	struct snap_options o;
	struct args a = {.target = &o};
	struct err err = {0};

	snap_options_init(&o, top);
	int status = command_parse(cmd, &a, argc, argv);
	if (status < 0) {
		command_notices(cmd, &a);
		if (snap_options_check(&o, &err) < 0)
			status = command_fail(cmd, &err, EXIT_USAGE);
		else
			status = look(cmd, &o, layout);
	}
	args_release(&a);
	snap_options_release(&o);
	return status;
}

static int run_snap(const struct command *cmd, int argc, char **argv)
{
	return run(cmd, argc, argv, TOP_SNAP, grouped);
}

static int run_py_stack_snap(const struct command *cmd, int argc, char **argv)
{
	return run(cmd, argc, argv, TOP_PY_STACK_SNAP, per_process);
}

static const char *const usage[] = {"[-p PID[,PID] | --name TEXT | --parent PID | -a] [options]",
				    "--hang SECONDS [--for SECONDS] [options]",
				    "--watch [--interval SECONDS] [options]", NULL};
static const struct args_example examples[] = {
	{"everybody on the NPUs or GPUs of this node", "sonde snap"},
	{"a launcher and all its workers", "sonde snap --children -p 4711"},
	{"what the data loader holds in its hands",
	 "sonde snap --name train.py --locals load_batch"},
	{"say who is stuck, as soon as somebody has been for half a minute",
	 "sonde snap --name train.py --hang 30"},
	{NULL, NULL},
};
static const struct args_section sections[] = {
	{"GROUPS",
	 "Ranks are known by RANK and the like in their environment. Where processes have one, the "
	 "answer speaks of those; launchers and workers of data loaders are shown below. A stack "
	 "is "
	 "known by its innermost function that is neither of Python's library nor of an installed "
	 "package; '>' marks it, and names the call below it in the first line."},
	{"HANGS",
	 "A rank has not moved when its calls, the instruction in each of them, all "
	 "their variables, the attributes of the objects whose methods run and the "
	 "variables of the script are the same as before. What changes inside Python's own "
	 "library does not count. One that uses the processor meanwhile is said to be "
	 "busy: it spins in C, or computes for long."},
	{"EXIT STATUS", "0 when it is done, 1 when no process could be looked at, 2 when the "
			"command line was wrong, 3 when --hang has found one."},
	{"SEE ALSO", "sonde(1), sonde-stack(1)"},
	{NULL, NULL},
};

const struct command cmd_snap = {
	.name = "snap",
	.page = "sonde-snap",
	.spec = {.name = "sonde snap",
		 .summary = "show where all ranks of a job are, equal stacks together",
		 .description =
			 "Copies the Python stacks of all processes in the same moment, without "
			 "stopping them, and tells where they are: those with the same stack "
			 "together, the largest group first, and who is elsewhere than all "
			 "others.",
		 .usage = usage,
		 .options = snap_option_rows,
		 .examples = examples,
		 .sections = sections},
	.run = run_snap,
};

static const struct args_example py_stack_snap_examples[] = {
	{"the processes on the NPUs of this node", "py_stack_snap"},
	{"every Python process, 50 frames each", "py_stack_snap -a -t 50"},
	{NULL, NULL},
};

const struct command cmd_py_stack_snap = {
	.name = "py_stack_snap",
	.hidden = true,
	.spec = {.name = "py_stack_snap",
		 .summary = "show the Python stacks of all processes on the devices",
		 .description = "sonde snap under its other name: process by process instead of in "
				"groups. All processes are looked at in the same moment; the first "
				"line tells where they are.",
		 .usage = usage,
		 .options = py_stack_snap_option_rows,
		 .examples = py_stack_snap_examples,
		 .sections = sections},
	.run = run_py_stack_snap,
};
