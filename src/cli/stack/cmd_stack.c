/* SPDX-License-Identifier: MulanPSL-2.0 */
/* sonde stack: the Python stacks of running processes over time; and sonde stack run. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/text/printable.h"
#include "cli/command.h"
#include "cli/stack/options.h"
#include "launch/program.h"
#include "sampler/session/background.h"
#include "sampler/session/run.h"

#define LINE_EVERY_NS 500000000u

/* One run of either command. */
struct stack_command {
	const struct command *cmd;
	struct stack_command_options o;
	char **words; /* of the job; NULL: there is none */
	bool line_shown; /* the one that overwrites itself */
	uint64_t next_line_ns;
};

/* As a shell reports that a command cannot be run. */
static int exit_status(enum stack_outcome outcome)
{
	static const int statuses[] = {[STACK_DONE] = EXIT_DONE,
				       [STACK_NOT_FOUND] = EXIT_NOT_FOUND,
				       [STACK_NOT_EXECUTABLE] = EXIT_NOT_EXECUTABLE,
				       [STACK_FAILED] = EXIT_FAILED};

	return statuses[outcome];
}

/* --- messages --- */

static void show_message(void *arg, enum stack_message kind, const char *text)
{
	struct stack_command *c = arg;

	if (kind != STACK_WARNING && (c->o.quiet || (kind == STACK_DETAIL && !c->o.s.verbose)))
		return;
	fprintf(stderr, "%s%s: %s\n", c->line_shown ? "\r\033[K" : "", c->cmd->spec.name, text);
	c->line_shown = false;
}

/* One line on a terminal that overwrites itself. With a job the terminal is the job's. */
static void show_progress(void *arg, const struct stack_session *s, uint64_t now_ns)
{
	const struct stack_totals *t = &s->totals;
	struct stack_command *c = arg;

	if (now_ns < c->next_line_ns || c->o.quiet || s->job || !isatty(STDERR_FILENO))
		return;
	unsigned open = targets_open(s->targets);
	c->next_line_ns = now_ns + LINE_EVERY_NS;
	c->line_shown = true;
	fprintf(stderr, "\r\033[K%.1f s: %u process%s, %" PRIu64 " round%s, %" PRIu64 " stack%s",
		(double)(now_ns - s->start_ns) / 1e9, open, open == 1 ? "" : "es", t->rounds,
		t->rounds == 1 ? "" : "s", t->samples, t->samples == 1 ? "" : "s");
	if (t->skipped)
		fprintf(stderr, ", %" PRIu64 " ticks skipped", t->skipped);
	fflush(stderr);
}

/* --- the report at the end --- */

static const char *const formats[] = {"chrome", "collapsed", "speedscope", "pprof", "svg"};
static const char *const viewers[] = {
	"open it at https://ui.perfetto.dev or in chrome://tracing",
	"make a flame graph of it, or open it at https://www.speedscope.app",
	"open it at https://www.speedscope.app", "open it with 'go tool pprof -http=: FILE'",
	"open it in a browser"};

static double session_seconds(const struct stack_session *s)
{
	return (double)(s->end_ns - s->start_ns) / 1e9;
}

static void add_bytes(struct buf *out, uint64_t bytes)
{
	if (bytes < 10000)
		buf_addf(out, "%" PRIu64 " bytes", bytes);
	else if (bytes < 10000000)
		buf_addf(out, "%.1f kB", (double)bytes / 1e3);
	else
		buf_addf(out, "%.1f MB", (double)bytes / 1e6);
}

/* A count of struct stack_totals: its key in JSON, and its words if the text names it, too. */
struct count_field {
	const char *key;
	size_t offset;
	const char *one, *many;
};
#define COUNT(member) offsetof(struct stack_totals, member)

