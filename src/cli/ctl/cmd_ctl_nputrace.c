/* SPDX-License-Identifier: MulanPSL-2.0 */
/* sonde ctl nputrace: a trace of steps, by sonde's monitor or the profiler of an NPU framework. */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/ctl/request.h"
#include "cli/ctl/values.h"
#include "client/profiler_config.h"

#define NOT_GIVEN INT64_MIN

struct nputrace_options {
	struct ctl_common common;
	struct nputrace_config config;
	bool stop;
	struct ctl_wait wait;
	uint64_t job_id;
	const char *pids;
	unsigned process_limit;
	uint64_t start_time_ms; /* accepted, as ever, and without effect */
};

static void add_config(const void *options, const struct host_entry *host, struct buf *out)
{
	const struct nputrace_options *o = options;

	(void)host;
	nputrace_config_text(&o->config, out);
}

static void add_file(const void *options, const struct host_entry *host, int64_t pid,
		     struct buf *out)
{
	const struct nputrace_options *o = options;

	(void)host;
	(void)pid;
	buf_add_str(out, o->config.log_file);
}

/* Without a number of steps, a time that was given counts. */
static int choose_length(struct nputrace_config *c, bool has_duration, struct err *err)
{
	if (c->iterations != NOT_GIVEN || !has_duration)
		return 0;
	if (c->start_step != NOT_GIVEN && c->start_step != -1)
		return err_set(err, -EINVAL,
			       "'--start-step' needs '--iterations': a trace by '--duration-ms' "
			       "begins at once");
	if (!c->duration_ms || c->duration_ms > INT32_MAX)
		return err_set(err, -EINVAL, "'--duration-ms' is from 1 to %d", INT32_MAX);
	c->start_step = -1;
	c->iterations = 0;
	return 0;
}

static int check_trace(const struct nputrace_config *c, struct err *err)
{
	struct stat st;

	if (!c->log_file)
		return err_set(err, -EINVAL, "option '--log-file' is missing: --log-file=<DIR>");
	if (c->start_step == NOT_GIVEN)
		return err_set(
			err, -EINVAL,
			"option '--start-step' is missing: --start-step=<N>, -1 for the next step");
	if (c->iterations == NOT_GIVEN)
		return err_set(err, -EINVAL,
			       "option '--iterations' is missing: --iterations=<N>, or "
			       "--duration-ms=<MS> for a job that announces no steps");
	if (!*c->log_file || (stat(c->log_file, &st) == 0 && S_ISREG(st.st_mode)))
		return err_set(err, -EINVAL, "--log-file must be a valid directory: '%.200s'",
			       c->log_file);
	return 0;
}

static void print_hints(const struct ctl *c, const struct nputrace_config *config)
{
	if (config->async_mode && !config->analyse)
		ctl_notice(c, "'--async-mode' does nothing without '--analyse'");
	if (config->log_file[0] != '/')
		ctl_notice(c, "'--log-file' is a relative path: it is taken from the directory in "
			      "which each job runs");
	if (c->hosts.n > 1 && config->start_step < 0)
		ctl_notice(c,
			   "with --start-step -1 each host starts at the step it happens to be at; "
			   "give a step that none has reached to start all at the same");
}

static int request_trace(struct ctl *c, const struct nputrace_options *o)
{
	struct ctl_request request = {
		.q = {.kind = PROFILER_NPUTRACE,
		      .job_id = o->job_id,
		      .process_limit = o->process_limit,
		      .start_step = o->config.start_step,
		      .options = o,
		      .config = add_config},
		.pids = o->pids,
		.each = "starts at its next poll (within 2 s); 'status' goes through Ready and "
			"Running and back to Idle",
		.file = add_file,
		.log_file = o->config.log_file,
		.wait = o->wait,
		.wait_for = WAIT_FILES,
		.duration_ms = o->config.iterations > 0 ? 0 : o->config.duration_ms,
	};

	print_hints(c, &o->config);
	return ctl_request_run(c, &request);
}

static int trace_or_stop(struct ctl *c, void *options)
{
	const struct nputrace_options *o = options;

	if (!o->stop)
		return request_trace(c, o);
	return ctl_stop_run(c, o->job_id, o->pids, o->wait.on ? o->wait.timeout_s : 0);
}

