/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "cli/snap/options.h"

#include <errno.h>
#include <limits.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "cli/command.h"
#include "cli/stack/which.h"

#define SECOND 1000000000ull

static int parse_functions(struct args *a, const struct opt *opt, const char *value,
			   struct err *err)
{
	struct snap_options *o = a->target;

	for (const char *at = value; *at;) {
		size_t len = strcspn(at, ",");

		if (!len)
			return err_set(err, -EINVAL, "empty name in '%.100s' for '--%s'", value,
				       opt->name);
		o->locals = xgrow(o->locals, &o->locals_cap, o->nlocals + 1, sizeof(*o->locals));
		o->locals[o->nlocals++] = xstrndup(at, len);
		at += len + (at[len] == ',');
	}
	return 0;
}

#define AT(field) .offset = offsetof(struct snap_options, field)
#define FLAG(field) .kind = OPT_FLAG, AT(field)
#define SECONDS(field) .kind = OPT_CALL, .arg = "SECONDS", .parse = stack_parse_seconds, AT(field)

/* The same rows for both names, but for the default of --top. */
#define ROWS(top_default)                                                                          \
	COMMAND_HELP_OPTION,                                                                       \
		{.name = "json",                                                                   \
		 FLAG(json),                                                                       \
		 .help = "Print JSON; with --watch an object per line."},                          \
		STACK_WHICH_ROWS(offsetof(struct snap_options, stack), "0"),                       \
		{.group = "What is shown",                                                         \
		 .name = "top",                                                                    \
		 .letters = "t",                                                                   \
		 .kind = OPT_UINT,                                                                 \
		 .arg = "N",                                                                       \
		 .max = UINT_MAX,                                                                  \
		 AT(top),                                                                          \
		 .default_text = top_default,                                                      \
		 .help = "Show the innermost N frames of each stack; 0: all of them."},            \
		{.name = "all-threads",                                                            \
		 FLAG(stack.all_threads),                                                          \
		 .help = "All Python threads, not only the main one of each process."},            \
		{.name = "exact",                                                                  \
		 FLAG(exact),                                                                      \
		 .help = "Lines inside libraries tell stacks apart, too, not only those of the "   \
			 "job's own functions."},                                                  \
		{.name = "native",                                                                 \
		 FLAG(stack.native),                                                               \
		 .help = "Functions of C and C++ between those of Python. Each thread is stopped " \
			 "for a moment."},                                                         \
		{.name = "locals",                                                                 \
		 .kind = OPT_CALL,                                                                 \
		 .arg = "FUNCTION[,FUNCTION]",                                                     \
		 .parse = parse_functions,                                                         \
		 .help = "Also the variables of these functions: 'step' means Trainer.step, too; " \
			 "'*' means all functions."},                                              \
		{.group = "Again and again",                                                       \
		 .name = "watch",                                                                  \
		 .letters = "w",                                                                   \
		 FLAG(watch),                                                                      \
		 .help = "Keep looking: a terminal shows the latest, a file or a pipe gets what "  \
			 "has changed."},                                                          \
		{.name = "interval",                                                               \
		 .letters = "i",                                                                   \
		 SECONDS(interval_ns),                                                             \
		 .min = 10000,                                                                     \
		 .default_text = "2",                                                              \
		 .help = "Time between two looks of --watch."},                                    \
		{.name = "hang",                                                                   \
		 SECONDS(hang_ns),                                                                 \
		 .min = 100000,                                                                    \
		 .help = "Keep looking until a rank has not moved for so long; say which, show "   \
			 "the stacks, and exit with status 3. Status 0 if the processes end "      \
			 "first."},                                                                \
		{.name = "for",                                                                    \
		 .letters = "d",                                                                   \
		 SECONDS(for_ns),                                                                  \
		 .aliases = (const struct opt_alias[]){{"duration", false}, {NULL, false}},        \
		 .default_text = "until the processes end, or Ctrl-C",                             \
		 .help = "Stop --watch and --hang after this time."},                              \
		OPT_END

const struct opt snap_option_rows[] = {ROWS("20")};
const struct opt py_stack_snap_option_rows[] = {ROWS("10")};

void snap_options_init(struct snap_options *o, unsigned top)
{
	*o = (struct snap_options){.top = top, .interval_ns = 2 * SECOND};
	stack_options_init(&o->stack);
	o->stack.min_npu_mb = 0;
}

void snap_options_release(struct snap_options *o)
{
	for (unsigned i = 0; i < o->nlocals; i++)
		free(o->locals[i]);
	free(o->locals);
	stack_options_release(&o->stack);
}

int snap_options_check(const struct snap_options *o, struct err *err)
{
	if (o->watch && o->hang_ns)
		return err_set(err, -EINVAL, "only one of --watch and --hang");
	if (o->for_ns && !o->watch && !o->hang_ns)
		return err_set(err, -EINVAL, "--for goes with --watch or --hang");
	return 0;
}

struct snapshot_options snap_options_snapshot(const struct snap_options *o, bool color)
{
	return (struct snapshot_options){
		.all_threads = o->stack.all_threads,
		.exact = o->exact,
		.top = o->top,
		.locals = (const char *const *)o->locals,
		.nlocals = o->nlocals,
		/* The head of a tree of processes is often a shell: that is no mistake. */
		.named = o->stack.pids.list,
		.nnamed = o->stack.children ? 0 : o->stack.pids.n,
		.color = color,
	};
}
