/* SPDX-License-Identifier: MulanPSL-2.0 */
/* sonde ctl npu-monitor: starts and stops the monitor of operators in jobs. */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/ctl/request.h"
#include "cli/ctl/values.h"
#include "client/profiler_config.h"

#define STOP_REPLY_MS 6000 /* switching a source off takes long on a busy machine */

struct npu_monitor_options {
	struct ctl_common common;
	struct npu_monitor_config config;
	unsigned process_limit;
	struct ctl_wait wait;
};

static void add_config(const void *options, const struct host_entry *host, struct buf *out)
{
	const struct npu_monitor_options *o = options;

	(void)host;
	npu_monitor_config_text(&o->config, out);
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
				  one_colon && ctl_is_one_of(npu_monitor_kinds, text, kind_len)};
	*filter = text + len;
	return true;
}

static void add_bad_part(const struct filter_part *p, struct buf *out)
{
	const char *near = args_nearest(p->text, p->kind_len, npu_monitor_kinds);

	buf_addf(out, "'%.*s' of '--filter'", (int)p->len, p->text);
	if (p->kind_len < p->len && near && strncmp(near, p->text, p->kind_len))
		buf_addf(out, ": there is no such kind; did you mean '%s'?", near);
	else
		buf_add_str(out, ": expected Kind:name,name with a kind of --mspti-activity-kind");
}

/* Readers of the filter ignore what they do not understand, silently. So does dyno, whose users
 * have scripts; sonde ctl refuses it before anything happens. */
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