static const struct count_field sampled_fields[] = {
	{"rounds", COUNT(rounds), NULL, NULL},
	{"process_samples", COUNT(captures), NULL, NULL},
	{"thread_samples", COUNT(samples), NULL, NULL},
	{"missed", COUNT(missed), "missed", "missed"},
	{"retried", COUNT(retries), "copied more than once because it changed",
	 "copied more than once because they changed"},
	{"skipped_ticks", COUNT(skipped), "tick skipped", "ticks skipped"},
	{"torn", COUNT(torn), NULL, NULL},
	{"system_calls", COUNT(calls), NULL, NULL},
	{"native_failed", COUNT(native_failed), "without native frames", "without native frames"},
	{NULL, 0, NULL, NULL},
};
static const struct count_field file_fields[] = {
	{"bytes", COUNT(bytes), NULL, NULL},
	{"events", COUNT(events), NULL, NULL},
	{"counters", COUNT(counters), NULL, NULL},
	{"counters_lost", COUNT(counters_lost), "counter lost", "counters lost"},
	{"copies", COUNT(saves), NULL, NULL},
	{"rss_bytes", COUNT(rss_bytes), NULL, NULL},
	{NULL, 0, NULL, NULL},
};

static uint64_t count_of(const struct stack_totals *t, const struct count_field *f)
{
	return *(const uint64_t *)((const char *)t + f->offset);
}

static void add_counts(struct buf *out, const struct stack_totals *t, const struct count_field *f)
{
	for (; f->key; f++) {
		uint64_t n = count_of(t, f);

		if (f->one && n)
			buf_addf(out, ", %" PRIu64 " %s", n, n == 1 ? f->one : f->many);
	}
}

static void set_counts(json_t *o, const struct stack_totals *t, const struct count_field *f)
{
	for (; f->key; f++)
		json_object_set_new(o, f->key, json_integer((json_int_t)count_of(t, f)));
}

/* Did the person describe processes, and there was none? Those named by -p may have ended; those of
 * devices may come later. */
static bool matched_nobody(const struct stack_session *s)
{
	const struct stack_options *o = s->o;

	return !s->job && !s->totals.processes && !s->totals.refused && !o->pids.n &&
	       (o->names.n || o->parents.n || o->cgroups.n || o->all_python);
}

static const char *end_words(const struct stack_session *s)
{
	const struct stack_totals *t = &s->totals;

	if (s->end == STACK_END_GONE && !t->processes && !t->refused)
		return "none of the processes runs";
	if (s->end == STACK_END_GONE && t->processes)
		return "all processes have ended";
	if (s->end == STACK_END_JOB && !t->processes)
		return "the job has run no Python that could be sampled";
	if (matched_nobody(s))
		return "no Python process matched --name, --parent, --cgroup or --all-python";
	return NULL;
}

static void add_place(struct buf *out, const struct stack_frame *f)
{
	const char *slash = strrchr(f->file, '/');

	text_add_printable(out, f->name, strlen(f->name));
	buf_add_str(out, " (");
	text_add_printable(out, slash ? slash + 1 : f->file, strlen(slash ? slash + 1 : f->file));
	buf_addf(out, ":%d)", (int)f->line);
}

/* Steps that nobody counts: of the process in which the most have been seen. */
static const struct stack_steps *most_steps(const struct stack_session *s)
{
	const struct stack_steps *most = NULL;

	for (size_t i = 0; i < s->nsteps; i++)
		if (!most || s->steps[i].guess.seen > most->guess.seen)
			most = &s->steps[i];
	return most;
}

static void print_steps(struct stack_session *s)
{
	const struct stack_steps *one = most_steps(s);
	struct buf line = {0};

	if (!one)
		return;
	double ms = (double)step_guess_mean_ns(&one->guess) / 1e6;
	if (!one->guess.seen) {
		buf_add_str(&line, "no steps in the timeline: nobody counts them in this job");
	} else if (step_guess_is_sure(&one->guess)) {
		buf_addf(&line, "process %d ended %" PRIu64 " steps, one each %.1f ms, in ",
			 (int)one->pid, one->guess.seen, ms);
		add_place(&line, &one->guess.line);
		buf_add_str(&line, ", as samples show them");
	} else {
		buf_addf(&line,
			 "the optimizer of process %d was seen to step %" PRIu64 " time%s, in ",
			 (int)one->pid, one->guess.seen, one->guess.seen == 1 ? "" : "s");
		add_place(&line, &one->guess.line);
		buf_add_str(&line, one->guess.several_lines
					   ? " and elsewhere; how many steps that are is not known"
					   : "; more between samples are possible");
	}
	if (!one->guess.seen || !step_guess_is_sure(&one->guess))
		buf_add_str(&line, "; 'sonde record' and 'sonde monitor' count steps from the "
				   "start of a job on");
	stack_session_notice(s, STACK_INFO, "%s", buf_str(&line));
	buf_release(&line);
}

