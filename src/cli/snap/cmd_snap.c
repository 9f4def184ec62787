/* SPDX-License-Identifier: MulanPSL-2.0 */
/* sonde snap: where all ranks are, in one line; and the same under the name py_stack_snap. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/text/table.h"
#include "cli/command.h"
#include "cli/snap/moved.h"
#include "cli/stack/options.h"
#include "sampler/session/job.h"
#include "sampler/snapshot/take.h"

#define SECOND 1000000000ull
#define RULE "============================================================"
#define CLEAR_SCREEN "\033[H\033[2J"

struct snap_options {
	struct stack_options stack; /* of it only which processes, all_threads, native */
	struct snapshot_options shown;
	char **locals; /* functions; owned */
	size_t locals_cap;
	bool json, watch;
	uint64_t interval_ns; /* of --watch */
	uint64_t hang_ns; /* 0: not asked for */
	uint64_t for_ns; /* 0: no limit */
};

/* The two names print the same differently. */
typedef void (*layout_fn)(const struct snap_sampler *sampler, const struct snapshot *s,
			  struct buf *out);

static void add_grouped(const struct snap_sampler *sampler, const struct snapshot *s,
			struct buf *out)
{
	snapshot_text(s, out);
	if (snapshot_processes(s) > 1)
		buf_addf(out, "\nAll stacks were copied within %.*f ms.\n",
			 sampler->skew_ns < 100000 ? 3 : 1, (double)sampler->skew_ns / 1e6);
}

static void add_per_process(const struct snap_sampler *sampler, const struct snapshot *s,
			    struct buf *out)
{
	unsigned n = 0;

	buf_addf(out, "%s\nPython stack snapshot\n%s\n", RULE, RULE);
	buf_add_str(out, "PIDs: ");
	for (unsigned i = 0; i < sampler->targets->n; i++)
		if (sampler->targets->list[i]->state == TARGET_OPEN)
			buf_addf(out, "%s%d", n++ ? ", " : "", sampler->targets->list[i]->pid);
	buf_add_char(out, '\n');
	snapshot_answer(s, out);
	snapshot_dump(s, out);
}

/* --- one snapshot --- */

static int print_once(const struct command *cmd, const struct snap_options *o,
		      struct snap_sampler *sampler, layout_fn layout)
{
	struct err err = {0};
	struct buf text = {0};
	int status;

	/* The first round learns where things lie; the second copies them all in less time. */
	snap_sampler_round(sampler);
	snap_sampler_round(sampler);
	struct snapshot *s = snap_sampler_take(sampler, &o->shown);
	if (sampler->native_err.code < 0) {
		err_set(&err, sampler->native_err.code, "some native frames are missing: %.400s",
			sampler->native_err.text);
		command_fail(cmd, &err, EXIT_DONE);
	}
	if (o->json) {
		json_t *j = snapshot_json(s);

		json_object_set_new(j, "skew_ns", json_integer((json_int_t)sampler->skew_ns));
		status = command_print_json(cmd, j);
	} else {
		layout(sampler, s, &text);
		status = command_print(cmd, &text);
	}
	if (status == EXIT_DONE && !snapshot_processes(s))
		status = EXIT_FAILED;
	snapshot_free(s);
	buf_release(&text);
	return status;
}

/* --- --watch --- */

static void add_clock(struct buf *out)
{
	time_t now = time(NULL);
	struct tm tm;
	char text[32];

	localtime_r(&now, &tm);
	strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S", &tm);
	buf_add_str(out, text);
}

/* What does not fit on the screen would push the first line, the answer, off it. */
static void cut_to_screen(struct buf *text)
{
	struct winsize w = {0};
	size_t at = 0;

	if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) < 0 || w.ws_row < 4)
		return;
	for (unsigned lines = 1; lines < w.ws_row; lines++) {
		const char *end = memchr(text->data + at, '\n', text->len - at);

		if (!end)
			return;
		at = (size_t)(end - text->data) + 1;
	}
	text->len = at;
}

struct watching {
	const struct command *cmd;
	const struct snap_options *o;
	int status;
	struct moved moved; /* on a terminal */
};

static bool print_change(void *arg, const struct snapshot *s, bool changed)
{
	struct watching *w = arg;
	const struct snap_options *o = w->o;
	struct buf text = {0};

	if (!changed && !o->shown.color)
		return true;
	if (o->json) {
		w->status = command_print_json_line(w->cmd, snapshot_json(s));
		return w->status == EXIT_DONE;
	}
	if (o->shown.color)
		buf_add_str(&text, CLEAR_SCREEN);
	add_clock(&text);
	buf_add_char(&text, '\n');
	if (o->shown.color) {
		moved_note(&w->moved, s);
		moved_add_line(&w->moved, terminal_columns(STDOUT_FILENO, NULL), &text);
	}
	snapshot_text(s, &text);
	if (o->shown.color)
		cut_to_screen(&text);
	else
		buf_add_char(&text, '\n');
	w->status = command_print(w->cmd, &text);
	buf_release(&text);
	return w->status == EXIT_DONE;
}

