/* SPDX-License-Identifier: MulanPSL-2.0 */
/* sonde ctl npu-monitor: starts and stops the monitor of operators in jobs. */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/ctl/config.h"
#include "cli/ctl/request.h"
#include "cli/ctl/values.h"

struct npu_monitor_options {
	struct ctl_common common;
	struct npu_monitor_config config;
	unsigned process_limit;
};

static void config_text(const void *options, const struct ctl_host *host, struct buf *out)
{
	const struct npu_monitor_options *o = options;

	(void)host;
	npu_monitor_config_text(&o->config, out);
}

static int check(const struct npu_monitor_config *c, struct err *err)
{
	struct stat st;

	if (*c->log_file && stat(c->log_file, &st) == 0 && S_ISREG(st.st_mode))
		return err_set(err, -EINVAL, "--log-file must be a valid directory: '%.200s'",
			       c->log_file);
	return 0;
}

/* One part of a filter, "Kind:name,name". */
struct filter_part {
	const char *text;
	size_t len, kind_len;
	bool good;
};

/* Takes the next part off *filter; blanks and empty parts do not count. */
static bool next_part(const char **filter, struct filter_part *p)
{
	const char *text = *filter + strspn(*filter, "; ");

	if (!*text)
		return false;
	size_t len = strcspn(text, ";"), colon = strcspn(text, ":;"), kind_len = colon;
	bool one_colon = colon < len && !memchr(text + colon + 1, ':', len - colon - 1);
	while (kind_len && text[kind_len - 1] == ' ')
		kind_len--;
	*p = (struct filter_part){text, len, kind_len,
				  one_colon && ctl_is_one_of(ctl_activity_kinds, text, kind_len)};
	*filter = text + len;
	return true;
}

static void add_bad_part(const struct filter_part *p, struct buf *out)
{
	const char *near = args_nearest(p->text, p->kind_len, ctl_activity_kinds);

	buf_addf(out, "'%.*s' of '--filter'", (int)p->len, p->text);
	if (p->kind_len < p->len && near && strncmp(near, p->text, p->kind_len))
		buf_addf(out, ": there is no such kind; did you mean '%s'?", near);
	else
		buf_add_str(out, ": expected Kind:name,name with a kind of --mspti-activity-kind");
}

/* Readers of the filter pass over what they do not understand, without a word. So does dyno, whose
 * users have scripts; who asks sonde hears it before anything happens. */
static int check_filter(const char *filter, struct err *err)
{
	struct filter_part p;
	struct buf words = {0};
	int r = 0;

	while (r == 0 && next_part(&filter, &p))
		if (!p.good) {
			add_bad_part(&p, &words);
			r = err_set(err, -EINVAL, "%s", buf_str(&words));
		}
	buf_release(&words);
	return r;
}

static bool names_kind(const char *filter, const char *kind, size_t len)
{
	struct filter_part p;

	while (next_part(&filter, &p))
		if (p.good && p.kind_len == len && !strncmp(p.text, kind, len))
			return true;
	return false;
}

/* With a filter, kinds that it does not name are dropped, but for those without names. */
static void hint_dropped(const struct ctl *c, const struct npu_monitor_config *config)
{
	static const char *const nameless[] = {"Memory", "MemSet", "MemCpy", NULL};
	const char *kind = *config->kinds ? config->kinds : ctl_activity_kinds[0];
	struct buf dropped = {0};

	while (*config->filter && *kind) {
		size_t len = strcspn(kind, ",");

		if (!ctl_is_one_of(nameless, kind, len) && !names_kind(config->filter, kind, len))
			buf_addf(&dropped, "%s%.*s", dropped.len ? ", " : "", (int)len, kind);
		kind += len + (kind[len] == ',');
	}
	if (dropped.len)
		ctl_say(c, "nothing is collected of %s: '--filter' does not name it",
			buf_str(&dropped));
	buf_release(&dropped);
}

static void hint_filter(const struct ctl *c, const char *filter)
{
	struct filter_part p;
	struct buf words = {0};

	while (next_part(&filter, &p)) {
		if (p.good)
			continue;
		buf_clear(&words);
		add_bad_part(&p, &words);
		ctl_say(c, "ignored: %s", buf_str(&words));
	}
	buf_release(&words);
}

static void hints(const struct ctl *c, const struct npu_monitor_config *config)
{
	if (config->start && config->stop)
		ctl_say(c, "both --npu-monitor-start and --npu-monitor-stop: it stops");
	if (*config->log_file && config->log_file[0] != '/')
		ctl_say(c, "'--log-file' is a relative path: it is taken from the directory in "
			   "which each job runs");
	if (config->duration_s > 0 && config->duration_s < (float)config->report_interval_s &&
	    !config->stop && !*config->log_file)
		ctl_say(c, "--duration is shorter than --report-interval-s: it may end before the "
			   "first report");
	hint_filter(c, config->filter);
	if (!config->stop)
		hint_dropped(c, config);
}

static int monitor(struct ctl *c, const struct npu_monitor_options *o)
{
	struct ctl_order order = {
		.kind = CTL_NPU_MONITOR,
		.pids = "0",
		.process_limit = o->process_limit,
		.start_step = -1,
		.each = o->config.stop ? "stops its monitor, if that is running, at its next poll, "
					 "within some seconds"
			: o->config.start
				? "starts its monitor, or changes the one that is running, at its "
				  "next poll, within some seconds; stop it with --npu-monitor-stop "
				  "before nputrace"
				: "changes its monitor at its next poll, if that is running; "
				  "--npu-monitor-start starts one",
		.options = o,
		.config = config_text,
	};
	int status = ctl_order_run(c, &order);

	if (status != EXIT_FAILED)
		hints(c, &o->config); /* last, where they are seen */
	return status;
}

