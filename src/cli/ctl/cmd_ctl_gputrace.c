/* SPDX-License-Identifier: MulanPSL-2.0 */
/* sonde ctl gputrace: a trace by the profiler that is part of PyTorch (libkineto). */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli/ctl/clock.h"
#include "cli/ctl/config.h"
#include "cli/ctl/request.h"
#include "cli/ctl/values.h"

#define START_DELAY_S 10 /* of several hosts: time for every process to fetch its config */
#define ROUNDUP 100 /* of several hosts: iterations begin at the same one everywhere */
#define NOT_GIVEN UINT64_MAX

struct gputrace_options {
	struct ctl_common common;
	struct gputrace_config config;
	uint64_t job_id;
	const char *pids;
	unsigned process_limit;
	uint64_t start_delay_s;
	bool fail_on_no_process;
};

static void config_text(const void *options, const struct ctl_host *host, struct buf *out)
{
	const struct gputrace_options *o = options;
	struct gputrace_config config = o->config;
	struct buf log_file = {0};

	if (host) {
		gputrace_log_of_host(o->config.log_file, host->label, &log_file);
		config.log_file = buf_str(&log_file);
	}
	gputrace_config_text(&config, out);
	buf_release(&log_file);
}

static void file(const void *options, const struct ctl_host *host, int64_t pid, struct buf *out)
{
	const struct gputrace_options *o = options;
	struct buf log_file = {0};

	if (host)
		gputrace_log_of_host(o->config.log_file, host->label, &log_file);
	gputrace_file(host ? buf_str(&log_file) : o->config.log_file, pid, out);
	buf_release(&log_file);
}

static int check(struct gputrace_options *o, struct err *err)
{
	if (!o->config.log_file || !*o->config.log_file)
		return err_set(err, -EINVAL, "option '--log-file' is missing: --log-file=<FILE>");
	if (o->config.profile_memory && o->config.iterations > 0)
		return err_set(err, -EINVAL,
			       "'--profile-memory' works with --duration-ms only, not with "
			       "--iterations");
	if (o->start_delay_s != NOT_GIVEN && o->start_delay_s > 86400)
		return err_set(err, -EINVAL, "'--start-delay' is at most 86400 seconds");
	if (o->start_delay_s != NOT_GIVEN && o->config.start_time_ms)
		return err_set(err, -EINVAL,
			       "give either '--start-delay' or '--profile-start-time'");
	if (!o->config.roundup && o->config.iterations > 0)
		return err_set(err, -EINVAL, "'--profile-start-iteration-roundup' is at least 1");
	return 0;
}

static void hint_path(const struct ctl *c, const char *log_file)
{
	struct buf path = {0};

	if (!gputrace_file(log_file, 1, &path))
		ctl_say(c, "'--log-file' has no .json in it: all processes write to one file");
	if (strncmp(log_file, "/tmp/", 5) || strstr(log_file, ".."))
		ctl_say(c, "PyTorch of 2026 and later writes only below /tmp, or where its own "
			   "KINETO_ONDEMAND_TRACE_DIR says: there, look for "
			   "/tmp/libkineto_activities_<pid>.json");
	buf_release(&path);
}

/* Several hosts start together: at a time, or at a multiple of so many iterations. */
static int settle_start(struct ctl *c, struct gputrace_options *o, struct err *err)
{
	bool several = c->hosts.n > 1;

	if (o->config.iterations > 0) {
		if (o->config.roundup == NOT_GIVEN)
			o->config.roundup = several ? ROUNDUP : 1;
		return 0;
	}
	if (o->config.start_time_ms || (!several && o->start_delay_s == NOT_GIVEN))
		return 0;
	return ctl_clock_start(
		c, o->start_delay_s == NOT_GIVEN ? START_DELAY_S : (unsigned)o->start_delay_s,
		&o->config.start_time_ms, err);
}

/* Under Slurm, processes register with the job they belong to. */
static void settle_job(const struct ctl *c, struct gputrace_options *o)
{
	const char *job = o->common.slurm_job;
	bool number = job && strspn(job, "0123456789") == strlen(job) && strlen(job) < 19;

	if (o->job_id != NOT_GIVEN)
		return;
	o->job_id = number ? strtoull(job, NULL, 10) : 0;
	if (job && !number)
		ctl_say(c,
			"processes of '%s' have a job id of their own: give it with --job-id, as "
			"SLURM_JOB_ID of their environment or 'ps' tells it",
			job);
}

static int trace(struct ctl *c, struct gputrace_options *o)
{
	struct err err = {0};

	if (settle_start(c, o, &err) < 0)
		return ctl_fail(c, &err, EXIT_FAILED);
	settle_job(c, o);
	hint_path(c, o->config.log_file);
	struct ctl_order order = {
		.kind = CTL_GPUTRACE,
		.job_id = o->job_id,
		.pids = o->pids,
		.process_limit = o->process_limit,
		.start_step = -1,
		.fail_on_no_process = o->fail_on_no_process,
		.memory = o->config.profile_memory,
		.success = o->config.iterations > 0
				   ? "it starts at the next optimizer step after their next poll "
				     "(every 5 s), and the files appear when it is done"
			   : o->config.start_time_ms
				   ? "it starts at the given time, and the files appear some "
				     "seconds after its end"
				   : "it starts after their next poll (every 5 s) and 5 s of "
				     "warm-up, and the files appear some seconds after its end",
		.options = o,
		.config = config_text,
		.file = file,
	};
	return ctl_order_run(c, &order);
}

