/* SPDX-License-Identifier: MulanPSL-2.0 */
/* sonde ctl gputrace: a trace by the profiler that is part of PyTorch (libkineto). */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "cli/ctl/request.h"
#include "cli/ctl/values.h"
#include "client/clocks.h"
#include "client/profiler_config.h"

#define START_DELAY_S 10 /* of several hosts: time for every process to fetch its config */
#define ROUNDUP 100 /* of several hosts: iterations begin at the same one everywhere */
#define NOT_GIVEN UINT64_MAX
#define CLOCKS_NAMED_MAX 5 /* hosts whose clock is named one by one */

struct gputrace_options {
	struct ctl_common common;
	struct gputrace_config config;
	uint64_t job_id;
	const char *pids;
	unsigned process_limit;
	uint64_t start_delay_s;
	bool fail_on_no_process;
	struct ctl_wait wait;
};

static void add_config(const void *options, const struct host_entry *host, struct buf *out)
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

static void add_file(const void *options, const struct host_entry *host, int64_t pid,
		     struct buf *out)
{
	const struct gputrace_options *o = options;
	struct buf log_file = {0};

	if (host)
		gputrace_log_of_host(o->config.log_file, host->label, &log_file);
	gputrace_file(host ? buf_str(&log_file) : o->config.log_file, pid, out);
	buf_release(&log_file);
}

static int check_options(const struct ctl *c, const struct args *a, void *options, struct err *err)
{
	const struct gputrace_options *o = options;

	(void)c;
	(void)a;
	if (!o->config.log_file || !*o->config.log_file)
		return err_set(err, -EINVAL, "option '--log-file' is missing: --log-file=<FILE>");
	if (o->config.profile_memory && o->config.iterations > 0)
		return err_set(
			err, -EINVAL,
			"'--profile-memory' works with --duration-ms only, not with --iterations");
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
		ctl_notice(c, "'--log-file' has no .json in it: all processes write to one file");
	if (strncmp(log_file, "/tmp/", 5) || strstr(log_file, ".."))
		ctl_notice(c, "PyTorch of 2026 and later writes only below /tmp, or where its own "
			      "KINETO_ONDEMAND_TRACE_DIR says: there it is "
			      "/tmp/libkineto_activities_<pid>.json");
	buf_release(&path);
}

static void warn_of_clocks(const struct ctl *c, const struct clock_difference *list, size_t n)
{
	for (size_t i = 0; i < n && i < CLOCKS_NAMED_MAX; i++) {
		bool ahead = list[i].apart_ns > 0;

		ctl_notice(
			c,
			"the clock of %s is at least %.1f s %s the others: its trace starts that "
			"much %s",
			c->hosts.v[list[i].host].label, (double)llabs(list[i].apart_ns) / 1e9,
			ahead ? "ahead of" : "behind", ahead ? "earlier" : "later");
	}
	if (n > CLOCKS_NAMED_MAX)
		ctl_notice(c, "so are the clocks of %zu more hosts", n - CLOCKS_NAMED_MAX);
}

/* Several hosts start together: at a time, or at a multiple of so many iterations. */
static int choose_start(struct ctl *c, struct gputrace_options *o, struct err *err)
{
	bool several = c->hosts.n > 1;

	if (o->config.iterations > 0) {
		if (o->config.roundup == NOT_GIVEN)
			o->config.roundup = several ? ROUNDUP : 1;
		return 0;
	}
	if (o->config.start_time_ms || (!several && o->start_delay_s == NOT_GIVEN))
		return 0;
	unsigned delay_s =
		o->start_delay_s == NOT_GIVEN ? START_DELAY_S : (unsigned)o->start_delay_s;
	struct clock_difference *apart;
	size_t n;
	int r = clocks_common_start(&c->group, delay_s, &o->config.start_time_ms, &apart, &n, err);
	warn_of_clocks(c, apart, n);
	free(apart);
	return r;
}

/* Under Slurm, processes register with the job they belong to. */
static void choose_job(const struct ctl *c, struct gputrace_options *o)
{
	const char *job = o->common.slurm_job;
	bool number = job && strspn(job, "0123456789") == strlen(job) && strlen(job) < 19;

	if (o->job_id != NOT_GIVEN)
		return;
	o->job_id = number ? strtoull(job, NULL, 10) : 0;
	if (job && !number)
		ctl_notice(
			c,
			"processes of '%s' have a job id of their own: give it with --job-id, as "
			"SLURM_JOB_ID of their environment or 'ps' shows it",
			job);
}

/* Until its end, from now on. */
static uint64_t trace_ms(const struct gputrace_options *o)
{
	uint64_t now = (uint64_t)clock_real_ns() / 1000000, start = o->config.start_time_ms;

	return o->config.duration_ms + (start > now ? start - now : 0);
}

