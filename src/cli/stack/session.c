/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "cli/stack/session.h"

#include <errno.h>
#include <inttypes.h>
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
#include "base/sched_latency.h"
#include "cli/stack/follow.h"
#include "cli/stack/messages.h"
#include "sampler/session/signals.h"

#define MS 1000000ull
#define CARE_NS (20 * MS) /* between two looks at everything that is not the stacks */
#define FLUSH_NS (100 * MS)
#define EXACT_NS (5 * MS)
#define NAP_NS (100 * MS) /* longest sleep: a signal just before it is seen after it */
#define COUNTERS_LEAST_NS (100 * MS)
#define EAGER_NS (5000 * MS) /* a job starts its workers in its first moments: */
#define EAGER_EVERY_NS (100 * MS) /* they are looked for more often then */

static int start_counters(struct stack_session *s, struct err *err)
{
	const struct stack_options *o = s->o;
	bool asked = o->npu_usage || o->gpu_usage;
	uint64_t period = o->counter_ns ? o->counter_ns : o->interval_ns;

	if (o->format != STACK_CHROME)
		return 0;
	if (!o->counter_ns && period < COUNTERS_LEAST_NS)
		period = COUNTERS_LEAST_NS;
	/* Devices that nobody asked for are recorded where there are any. */
	struct counters_options how = {
		.npu = o->npu_usage || !asked,
		.gpu = o->gpu_usage || !asked,
		.host = o->host_usage,
		.processes = o->process_usage,
		.period_ms = stack_ms(period),
		.npu_timeout_ms = stack_ms(o->npu_timeout_ns),
		.gpu_timeout_ms = stack_ms(o->gpu_timeout_ns),
	};
	return counters_start(&how, &s->counters, err);
}

/* Said when all have answered: until then stacks are sampled already. */
static void tell_missing(struct stack_session *s)
{
	char missing[512];

	if (s->missing_told || !counters_missing(s->counters, missing, sizeof(missing)))
		return;
	s->missing_told = true;
	if (*missing && (s->o->npu_usage || s->o->gpu_usage))
		stack_warn(s, "not recorded: %s", missing);
	else if (*missing)
		stack_detail(s, "not recorded: %s", missing);
}

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
	stack_say_open(s);
	s->cpu_before_s = own_cpu_s();
	s->next_flush_ns = s->start_ns + FLUSH_NS;
	s->next_save_ns = first_due(s->start_ns, s->o->autosave_ns);
	s->next_snapshot_ns = first_due(s->start_ns, s->o->snapshot_ns);
	return 0;
}

/* --- what is not the stacks --- */

static void on_counter(void *arg, const struct counter *c)
{
	struct stack_session *s = arg;

	s->totals.counters++;
	stack_output_counter(s->output, c);
}

static void tell_processes(struct stack_session *s)
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
	tell_missing(s);
	tell_processes(s);
	s->totals.counters_lost += counters_take(s->counters, on_counter, s);
	stack_stage_done(&s->stages, STAGE_COUNTERS, at);
}

/* --debug-pid-discovery: where was looked, when that has changed */
static void tell_how(struct stack_session *s)
{
	const char *how = targets_found_by(s->targets);

	if (!strcmp(how, s->how))
		return;
	snprintf(s->how, sizeof(s->how), "%s", how);
	stack_say(s, "looked at: %s", how);
}

static void refresh(struct stack_session *s, bool now)
{
	uint64_t at = clock_mono_ns();
	struct err err = {0};

	if (targets_refresh(s->targets, now, &err) < 0 && strcmp(err.text, s->trouble.text)) {
		s->trouble = err;
		stack_warn(s, "cannot look for processes: %s", err.text);
	}
	stack_stage_done(&s->stages, STAGE_DISCOVER, at);
	if (s->o->debug_discovery)
		tell_how(s);
	stack_follow_complain(s);
}

static void save(struct stack_session *s)
{
	uint64_t at = clock_mono_ns();
	struct err err = {0};
	int r = stack_output_save(s->output, s->o->autosave_output, &err);

	if (r == -EBUSY)
		stack_detail(s, "%s", err.text); /* a slow disk: the next one comes */
	else if (r < 0)
		stack_warn(s, "%s", err.text);
	s->totals.saves += r == 0;
	s->next_save_ns = stack_stage_done(&s->stages, STAGE_AUTOSAVE, at) + s->o->autosave_ns;
}