static int gputrace_run(const struct command *cmd, int argc, char **argv)
{
	struct gputrace_options o = {
		.common = CTL_COMMON_DEFAULTS,
		.config = {.duration_ms = 500, .iterations = -1, .roundup = NOT_GIVEN},
		.job_id = NOT_GIVEN,
		.pids = "0",
		.process_limit = 3,
		.start_delay_s = NOT_GIVEN,
	};
	struct args a = {.target = &o};
	struct ctl c = {0};
	struct err err = {0};

	int status = ctl_begin(&c, cmd, &a, argc, argv);
	if (status < 0 && check(&o, &err) < 0)
		status = command_fail(cmd, &err, EXIT_USAGE);
	if (status < 0)
		status = ctl_open(&c, true);
	if (status < 0)
		status = trace(&c, &o);
	ctl_end(&c);
	args_release(&a);
	return status;
}

#define AT(member) offsetof(struct gputrace_options, member)
static const struct opt options[] = {
	{.group = "Which processes",
	 .name = "job-id",
	 .kind = OPT_CALL,
	 .arg = "ID",
	 .parse = ctl_value_u64,
	 .offset = AT(job_id),
	 .default_text = "0, with --slurm-job that one",
	 .help = "Job of the processes: SLURM_JOB_ID of their environment, else 0."},
	{.name = "pids",
	 .kind = OPT_CALL,
	 .arg = "PIDS",
	 .parse = ctl_value_pids,
	 .offset = AT(pids),
	 .default_text = "0",
	 .help = "Processes, or ancestors of them, separated by commas; 0 for all of the job."},
	{.name = "process-limit",
	 .kind = OPT_UINT,
	 .arg = "N",
	 .min = 0,
	 .max = INT32_MAX,
	 .offset = AT(process_limit),
	 .default_text = "3",
	 .help = "At most so many processes of a host are traced."},
	{.name = "fail-on-no-process",
	 .kind = OPT_FLAG,
	 .offset = AT(fail_on_no_process),
	 .help = "Exit with status 1 if no process matched."},
	{.group = "What to trace",
	 .name = "log-file",
	 .kind = OPT_CALL,
	 .arg = "FILE",
	 .parse = ctl_value_path,
	 .offset = AT(config.log_file),
	 .help = "File to write, on the hosts: /tmp/trace.json becomes /tmp/trace_<pid>.json, and "
		 "with several hosts /tmp/trace_<host>_<pid>.json. Required."},
	{.name = "duration-ms",
	 .kind = OPT_CALL,
	 .arg = "MS",
	 .parse = ctl_value_u64,
	 .offset = AT(config.duration_ms),
	 .default_text = "500",
	 .help = "How long to trace."},
	{.name = "iterations",
	 .kind = OPT_CALL,
	 .arg = "N",
	 .parse = ctl_value_i64,
	 .offset = AT(config.iterations),
	 .default_text = "-1",
	 .help = "Trace so many training iterations instead of a time. Needs an optimizer."},
	{.name = "profile-start-time",
	 .kind = OPT_CALL,
	 .arg = "MS",
	 .parse = ctl_value_u64,
	 .offset = AT(config.start_time_ms),
	 .default_text = "0",
	 .help = "When to start, in milliseconds since the epoch; 0 for as soon as possible."},
	{.name = "start-delay",
	 .kind = OPT_CALL,
	 .arg = "SECONDS",
	 .parse = ctl_value_u64,
	 .offset = AT(start_delay_s),
	 .default_text = "10 for several hosts",
	 .help = "Start in so many seconds, on all hosts at the same time. Clocks that differ are "
		 "told."},
	{.name = "profile-start-iteration-roundup",
	 .kind = OPT_CALL,
	 .arg = "N",
	 .parse = ctl_value_u64,
	 .offset = AT(config.roundup),
	 .default_text = "1, for several hosts 100",
	 .help = "Start at an iteration that is a multiple of this, so that all processes start at "
		 "the same one."},
	{.name = "record-shapes",
	 .kind = OPT_FLAG,
	 .offset = AT(config.record_shapes),
	 .help = "Record the shapes of operator inputs."},
	{.name = "profile-memory",
	 .kind = OPT_FLAG,
	 .offset = AT(config.profile_memory),
	 .help = "Record memory too. Not with --iterations."},
	{.name = "with-stacks",
	 .kind = OPT_FLAG,
	 .offset = AT(config.with_stacks),
	 .aliases = (const struct opt_alias[]){{"with-stack", false}, {NULL, false}},
	 .help = "Record call stacks."},
	{.name = "with-flops",
	 .kind = OPT_FLAG,
	 .offset = AT(config.with_flops),
	 .help = "Record floating-point operations of operators."},
	{.name = "with-modules",
	 .kind = OPT_FLAG,
	 .offset = AT(config.with_modules),
	 .help = "Record the modules that call operators."},
	CTL_COMMON_ROWS,
};

static const char *const usage[] = {"--log-file <file> [options]", NULL};

static const struct args_example examples[] = {
	{"half a second of every process of this host",
	 "sonde ctl gputrace --log-file /tmp/trace.json --process-limit 8"},
	{"three iterations of one process",
	 "sonde ctl gputrace --log-file /tmp/trace.json --iterations 3 --pids 4711"},
	{"all nodes of a Slurm job, at the same time",
	 "sonde ctl gputrace --slurm-job 4711 --log-file /tmp/trace.json --process-limit 8"},
	{NULL, NULL},
};

const struct command cmd_ctl_gputrace = {
	.name = "ctl gputrace",
	.alias = "dyno gputrace",
	.spec = {.name = "sonde ctl gputrace",
		 .summary = "trace PyTorch processes with libkineto",
		 .description =
			 "Makes PyTorch processes that were started with KINETO_USE_DAEMON=1 write "
			 "a trace with their own profiler, without stopping or changing them.",
		 .usage = usage,
		 .options = options,
		 .examples = examples,
		 .flags = ARGS_GFLAGS},
	.run = gputrace_run,
};
