/* SPDX-License-Identifier: MulanPSL-2.0 */
/* sonde mem peak: what was alive when a device held most, in words or as JSON. */
#include <errno.h>
#include <string.h>

#include "analyze/peak.h"
#include "cli/analysis_command.h"

struct peak_command {
	struct analysis_options common; /* first */
	struct peak_options peak;
};

/* "1073741824", "512M", "1.5GiB", "80GB": K, M, G and T alone are powers of 1024. */
static bool parse_bytes(const char *text, uint64_t *out)
{
	static const char units[] = "KMGT";
	double v = 0, place = 1, factor = 1;
	const char *c = text, *unit;

	for (; *c >= '0' && *c <= '9'; c++)
		v = v * 10 + (*c - '0');
	if (c == text)
		return false;
	if (*c == '.')
		for (c++; *c >= '0' && *c <= '9'; c++)
			v += (*c - '0') * (place /= 10);
	unit = *c ? strchr(units, *c) : NULL;
	if (unit) {
		c++;
		for (long i = 0; i <= unit - units; i++)
			factor *= *c == 'B' ? 1000 : 1024;
		if (c[0] == 'i' && c[1] == 'B')
			c++;
	}
	if (*c == 'B')
		c++;
	v *= factor;
	*out = v < 1.8e19 ? (uint64_t)v : UINT64_MAX;
	return !*c && v >= 1;
}

static int parse_limit(struct args *a, const struct opt *opt, const char *value, struct err *err)
{
	struct peak_command *o = a->target;

	(void)opt;
	if (parse_bytes(value, &o->peak.limit_bytes))
		return 0;
	return err_set(
		err, -EINVAL,
		"'%.40s' is no size; accepted are bytes, or a number with K, M, G, T (powers "
		"of 1024), KiB, MiB, GiB, TiB, KB, MB, GB or TB behind it",
		value);
}

static struct analysis *make(void *options)
{
	struct peak_command *o = options;

	return peak_new(&o->peak);
}

static int mem_peak_run(const struct command *cmd, int argc, char **argv)
{
	struct peak_command o = {.common = ANALYSIS_DEFAULTS};
	struct args a = {.target = &o};
	struct err err = {0};

	int status = command_parse(cmd, &a, argc, argv);
	if (status < 0 && o.common.fail_on && !o.peak.limit_bytes) {
		err_set(&err, -EINVAL, "--fail-on=limit needs --limit=BYTES");
		status = command_fail(cmd, &err, EXIT_USAGE);
	} else if (status < 0) {
		status = analysis_command(cmd, a.words[0], make, &o);
	}
	args_release(&a);
	return status;
}

static const char *const fail_on[] = {"nothing", "limit", NULL};

static const struct opt options[] = {
	COMMAND_HELP_OPTION,
	{.group = "Analysis options",
	 .name = "limit",
	 .kind = OPT_CALL,
	 .arg = "BYTES",
	 .parse = parse_limit,
	 .help = "What a device may peak at in one process, as in 60GiB; --fail-on=limit looks at "
		 "it."},
	ANALYSIS_OPTIONS(fail_on),
	OPT_END,
};

static const char *const usage[] = {"[options] <recording or dump>", NULL};

static const struct args_example examples[] = {
	{"what to make smaller", "sonde mem peak memscopeDumpResults"},
	{"in a CI job", "sonde mem peak --limit=30GiB --fail-on=limit memscopeDumpResults"},
	{NULL, NULL},
};

const struct command cmd_mem_peak = {
	.name = "mem peak",
	.spec = {.name = "sonde mem peak",
		 .summary = "what was alive at the peak, and what would lower it",
		 .description =
			 "Explains the highest moment of each device: when it was, how much the "
			 "driver and the pools held, by owner and by call stack, the blocks that "
			 "weigh most with their age and how long they lived on, and how far below "
			 "the next highest step lies.",
		 .usage = usage,
		 .options = options,
		 .examples = examples,
		 .min_words = 1,
		 .max_words = 1},
	.run = mem_peak_run,
};