static json_t *steps_json(const struct stack_session *s)
{
	json_t *list = json_array();

	for (size_t i = 0; i < s->nsteps; i++) {
		const struct stack_steps *one = &s->steps[i];
		struct buf where = {0};

		if (!one->guess.seen)
			continue;
		add_place(&where, &one->guess.line);
		json_array_append_new(
			list, json_pack("{s:i, s:i, s:I, s:f, s:s, s:s}", "pid", (int)one->pid,
					"rank", one->rank, "seen", (json_int_t)one->guess.seen,
					"every_s", (double)step_guess_mean_ns(&one->guess) / 1e9,
					"line", buf_str(&where), "confidence",
					step_guess_is_sure(&one->guess) ? "high" : "low"));
		buf_release(&where);
	}
	return list;
}

static void print_report(struct stack_session *s)
{
	const struct stack_totals *t = &s->totals;
	struct buf line = {0};

	if (s->end == STACK_END_EMPTY)
		stack_session_notice(s, STACK_INFO, "no process was found for %.0f s",
				     (double)s->o->empty_exit_ns / 1e9);
	else if (end_words(s))
		stack_session_notice(s, STACK_INFO, "%s", end_words(s));
	buf_addf(&line, "%u process%s, %" PRIu64 " round%s in %.1f s, %" PRIu64 " stack%s",
		 t->processes, t->processes == 1 ? "" : "es", t->rounds, t->rounds == 1 ? "" : "s",
		 session_seconds(s), t->samples, t->samples == 1 ? "" : "s");
	add_counts(&line, t, sampled_fields);
	add_counts(&line, t, file_fields);
	if (t->rounds)
		buf_addf(&line, "; %.1f %% of one processor", 100 * t->cpu_s / session_seconds(s));
	stack_session_notice(s, STACK_INFO, "%s", buf_str(&line));
	print_steps(s);
	buf_clear(&line);
	buf_addf(&line, "wrote '%s' (", s->o->output);
	add_bytes(&line, t->bytes);
	buf_addf(&line, "); %s", t->samples ? viewers[s->o->format] : "no stacks are in it");
	stack_session_notice(s, STACK_INFO, "%s", buf_str(&line));
	buf_release(&line);
}

static json_t *report_json(const struct stack_session *s)
{
	static const char *const ends[] = {"none",  "duration", "signal", "processes ended",
					   "empty", "job",	"output"};
	const struct stack_totals *t = &s->totals;
	double rounds = t->rounds ? (double)t->rounds : 1;
	json_t *output = json_string(s->o->output);
	json_t *sampled = json_pack("{s:f, s:f}", "skew_mean_us", (double)t->skew_ns / rounds / 1e3,
				    "skew_max_us", (double)t->skew_max_ns / 1e3);

	set_counts(sampled, t, sampled_fields);
	json_t *o = json_pack("{s:o, s:s, s:s, s:f, s:f, s:i, s:i, s:f, s:o}", "output",
			      output ? output : json_string("?"), "format", formats[s->o->format],
			      "ended_by", ends[s->end], "seconds", session_seconds(s), "interval_s",
			      (double)s->o->interval_ns / 1e9, "processes", (int)t->processes,
			      "refused", (int)t->refused, "cpu_s", t->cpu_s, "sampled", sampled);
	set_counts(o, t, file_fields);
	json_object_set_new(o, "steps", steps_json(s));
	if (s->job && s->job->ended)
		json_object_set_new(o, "job_status", json_integer(s->job->status));
	return o;
}

/* --- --dry-run --- */

static void add_pids(struct buf *out, const char *what, const struct stack_pids *pids)
{
	for (unsigned i = 0; i < pids->n; i++)
		buf_addf(out, "%s%d", i ? "," : what, (int)pids->list[i]);
	if (pids->n)
		buf_add_char(out, '\n');
}