static int npu_monitor_run(const struct command *cmd, int argc, char **argv)
{
	struct npu_monitor_options o = {
		.common = CTL_COMMON_DEFAULTS,
		.config = {.report_interval_s = 60, .log_file = "", .filter = ""},
		.process_limit = CTL_NO_LIMIT,
	};
	struct args a = {.target = &o};
	struct ctl c = {0};
	struct err err = {0};

	int status = ctl_begin(&c, cmd, &a, argc, argv);
	if (status < 0 && check(&o.config, &err) < 0)
		status = command_fail(cmd, &err, EXIT_USAGE);
	if (status < 0 && !ctl_is_dyno(&c) && check_filter(o.config.filter, &err) < 0)
		status = command_fail(cmd, &err, EXIT_USAGE);
	if (status < 0)
		status = ctl_open(&c, true);
	if (status < 0)
		status = monitor(&c, &o);
	ctl_end(&c);
	args_release(&a);
	return status;
}

#define AT(member) offsetof(struct npu_monitor_options, member)
static const struct opt options[] = {
	{.group = "Monitor",
	 .name = "npu-monitor-start",
	 .kind = OPT_FLAG,
	 .offset = AT(config.start),
	 .help = "Start it."},
	{.name = "npu-monitor-stop",
	 .kind = OPT_FLAG,
	 .offset = AT(config.stop),
	 .help = "Stop it, or cancel a trace that has not begun. Without either, a running monitor "
		 "gets the new interval, kinds and "
		 "filter."},
	{.name = "report-interval-s",
	 .kind = OPT_UINT,
	 .arg = "SECONDS",
	 .min = 0,
	 .max = UINT32_MAX,
	 .offset = AT(config.report_interval_s),
	 .default_text = "60",
	 .help = "How often it reports."},
	{.name = "duration",
	 .kind = OPT_CALL,
	 .arg = "SECONDS",
	 .parse = ctl_value_seconds,
	 .offset = AT(config.duration_s),
	 .default_text = "0",
	 .help = "It stops by itself after this time; 0 for never."},
	{.name = "mspti-activity-kind",
	 .kind = OPT_CALL,
	 .arg = "KINDS",
	 .parse = ctl_value_kinds,
	 .offset = AT(config.kinds),
	 .default_text = "Marker",
	 .help = "What it reports, separated by commas: Marker, Kernel, API, Hccl, Memory, MemSet, "
		 "MemCpy, Communication, AclAPI, NodeAPI, RuntimeAPI."},
	{.name = "filter",
	 .kind = OPT_CALL,
	 .arg = "FILTER",
	 .parse = ctl_value_text,
	 .offset = AT(config.filter),
	 .help = "Only names with one of these parts, by kind: Kernel:MatMul,Add;API:launch."},
	{.name = "process-limit",
	 .kind = OPT_UINT,
	 .arg = "N",
	 .min = 0,
	 .max = INT32_MAX,
	 .offset = AT(process_limit),
	 .help = "At most so many processes of a host are told; by default all that ask for "
		 "themselves, and 3 of frameworks, where one asks for all ranks."},
	{.group = "Files",
	 .name = "log-file",
	 .kind = OPT_CALL,
	 .arg = "DIR",
	 .parse = ctl_value_path,
	 .offset = AT(config.log_file),
	 .help = "Directory, on the hosts, for the data themselves; a relative one is taken from "
		 "the directory in which each job runs. Without it metrics go to the daemon."},
	{.name = "export-type",
	 .kind = OPT_CHOICE,
	 .arg = "TYPE",
	 .choices = ctl_monitor_exports,
	 .offset = AT(config.export_type),
	 .default_text = "DB",
	 .help = "DB or Jsonl."},
	{.name = "json-rotate-log-lines",
	 .kind = OPT_CALL,
	 .arg = "N",
	 .parse = ctl_value_rotate_lines,
	 .offset = AT(config.rotate_lines),
	 .help = "Lines of one Jsonl file, 100 to 500000."},
	{.name = "json-rotate-log-files",
	 .kind = OPT_CALL,
	 .arg = "N",
	 .parse = ctl_value_rotate_files,
	 .offset = AT(config.rotate_files),
	 .help = "Jsonl files that are kept, 2 or more, or -1 for all."},
	CTL_COMMON_ROWS,
};

static const char *const usage[] = {"--npu-monitor-start [options]", "--npu-monitor-stop [options]",
				    NULL};

static const struct args_example examples[] = {
	{"report the times of kernels every 30 seconds",
	 "sonde ctl npu-monitor --npu-monitor-start --report-interval-s 30 --mspti-activity-kind "
	 "Kernel"},
	{"stop", "sonde ctl npu-monitor --npu-monitor-stop"},
	{NULL, NULL},
};

const struct command cmd_ctl_npu_monitor = {
	.name = "ctl npu-monitor",
	.alias = "dyno npu-monitor",
	.spec = {.name = "sonde ctl npu-monitor",
		 .summary = "monitor the times of operators of jobs on NPUs and GPUs",
		 .description =
			 "Starts, changes and stops the monitor of operators in processes of "
			 "torch_npu or MindSpore that were started with MSMONITOR_USE_DAEMON=1, "
			 "and "
			 "in all that were started by 'sonde monitor', on NPUs and GPUs. It costs "
			 "little and may run for days; stop it before nputrace.",
		 .usage = usage,
		 .options = options,
		 .examples = examples,
		 .flags = ARGS_GFLAGS},
	.run = npu_monitor_run,
};
