/* SPDX-License-Identifier: MulanPSL-2.0 */
/* The command line of `sonde stack`: names and defaults that scripts know, and ours beside them. */
#include "cli/stack/options.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/text/number_read.h"
#include "base/text/text.h"

#define SECOND 1000000000ull
#define TIMEOUT_LEAST (SECOND / 10)
#define MOST_SECONDS 1e9 /* some thirty years; in nanoseconds it fits into 64 bits */

/* --- values --- */

bool stack_seconds(const char *text, uint64_t *out_ns)
{
	static const struct {
		const char *name;
		double seconds;
	} units[] = {{"", 1},	{"s", 1},    {"ms", 1e-3}, {"us", 1e-6},
		     {"m", 60}, {"min", 60}, {"h", 3600},  {"d", 86400}};
	char *end = NULL;

	/* strtod() would also take signs, blanks, hexadecimal numbers, "inf" and "nan" */
	if (!isdigit((unsigned char)*text) && *text != '.')
		return false;
	if (text[0] == '0' && (text[1] | 32) == 'x')
		return false;
	double v = strtod(text, &end);
	if (end == text)
		return false;
	for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
		if (strcmp(units[i].name, end))
			continue;
		v *= units[i].seconds;
		if (!(v <= MOST_SECONDS))
			return false;
		*out_ns = (uint64_t)(v * 1e9 + 0.5);
		return true;
	}
	return false;
}

int stack_parse_seconds(struct args *a, const struct opt *opt, const char *value, struct err *err)
{
	uint64_t ns = 0;

	if (stack_seconds(value, &ns) && ns >= (uint64_t)opt->min * 1000) {
		memcpy((char *)a->target + opt->offset, &ns, sizeof(ns));
		return 0;
	}
	if (opt->min)
		return err_set(err, -EINVAL,
			       "invalid value '%.100s' for '--%s': expected seconds such as 0.1 or "
			       "60, or a number with us, ms, s, m or h behind it, at least %g%s",
			       value, opt->name, opt->min < 1000 ? opt->min : opt->min / 1e3,
			       opt->min < 1000 ? "us" : "ms");
	return err_set(err, -EINVAL,
		       "invalid value '%.100s' for '--%s': expected seconds such as 0.1 or 60, or "
		       "a number with us, ms, s, m or h behind it",
		       value, opt->name);
}

int stack_parse_pids(struct args *a, const struct opt *opt, const char *value, struct err *err)
{
	struct stack_pids *pids = (struct stack_pids *)((char *)a->target + opt->offset);
	bool any = false;
	const char *item;
	int64_t pid;
	size_t len;

	while (command_next_item(&value, &item, &len)) {
		if (!len)
			continue;
		if (!number_read(item, len, &pid) || pid < 1 || pid > INT32_MAX)
			return err_set(err, -EINVAL,
				       "invalid value '%.*s' for '--%s': expected process ids, "
				       "such as 4711 or 4711,4712",
				       (int)(len < 100 ? len : 100), item, opt->name);
		stack_pid_add(pids, (pid_t)pid);
		any = true;
	}
	if (!any)
		return err_set(err, -EINVAL,
			       "option '--%s': empty pid list; expected process ids, such as 4711 "
			       "or 4711,4712",
			       opt->name);
	return 0;
}

int stack_parse_text(struct args *a, const struct opt *opt, const char *value, struct err *err)
{
	struct stack_texts *texts = (struct stack_texts *)((char *)a->target + opt->offset);

	if (!*value)
		return err_set(err, -EINVAL, "option '--%s' needs a value that is not empty",
			       opt->name);
	stack_text_add(texts, value);
	return 0;
}

/* --- the table --- */

#define AT(field) offsetof(struct stack_command_options, field)

static const char *const formats[] = {"chrome", "collapsed", "speedscope", "pprof", "svg", NULL};