static void snapshot(struct stack_session *s)
{
	uint64_t at = clock_mono_ns();
	struct buf path = {0};
	struct err err = {0};

	int r = stack_output_snapshot(s->output, &path, &err);
	if (r < 0)
		stack_warn(s, "%s", err.text);
	else
		stack_detail(s, "saved '%s'", buf_str(&path));
	buf_release(&path);
	s->totals.saves += r == 0;
	at = stack_stage_done(&s->stages, STAGE_SNAPSHOT, at);
	s->next_snapshot_ns = first_due(at, s->o->snapshot_ns);
}

static int take_care(struct stack_session *s, uint64_t now_ns, struct err *err)
{
	bool eager = s->job && now_ns - s->start_ns < EAGER_NS && now_ns >= s->next_eager_ns;
	int r = 0;

	if (eager)
		s->next_eager_ns = now_ns + EAGER_EVERY_NS;
	refresh(s, eager);
	take_counters(s);
	if (now_ns >= s->next_flush_ns) {
		uint64_t at = clock_mono_ns();

		r = stack_output_flush(s->output, err);
		s->next_flush_ns = stack_stage_done(&s->stages, STAGE_FLUSH, at) + FLUSH_NS;
	}
	if (now_ns >= s->next_save_ns)
		save(s);
	if (now_ns >= s->next_snapshot_ns || stack_signals_take_snapshot())
		snapshot(s);
	stack_say_line(s, now_ns);
	s->next_care_ns = now_ns + CARE_NS;
	return r;
}

/* --- the schedule --- */

/* Whether a process that could turn up or come back is still there. */
static bool somebody_left(const struct stack_session *s)
{
	if (targets_open(s->targets) || targets_waiting(s->targets))
		return true;
	for (unsigned i = 0; i < s->targets->n && s->rules.refresh_ms; i++) {
		const struct target *t = s->targets->list[i];

		if (t->state == TARGET_REFUSED && t->err.code != -ESRCH)
			return true;
	}
	return false;
}

static enum stack_end is_over(struct stack_session *s, uint64_t now_ns)
{
	const struct stack_options *o = s->o;

