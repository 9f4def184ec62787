/* SPDX-License-Identifier: MulanPSL-2.0 */
/* sonde ctl nputrace: a trace of steps, by sonde's monitor or the profiler of an NPU framework. */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/ctl/config.h"
#include "cli/ctl/request.h"
#include "cli/ctl/stop.h"
#include "cli/ctl/values.h"

#define NOT_GIVEN INT64_MIN

struct nputrace_options {
	struct ctl_common common;
	struct nputrace_config config;
	bool stop;
	uint64_t job_id;
	const char *pids;
	unsigned process_limit;
	uint64_t start_time_ms, duration_ms; /* accepted, as ever, and without effect */
};

static void config_text(const void *options, const struct ctl_host *host, struct buf *out)
{
	const struct nputrace_options *o = options;

	(void)host;
	nputrace_config_text(&o->config, out);
}

static void file(const void *options, const struct ctl_host *host, int64_t pid, struct buf *out)
{
	const struct nputrace_options *o = options;

	(void)host;
	(void)pid;
	buf_add_str(out, o->config.log_file);
}

static int check(const struct nputrace_config *c, struct err *err)
{
	struct stat st;

	if (!c->log_file)
		return err_set(err, -EINVAL, "option '--log-file' is missing: --log-file=<DIR>");
	if (c->start_step == NOT_GIVEN)
		return err_set(err, -EINVAL,
			       "option '--start-step' is missing: --start-step=<N>, "
			       "-1 for the next step");
	if (c->iterations == NOT_GIVEN)
		return err_set(err, -EINVAL, "option '--iterations' is missing: --iterations=<N>");
	if (!*c->log_file || (stat(c->log_file, &st) == 0 && S_ISREG(st.st_mode)))
		return err_set(err, -EINVAL, "--log-file must be a valid directory: '%.200s'",
			       c->log_file);
	return 0;
}

static void hints(const struct ctl *c, const struct nputrace_config *config)
{
	if (config->async_mode && !config->analyse)
		ctl_say(c, "'--async-mode' does nothing without '--analyse'");
	if (config->log_file[0] != '/')
		ctl_say(c, "'--log-file' is a relative path: it is taken from the directory in "
			   "which each job runs");
	if (c->hosts.n > 1 && config->start_step < 0)
		ctl_say(c, "with --start-step -1 each host starts at the step it happens to be at; "
			   "give a step that none has reached to start all at the same");
}

static int trace(struct ctl *c, const struct nputrace_options *o)
{
	struct ctl_order order = {
		.kind = CTL_NPUTRACE,
		.job_id = o->job_id,
		.pids = o->pids,
		.process_limit = o->process_limit,
		.start_step = o->config.start_step,
		.each = "takes it at its next poll, within some seconds; 'status' goes "
			"through Ready and Running and back to Idle",
		.options = o,
		.config = config_text,
		.file = file,
	};

	hints(c, &o->config);
	return ctl_order_run(c, &order);
}

static int stop(struct ctl *c, const struct nputrace_options *o)
{
	return ctl_stop_run(c, &(struct ctl_stop){.job_id = o->job_id, .pids = o->pids});
}

static int check_stop(const struct args *a, struct err *err);

static int nputrace_run(const struct command *cmd, int argc, char **argv)
{
	struct nputrace_options o = {
		.common = CTL_COMMON_DEFAULTS,
		.config = {.start_step = NOT_GIVEN, .iterations = NOT_GIVEN},
		.pids = "0",
		.process_limit = CTL_NO_LIMIT,
	};
	struct args a = {.target = &o};
	struct ctl c = {0};
	struct err err = {0};

	int status = ctl_begin(&c, cmd, &a, argc, argv);
	if (status < 0 && (o.stop ? check_stop(&a, &err) : check(&o.config, &err)) < 0)
		status = command_fail(cmd, &err, EXIT_USAGE);
	if (status < 0)
		status = ctl_open(&c, true);
	if (status < 0)
		status = o.stop ? stop(&c, &o) : trace(&c, &o);
	ctl_end(&c);
	args_release(&a);
	return status;
}

/* A time in milliseconds, or None. */
static int set_gc_threshold(struct args *a, const struct opt *opt, const char *value,
			    struct err *err)
{
	struct nputrace_config *c = &((struct nputrace_options *)a->target)->config;

	c->gc_given = strcmp(value, "None") != 0;
	if (c->gc_given && !ctl_float(value, &c->gc_threshold_ms))
		return err_set(err, -EINVAL,
			       "invalid value '%.100s' for '--%s': expected a number or None",
			       value, opt->name);
	return 0;
}