static int parse_rate(struct args *a, const struct opt *opt, const char *value, struct err *err)
{
	struct stack_command_options *o = a->target;
	char *end = NULL;
	double hz = *value >= '0' && *value <= '9' ? strtod(value, &end) : 0;

	if (!end || *end || !(hz >= 0.001 && hz <= 100000))
		return err_set(err, -EINVAL,
			       "invalid value '%.100s' for '--%s': expected samples per second, "
			       "from 0.001 to 100000",
			       value, opt->name);
	o->s.interval_ns = (uint64_t)(1e9 / hz + 0.5);
	return 0;
}

const struct opt stack_option_rows[] = {
	COMMAND_HELP_OPTION,
	OPTION_FLAG("verbose", AT(s.verbose),
		    "Print more: what is found, what is tried again, how long things take.",
		    .letters = "v"),
	OPTION_FLAG("quiet", AT(quiet), "Print only what fails.", .letters = "q"),
	OPTION_FLAG("json", AT(json),
		    "Print the summary on stdout as JSON at the end instead of words on stderr."),

	STACK_WHICH_ROWS(AT(s), "5000"),
	OPTION_FLAG("debug-pid-discovery", AT(s.debug_discovery),
		    "Count processes with any amount of memory on a device, and print what was "
		    "found where."),
	STACK_SECONDS("refresh-interval", AT(s.refresh_ns), "30 for devices, 1 for other rules",
		      "How often to search for new processes.", .min = 1000),
	STACK_SECONDS("refresh-empty-interval", AT(s.refresh_empty_ns), "5",
		      "The same while there are none.", .min = 1000),
	STACK_SECONDS("empty-timeout", AT(s.empty_exit_ns), "180",
		      "Stop when no process was found for this long; 0: never."),

	STACK_SECONDS("interval", AT(s.interval_ns), "0.1",
		      "Time between two samples, also as 5ms or 200us.", .group = "Sampling",
		      .letters = "i", .min = 10),
	OPTION_CALL("rate", "HZ", parse_rate, 0, NULL,
		    "Samples per second, instead of --interval."),
	STACK_SECONDS("duration", AT(s.duration_ns), "until the processes end, or Ctrl-C",
		      "Stop after this time.", .letters = "d"),
	OPTION_FLAG("all-threads", AT(s.all_threads),
		    "Sample all Python threads, not only MainThread."),
	OPTION_FLAG("gil", AT(s.moments.gil),
		    "Only stacks of threads that have the GIL. Free-threaded Pythons have none."),
	OPTION_FLAG("running", AT(s.moments.running),
		    "Only stacks of threads that are on a processor or wait for one, and not of "
		    "those that sleep in the kernel. A system call per thread more."),
	OPTION_FLAG("native", AT(s.native),
		    "Functions of C and C++ between those of Python. Each sampled thread is "
		    "stopped for a moment every time."),
	OPTION_FLAG(
		"exact", AT(s.exact),
		"Verify at any sampling rate that every stack of a running thread was read at a "
		"single moment. The check runs on the processor of the thread and costs the thread "
		"some microseconds. Without this option it is made at up to 200 samples a second."),
	OPTION_FLAG("fast", AT(s.fast),
		    "Never make that check. Of the stacks of a thread that only calls short "
		    "functions some in a thousand then have a caller at a wrong line."),

	OPTION_FLAG(
		"npu-usage", AT(s.npu_usage),
		"Record AI core and HBM use of every NPU. A message is printed if there is no NPU.",
		.group = "Counters", .aliases = (const char *const[]){"npu-aicore-usage", NULL},
		.default_text = "on where there is an NPU"),
	OPTION_FLAG("gpu-usage", AT(s.gpu_usage),
		    "Record use and memory of every GPU. A message is printed if there is no GPU.",
		    .default_text = "on where there is a GPU"),
	OPTION_FLAG("cpu-mem-usage", AT(s.host_usage), "Memory of this host."),
	OPTION_FLAG("process-usage", AT(s.process_usage),
		    "CPU time and memory of each sampled process."),
	STACK_SECONDS("counter-interval", AT(s.counter_ns),
		      "the interval of the stacks, but at least 0.1",
		      "How often counters are read.", .min = 10000),
	OPTION_UINT("npu-smi-refresh-interval", "N", AT(npu_smi_refresh), 0, UINT_MAX, "1",
		    "Accepted for compatibility and ignored: all cards are read each time."),
	STACK_SECONDS("npu-smi-timeout", AT(s.npu_timeout_ns), "2.0",
		      "How long npu-smi may take, at least 0.1."),
	STACK_SECONDS("gpu-smi-timeout", AT(s.gpu_timeout_ns), "2.0",
		      "How long nvidia-smi may take, at least 0.1."),
	STACK_SECONDS("cpu-mem-timeout", AT(host_timeout_ns), "1.0",
		      "How long reading the host's memory may take, at least 0.1."),

	OPTION_TEXT("output", "FILE", AT(s.output), "stack_trace.json",
		    "The file that is written; its log is FILE.log.", .group = "Output",
		    .letters = "o"),
	OPTION_CHOICE("format", "FORMAT", formats, AT(s.format), "chrome",
		      "What is written. chrome: a timeline for Perfetto and chrome://tracing. "
		      "collapsed: counted stacks as text, for flame graphs. speedscope, pprof: the "
		      "same for these viewers. svg: a flame graph, opened in a browser."),
	OPTION_FLAG("gzip", AT(s.gzip), "Compress the timeline; so does a name that ends in .gz."),
	OPTION_FLAG("lines", AT(s.lines),
		    "A new line inside a function begins a new bar, and stacks differ by line."),
	{.name = "rotate-size",
	 .kind = OPT_SIZE,
	 .arg = "BYTES",
	 .min = 4096,
	 .offset = AT(s.rotate_bytes),
	 .help = "Begin a new file after this many bytes, such as 256M; full files get a number: "
		 "trace.1.json of trace.json, and so on."},
	STACK_SECONDS("rotate-time", AT(s.rotate_ns), NULL,
		      "Begin a new file after this much time, such as 1h.", .min = 100000),
	OPTION_UINT("keep", "N", AT(s.keep), 0, 1000000, "0, all",
		    "Files kept by rotation besides the one being written."),
	STACK_SECONDS("autosave-interval", AT(s.autosave_ns), "0, off",
		      "Save a complete copy this often under the name of --autosave-output. The "
		      "file of --output itself can be loaded at every moment."),
	OPTION_TEXT("autosave-output", "FILE", AT(s.autosave_output), "that of --output",
		    "Where --autosave-interval saves."),
	STACK_SECONDS("autosave-snapshot-interval", AT(s.snapshot_ns), "7200",
		      "Save a complete copy with the time in its name this often; 0: never. "
		      "SIGUSR1 makes one at once."),
	OPTION_TEXT("autosave-snapshot-output", "FILE", AT(s.snapshot_output), "that of --output",
		    "The name into which the time is put."),

	OPTION_FLAG("detach", AT(detach), "Go on in the background and return at once.",
		    .group = "In the background"),
	OPTION_FLAG("status", AT(status),
		    "Print whether what was started by --detach with the same --output or "
		    "--pid-file still runs; exit status 1 if nothing does."),
	OPTION_FLAG("stop", AT(stop), "End it: the job, if one was started, and the sampling."),
	OPTION_TEXT("pid-file", "FILE", AT(pid_file), "that of --output with .pids",
		    "Where --detach writes the process ids."),
	OPTION_TEXT("detach-log-file", "FILE", AT(detach_log), "that of --output with .wrapper.log",
		    "Where output of the job and messages go in the background."),
	OPTION_FLAG("dry-run", AT(dry_run), "Print what would be done, and do nothing."),
	OPTION_CALL("sniffer-arg", "WORD", stack_parse_text, AT(sniffer_args), NULL,
		    "A word of further options, for scripts that pass them this way. May be given "
		    "more than once."),
	OPTION_TEXT("python", "PROGRAM", AT(python), NULL,
		    "Accepted for compatibility and ignored."),
	OPTION_TEXT("sniffer-script", "FILE", AT(sniffer_script), NULL,
		    "Accepted for compatibility and ignored."),
	OPT_END,
};

