/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "cli/stack/report.h"

#include <inttypes.h>

#include "base/mem.h"
#include "cli/stack/messages.h"

static const char *const formats[] = {"chrome", "collapsed", "speedscope", "pprof"};
static const char *const viewers[] = {
	"open it at https://ui.perfetto.dev or in chrome://tracing",
	"make a flame graph of it, or open it at https://www.speedscope.app",
	"open it at https://www.speedscope.app", "open it with 'go tool pprof -http=: FILE'"};

static double seconds(const struct stack_session *s)
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

static void add_count(struct buf *out, uint64_t n, const char *one, const char *many)
{
	if (n)
		buf_addf(out, ", %" PRIu64 " %s", n, n == 1 ? one : many);
}

static void say_why(struct stack_session *s)
{
	if (s->end == STACK_END_EMPTY)
		stack_say(s, "no process was found for %.0f s", (double)s->o->empty_exit_ns / 1e9);
	else if (s->end == STACK_END_GONE && !s->totals.processes && !s->totals.refused)
		stack_say(s, "none of the processes runs");
	else if (s->end == STACK_END_GONE && s->totals.processes)
		stack_say(s, "all processes have ended");
	else if (s->end == STACK_END_JOB && !s->totals.processes)
		stack_say(s, "the job has run no Python that could be sampled");
}

static void say_file(struct stack_session *s)
{
	struct buf line = {0};

	buf_addf(&line, "wrote '%s' (", s->o->output);
	add_bytes(&line, s->totals.bytes);
	buf_addf(&line, "); %s", s->totals.samples ? viewers[s->o->format] : "no stacks are in it");
	stack_say(s, "%s", buf_str(&line));
	buf_release(&line);
}

void stack_report_say(struct stack_session *s)
{
	const struct stack_totals *t = &s->totals;
	struct buf line = {0};

	say_why(s);
	buf_addf(&line, "%u process%s, %" PRIu64 " round%s in %.1f s, %" PRIu64 " stack%s",
		 t->processes, t->processes == 1 ? "" : "es", t->rounds, t->rounds == 1 ? "" : "s",
		 seconds(s), t->samples, t->samples == 1 ? "" : "s");
	add_count(&line, t->missed, "missed", "missed");
	add_count(&line, t->retries, "copied more than once because it changed",
		  "copied more than once because they changed");
	add_count(&line, t->skipped, "tick skipped", "ticks skipped");
	add_count(&line, t->native_failed, "without native frames", "without native frames");
	add_count(&line, t->counters_lost, "counter lost", "counters lost");
	if (t->rounds)
		buf_addf(&line, "; %.1f %% of one processor", 100 * t->cpu_s / seconds(s));
	stack_say(s, "%s", buf_str(&line));
	buf_release(&line);
	say_file(s);
}

static json_t *sampled_json(const struct stack_session *s)
{
	const struct stack_totals *t = &s->totals;
	double rounds = t->rounds ? (double)t->rounds : 1;

	return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f}", "rounds",
			 (json_int_t)t->rounds, "skipped_ticks", (json_int_t)t->skipped,
			 "process_samples", (json_int_t)t->captures, "thread_samples",
			 (json_int_t)t->samples, "missed", (json_int_t)t->missed, "retried",
			 (json_int_t)t->retries, "torn", (json_int_t)t->torn, "system_calls",
			 (json_int_t)t->calls, "native_failed", (json_int_t)t->native_failed,
			 "skew_mean_us", (double)t->skew_ns / rounds / 1e3, "skew_max_us",
			 (double)t->skew_max_ns / 1e3);
}

json_t *stack_report_json(const struct stack_session *s)
{
	static const char *const ends[] = {"none",  "duration", "signal", "processes ended",
					   "empty", "job",	"output"};
	const struct stack_totals *t = &s->totals;
	json_t *output = json_string(s->o->output);
	json_t *o = json_pack(
		"{s:o, s:s, s:I, s:I, s:s, s:f, s:f, s:I, s:I, s:o, s:I, s:I, s:I, s:f, s:I}",
		"output", output ? output : json_string("?"), "format", formats[s->o->format],
		"bytes", (json_int_t)t->bytes, "events", (json_int_t)t->events, "ended_by",
		ends[s->end], "seconds", seconds(s), "interval_s", (double)s->o->interval_ns / 1e9,
		"processes", (json_int_t)t->processes, "refused", (json_int_t)t->refused, "sampled",
		sampled_json(s), "counters", (json_int_t)t->counters, "counters_lost",
		(json_int_t)t->counters_lost, "copies", (json_int_t)t->saves, "cpu_s", t->cpu_s,
		"rss_bytes", (json_int_t)t->rss_bytes);

	if (o && s->job && s->job->ended)
		json_object_set_new(o, "job_status", json_integer(s->job->status));
	return o;
}

static void add_pids(struct buf *out, const char *what, const struct stack_pids *pids)
{
	for (unsigned i = 0; i < pids->n; i++)
		buf_addf(out, "%s%d", i ? "," : what, (int)pids->list[i]);
	if (pids->n)
		buf_add_char(out, '\n');
}

void stack_report_plan(const struct stack_options *o, char *const *job, struct buf *out)
{
	if (job) {
		buf_add_str(out, "job:");
		for (int i = 0; job[i]; i++)
			buf_addf(out, " %s", job[i]);
		buf_add_str(out, "\nprocesses: the job and all its descendants\n");
	} else if (!o->pids.n && !o->parents.n && !o->names.n && !o->cgroups.n && !o->all_python) {
		buf_add_str(out, "processes: whoever uses an NPU, or else a GPU\n");
	}
	add_pids(out, "processes: ", &o->pids);
	add_pids(out, "descendants of: ", &o->parents);
	for (unsigned i = 0; i < o->names.n; i++)
		buf_addf(out, "processes with '%s' in their command line\n", o->names.list[i]);
	for (unsigned i = 0; i < o->cgroups.n; i++)
		buf_addf(out, "processes of cgroup or container '%s'\n", o->cgroups.list[i]);
	if (o->all_python)
		buf_add_str(out, "processes: all that run Python\n");
	buf_addf(out, "interval: %g s\nthreads: %s\noutput: %s (%s)\nlog: %s.log\n",
		 (double)o->interval_ns / 1e9, o->all_threads ? "all" : "MainThread", o->output,
		 formats[o->format], o->output);
	if (o->duration_ns)
		buf_addf(out, "duration: %g s\n", (double)o->duration_ns / 1e9);
	if (o->detach)
		buf_addf(out, "in the background, pids in: %s, messages in: %s\n", o->pid_file,
			 o->detach_log);
}