#define AT(member) offsetof(struct nputrace_options, member)
#define FLAG(option, member, text)                                                                 \
	{                                                                                          \
		.name = option, .kind = OPT_FLAG, .offset = AT(config.member), .help = text        \
	}
static const struct opt options[] = {
	{.group = "End of a trace",
	 .name = "stop",
	 .kind = OPT_FLAG,
	 .offset = AT(stop),
	 .help = "End the trace that waits or runs in the processes that --job-id and --pids name: "
		 "what was recorded so far is written, and says so; one that has not begun is "
		 "dropped. For jobs that hang. Not with options that describe a trace."},
	{.group = "When and where",
	 .name = "log-file",
	 .kind = OPT_CALL,
	 .arg = "DIR",
	 .parse = ctl_value_path,
	 .offset = AT(config.log_file),
	 .help = "Directory for the data, on the hosts; a relative one is taken from the directory "
		 "in which each job runs. Required."},
	{.name = "start-step",
	 .kind = OPT_CALL,
	 .arg = "N",
	 .parse = ctl_value_step,
	 .offset = AT(config.start_step),
	 .help = "First step to trace; -1 for the next one. Required."},
	{.name = "iterations",
	 .kind = OPT_CALL,
	 .arg = "N",
	 .parse = ctl_value_positive,
	 .offset = AT(config.iterations),
	 .help = "How many steps to trace. Required."},
	{.name = "rank-list",
	 .kind = OPT_CALL,
	 .arg = "RANKS",
	 .parse = ctl_value_ranks,
	 .offset = AT(config.rank_list),
	 .default_text = "None",
	 .help = "Only these ranks, separated by commas. Not with MindSpore."},
	{.name = "process-limit",
	 .kind = OPT_UINT,
	 .arg = "N",
	 .min = 0,
	 .max = INT32_MAX,
	 .offset = AT(process_limit),
	 .help = "At most so many processes of a host are traced; by default all that ask for "
		 "themselves, and 3 of frameworks, where one asks for all ranks."},
	{.name = "job-id",
	 .kind = OPT_CALL,
	 .arg = "ID",
	 .parse = ctl_value_u64,
	 .offset = AT(job_id),
	 .default_text = "0",
	 .help = "Job of the processes; those of torch_npu and MindSpore register with 0."},
	{.name = "pids",
	 .kind = OPT_CALL,
	 .arg = "PIDS",
	 .parse = ctl_value_pids,
	 .offset = AT(pids),
	 .default_text = "0",
	 .help = "Processes, or ancestors of them, separated by commas; 0 for all of the job."},
	{.name = "profile-start-time",
	 .kind = OPT_CALL,
	 .arg = "MS",
	 .parse = ctl_value_u64,
	 .offset = AT(start_time_ms),
	 .default_text = "0",
	 .help = "Accepted and without effect: traces start at a step."},
	{.name = "duration-ms",
	 .kind = OPT_CALL,
	 .arg = "MS",
	 .parse = ctl_value_u64,
	 .offset = AT(duration_ms),
	 .default_text = "500",
	 .help = "Accepted and without effect: traces last for --iterations."},
	{.group = "What to trace",
	 .name = "activities",
	 .kind = OPT_CHOICE,
	 .arg = "LIST",
	 .choices = ctl_activities,
	 .offset = AT(config.activities),
	 .default_text = "CPU,NPU",
	 .help = "Whose events: CPU,NPU, NPU,CPU, CPU or NPU."},
	{.name = "profiler-level",
	 .kind = OPT_CHOICE,
	 .arg = "LEVEL",
	 .choices = ctl_profiler_levels,
	 .offset = AT(config.profiler_level),
	 .default_text = "Level0",
	 .help = "How much: Level0, Level1, Level2 or Level_none."},
	{.name = "aic-metrics",
	 .kind = OPT_CHOICE,
	 .arg = "NAME",
	 .choices = ctl_aic_metrics,
	 .offset = AT(config.aic_metrics),
	 .default_text = "AiCoreNone",
	 .help = "Counters of the AI cores: AiCoreNone, PipeUtilization, ArithmeticUtilization, "
		 "Memory, MemoryL0, ResourceConflictRatio, MemoryUB, L2Cache or MemoryAccess."},
	FLAG("record-shapes", record_shapes, "Record the shapes of operator inputs."),
	FLAG("profile-memory", profile_memory, "Record memory."),
	{.name = "with-stack",
	 .kind = OPT_FLAG,
	 .offset = AT(config.with_stack),
	 .aliases = (const struct opt_alias[]){{"with-stacks", false}, {NULL, false}},
	 .help = "Record call stacks."},
	FLAG("with-flops", with_flops, "Record floating-point operations of operators."),
	FLAG("with-modules", with_modules, "Record the modules that call operators."),
	FLAG("l2-cache", l2_cache, "Record the L2 cache."),
	FLAG("op-attr", op_attr, "Record attributes of operators."),
	FLAG("msprof-tx", msprof_tx, "Record mstx marks."),
	{.name = "mstx-domain-include",
	 .kind = OPT_CALL,
	 .arg = "DOMAINS",
	 .parse = ctl_value_text,
	 .offset = AT(config.domain_include),
	 .default_text = "None",
	 .help = "Only marks of these domains."},
	{.name = "mstx-domain-exclude",
	 .kind = OPT_CALL,
	 .arg = "DOMAINS",
	 .parse = ctl_value_text,
	 .offset = AT(config.domain_exclude),
	 .default_text = "None",
	 .help = "No marks of these domains; --mstx-domain-include wins."},
	{.name = "gc-detect-threshold",
	 .kind = OPT_CALL,
	 .arg = "MS",
	 .parse = set_gc_threshold,
	 .default_text = "None",
	 .help = "Record garbage collections of Python that take longer."},
	{.name = "host-sys",
	 .kind = OPT_CALL,
	 .arg = "LIST",
	 .parse = ctl_value_host_systems,
	 .offset = AT(config.host_sys),
	 .default_text = "None",
	 .help = "Data of the host: cpu, mem, disk, network and osrt, separated by commas."},
	FLAG("sys-io", sys_io, "Record network cards of the system."),
	FLAG("sys-interconnection", sys_interconnection, "Record links between devices."),
	{.group = "What to make of it",
	 .name = "analyse",
	 .kind = OPT_FLAG,
	 .offset = AT(config.analyse),
	 .help = "Analyse the data when they are complete."},
	FLAG("async-mode", async_mode, "Analyse beside the job. Needs --analyse."),
	{.name = "data-simplification",
	 .kind = OPT_CHOICE,
	 .arg = "BOOL",
	 .choices = ctl_true_false,
	 .offset = AT(config.data_simplification),
	 .default_text = "true",
	 .help = "Remove what the analysis no longer needs: true or false."},
	{.name = "export-type",
	 .kind = OPT_CHOICE,
	 .arg = "TYPE",
	 .choices = ctl_export_types,
	 .offset = AT(config.export_type),
	 .default_text = "Text",
	 .help = "Text or Db."},
	CTL_COMMON_ROWS,
};