/* Options that describe a trace come before those that all commands have. */
static int check_stop(const struct args *a, struct err *err)
{
	static const char *const fit[] = {"stop", "job-id", "pids", "wait", "wait-timeout", NULL};

	for (const struct opt *o = a->spec->options; strcmp(o->name, "hostname") != 0; o++)
		if (!ctl_is_one_of(fit, o->name, strlen(o->name)) && args_given(a, o))
			return err_set(err, -EINVAL,
				       "'--%s' describes a new trace, and '--stop' ends one: give "
				       "one of the two",
				       o->name);
	return 0;
}

static bool is_given(const struct args *a, const char *name)
{
	const struct opt *o = a->spec->options;

	while (strcmp(o->name, name) != 0)
		o++;
	return args_given(a, o);
}

static int check_options(const struct ctl *c, const struct args *a, void *options, struct err *err)
{
	struct nputrace_options *o = options;

	(void)c;
	if (o->stop)
		return check_stop(a, err);
	int r = choose_length(&o->config, is_given(a, "duration-ms"), err);
	return r < 0 ? r : check_trace(&o->config, err);
}

static const struct nputrace_options defaults = {
	.common = CTL_COMMON_DEFAULTS,
	.config = {.start_step = NOT_GIVEN, .iterations = NOT_GIVEN},
	.pids = "0",
	.process_limit = PROFILER_NO_LIMIT,
	.wait = {.timeout_s = CTL_WAIT_TIMEOUT_S},
};
static const struct ctl_steps steps = {&defaults, sizeof(defaults), check_options, true,
				       trace_or_stop};

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
static const struct opt options[] = {
	OPTION_FLAG(
		"stop", AT(stop),
		"End the trace that waits or runs in the processes that --job-id and --pids name: "
		"what was recorded so far is written and marked as incomplete; one that has not "
		"begun is dropped. For jobs that hang. Not with options that describe a trace.",
		.group = "End of a trace"),
	OPTION_CALL("log-file", "DIR", ctl_value_path, AT(config.log_file), NULL,
		    "Directory for the data, on the hosts; a relative one is taken from the "
		    "directory in which each job runs. Required.",
		    .group = "When and where"),
	OPTION_CALL("start-step", "N", ctl_value_step, AT(config.start_step), NULL,
		    "First step to trace; -1 for the next one. Required with --iterations."),
	OPTION_CALL("iterations", "N", ctl_value_positive, AT(config.iterations), NULL,
		    "How many steps to trace. Required, unless --duration-ms is given."),
	OPTION_CALL("rank-list", "RANKS", ctl_value_ranks, AT(config.rank_list), "None",
		    "Only these ranks, separated by commas. Not with MindSpore."),
	OPTION_UINT("process-limit", "N", AT(process_limit), 0, INT32_MAX, NULL,
		    "At most this many processes of a host are traced; the default is all "
		    "processes with sonde's monitor, and 3 of those that use a framework's own "
		    "profiler (there one process fetches the request for all ranks)."),
	OPTION_CALL("job-id", "ID", ctl_value_u64, AT(job_id), "0",
		    "Job of the processes; those of torch_npu and MindSpore register with 0."),
	OPTION_CALL("pids", "PIDS", ctl_value_pids, AT(pids), "0",
		    "Processes, or ancestors of them, separated by commas; 0 for all of the job."),
	OPTION_CALL("profile-start-time", "MS", ctl_value_u64, AT(start_time_ms), "0",
		    "Accepted and without effect: traces start at a step."),
	OPTION_CALL("duration-ms", "MS", ctl_value_u64, AT(config.duration_ms), NULL,
		    "How long to trace, from now on, if --iterations is not given: for jobs that "
		    "tell no steps, and only where sonde's own monitor serves the process. With "
		    "--iterations accepted and without effect."),
	OPTION_CHOICE("activities", "LIST", nputrace_activities, AT(config.activities), "CPU,NPU",
		      "Record the events of these: CPU,NPU, NPU,CPU, CPU or NPU.",
		      .group = "What to trace"),
	OPTION_CHOICE("profiler-level", "LEVEL", nputrace_levels, AT(config.profiler_level),
		      "Level0", "How much: Level0, Level1, Level2 or Level_none."),
	OPTION_CHOICE(
		"aic-metrics", "NAME", nputrace_aic_metrics, AT(config.aic_metrics), "AiCoreNone",
		"Counters of the AI cores: AiCoreNone, PipeUtilization, ArithmeticUtilization, "
		"Memory, MemoryL0, ResourceConflictRatio, MemoryUB, L2Cache or MemoryAccess."),
	OPTION_FLAG("record-shapes", AT(config.record_shapes),
		    "Record the shapes of operator inputs."),
	OPTION_FLAG("profile-memory", AT(config.profile_memory), "Record memory."),
	OPTION_FLAG("with-stack", AT(config.with_stack), "Record call stacks.",
		    .aliases = (const char *const[]){"with-stacks", NULL}),
	OPTION_FLAG("with-flops", AT(config.with_flops),
		    "Record floating-point operations of operators."),
	OPTION_FLAG("with-modules", AT(config.with_modules),
		    "Record the modules that call operators."),
	OPTION_FLAG("l2-cache", AT(config.l2_cache), "Record the L2 cache."),
	OPTION_FLAG("op-attr", AT(config.op_attr), "Record attributes of operators."),
	OPTION_FLAG("attribute", AT(config.attribute),
		    "Record which module of the model and which line of the program launches what "
		    "devices execute."),
	OPTION_FLAG("msprof-tx", AT(config.msprof_tx), "Record mstx marks."),
	OPTION_CALL("mstx-domain-include", "DOMAINS", ctl_value_text, AT(config.domain_include),
		    "None", "Only marks of these domains."),
	OPTION_CALL("mstx-domain-exclude", "DOMAINS", ctl_value_text, AT(config.domain_exclude),
		    "None", "No marks of these domains; --mstx-domain-include wins."),
	OPTION_CALL("gc-detect-threshold", "MS", set_gc_threshold, 0, "None",
		    "Record garbage collections of Python that take longer."),
	OPTION_CALL("host-sys", "LIST", ctl_value_host_systems, AT(config.host_sys), "None",
		    "Data of the host: cpu, mem, disk, network and osrt, separated by commas."),
	OPTION_FLAG("sys-io", AT(config.sys_io), "Record network cards of the system."),
	OPTION_FLAG("sys-interconnection", AT(config.sys_interconnection),
		    "Record links between devices."),
	OPTION_FLAG("analyse", AT(config.analyse), "Analyse the data when they are complete.",
		    .group = "What to make of it"),
	OPTION_FLAG("async-mode", AT(config.async_mode),
		    "Analyse in the background while the job continues. Needs --analyse."),
	OPTION_CHOICE("data-simplification", "BOOL", nputrace_true_false,
		      AT(config.data_simplification), "true",
		      "Remove what the analysis no longer needs: true or false."),
	OPTION_CHOICE("export-type", "TYPE", nputrace_exports, AT(config.export_type), "Text",
		      "Text or Db."),
	CTL_WAIT_ROWS(
		AT(wait),
		"Return when the files are there, and print where, or who refused and why; the "
		"exit status is 3 if not all are there."),
	CTL_COMMON_ROWS,
};