static void add_plan(const struct stack_command *c, struct buf *out)
{
	const struct stack_options *o = &c->o.s;

	if (c->words) {
		buf_add_str(out, "job:");
		for (int i = 0; c->words[i]; i++)
			buf_addf(out, " %s", c->words[i]);
		buf_add_str(out, "\nprocesses: the job and all its descendants\n");
	} else if (!o->pids.n && !o->parents.n && !o->names.n && !o->cgroups.n && !o->all_python) {
		buf_add_str(out, "processes: those that use an NPU, or else a GPU\n");
	}
	add_pids(out, "processes: ", &o->pids);
	add_pids(out, "descendants of: ", &o->parents);
	for (unsigned i = 0; i < o->names.n; i++)
		buf_addf(out, "processes with '%s' in their command line\n", o->names.list[i]);
	for (unsigned i = 0; i < o->cgroups.n; i++)
		buf_addf(out, "processes of cgroup or container '%s'\n", o->cgroups.list[i]);
	if (o->all_python)
		buf_add_str(out, "processes: all that run Python\n");
	buf_addf(out, "interval: %g s\nthreads: %s%s%s\noutput: %s (%s)\nlog: %s.log\n",
		 (double)o->interval_ns / 1e9, o->all_threads ? "all" : "MainThread",
		 o->moments.gil ? ", with the GIL" : "", o->moments.running ? ", running" : "",
		 o->output, formats[o->format], o->output);
	if (o->duration_ns)
		buf_addf(out, "duration: %g s\n", (double)o->duration_ns / 1e9);
	if (c->o.detach)
		buf_addf(out, "in the background, pids in: %s, messages in: %s\n", c->o.pid_file,
			 c->o.detach_log);
}

static int print_plan(struct stack_command *c)
{
	struct buf text = {0};

	add_plan(c, &text);
	json_t *words = c->o.json ? json_string(buf_str(&text)) : NULL;
	int status = words ? command_print_json(c->cmd, json_pack("{s:o}", "plan", words))
			   : command_print(c->cmd, &text);
	buf_release(&text);
	return status;
}

/* --- in the background --- */

static json_t *tracked_json(const struct stack_tracked *t, const bool *runs)
{
	if (!t->pid)
		return json_null();
	return json_pack("{s:i, s:b}", "pid", (int)t->pid, "running", runs ? *runs : true);
}

static void add_tracked(struct buf *out, const char *name, const struct stack_tracked *t,
			const bool *runs)
{
	const char *state = !runs ? "" : *runs ? " running" : " ended";

	if (t->pid)
		buf_addf(out, "%s_pid=%d%s\n", name, (int)t->pid, state);
}

/* The lines that scripts know, or JSON. Without `job` and `sampler` they have just been started. */
static int print_pids(const struct stack_command *c, const struct stack_pidfile *p, const bool *job,
		      const bool *sampler)
{
	struct buf text = {0};

	if (c->o.json)
		return command_print_json(c->cmd, json_pack("{s:o, s:o}", "main",
							    tracked_json(&p->job, job), "sniffer",
							    tracked_json(&p->sampler, sampler)));
	add_tracked(&text, "main", &p->job, job);
	add_tracked(&text, "sniffer", &p->sampler, sampler);
	int status = command_print(c->cmd, &text);
	buf_release(&text);
	return status;
}

/* Negative: this is the process in the background, go on. Otherwise the exit status. */
static int go_background(const struct stack_command *c, int *out_ready)
{
	struct stack_started s;
	struct err err = {0};
	int r = stack_background_start(c->o.pid_file, c->o.detach_log, out_ready, &s, &err);

	if (r > 0)
		return -1;
	if (r == -EEXIST)
		err_set(&err, r,
			"process %d samples into '%s' already; end it with --stop, or choose "
			"another --output",
			(int)s.pids.sampler.pid, c->o.s.output);
	if (r < 0)
		return command_fail(c->cmd, &err, EXIT_FAILED);
	if (s.status != STACK_DONE)
		return command_fail(c->cmd, &s.err, exit_status((enum stack_outcome)s.status));
	int status = print_pids(c, &s.pids, NULL, NULL);
	if (!c->o.quiet)
		fprintf(stderr,
			"%s: in the background; '--status' and '--stop' with '-o %s' show and end "
			"it\n",
			c->cmd->spec.name, c->o.s.output);
	return status;
}