static int print_changes(const struct command *cmd, const struct snap_options *o,
			 struct snap_sampler *sampler)
{
	struct watching w = {.cmd = cmd, .o = o, .status = EXIT_DONE};

	snap_sampler_watch(sampler, &o->shown, o->interval_ns, print_change, &w);
	moved_release(&w.moved);
	return w.status;
}

/* --- --hang --- */

static int print_hang(const struct command *cmd, const struct snap_options *o,
		      struct snap_sampler *sampler, const struct hang *hang, uint64_t now_ns)
{
	json_t *list = json_array();
	struct buf text = {0};
	int status;

	hang_report(hang, o->hang_ns, now_ns, &text, list);
	struct snapshot *s = snap_sampler_take(sampler, &o->shown);
	if (o->json) {
		status = command_print_json(cmd, json_pack("{s:b, s:O, s:o}", "hang", 1, "still",
							   list, "snapshot", snapshot_json(s)));
	} else {
		buf_add_char(&text, '\n');
		snapshot_text(s, &text);
		status = command_print(cmd, &text);
	}
	snapshot_free(s);
	json_decref(list);
	buf_release(&text);
	return status == EXIT_DONE ? EXIT_FINDING : status;
}

static int print_no_hang(const struct command *cmd, const struct snap_options *o, bool ended)
{
	struct buf text = {0};

	if (o->json)
		return command_print_json(cmd, json_pack("{s:b, s:[]}", "hang", 0, "still"));
	buf_addf(&text, "no hang of %.1f s was seen%s\n", (double)o->hang_ns / 1e9,
		 ended ? "; the processes have ended" : "");
	int status = command_print(cmd, &text);
	buf_release(&text);
	return status;
}

static int wait_for_hang(const struct command *cmd, const struct snap_options *o,
			 struct snap_sampler *sampler)
{
	struct hang *hang = hang_new();
	uint64_t now_ns;
	int status = snap_sampler_find_hang(sampler, hang, o->hang_ns, &now_ns)
			     ? print_hang(cmd, o, sampler, hang, now_ns)
			     : print_no_hang(cmd, o, !targets_open(sampler->targets));

	hang_free(hang);
	return status;
}

/* --- the command --- */

static int run_sampler(const struct command *cmd, const struct snap_options *o, layout_fn layout)
{
	struct snap_sampler sampler;
	struct err err = {0};
	int status;

	snap_sampler_init(&sampler, &o->stack);
	if (snap_sampler_find(&sampler, &err) < 0) {
		status = command_fail(cmd, &err, EXIT_FAILED);
	} else if (o->watch || o->hang_ns) {
		stack_signals_install(0);
		sampler.end_ns = o->for_ns ? clock_mono_ns() + o->for_ns : 0;
		status = o->watch ? print_changes(cmd, o, &sampler)
				  : wait_for_hang(cmd, o, &sampler);
	} else {
		status = print_once(cmd, o, &sampler, layout);
	}
	snap_sampler_release(&sampler);
	return status;
}

static int complete_options(struct snap_options *o, struct err *err)
{
	o->shown.all_threads = o->stack.all_threads;
	o->shown.locals = (const char *const *)o->locals;
	/* The head of a tree of processes is often a shell: that is no mistake. */
	o->shown.named = o->stack.pids.list;
	o->shown.nnamed = o->stack.children ? 0 : o->stack.pids.n;
	o->shown.color = isatty(STDOUT_FILENO) && !o->json;
	if (o->watch && o->hang_ns)
		return err_set(err, -EINVAL, "only one of --watch and --hang");
	if (o->for_ns && !o->watch && !o->hang_ns)
		return err_set(err, -EINVAL, "--for goes with --watch or --hang");
	return 0;
}

static int run_either(const struct command *cmd, int argc, char **argv, unsigned top,
		      layout_fn layout)
{
	struct snap_options o = {.shown.top = top, .interval_ns = 2 * SECOND};
	struct args a = {.target = &o};
	struct err err = {0};

	stack_options_init(&o.stack);
	o.stack.min_npu_mb = 0;
	int status = command_parse(cmd, &a, argc, argv);
	if (status < 0) {
		command_notices(cmd, &a);
		if (complete_options(&o, &err) < 0)
			status = command_fail(cmd, &err, EXIT_USAGE);
		else
			status = run_sampler(cmd, &o, layout);
	}
	args_release(&a);
	for (unsigned i = 0; i < o.shown.nlocals; i++)
		free(o.locals[i]);
	free(o.locals);
	stack_options_release(&o.stack);
	return status;
}

static int run_snap(const struct command *cmd, int argc, char **argv)
{
	return run_either(cmd, argc, argv, 20, add_grouped);
}

static int run_py_stack_snap(const struct command *cmd, int argc, char **argv)
{
	return run_either(cmd, argc, argv, 10, add_per_process);
}

/* --- options and help --- */

static int parse_functions(struct args *a, const struct opt *opt, const char *value,
			   struct err *err)
{
	struct snap_options *o = a->target;