static int check_options(const struct ctl *c, const struct args *a, void *options, struct err *err)
{
	const struct npu_monitor_config *config = &((struct npu_monitor_options *)options)->config;
	struct stat st;

	(void)a;
	if (*config->log_file && stat(config->log_file, &st) == 0 && S_ISREG(st.st_mode))
		return err_set(err, -EINVAL, "--log-file must be a valid directory: '%.200s'",
			       config->log_file);
	return ctl_is_dyno(c) ? 0 : check_filter(config->filter, err);
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
static void print_dropped(const struct ctl *c, const struct npu_monitor_config *config)
{
	static const char *const nameless[] = {"Memory", "MemSet", "MemCpy", NULL};
	const char *kind = *config->kinds ? config->kinds : npu_monitor_kinds[0];
	struct buf dropped = {0};

	while (*config->filter && *kind) {
		size_t len = strcspn(kind, ",");

		if (!ctl_is_one_of(nameless, kind, len) && !names_kind(config->filter, kind, len))
			buf_addf(&dropped, "%s%.*s", dropped.len ? ", " : "", (int)len, kind);
		kind += len + (kind[len] == ',');
	}
	if (dropped.len)
		ctl_notice(c, "nothing is collected of %s: '--filter' does not name it",
			   buf_str(&dropped));
	buf_release(&dropped);
}

static void print_ignored(const struct ctl *c, const char *filter)
{
	struct filter_part p;
	struct buf words = {0};

	while (next_part(&filter, &p)) {
		if (p.good)
			continue;
		buf_clear(&words);
		add_bad_part(&p, &words);
		ctl_notice(c, "ignored: %s", buf_str(&words));
	}
	buf_release(&words);
}

static void print_hints(const struct ctl *c, const struct npu_monitor_config *config)
{
	if (config->start && config->stop)
		ctl_notice(c, "both --npu-monitor-start and --npu-monitor-stop: it stops");
	if (*config->log_file && config->log_file[0] != '/')
		ctl_notice(c, "'--log-file' is a relative path: it is taken from the directory in "
			      "which each job runs");
	if (config->duration_s > 0 && config->duration_s < (float)config->report_interval_s &&
	    !config->stop && !*config->log_file)
		ctl_notice(c,
			   "--duration is shorter than --report-interval-s: it may end before the "
			   "first report");
	if (config->attribute && *config->log_file && !config->export_type)
		ctl_notice(
			c,
			"a DB has no place for modules and lines: add --export-type Jsonl, or see "
			"them by 'sonde top --by module'");
	print_ignored(c, config->filter);
	if (!config->stop)
		print_dropped(c, config);
}

static int request_monitor(struct ctl *c, void *options)
{
	const struct npu_monitor_options *o = options;
	struct ctl_request request = {
		.q = {.kind = PROFILER_NPU_MONITOR,
		      .process_limit = o->process_limit,
		      .start_step = -1,
		      .reply_ms = o->config.stop ? STOP_REPLY_MS : 0,
		      .options = o,
		      .config = add_config},
		.pids = "0",
		.each = o->config.stop ? "stops its monitor, if that is running, at its next poll "
					 "(within 2 s)"
			: o->config.start ? "starts its monitor, or changes the one that is "
					    "running, at its next poll (within 2 s); stop it with "
					    "--npu-monitor-stop before nputrace"
					  : "changes its monitor at its next poll, if that is "
					    "running; --npu-monitor-start starts one",
		.wait = o->wait,
		.wait_for = o->config.stop	       ? WAIT_MONITOR_OFF
			    : o->config.duration_s > 0 ? WAIT_MONITOR_OVER
						       : WAIT_MONITOR_ON,
	};
	int status = ctl_request_run(c, &request);

	if (status != EXIT_FAILED)
		print_hints(c, &o->config); /* last, where they are seen */
	return status;
}

static const struct npu_monitor_options defaults = {
	.common = CTL_COMMON_DEFAULTS,
	.config = {.report_interval_s = 60, .log_file = "", .filter = ""},
	.process_limit = PROFILER_NO_LIMIT,
	.wait = {.timeout_s = CTL_WAIT_TIMEOUT_S},
};
static const struct ctl_steps steps = {&defaults, sizeof(defaults), check_options, true,
				       request_monitor};

#define AT(member) offsetof(struct npu_monitor_options, member)
static const struct opt options[] = {
	OPTION_FLAG("npu-monitor-start", AT(config.start), "Start it.", .group = "Monitor"),
	OPTION_FLAG("npu-monitor-stop", AT(config.stop),
		    "Stop it, or cancel a trace that has not begun. Without either, a running "
		    "monitor gets the new interval, kinds and filter."),
	OPTION_UINT("report-interval-s", "SECONDS", AT(config.report_interval_s), 0, UINT32_MAX,
		    "60", "How often it reports."),
	OPTION_CALL("duration", "SECONDS", ctl_value_seconds, AT(config.duration_s), "0",
		    "It stops by itself after this time; 0 for never."),
	OPTION_CALL("mspti-activity-kind", "KINDS", ctl_value_kinds, AT(config.kinds), "Marker",
		    "What it reports, separated by commas: Marker, Kernel, API, Hccl, Memory, "
		    "MemSet, MemCpy, Communication, AclAPI, NodeAPI, RuntimeAPI."),
	OPTION_CALL("filter", "FILTER", ctl_value_text, AT(config.filter), NULL,
		    "Only names with one of these parts, by kind: Kernel:MatMul,Add;API:launch."),
	OPTION_FLAG("attribute", AT(config.attribute),
		    "Find out which module of the model and which line of the program launches "
		    "what devices execute: see 'sonde top --by module', 'sonde activity show "
		    "--by module'."),
	OPTION_UINT("process-limit", "N", AT(process_limit), 0, INT32_MAX, NULL,
		    "At most this many processes of a host get the request; the default is all "
		    "processes with sonde's monitor, and 3 of those that use a framework's own "
		    "profiler (there one process fetches the request for all ranks)."),
	OPTION_CALL(
		"log-file", "DIR", ctl_value_path, AT(config.log_file), NULL,
		"Directory, on the hosts, for the data themselves; a relative one is taken from "
		"the directory in which each job runs. Without it metrics go to the daemon.",
		.group = "Files"),
	OPTION_CHOICE("export-type", "TYPE", npu_monitor_exports, AT(config.export_type), "DB",
		      "DB or Jsonl."),
	OPTION_CALL("json-rotate-log-lines", "N", ctl_value_rotate_lines, AT(config.rotate_lines),
		    NULL, "Lines of one Jsonl file, 100 to 500000."),
	OPTION_CALL("json-rotate-log-files", "N", ctl_value_rotate_files, AT(config.rotate_files),
		    NULL, "Jsonl files that are kept, 2 or more, or -1 for all."),
	CTL_WAIT_ROWS(AT(wait),
		      "Return when the monitor is on; with --duration when that is over and the "
		      "files are complete; with --npu-monitor-stop when it is off. Or print who "
		      "refused and why; the exit status is 3 then."),
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

const struct command cmd_ctl_npu_monitor = CTL_COMMAND(
	"npu-monitor", usage, options, examples, &steps,
	.summary = "monitor the times of operators of jobs on NPUs and GPUs",
	.description = "Starts, changes and stops the monitor of operators in processes of "
		       "torch_npu or MindSpore that were started with MSMONITOR_USE_DAEMON=1, "
		       "and in all that were started by 'sonde monitor', on NPUs and GPUs. It "
		       "costs little and may run for days; stop it before nputrace.");
