/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "sampler/session/session.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/mem.h"
#include "base/text/printable.h"

#define LOG_AREA "stack"
#include "base/log.h"

#define MS 1000000ull
#define CHORES_NS (20 * MS) /* how often everything is done that is not the stacks */
#define FLUSH_NS (100 * MS)
#define SLEEP_MAX_NS (100 * MS) /* a signal just before it is seen after it */
#define COUNTERS_LEAST_NS (100 * MS)
#define EAGER_NS (5000 * MS) /* a job starts its workers in its first moments: */
#define EAGER_EVERY_NS (100 * MS) /* they are searched for more often then */

/* --- messages --- */

static void open_log(struct stack_session *s)
{
	char *path = xasprintf("%s.log", s->o->output);
	struct stat st;

	/* No log if the output is no ordinary file, or the log cannot be written. */
	if (stat(s->o->output, &st) < 0 || S_ISREG(st.st_mode)) {
		log_set_level(s->o->verbose ? LOG_DEBUG : LOG_INFO);
		s->logging = log_open(path, NULL) == 0;
	}
	free(path);
}

void stack_session_close_log(struct stack_session *s)
{
	log_close();
	free(s->steps);
	s->steps = NULL;
	s->nsteps = s->cap_steps = 0;
	s->logging = false;
	log_set_level(LOG_WARN);
}

