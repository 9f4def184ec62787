/* SPDX-License-Identifier: MulanPSL-2.0 */
/* The option table of `sonde stack`: names and defaults that scripts know, and ours beside them. */
#include <errno.h>
#include <limits.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "cli/command.h"
#include "cli/stack/which.h"

#define AT(field) .offset = offsetof(struct stack_options, field)
#define SECONDS(field) .kind = OPT_CALL, .arg = "SECONDS", .parse = stack_parse_seconds, AT(field)
#define FLAG(field) .kind = OPT_FLAG, AT(field)
#define PATH_OPTION(field) .kind = OPT_TEXT, .arg = "FILE", AT(field)

static const char *const formats[] = {"chrome", "collapsed", "speedscope", "pprof", NULL};

static int parse_rate(struct args *a, const struct opt *opt, const char *value, struct err *err)
{
	struct stack_options *o = a->target;
	char *end = NULL;
	double hz = *value >= '0' && *value <= '9' ? strtod(value, &end) : 0;

	if (!end || *end || !(hz >= 0.001 && hz <= 100000))
		return err_set(err, -EINVAL,
			       "invalid value '%.100s' for '--%s': expected samples per second, "
			       "from 0.001 to 100000",
			       value, opt->name);
	o->interval_ns = (uint64_t)(1e9 / hz + 0.5);
	return 0;
}