/* --status and --stop */
static int control_background(const struct stack_command *c)
{
	const char *name = c->cmd->spec.name;
	struct stack_pidfile p = {0};
	struct err err = {0};

	stack_pidfile_read(c->o.pid_file, &p, NULL);
	bool job = stack_tracked_runs(&p.job), sampler = stack_tracked_runs(&p.sampler);
	bool runs = job || sampler;
	if (!runs && (c->o.stop || !c->o.json)) {
		fprintf(stderr, "%s: no process of '%s' runs\n", name, c->o.pid_file);
		return EXIT_FAILED;
	}
	if (c->o.status) {
		int status = print_pids(c, &p, &job, &sampler);

		return runs ? status : EXIT_FAILED;
	}
	if (stack_pidfile_trust(c->o.pid_file, &p, &err) < 0)
		return command_fail(c->cmd, &err, EXIT_FAILED);
	if (!stack_background_stop(&p))
		fprintf(stderr, "%s: the %s has not ended yet\n", name,
			stack_tracked_runs(&p.sampler) ? "sampler" : "job");
	else if (!c->o.quiet)
		fprintf(stderr, "%s: ended; the samples are in '%s'\n", name, c->o.s.output);
	return EXIT_DONE;
}

/* --- running --- */

/* It has been sampled. The exit status. */
static int print_end(struct stack_command *c, struct stack_run *r)
{
	struct stack_session *s = &r->session;
	int status = EXIT_DONE;

	if (c->o.json)
		status = command_print_json(c->cmd, report_json(s));
	else
		print_report(s);
	if (status == EXIT_DONE &&
	    ((s->totals.refused && !s->totals.processes) || matched_nobody(s)))
		status = EXIT_FAILED;
	return status;
}

static int run_command(struct stack_command *c)
{
	struct stack_run r = {
		.session = {.o = &c->o.s,
			    .show = show_message,
			    .show_progress = show_progress,
			    .arg = c},
		.o = &c->o.s,
		.words = c->words,
		.detached = c->o.detach,
		.ready = -1,
		.pid_file = c->o.pid_file,
	};
	struct buf found = {0};
	struct err err = {0};

	if (c->words && launch_find_program(c->words[0], &found, &err) < 0)
		return command_fail(c->cmd, &err, exit_status(stack_job_outcome(err.code)));
	buf_release(&found);
	int status = c->o.detach ? go_background(c, &r.ready) : -1;
	if (status >= 0)
		return status;
	enum stack_outcome outcome = stack_run_sample(&r, &err);
	status = outcome == STACK_DONE ? print_end(c, &r)
				       : command_fail(c->cmd, &err, exit_status(outcome));
	stack_run_end(&r);
	return r.job.ended ? r.job.status : status;
}

static int run_either(const struct command *cmd, int argc, char **argv, bool job)
{
	struct stack_command c = {.cmd = cmd};
	struct args a = {.target = &c.o};
	struct err err = {0};

	stack_command_options_init(&c.o);
	int status = command_parse(cmd, &a, argc, argv);
	if (status >= 0)
		goto out;
	int r = stack_command_options_complete(&c.o, &a, &err);
	if (r == 0 && !c.o.quiet)
		command_notices(cmd, &a);
	if (r == 0 && job && !a.nwords && !c.o.status && !c.o.stop)
		r = err_set(&err, -EINVAL, "which command? usage: %s %s", cmd->spec.name,
			    cmd->spec.usage[0]);
	c.words = a.nwords ? a.words : NULL;
	if (r < 0)
		status = command_fail(cmd, &err, EXIT_USAGE);
	else if (c.o.status || c.o.stop)
		status = control_background(&c);
	else
		status = c.o.dry_run ? print_plan(&c) : run_command(&c);
out:
	args_release(&a);
	stack_command_options_release(&c.o);
	return status;
}

static int stack_run_run(const struct command *cmd, int argc, char **argv)
{
	return run_either(cmd, argc, argv, true);
}

static int stack_run(const struct command *cmd, int argc, char **argv)
{
	/* under its other name, where main() has not searched for a second word */
	if (argc && !strcmp(argv[0], "run"))
		return run_either(&cmd_stack_run, argc - 1, argv + 1, true);
	if (argc && !strcmp(argv[0], "live"))
		return cmd_stack_live.run(&cmd_stack_live, argc - 1, argv + 1);
	return run_either(cmd, argc, argv, false);
}