/* --- what follows from other options --- */

void stack_command_options_init(struct stack_command_options *c)
{
	*c = (struct stack_command_options){.npu_smi_refresh = 1, .host_timeout_ns = SECOND};
	stack_options_init(&c->s);
}

void stack_command_options_release(struct stack_command_options *c)
{
	stack_options_release(&c->s);
	free(c->sniffer_args.list);
	free(c->output_made);
	free(c->pid_file_made);
	free(c->detach_log_made);
}

static char *default_output(const struct stack_command_options *c)
{
	static const char *const names[] = {"stack_trace.json", "stack_trace.txt",
					    "stack_trace.speedscope.json", "stack_trace.pb.gz",
					    "stack_trace.svg"};
	const char *name = names[c->s.format];

	return c->s.gzip && !text_ends_with(name, ".gz") ? xasprintf("%s.gz", name) : xstrdup(name);
}

static void complete_paths(struct stack_command_options *c)
{
	if (!c->s.output)
		c->s.output = c->output_made = default_output(c);
	else if (c->s.format == STACK_CHROME && text_ends_with(c->s.output, ".gz"))
		c->s.gzip = true;
	if (!c->s.autosave_output)
		c->s.autosave_output = c->s.output;
	if (!c->s.snapshot_output)
		c->s.snapshot_output = c->s.output;
	if (!c->pid_file)
		c->pid_file = c->pid_file_made = xasprintf("%s.pids", c->s.output);
	if (!c->detach_log)
		c->detach_log = c->detach_log_made = xasprintf("%s.wrapper.log", c->s.output);
}