const struct opt stack_option_rows[] = {
	COMMAND_HELP_OPTION,
	{.name = "verbose",
	 .letters = "v",
	 FLAG(verbose),
	 .help = "Say more: what is found, what is tried again, how long things take."},
	{.name = "quiet", .letters = "q", FLAG(quiet), .help = "Say only what fails."},
	{.name = "json",
	 FLAG(json),
	 .help = "Print the summary on stdout as JSON at the end instead of words on stderr."},

	STACK_WHICH_ROWS(0, "5000"),
	{.name = "debug-pid-discovery",
	 FLAG(debug_discovery),
	 .help = "Count processes with any amount of memory on a device, and tell what was found "
		 "where."},
	{.name = "refresh-interval",
	 SECONDS(refresh_ns),
	 .min = 1000,
	 .default_text = "30 for devices, 1 for other rules",
	 .help = "How often to look for new processes."},
	{.name = "refresh-empty-interval",
	 SECONDS(refresh_empty_ns),
	 .min = 1000,
	 .default_text = "5",
	 .help = "The same while there are none."},
	{.name = "empty-timeout",
	 SECONDS(empty_exit_ns),
	 .default_text = "180",
	 .help = "Stop when no process was found for so long; 0: never."},

	{.group = "Sampling",
	 .name = "interval",
	 .letters = "i",
	 SECONDS(interval_ns),
	 .min = 10,
	 .default_text = "0.1",
	 .help = "Time between two samples, also as 5ms or 200us."},
	{.name = "rate",
	 .kind = OPT_CALL,
	 .arg = "HZ",
	 .parse = parse_rate,
	 .help = "Samples per second; another way to say --interval."},
	{.name = "duration",
	 .letters = "d",
	 SECONDS(duration_ns),
	 .default_text = "until the processes end, or Ctrl-C",
	 .help = "Stop after this time."},
	{.name = "all-threads",
	 FLAG(all_threads),
	 .help = "Sample all Python threads, not only MainThread."},
	{.name = "native",
	 FLAG(native),
	 .help = "Functions of C and C++ between those of Python. Each sampled thread is stopped "
		 "for a moment every time."},
	{.name = "exact",
	 FLAG(exact),
	 .help = "Prove that the stacks of running threads are of one moment, at any rate. The "
		 "proof "
		 "is made on the processor of the thread and costs it some microseconds; it is "
		 "made "
		 "anyway at up to 200 samples a second."},
	{.name = "fast",
	 FLAG(fast),
	 .help = "Never make that proof. Of the stacks of a thread that only calls short functions "
		 "some in a thousand then have a caller at a wrong line."},

	{.group = "Counters",
	 .name = "npu-usage",
	 FLAG(npu_usage),
	 .aliases = (const struct opt_alias[]){{"npu-aicore-usage", false}, {NULL, false}},
	 .default_text = "on where there is an NPU",
	 .help = "AI core and HBM use of every NPU. Says so if there is none."},
	{.name = "gpu-usage",
	 FLAG(gpu_usage),
	 .default_text = "on where there is a GPU",
	 .help = "Use and memory of every GPU. Says so if there is none."},
	{.name = "cpu-mem-usage", FLAG(host_usage), .help = "Memory of this host."},
	{.name = "process-usage",
	 FLAG(process_usage),
	 .help = "CPU time and memory of each sampled process."},
	{.name = "counter-interval",
	 SECONDS(counter_ns),
	 .min = 10000,
	 .default_text = "the interval of the stacks, but at least 0.1",
	 .help = "How often counters are read."},
	{.name = "npu-smi-refresh-interval",
	 .kind = OPT_UINT,
	 .arg = "N",
	 .max = UINT_MAX,
	 AT(npu_smi_refresh),
	 .default_text = "1",
	 .help = "Accepted for scripts that have it; all cards are read each time."},
	{.name = "npu-smi-timeout",
	 SECONDS(npu_timeout_ns),
	 .default_text = "2.0",
	 .help = "How long npu-smi may take, at least 0.1."},
	{.name = "gpu-smi-timeout",
	 SECONDS(gpu_timeout_ns),
	 .default_text = "2.0",
	 .help = "How long nvidia-smi may take, at least 0.1."},
	{.name = "cpu-mem-timeout",
	 SECONDS(host_timeout_ns),
	 .default_text = "1.0",
	 .help = "How long reading the host's memory may take, at least 0.1."},

	{.group = "Output",
	 .name = "output",
	 .letters = "o",
	 PATH_OPTION(output),
	 .default_text = "stack_trace.json",
	 .help = "The file that is written; its log is FILE.log."},
	{.name = "format",
	 .kind = OPT_CHOICE,
	 .arg = "FORMAT",
	 .choices = formats,
	 AT(format),
	 .default_text = "chrome",
	 .help = "What is written. chrome: a timeline for Perfetto and chrome://tracing. "
		 "collapsed: counted stacks "
		 "as text, for flame graphs. speedscope, pprof: the same for these viewers."},
	{.name = "gzip",
	 FLAG(gzip),
	 .help = "Compress the timeline; so does a name that ends in .gz."},
	{.name = "lines",
	 FLAG(lines),
	 .help = "A new line inside a function begins a new bar, and lines tell stacks apart."},
	{.name = "rotate-size",
	 .kind = OPT_SIZE,
	 .arg = "BYTES",
	 .min = 4096,
	 AT(rotate_bytes),
	 .help = "Begin a new file after so many bytes, such as 256M; full ones get a number: "
		 "trace.1.json of trace.json, and so on."},
	{.name = "rotate-time",
	 SECONDS(rotate_ns),
	 .min = 100000,
	 .help = "The same after so much time, such as 1h."},
	{.name = "keep",
	 .kind = OPT_UINT,
	 .arg = "N",
	 .max = 1000000,
	 AT(keep),
	 .default_text = "0, all",
	 .help = "Files kept by rotation besides the one being written."},
	{.name = "autosave-interval",
	 SECONDS(autosave_ns),
	 .default_text = "0, off",
	 .help = "Save a complete copy this often under the name of --autosave-output. The file of "
		 "--output itself can be loaded at every moment."},
	{.name = "autosave-output",
	 PATH_OPTION(autosave_output),
	 .default_text = "that of --output",
	 .help = "Where --autosave-interval saves."},
	{.name = "autosave-snapshot-interval",
	 SECONDS(snapshot_ns),
	 .default_text = "7200",
	 .help = "Save a complete copy with the time in its name this often; 0: never. SIGUSR1 "
		 "makes one at once."},
	{.name = "autosave-snapshot-output",
	 PATH_OPTION(snapshot_output),
	 .default_text = "that of --output",
	 .help = "The name into which the time is put."},

	{.group = "In the background",
	 .name = "detach",
	 FLAG(detach),
	 .help = "Go on in the background and return at once."},
	{.name = "status",
	 FLAG(status),
	 .help = "Tell whether what was started by --detach with the same --output or --pid-file "
		 "still runs; exit status 1 if nothing does."},
	{.name = "stop",
	 FLAG(stop),
	 .help = "End it: the job, if one was started, and the sampling."},
	{.name = "pid-file",
	 PATH_OPTION(pid_file),
	 .default_text = "that of --output with .pids",
	 .help = "Where --detach writes down who runs."},
	{.name = "detach-log-file",
	 PATH_OPTION(detach_log),
	 .default_text = "that of --output with .wrapper.log",
	 .help = "Where output of the job and messages go in the background."},
	{.name = "dry-run", FLAG(dry_run), .help = "Tell what would be done, and do nothing."},
	{.name = "sniffer-arg",
	 .kind = OPT_CALL,
	 .arg = "WORD",
	 .parse = stack_parse_text,
	 AT(sniffer_args),
	 .help = "A word of further options, for scripts that pass them this way. May be given "
		 "more "
		 "than once."},
	{.name = "python",
	 .kind = OPT_TEXT,
	 .arg = "PROGRAM",
	 AT(python),
	 .help = "Accepted for scripts that have it; not needed."},
	{.name = "sniffer-script",
	 PATH_OPTION(sniffer_script),
	 .help = "Accepted for scripts that have it; not needed."},
	OPT_END,
};