static int request_trace(struct ctl *c, void *options)
{
	struct gputrace_options *o = options;
	struct err err = {0};

	if (choose_start(c, o, &err) < 0)
		return ctl_fail(c, &err, EXIT_FAILED);
	choose_job(c, o);
	hint_path(c, o->config.log_file);
	struct ctl_request request = {
		.q = {.kind = PROFILER_GPUTRACE,
		      .job_id = o->job_id,
		      .process_limit = o->process_limit,
		      .start_step = -1,
		      .options = o,
		      .config = add_config},
		.pids = o->pids,
		.fail_on_no_process = o->fail_on_no_process,
		.memory = o->config.profile_memory,
		.success = o->config.iterations > 0
				   ? "it starts at the next optimizer step after the next poll "
				     "(every 5 s), and the files appear when it is done"
			   : o->config.start_time_ms
				   ? "it starts at the given time, and the files appear some "
				     "seconds after its end"
				   : "it starts after the next poll (every 5 s) and 5 s of "
				     "warm-up, and the files appear some seconds after its end",
		.file = add_file,
		.log_file = o->config.log_file,
		.wait = o->wait,
		.wait_for = WAIT_FILES,
		.duration_ms = o->config.iterations > 0 ? 0 : trace_ms(o),
	};
	return ctl_request_run(c, &request);
}

static const struct gputrace_options defaults = {
	.common = CTL_COMMON_DEFAULTS,
	.config = {.duration_ms = 500, .iterations = -1, .roundup = NOT_GIVEN},
	.job_id = NOT_GIVEN,
	.pids = "0",
	.process_limit = 3,
	.start_delay_s = NOT_GIVEN,
	.wait = {.timeout_s = CTL_WAIT_TIMEOUT_S},
};
static const struct ctl_steps steps = {&defaults, sizeof(defaults), check_options, false,
				       request_trace};

#define AT(member) offsetof(struct gputrace_options, member)
static const struct opt options[] = {
	OPTION_CALL("job-id", "ID", ctl_value_u64, AT(job_id), "0, with --slurm-job that one",
		    "Job of the processes: SLURM_JOB_ID of their environment, else 0.",
		    .group = "Which processes"),
	OPTION_CALL("pids", "PIDS", ctl_value_pids, AT(pids), "0",
		    "Processes, or ancestors of them, separated by commas; 0 for all of the job."),
	OPTION_UINT("process-limit", "N", AT(process_limit), 0, INT32_MAX, "3",
		    "At most this many processes of a host are traced."),
	OPTION_FLAG("fail-on-no-process", AT(fail_on_no_process),
		    "Exit with status 1 if no process matched."),
	OPTION_CALL("log-file", "FILE", ctl_value_path, AT(config.log_file), NULL,
		    "File to write, on the hosts: /tmp/trace.json becomes /tmp/trace_<pid>.json, "
		    "and with several hosts /tmp/trace_<host>_<pid>.json. Required.",
		    .group = "What to trace"),
	OPTION_CALL("duration-ms", "MS", ctl_value_u64, AT(config.duration_ms), "500",
		    "How long to trace."),
	OPTION_CALL("iterations", "N", ctl_value_i64, AT(config.iterations), "-1",
		    "Trace this many training iterations instead of a time. Needs an optimizer."),
	OPTION_CALL("profile-start-time", "MS", ctl_value_u64, AT(config.start_time_ms), "0",
		    "When to start, in milliseconds since the epoch; 0 for as soon as possible."),
	OPTION_CALL("start-delay", "SECONDS", ctl_value_u64, AT(start_delay_s),
		    "10 for several hosts",
		    "Start in this many seconds, on all hosts at the same time. Clocks that differ "
		    "are reported."),
	OPTION_CALL("profile-start-iteration-roundup", "N", ctl_value_u64, AT(config.roundup),
		    "1, for several hosts 100",
		    "Start at an iteration that is a multiple of this, so that all processes start "
		    "at the same one."),
	OPTION_FLAG("record-shapes", AT(config.record_shapes),
		    "Record the shapes of operator inputs."),
	OPTION_FLAG("profile-memory", AT(config.profile_memory),
		    "Record memory too. Not with --iterations."),
	OPTION_FLAG("with-stacks", AT(config.with_stacks), "Record call stacks.",
		    .aliases = (const char *const[]){"with-stack", NULL}),
	OPTION_FLAG("with-flops", AT(config.with_flops),
		    "Record floating-point operations of operators."),
	OPTION_FLAG("with-modules", AT(config.with_modules),
		    "Record the modules that call operators."),
	CTL_WAIT_ROWS(AT(wait),
		      "Return when the traces are over and, on this host, their files are there, "
		      "and print where, or what failed and why; the exit status is 3 if not all "
		      "are there."),
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

const struct command cmd_ctl_gputrace = CTL_COMMAND(
	"gputrace", usage, options, examples, &steps,
	.summary = "trace PyTorch processes with libkineto",
	.description = "Makes PyTorch processes that were started with KINETO_USE_DAEMON=1 write "
		       "a trace with their own profiler, without stopping or changing them.");