/* Before those that all commands have come those that describe a trace; but for these. */
static int check_stop(const struct args *a, struct err *err)
{
	static const char *const fit[] = {"stop", "job-id", "pids", NULL};

	for (const struct opt *o = a->spec->options; strcmp(o->name, "hostname") != 0; o++) {
		const char *const *f = fit;

		while (*f && strcmp(*f, o->name) != 0)
			f++;
		if (!*f && args_given(a, o))
			return err_set(err, -EINVAL,
				       "'--%s' describes a new trace, and '--stop' ends one: give "
				       "one of the two",
				       o->name);
	}
	return 0;
}

static const char *const usage[] = {"--log-file <dir> --start-step <n> --iterations <n> [options]",
				    "--stop [--pids <pids>] [options]", NULL};

static const struct args_example examples[] = {
	{"two steps from step 10 on, analysed",
	 "sonde ctl nputrace --start-step 10 --iterations 2 --activities CPU,NPU --analyse "
	 "--data-simplification false --log-file /tmp/profile_data"},
	{"the next step of rank 0",
	 "sonde ctl nputrace --start-step -1 --iterations 1 --rank-list 0 --log-file "
	 "/tmp/profile_data"},
	{"the job hangs: have what was traced so far", "sonde ctl nputrace --stop"},
	{NULL, NULL},
};

const struct command cmd_ctl_nputrace = {
	.name = "ctl nputrace",
	.alias = "dyno nputrace",
	.spec = {.name = "sonde ctl nputrace",
		 .summary = "trace some steps of jobs on NPUs and GPUs",
		 .description =
			 "Makes processes of torch_npu or MindSpore that were started with "
			 "MSMONITOR_USE_DAEMON=1, and all that were started by 'sonde monitor', "
			 "profile some of their steps, as often as you like and without stopping "
			 "them. Not while npu-monitor is running. Options that sonde's own monitor "
			 "has no answer to are named. --stop ends a trace before its last step, in "
			 "processes of 'sonde monitor'; those whose trace a framework's own "
			 "profiler takes are named, and it goes on there.",
		 .usage = usage,
		 .options = options,
		 .examples = examples,
		 .flags = ARGS_GFLAGS},
	.run = nputrace_run,
};