static const char *const stack_usage[] = {
	"[-p PID[,PID]] [-i SECONDS] [-d SECONDS] [-o FILE] [options]",
	"run [options] -- command [arguments]",
	"live [-p PID[,PID] | --name TEXT | --parent PID | -a] [options]",
	"--status|--stop [-o FILE]", NULL};
static const struct args_example stack_examples[] = {
	{"all processes on the NPUs of this node, once a minute, until Ctrl-C",
	 "sonde stack -i 60 --npu-usage --cpu-mem-usage --all-threads"},
	{"two processes, 100 times per second for ten seconds",
	 "sonde stack -p 44002,44003 -i 0.01 -d 10 -o trace.json"},
	{"a job from its first moment on, with all its workers",
	 "sonde stack run -o trace.json -- torchrun --nproc-per-node 8 train.py"},
	{"a flame graph of all threads, with functions of C",
	 "sonde stack -p 44002 --rate 200 -d 30 --all-threads --native --format collapsed -o "
	 "stacks.txt"},
	{"in the background for days, the last ten hours kept",
	 "sonde stack --name train.py --detach --gzip --rotate-time 1h --keep 10"},
	{NULL, NULL},
};
static const struct args_section stack_sections[] = {
	{"FILES",
	 "  FILE             the timeline, or the profile\n"
	 "  FILE.log         messages, and how long everything took\n"
	 "  FILE.pids        the process ids in the background\n"
	 "  FILE.wrapper.log what a job in the background prints\n\n"
	 "A timeline can be loaded at every moment, also after the sampler was killed. Viewers "
	 "take it as it is. For other readers of JSON one character may be missing at its end: ']' "
	 "if the file begins with a blank, '}' if it begins with a brace."},
	{"SIGNALS", "SIGINT, SIGTERM and SIGHUP end the sampling and complete the file. SIGUSR1 "
		    "saves a copy with the time in its name at once. 'run' passes signals on to "
		    "the job and ends when the job does."},
	{"EXIT STATUS",
	 "0 when the file is complete, also after Ctrl-C; 1 when it failed, or when none of the "
	 "processes named could be read, or nobody matched --name, --parent, --cgroup or "
	 "--all-python (the file is then complete and empty); 2 when the command line was wrong. "
	 "'run' gives the exit "
	 "status of the job, 128 and the signal if one killed it, 127 if it was not found and 126 "
	 "if it could not be run. --status gives 1 when nothing runs."},
	{"SEE ALSO", "sonde(1), sonde-snap(1)"},
	{NULL, NULL},
};

const struct command cmd_stack = {
	.name = "stack",
	.alias = "python_stack_sniffer",
	.page = "sonde-stack",
	.spec = {.name = "sonde stack",
		 .summary = "sample the Python stacks of running processes as a timeline",
		 .description =
			 "Samples the stacks of any number of Python processes many times per "
			 "second, without stopping or changing them, and writes what ran when as "
			 "one timeline, together with what NPUs, GPUs and the host do. 'run' "
			 "starts a job and samples it and all its descendants.\n\n"
			 "Without -p or another rule those processes are sampled that use an NPU, "
			 "or else a GPU; new ones are sampled, too. The command ends when "
			 "there has been no such process for three minutes.",
		 .usage = stack_usage,
		 .options = stack_option_rows,
		 .examples = stack_examples,
		 .sections = stack_sections},
	.run = stack_run,
};

static const char *const run_usage[] = {"[options] -- command [arguments]",
					"--status|--stop [-o FILE]", NULL};
static const struct args_example run_examples[] = {
	{"a job with all its workers",
	 "sonde stack run -o trace.json -- torchrun --nproc-per-node 8 train.py"},
	{"the same in the background", "sonde stack run --detach -o trace.json -- python train.py"},
	{"does it still run", "sonde stack run --status -o trace.json"},
	{NULL, NULL},
};

const struct command cmd_stack_run = {
	.name = "stack run",
	.spec = {.name = "sonde stack run",
		 .summary = "start a job and sample its Python stacks",
		 .description = "Starts the command with the same files, terminal and signals as "
				"without sonde, samples it and all its descendants, and "
				"ends with its exit status. Takes the options of 'sonde stack'.",
		 .usage = run_usage,
		 .options = stack_option_rows,
		 .examples = run_examples,
		 .flags = ARGS_STOP_AT_WORD,
		 .max_words = -1},
	.run = stack_run_run,
};
