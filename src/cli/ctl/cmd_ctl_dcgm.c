/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * sonde ctl dcgm-pause and dcgm-resume: the daemon leaves the GPU's profiling counters alone for a
 * while, so that a profiler can have them.
 */
#include "cli/ctl/query.h"

struct dcgm_options {
	struct ctl_common common;
	unsigned duration_s;
};

static bool effect(const json_t *reply)
{
	return json_is_true(json_object_get(reply, "status"));
}

static void cells(const json_t *reply, struct table *t)
{
	table_textf(t, "%s", effect(reply) ? "done" : "no effect");
}

static void words(const struct ctl *c, const json_t *reply, struct buf *out)
{
	(void)c;
	if (!effect(reply))
		buf_add_str(out, "no effect: the daemon does not read profiling counters of a GPU");
}

static json_t *pause_request(const void *options)
{
	const struct dcgm_options *o = options;

	return json_pack("{s:s,s:i}", "fn", "dcgmProfPause", "duration_s", (int)o->duration_s);
}

static json_t *resume_request(const void *options)
{
	(void)options;
	return json_pack("{s:s}", "fn", "dcgmProfResume");
}

static int ask(const struct command *cmd, int argc, char **argv,
	       json_t *(*request)(const void *options))
{
	static const char *const titles[] = {"RESULT", NULL};
	struct dcgm_options o = {CTL_COMMON_DEFAULTS, .duration_s = 300};
	const struct ctl_query query = {.request = request,
					.wrapped = true,
					.titles = titles,
					.cells = cells,
					.words = words,
					.effect = effect};

	return ctl_query_command(&query, cmd, &o, argc, argv);
}

static int pause_run(const struct command *cmd, int argc, char **argv)
{
	return ask(cmd, argc, argv, pause_request);
}

static int resume_run(const struct command *cmd, int argc, char **argv)
{
	return ask(cmd, argc, argv, resume_request);
}

static const struct opt pause_options[] = {
	{.group = "Pause",
	 .name = "duration-s",
	 .kind = OPT_UINT,
	 .arg = "SECONDS",
	 .min = 1,
	 .max = INT32_MAX,
	 .offset = offsetof(struct dcgm_options, duration_s),
	 .default_text = "300",
	 .help = "After this time it goes on by itself."},
	CTL_COMMON_ROWS,
};

static const char *const usage[] = {"[options]", NULL};

const struct command cmd_ctl_dcgm_pause = {
	.name = "ctl dcgm-pause",
	.alias = "dyno dcgm-pause",
	.spec = {.name = "sonde ctl dcgm-pause",
		 .summary = "leave the GPU's profiling counters to others for a while",
		 .description =
			 "Makes the daemon leave the profiling counters of the GPUs alone, so that "
			 "a profiler such as Nsight Compute can have them.",
		 .usage = usage,
		 .options = pause_options,
		 .flags = ARGS_GFLAGS},
	.run = pause_run,
};

const struct command cmd_ctl_dcgm_resume = {
	.name = "ctl dcgm-resume",
	.alias = "dyno dcgm-resume",
	.spec = {.name = "sonde ctl dcgm-resume",
		 .summary = "read the GPU's profiling counters again",
		 .description = "Ends a dcgm-pause before its time.",
		 .usage = usage,
		 .options = ctl_options,
		 .flags = ARGS_GFLAGS},
	.run = resume_run,
};
