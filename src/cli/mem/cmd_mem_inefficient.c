/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * sonde mem inefficient: memory that was held while nobody used it. A dump file gets the findings
 * into its rows, as users of check_inefficient() expect.
 */
#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "cli/mem/analysis_command.h"
#include "memory/analysis/inefficient/inefficient.h"
#include "memory/options/config.h"
#include "memory/options/values.h"

struct command_options {
	struct analysis_options common;
	struct inefficient_options what;
	bool no_write;
	const char *compat;
};

/* --- values of options --- */

static int parse_type(struct args *a, const struct opt *opt, const char *value, struct err *err)
{
	struct command_options *o = a->target;
	struct mem_item item;
	const char *at = value;
	unsigned kinds = 0;

	while (mem_list_next(&at, &item)) {
		enum inefficient_kind kind = inefficient_kind_find(item.text, item.len);

		if (kind == INEFFICIENT_KINDS) {
			kinds = 0;
			break;
		}
		kinds |= 1u << kind;
	}
	if (!kinds)
		return err_set(err, -EINVAL,
			       "invalid value '%.100s' for --%s: expected early_allocation, "
			       "late_deallocation and temporary_idleness (or early, late, idle), "
			       "separated by commas",
			       value, opt->name);
	o->what.kinds = kinds;
	return 0;
}

/* --- the command --- */

static struct analysis *make_analysis(void *options)
{
	return inefficient_new(&((struct command_options *)options)->what);
}

static int find_inefficient(const struct command *cmd, const char *path, void *options)
{
	const struct command_options *o = options;
	struct analysis_run run = {0};
	struct err err = {0};
	int r = 0, compat = mem_compat_option(o->compat, &err);

	if (compat < 0)
		return command_fail(cmd, &err, EXIT_USAGE);
	int status = analysis_read(cmd, path, make_analysis, options, &run);
	if (status == EXIT_DONE && !o->no_write)
		r = inefficient_amend(run.analysis, buf_str(&run.path), (enum row_compat)compat,
				      &run.notes, &err);
	if (status == EXIT_DONE)
		status = analysis_print(cmd, &run, o);
	if (r < 0)
		status = command_fail(cmd, &err, EXIT_FAILED);
	analysis_release(&run);
	return status;
}

static int mem_inefficient_run(const struct command *cmd, int argc, char **argv)
{
	struct command_options o = {.common = ANALYSIS_DEFAULTS};

	return analysis_main(cmd, argc, argv, find_inefficient, &o);
}

static const struct opt options[] = {
	COMMAND_HELP_OPTION,
	{.group = "What is looked for",
	 .name = "mem-size",
	 .kind = OPT_SIZE,
	 .arg = "BYTES",
	 .offset = offsetof(struct command_options, what.min_bytes),
	 .default_text = "0",
	 .help = "Pass over blocks that are smaller. K, M and G behind the number stand for KiB, "
		 "MiB and GiB."},
	{.name = "type",
	 .kind = OPT_CALL,
	 .arg = "LIST",
	 .parse = parse_type,
	 .default_text = "all",
	 .help = "Only these: early_allocation, late_deallocation, temporary_idleness (or early, "
		 "late, idle), separated by commas."},
	OPTION_UINT("idle-threshold", "N", offsetof(struct command_options, what.idle_calls), 1,
		    UINT32_MAX - 1, "3000",
		    "A block is idle if there are more than this many calls between two uses of "
		    "it. A call is an operator, or an allocation, free or access outside of one."),
	ANALYSIS_OPTIONS,
	ANALYSIS_FAIL_OPTION("waste", "if memory is held for nothing"),
	OPTION_FLAG("no-write", offsetof(struct command_options, no_write),
		    "Leave the dump file as it is. Without this its MALLOC rows get the attribute "
		    "inefficient.",
		    .group = "Rows of a dump"),
	OPTION_TEXT("compat", "VERSION", offsetof(struct command_options, compat), "current",
		    "Name that attribute as another version does: 26.0 (inefficient_type), or "
		    "current. The environment variable " MEM_COMPAT_ENV " does the same."),
	OPT_END,
};

static const struct args_example examples[] = {
	{"what the newest recording wasted", "sonde mem inefficient memscopeDumpResults"},
	{"large blocks only, and leave the file as it is",
	 "sonde mem inefficient --mem-size=1M --no-write memscope_dump_1.csv"},
	{"fail a CI job that wastes memory",
	 "sonde mem inefficient --fail-on=waste memscopeDumpResults"},
	{NULL, NULL},
};

const struct command cmd_mem_inefficient = {
	.name = "mem inefficient",
	.spec = {.name = "sonde mem inefficient",
		 .summary = "find memory that is held while nobody uses it",
		 .description =
			 "Finds blocks of PyTorch's and ATB's pools that were allocated too early, "
			 "freed too late, or left idle in between, says how many bytes of the peak "
			 "each of these costs, and where the blocks come from.\n\n"
			 "Needs accesses: record with --analysis=inefficient. Every block to which "
			 "one of these rules applies is marked in the rows of a dump file, which "
			 "changes the file; --no-write leaves it alone, and a recording is never "
			 "changed. The report lists only blocks that were unused for more than "
			 "half of their lives; --fail-on=waste: status 3 if there is one.",
		 ANALYSIS_SPEC},
	.run = mem_inefficient_run,
};