void stack_session_notice(struct stack_session *s, enum stack_message kind, const char *fmt, ...)
{
	struct buf clean = {0};
	char text[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	text_add_printable(&clean, text, strlen(text));
	s->show(s->arg, kind, buf_str(&clean));
	/* without a log of our own it would go to stderr a second time */
	if (s->logging)
		log_write(kind == STACK_WARNING ? LOG_WARN : LOG_INFO, LOG_AREA, __FILE__, __LINE__,
			  "%s", buf_str(&clean));
	buf_release(&clean);
}

/* --- how long things take --- */

/* Names that scripts search for stay. */
static const char *const stage_names[STAGES] = {
	[STAGE_DISCOVER] = "discover",
	[STAGE_STACKS] = "stacks",
	[STAGE_NATIVE] = "native_stacks",
	[STAGE_EVENTS] = "events",
	[STAGE_COUNTERS] = "counters",
	[STAGE_FLUSH] = "flush",
	[STAGE_AUTOSAVE] = "autosave_write_json",
	[STAGE_SNAPSHOT] = "autosave_snapshot_write_json",
	[STAGE_LOOP] = "loop_total",
	[STAGE_SLEEP] = "loop_sleep",
	[STAGE_FINAL] = "final_write_json",
};

uint64_t stack_stage_done(struct stack_session *s, enum stack_stage stage, uint64_t from_ns)
{
	uint64_t now = clock_mono_ns(), took = now - from_ns;
	struct stack_stage_time *t = &s->stages[stage];

	t->total_ns += took;
	if (!t->count++ || took < t->min_ns)
		t->min_ns = took;
	if (took > t->max_ns)
		t->max_ns = took;
	return now;
}

static void log_stages(struct stack_session *s)
{
	for (int i = 0; i < STAGES; i++) {
		const struct stack_stage_time *t = &s->stages[i];

		if (t->count)
			stack_session_notice(s, STACK_DETAIL,
					     "%s: count=%" PRIu64
					     " avg=%.3fms min=%.3fms max=%.3fms total=%.3fs",
					     stage_names[i], t->count,
					     (double)t->total_ns / (double)t->count / 1e6,
					     (double)t->min_ns / 1e6, (double)t->max_ns / 1e6,
					     (double)t->total_ns / 1e9);
	}
	stack_session_notice(s, STACK_DETAIL, "Total samples: %" PRIu64, s->totals.captures);
}

/* --- counters --- */

static int start_counters(struct stack_session *s, struct err *err)
{
	const struct stack_options *o = s->o;
	bool asked = o->npu_usage || o->gpu_usage;
	uint64_t period = o->counter_ns ? o->counter_ns : o->interval_ns;

	if (o->format != STACK_CHROME)
		return 0;
	if (!o->counter_ns && period < COUNTERS_LEAST_NS)
		period = COUNTERS_LEAST_NS;
	/* Devices that were not asked for are recorded where there are any. */
	struct counters_options options = {
		.npu = o->npu_usage || !asked,
		.gpu = o->gpu_usage || !asked,
		.host = o->host_usage,
		.processes = o->process_usage,
		.period_ms = stack_ms(period),
		.npu_timeout_ms = stack_ms(o->npu_timeout_ns),
		.gpu_timeout_ms = stack_ms(o->gpu_timeout_ns),
	};
	return counters_start(&options, &s->counters, err);
}

/* Reported when all have answered: until then stacks are sampled already. */
static void report_missing(struct stack_session *s)
{
	char missing[512];

	if (s->missing_reported || !counters_missing(s->counters, missing, sizeof(missing)))
		return;
	s->missing_reported = true;
	bool asked = s->o->npu_usage || s->o->gpu_usage;
	if (*missing)
		stack_session_notice(s, asked ? STACK_WARNING : STACK_DETAIL, "not recorded: %s",
				     missing);
}

static void on_counter(void *arg, const struct counter *c)
{
	struct stack_session *s = arg;

	s->totals.counters++;
	stack_output_counter(s->output, c);
}

static void set_processes(struct stack_session *s)
{
	unsigned n = 0;

	if (!s->o->process_usage)
		return;
	pid_t *pids = xcalloc(s->targets->n + 1, sizeof(*pids));
	for (unsigned i = 0; i < s->targets->n; i++)
		if (s->targets->list[i]->state == TARGET_OPEN)
			pids[n++] = s->targets->list[i]->pid;
	counters_processes(s->counters, pids, n);
	free(pids);
}

static void take_counters(struct stack_session *s)
{
	uint64_t at = clock_mono_ns();

	if (!s->counters)
		return;
	report_missing(s);
	set_processes(s);
	s->totals.counters_lost += counters_take(s->counters, on_counter, s);
	stack_stage_done(s, STAGE_COUNTERS, at);
}

/* --- the beginning --- */

/* The most memory that we have had; ru_maxrss also counts what our parent had when it started us.
 */
static uint64_t own_rss_bytes(void)
{
	struct buf text = {0};
	uint64_t kb = 0;

	if (fs_read_file("/proc/self/status", 65536, &text, NULL) == 0) {
		const char *line = strstr(buf_str(&text), "\nVmHWM:");

		if (line)
			sscanf(line, "\nVmHWM: %" SCNu64, &kb);
	}
	buf_release(&text);
	return kb * 1024;
}

/* Processor time that we have used. */
static double own_cpu_s(void)
{
	struct rusage u = {0};

	getrusage(RUSAGE_SELF, &u);
	return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
	       (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

static uint64_t first_due(uint64_t start_ns, uint64_t every_ns)
{
	return every_ns ? start_ns + every_ns : UINT64_MAX;
}

int stack_session_open(struct stack_session *s, struct err *err)
{
	s->start_ns = clock_mono_ns();
	int r = stack_output_open(s->o, s->start_ns, &s->output, err);
	if (r < 0)
		return r;
	open_log(s);
	s->cpu_before_s = own_cpu_s();
	s->next_flush_ns = s->start_ns + FLUSH_NS;
	s->next_save_ns = first_due(s->start_ns, s->o->autosave_ns);
	s->next_snapshot_ns = first_due(s->start_ns, s->o->snapshot_ns);
	return 0;
}

/* --- what is not the stacks --- */

static void save_copy(struct stack_session *s)
{
	uint64_t at = clock_mono_ns();
	struct err err = {0};
	int r = stack_output_save(s->output, s->o->autosave_output, &err);

	/* -EBUSY: a slow disk; the next copy comes */
	if (r < 0)
		stack_session_notice(s, r == -EBUSY ? STACK_DETAIL : STACK_WARNING, "%s", err.text);
	s->totals.saves += r == 0;
	s->next_save_ns = stack_stage_done(s, STAGE_AUTOSAVE, at) + s->o->autosave_ns;
}

static void save_snapshot(struct stack_session *s)
{
	uint64_t at = clock_mono_ns();
	struct buf path = {0};
	struct err err = {0};

	int r = stack_output_snapshot(s->output, &path, &err);
	if (r < 0)
		stack_session_notice(s, STACK_WARNING, "%s", err.text);
	else
		stack_session_notice(s, STACK_DETAIL, "saved '%s'", buf_str(&path));
	buf_release(&path);
	s->totals.saves += r == 0;
	at = stack_stage_done(s, STAGE_SNAPSHOT, at);
	s->next_snapshot_ns = first_due(at, s->o->snapshot_ns);
}

static int do_chores(struct stack_session *s, uint64_t now_ns, struct err *err)
{
	bool eager = s->job && now_ns - s->start_ns < EAGER_NS && now_ns >= s->next_eager_ns;
	int r = 0;

	if (eager)
		s->next_eager_ns = now_ns + EAGER_EVERY_NS;
	stack_processes_refresh(s, eager);
	take_counters(s);
	if (now_ns >= s->next_flush_ns) {
		uint64_t at = clock_mono_ns();

		r = stack_output_flush(s->output, err);
		s->next_flush_ns = stack_stage_done(s, STAGE_FLUSH, at) + FLUSH_NS;
	}
	if (now_ns >= s->next_save_ns)
		save_copy(s);
	if (now_ns >= s->next_snapshot_ns || stack_signals_take_snapshot())
		save_snapshot(s);
	s->show_progress(s->arg, s, now_ns);
	s->next_chores_ns = now_ns + CHORES_NS;
	return r;
}

/* --- the schedule --- */

static enum stack_end is_over(struct stack_session *s, uint64_t now_ns)
{
	const struct stack_options *o = s->o;

	if (stack_signals_stop())
		return STACK_END_SIGNAL;
	if (o->duration_ns && now_ns - s->loop_ns >= o->duration_ns)
		return STACK_END_DURATION;
	if (s->job)
		return stack_job_ended(s->job) ? STACK_END_JOB : STACK_END_NONE;
	if (stack_options_fixed(o))
		return stack_processes_left(s) ? STACK_END_NONE : STACK_END_GONE;
	if (targets_open(s->targets) || targets_waiting(s->targets)) {
		s->empty_since_ns = 0;
		return STACK_END_NONE;
	}
	if (!s->empty_since_ns)
		s->empty_since_ns = now_ns;
	return o->empty_exit_ns && now_ns - s->empty_since_ns >= o->empty_exit_ns ? STACK_END_EMPTY
										  : STACK_END_NONE;
}

/* The first tick after now; those in between are skipped, not caught up. */
static uint64_t next_tick(struct stack_session *s, uint64_t tick_ns, uint64_t now_ns)
{
	uint64_t every = s->o->interval_ns;

	tick_ns += every;
	if (tick_ns > now_ns)
		return tick_ns;
	uint64_t late = (now_ns - tick_ns) / every + 1;
	s->totals.skipped += late;
	return tick_ns + late * every;
}

static void sleep_until_tick(struct stack_session *s, uint64_t tick_ns)
{
	uint64_t at = clock_mono_ns(), until = at + SLEEP_MAX_NS;
	uint64_t end = s->loop_ns + s->o->duration_ns;

	if (targets_waiting(s->targets) || (s->job && !targets_open(s->targets)))
		until = s->next_chores_ns;
	until = tick_ns < until ? tick_ns : until;
	if (s->o->duration_ns && end < until)
		until = end;
	struct timespec t = {.tv_sec = (time_t)(until / 1000000000),
			     .tv_nsec = (long)(until % 1000000000)};
	clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
	stack_stage_done(s, STAGE_SLEEP, at);
}

static int run_loop(struct stack_session *s, struct err *err)
{
	uint64_t tick = clock_mono_ns();

	s->loop_ns = tick;
	for (;;) {
		uint64_t now = clock_mono_ns();
		bool chores = now >= s->next_chores_ns;

		if (chores && do_chores(s, now, err) < 0) {
			s->end = STACK_END_OUTPUT;
			return err->code;
		}
		/* A stop is seen at once, the rest when it can have changed. */
		if (chores || stack_signals_stop() || s->o->duration_ns)
			s->end = is_over(s, now);
		if (s->end)
			return 0;
		if (now >= tick && !targets_open(s->targets)) {
			/* No process yet: the first sample does not wait for a whole interval. */
			tick = now + (s->o->interval_ns < SLEEP_MAX_NS ? s->o->interval_ns
								       : SLEEP_MAX_NS);
		} else if (now >= tick) {
			stack_processes_sample(s);
			uint64_t done = stack_stage_done(s, STAGE_LOOP, now);
			tick = next_tick(s, tick, done);
		}
		sleep_until_tick(s, tick);
	}
}

int stack_session_run(struct stack_session *s, struct err *err)
{
	int r = start_counters(s, err);

	if (r < 0)
		return r;
	/* Ticks are met to some microseconds. Set only now, for a job would inherit it. */
	prctl(PR_SET_TIMERSLACK, 1000, 0, 0, 0);
	stack_processes_open(s);
	return run_loop(s, err);
}

/* --- the end --- */

int stack_session_close(struct stack_session *s, struct err *err)
{
	struct stat st;
	int r = 0;

	s->end_ns = clock_mono_ns();
	if (s->counters) {
		report_missing(s);
		s->totals.counters_lost += counters_take(s->counters, on_counter, s);
		counters_stop(s->counters);
	}
	targets_free(s->targets);
	if (s->output) {
		r = stack_output_close(s->output, s->end_ns, &s->totals.events, err);
		stack_stage_done(s, STAGE_FINAL, s->end_ns);
		if (stat(s->o->output, &st) == 0)
			s->totals.bytes = (uint64_t)st.st_size;
		s->totals.cpu_s = own_cpu_s() - s->cpu_before_s;
		s->totals.rss_bytes = own_rss_bytes();
		log_stages(s);
	}
	hmap_release(&s->complained);
	s->output = NULL;
	s->targets = NULL;
	s->counters = NULL;
	return r;
}
