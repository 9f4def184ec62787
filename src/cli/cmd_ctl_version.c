/* SPDX-License-Identifier: MulanPSL-2.0 */
/* sonde ctl version: the version of the daemon of a host. */
#include "cli/ctl_query.h"

struct version_options {
	struct ctl_common common;
};

static void cells(const json_t *reply, struct ctl_table *t)
{
	const char *version = json_string_value(json_object_get(reply, "version"));

	ctl_table_cell(t, "%s", version ? version : "-");
}

static int version_run(const struct command *cmd, int argc, char **argv)
{
	static const char *const titles[] = {"VERSION", NULL};
	struct version_options o = {CTL_COMMON_DEFAULTS};
	struct args a = {.target = &o};
	struct ctl c = {0};

	int status = ctl_begin(&c, cmd, &a, argc, argv);
	if (status < 0)
		status = ctl_open(&c, true);
	if (status < 0) {
		struct ctl_query q = {.request = json_pack("{s:s}", "fn", "getVersion"),
				      .titles = titles,
				      .cells = cells};

		status = ctl_query_run(&c, &q);
	}
	ctl_end(&c);
	args_release(&a);
	return status;
}

static const char *const usage[] = {"[options]", NULL};

const struct command cmd_ctl_version = {
	.name = "ctl version",
	.alias = "dyno version",
	.spec = {.name = "sonde ctl version",
		 .summary = "the version of the daemons of hosts",
		 .description = "Tells the version of the daemon. That of this program: --version.",
		 .usage = usage,
		 .options = ctl_options,
		 .flags = ARGS_GFLAGS},
	.run = version_run,
};