	for (const char *at = value; *at;) {
		size_t len = strcspn(at, ",");

		if (!len)
			return err_set(err, -EINVAL, "empty name in '%.100s' for '--%s'", value,
				       opt->name);
		o->locals =
			xgrow(o->locals, &o->locals_cap, o->shown.nlocals + 1, sizeof(*o->locals));
		o->locals[o->shown.nlocals++] = xstrndup(at, len);
		at += len + (at[len] == ',');
	}
	return 0;
}

#define AT(field) offsetof(struct snap_options, field)

/* The same rows for both names, but for the default of --top. */
#define ROWS(top_default)                                                                          \
	COMMAND_HELP_OPTION,                                                                       \
		OPTION_FLAG("json", AT(json), "Print JSON; with --watch an object per line."),     \
		STACK_WHICH_ROWS(AT(stack), "0"),                                                  \
		OPTION_UINT("top", "N", AT(shown.top), 0, UINT_MAX, top_default,                   \
			    "Show the innermost N frames of each stack; 0: all of them.",          \
			    .group = "What is shown", .letters = "t"),                             \
		OPTION_FLAG("all-threads", AT(stack.all_threads),                                  \
			    "All Python threads, not only the main one of each process."),         \
		OPTION_FLAG("exact", AT(shown.exact),                                              \
			    "Stacks also differ by lines inside libraries, not only by those of "  \
			    "the job's own functions."),                                           \
		OPTION_FLAG("native", AT(stack.native),                                            \
			    "Functions of C and C++ between those of Python. Each thread is "      \
			    "stopped for a moment."),                                              \
		OPTION_CALL("locals", "FUNCTION[,FUNCTION]", parse_functions, 0, NULL,             \
			    "Also the variables of these functions: 'step' means Trainer.step, "   \
			    "too; '*' means all functions."),                                      \
		OPTION_FLAG("watch", AT(watch),                                                    \
			    "Keep sampling: a terminal shows the latest, a file or a pipe gets "   \
			    "what has changed.",                                                   \
			    .group = "Repeatedly", .letters = "w"),                                \
		STACK_SECONDS("interval", AT(interval_ns), "2",                                    \
			      "Time between two snapshots of --watch.", .letters = "i",            \
			      .min = 10000),                                                       \
		STACK_SECONDS("hang", AT(hang_ns), NULL,                                           \
			      "Keep sampling until a rank has not moved for this long; print "     \
			      "which one, with the stacks, and exit with status 3. Status 0 if "   \
			      "the processes end "                                                 \
			      "first.",                                                            \
			      .min = 100000),                                                      \
		STACK_SECONDS("for", AT(for_ns), "until the processes end, or Ctrl-C",             \
			      "Stop --watch and --hang after this time.", .letters = "d",          \
			      .aliases = (const char *const[]){"duration", NULL}),                 \
		OPT_END

static const struct opt snap_options[] = {ROWS("20")};
static const struct opt py_stack_snap_options[] = {ROWS("10")};

static const char *const usage[] = {"[-p PID[,PID] | --name TEXT | --parent PID | -a] [options]",
				    "--hang SECONDS [--for SECONDS] [options]",
				    "--watch [--interval SECONDS] [options]", NULL};
static const struct args_example examples[] = {
	{"all processes on the NPUs or GPUs of this node", "sonde snap"},
	{"a launcher and all its workers", "sonde snap --children -p 4711"},
	{"the variables of the data loader", "sonde snap --name train.py --locals load_batch"},
	{"print which ranks have not moved for half a minute, as soon as there is one",
	 "sonde snap --name train.py --hang 30"},
	{NULL, NULL},
};
static const struct args_section sections[] = {
	{"GROUPS",
	 "Ranks are known by RANK and the like in their environment. Where processes have one, the "
	 "answer speaks of those; launchers and workers of data loaders are shown below. A stack "
	 "is known by its innermost function that is neither of Python's library nor of an "
	 "installed package; '>' marks it, and names the call below it in the first line."},
	{"HANGS", "A rank has not moved when its calls, the instruction in each of them, all their "
		  "variables, the attributes of the objects whose methods run and the variables of "
		  "the script are the same as before. What changes inside Python's own library "
		  "does not count. One that uses the processor meanwhile is reported as busy: it "
		  "spins in C, or computes for long."},
	{"EXIT STATUS", "0 when it is done, 1 when no process could be read, 2 when the command "
			"line was wrong, 3 when --hang has found one."},
	{"SEE ALSO", "sonde(1), sonde-stack(1)"},
	{NULL, NULL},
};

const struct command cmd_snap = {
	.name = "snap",
	.page = "sonde-snap",
	.spec = {.name = "sonde snap",
		 .summary = "show where all ranks of a job are, equal stacks together",
		 .description = "Copies the Python stacks of all processes in the same moment, "
				"without stopping them, and prints where they are: those with the "
				"same stack together, the largest group first, and which ranks are "
				"elsewhere than all others.",
		 .usage = usage,
		 .options = snap_options,
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
				"groups. All processes are sampled in the same moment; the first "
				"line says where they are.",
		 .usage = usage,
		 .options = py_stack_snap_options,
		 .examples = py_stack_snap_examples,
		 .sections = sections},
	.run = run_py_stack_snap,
};