	if (stack_signals_stop())
		return STACK_END_SIGNAL;
	if (o->duration_ns && now_ns - s->loop_ns >= o->duration_ns)
		return STACK_END_DURATION;
	if (s->job)
		return stack_job_ended(s->job) ? STACK_END_JOB : STACK_END_NONE;
	if (stack_options_manual(o))
		return somebody_left(s) ? STACK_END_NONE : STACK_END_GONE;
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

static void sleep_until(struct stack_session *s, uint64_t tick_ns)
{
	uint64_t at = clock_mono_ns(), until = at + NAP_NS;
	uint64_t end = s->loop_ns + s->o->duration_ns;

	if (targets_waiting(s->targets) || (s->job && !targets_open(s->targets)))
		until = s->next_care_ns;
	until = tick_ns < until ? tick_ns : until;
	if (s->o->duration_ns && end < until)
		until = end;
	struct timespec t = {.tv_sec = (time_t)(until / 1000000000),
			     .tv_nsec = (long)(until % 1000000000)};
	clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
	stack_stage_done(&s->stages, STAGE_SLEEP, at);
}

static int loop(struct stack_session *s, struct err *err)
{
	uint64_t tick = clock_mono_ns();

	s->loop_ns = tick;
	for (;;) {
		uint64_t now = clock_mono_ns();
		bool care = now >= s->next_care_ns;

		if (care && take_care(s, now, err) < 0) {
			s->end = STACK_END_OUTPUT;
			return err->code;
		}
		/* A stop is seen at once, the rest when it can have changed. */
		if (care || stack_signals_stop() || s->o->duration_ns)
			s->end = is_over(s, now);
		if (s->end)
			return 0;
		if (now >= tick && !targets_open(s->targets)) {
			/* Nobody yet: the first sample does not wait for a whole interval. */
			tick = now + (s->o->interval_ns < NAP_NS ? s->o->interval_ns : NAP_NS);
		} else if (now >= tick) {
			stack_follow_round(s);
			uint64_t done = stack_stage_done(&s->stages, STAGE_LOOP, now);
			tick = next_tick(s, tick, done);
		}
		sleep_until(s, tick);
	}
}

/* --debug-pid-discovery */
static void tell_discovery(struct stack_session *s)
{
	struct discovery found = {0};
	struct err err = {0};

	if (discover(&s->rules, &found, &err) < 0)
		stack_warn(s, "cannot look for processes: %s", err.text);
	else
		stack_say(s, "found %u by %s", found.n,
			  *found.found_by ? found.found_by : "nothing");
	memcpy(s->how, found.found_by, sizeof(s->how));
	for (unsigned i = 0; i < found.n; i++) {
		const struct discovered *d = &found.list[i];

		if (d->device < 0)
			stack_say(s, "  process %d", (int)d->pid);
		else if (d->device_mb == UINT64_MAX)
			stack_say(s, "  process %d on card %d", (int)d->pid, d->device);
		else
			stack_say(s, "  process %d on card %d with %" PRIu64 " MB", (int)d->pid,
				  d->device, d->device_mb);
	}
	discovery_release(&found);
}

/* Nobody is there yet: what is waited for, and what to do if it never comes. */
static void tell_nobody(struct stack_session *s)
{
	const struct stack_options *o = s->o;
	struct buf line = {0};

	if (s->job || stack_options_manual(o) || targets_open(s->targets) ||
	    targets_waiting(s->targets))
		return;
	if (s->rules.devices == DISCOVER_NO_DEVICE)
		buf_add_str(&line, "no such Python process yet: waiting for one");
	else if (s->rules.min_npu_mb)
		buf_addf(&line,
			 "no Python process with %u MB on an NPU (--min-hbm-usage-mb), none on a "
			 "GPU: waiting for one",
			 s->rules.min_npu_mb);
	else
		buf_add_str(&line, "no Python process on an NPU or GPU: waiting for one");
	if (o->empty_exit_ns)
		buf_addf(&line, " for %g s", (double)o->empty_exit_ns / 1e9);
	if (s->rules.devices != DISCOVER_NO_DEVICE)
		buf_add_str(&line, "; -p, --name and --parent name others");
	stack_say(s, "%s", buf_str(&line));
	buf_release(&line);
}

/* Where it costs the job next to nothing, or is asked for. Not where we would have to wait until
 * a thread that computes leaves its processor to us. */
static bool is_exact(const struct stack_options *o)
{
	bool in_time = sched_latency_lower();

	return o->exact || (!o->fast && in_time && o->interval_ns >= EXACT_NS);
}

int stack_session_run(struct stack_session *s, struct err *err)
{
	int r = start_counters(s, err);

	if (r < 0)
		return r;
	/* Ticks are met to some microseconds. Set only now, for a job would inherit it. */
	prctl(PR_SET_TIMERSLACK, 1000, 0, 0, 0);
	stack_options_rules(s->o, &s->rules);
	s->targets = targets_new(&(struct targets_options){
		.rules = &s->rules,
		.python = {.names = true, .exact = is_exact(s->o), .main_only = !s->o->all_threads},
		.on_new = stack_follow_new,
		.on_gone = stack_follow_gone,
		.arg = s});
	if (s->o->debug_discovery)
		tell_discovery(s);
	refresh(s, true);
	tell_nobody(s);
	return loop(s, err);
}

/* --- the end --- */

static void log_stages(struct stack_session *s)
{
	struct buf text = {0};

	stack_stages_text(&s->stages, &text);
	for (char *line = (char *)buf_str(&text), *end; *line; line = end + 1) {
		end = strchrnul(line, '\n');
		if (!*end)
			break;
		*end = '\0';
		stack_detail(s, "%s", line);
	}
	stack_detail(s, "Total samples: %llu", (unsigned long long)s->totals.captures);
	buf_release(&text);
}

int stack_session_close(struct stack_session *s, struct err *err)
{
	struct stat st;
	int r = 0;

	s->end_ns = clock_mono_ns();
	if (s->counters) {
		tell_missing(s);
		s->totals.counters_lost += counters_take(s->counters, on_counter, s);
		counters_stop(s->counters);
	}
	targets_free(s->targets);
	if (s->output) {
		r = stack_output_close(s->output, s->end_ns, &s->totals.events, err);
		stack_stage_done(&s->stages, STAGE_FINAL, s->end_ns);
		if (stat(s->o->output, &st) == 0)
			s->totals.bytes = (uint64_t)st.st_size;
		s->totals.cpu_s = own_cpu_s() - s->cpu_before_s;
		s->totals.rss_bytes = own_rss_bytes();
		log_stages(s);
	}
	hmap_release(&s->told);
	s->output = NULL;
	s->targets = NULL;
	s->counters = NULL;
	return r;
}
