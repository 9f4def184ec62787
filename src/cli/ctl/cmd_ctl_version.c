/* SPDX-License-Identifier: MulanPSL-2.0 */
/* sonde ctl version: the version of the daemon of a host. */
#include "cli/ctl/query.h"

struct version_options {
	struct ctl_common common;
};

static void cells(const json_t *reply, struct table *t)
{
	const char *version = json_string_value(json_object_get(reply, "version"));

	table_textf(t, "%s", version ? version : "-");
}

static json_t *request(const void *options)
{
	(void)options;
	return json_pack("{s:s}", "fn", "getVersion");
}

static int version_run(const struct command *cmd, int argc, char **argv)
{
	static const char *const titles[] = {"VERSION", NULL};
	static const struct ctl_query query = {
		.request = request, .titles = titles, .cells = cells};
	struct version_options o = {CTL_COMMON_DEFAULTS};

	return ctl_query_command(&query, cmd, &o, argc, argv);
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