static const char *const usage[] = {"--log-file <dir> --start-step <n> --iterations <n> [options]",
				    "--log-file <dir> --duration-ms <ms> [options]",
				    "--stop [--pids <pids>] [options]", NULL};

static const struct args_example examples[] = {
	{"two steps from step 10 on, analysed",
	 "sonde ctl nputrace --start-step 10 --iterations 2 --activities CPU,NPU --analyse "
	 "--data-simplification false --log-file /tmp/profile_data"},
	{"the next step of rank 0", "sonde ctl nputrace --start-step -1 --iterations 1 --rank-list "
				    "0 --log-file /tmp/profile_data"},
	{"half a second of a job that announces no steps",
	 "sonde ctl nputrace --duration-ms 500 --log-file /tmp/profile_data"},
	{"the job hangs: write what was traced so far", "sonde ctl nputrace --stop"},
	{NULL, NULL},
};

const struct command cmd_ctl_nputrace = CTL_COMMAND(
	"nputrace", usage, options, examples, &steps,
	.summary = "trace some steps of jobs on NPUs and GPUs",
	.description = "Makes processes of torch_npu or MindSpore that were started with "
		       "MSMONITOR_USE_DAEMON=1, and all that were started by 'sonde monitor', "
		       "profile some of their steps, as often as you like and without stopping "
		       "them. Not while npu-monitor is running. Options that sonde's own monitor "
		       "does not support are named. --stop ends a trace before its last step in "
		       "processes of 'sonde monitor'. It cannot end a trace by a framework's own "
		       "profiler: that trace continues, and the processes are named.");