static uint64_t at_least(uint64_t v, uint64_t least)
{
	return v < least ? least : v;
}

static int apply_sniffer_args(struct stack_command_options *c, struct args *a, struct err *err)
{
	struct args_spec spec = *a->spec;
	struct args inner = {.target = c};
	struct err why = {0};

	if (!c->sniffer_args.n)
		return 0;
	spec.flags = 0;
	spec.min_words = spec.max_words = 0;
	/* the words live in argv, so what is borrowed from them stays */
	int r = args_parse(&inner, &spec, (int)c->sniffer_args.n, (char **)c->sniffer_args.list,
			   &why);
	if (r >= 0 && inner.stopped)
		r = err_set(&why, -EINVAL, "'--%s' has no meaning there", inner.stopped->name);
	args_release(&inner);
	return r < 0 ? err_set(err, r, "--sniffer-arg: %.400s", why.text) : 0;
}

int stack_command_options_complete(struct stack_command_options *c, struct args *a, struct err *err)
{
	int r = apply_sniffer_args(c, a, err);

	if (r < 0)
		return r;
	if (c->python || c->sniffer_script)
		args_notice(
			a, "--python and --sniffer-script are not needed: sonde samples by itself");
	if (c->s.gzip && c->s.format != STACK_CHROME)
		return err_set(
			err, -EINVAL,
			"--gzip goes with --format chrome only; pprof files are always gzip");
	if ((c->s.rotate_bytes || c->s.rotate_ns) && c->s.format != STACK_CHROME)
		return err_set(err, -EINVAL,
			       "--rotate-size and --rotate-time go with --format chrome only");
	if (c->detach + c->status + c->stop > 1)
		return err_set(err, -EINVAL, "only one of --detach, --status and --stop");
	if (c->s.debug_discovery)
		c->s.min_npu_mb = c->s.min_gpu_mb = 0;
	c->s.npu_timeout_ns = at_least(c->s.npu_timeout_ns, TIMEOUT_LEAST);
	c->s.gpu_timeout_ns = at_least(c->s.gpu_timeout_ns, TIMEOUT_LEAST);
	c->host_timeout_ns = at_least(c->host_timeout_ns, TIMEOUT_LEAST);
	complete_paths(c);
	return 0;
}
