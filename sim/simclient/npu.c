/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * A rank with torch_npu's dynamic profiler. At every step it looks for a config; a trace covers the
 * steps [start, stop). Rank 0 alone tells the daemon where the trace is, at most once a second.
 *
 *        config            step == start           step == stop
 *   Idle -------> Ready ------------------> Running ------------> Idle, files are written
 *     ^  start step is over: a warning |
 *     +--------------------------------+
 */
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "config.h"
#include "link.h"
#include "monitor.h"
#include "poller.h"
#include "trace.h"

struct rank {
	const struct client_options *o;
	struct link link;
	struct board *board;
	uint32_t seen; /* version of the board */
	int step;
	enum wire_state trace_state;
	int start, stop, warmup;
	char log_file[PATH_MAX];
	uint64_t status_sent_ns;
	struct monitor monitor;
	struct config config;
	struct trace trace;
};

static bool rank_is_meant(const struct rank *r)
{
	char own[16];
	bool listed = false;
	snprintf(own, sizeof(own), "%d", r->o->rank);
	if (config_bool(&r->config, "PROFILE_IS_RANK", &listed) || !listed)
		return true;
	return config_list_has(config_get(&r->config, "PROFILE_RANK_LIST"), own);
}

/* What is missing or wrong in a trace config, or NULL. */
static const char *read_trace(struct rank *r)
{
	const struct config *c = &r->config;
	const char *log_file = config_get(c, "ACTIVITIES_LOG_FILE");
	int64_t start, steps, warmup;
	if (!log_file || !*log_file || strlen(log_file) >= sizeof(r->log_file))
		return "ACTIVITIES_LOG_FILE";
	if (config_number(c, "PROFILE_START_STEP", -1, INT_MAX / 4, 0, &start))
		return "PROFILE_START_STEP";
	if (config_number(c, "ACTIVITIES_ITERATIONS", 1, INT_MAX / 4, 1, &steps))
		return "ACTIVITIES_ITERATIONS";
	if (config_number(c, "WARMUP_ITERATIONS", 0, INT_MAX / 4, 0, &warmup))
		return "WARMUP_ITERATIONS";
	if (!config_get(c, "PROFILE_ACTIVITIES"))
		return "PROFILE_ACTIVITIES";
	snprintf(r->log_file, sizeof(r->log_file), "%s", log_file);
	r->start = start < 0 ? r->step : (int)start;
	r->stop = r->start + (int)warmup + (int)steps;
	r->warmup = (int)warmup;
	return NULL;
}

static void trace_config(struct rank *r)
{
	if (r->trace_state != WIRE_IDLE) {
		say("trace config passed over: a trace is under way");
		return;
	}
	if (!rank_is_meant(r)) {
		say("trace config is for other ranks");
		return;
	}
	const char *wrong = read_trace(r);
	if (wrong) {
		say("warning: trace config refused: %s is missing or wrong", wrong);
		return;
	}
	if (r->start < r->step) {
		say("warning: start step %d is over, this is step %d; no trace", r->start, r->step);
		return;
	}
	r->trace_state = WIRE_READY;
	say("trace ready: steps [%d, %d), to %s", r->start, r->stop, r->log_file);
}

static void take_config(struct rank *r)
{
	static char text[CONFIG_TEXT_MAX];
	size_t len;
	if (!board_read(r->board, &r->seen, text, &len))
		return;
	config_read_npu(&r->config, text, len);
	if (config_get(&r->config, "NPU_MONITOR_START"))
		monitor_command(&r->monitor, &r->link, &r->config);
	else
		trace_config(r);
}

static void write_trace(struct rank *r)
{
	char host[256] = "", when[32], dir[PATH_MAX + 512], file[PATH_MAX + 600];
	struct timespec ts;
	struct tm tm;
	clock_gettime(CLOCK_REALTIME, &ts);
	gethostname(host, sizeof(host) - 1);
	strftime(when, sizeof(when), "%Y%m%d%H%M%S", localtime_r(&ts.tv_sec, &tm));
	snprintf(dir, sizeof(dir), "%s/%s_%d_%s%03d_ascend_pt", r->log_file, host, (int)getpid(),
		 when, (int)(ts.tv_nsec / 1000000));
	snprintf(file, sizeof(file), "%s/ASCEND_PROFILER_OUTPUT", dir);
	int err = trace_mkdirs(file);
	strcat(file, "/trace_view.json");
	if (!err)
		err = trace_write(&r->trace, file, true, NULL);
	if (err)
		say("warning: trace not written: '%s': %s", file, strerror(-err));
	else
		say("trace of %d steps written to %s", r->trace.n, dir);
}

static void end_trace(struct rank *r)
{
	write_trace(r);
	r->trace_state = WIRE_IDLE;
	trace_clear(&r->trace);
}

static void advance_trace(struct rank *r)
{
	if (r->trace_state == WIRE_RUNNING && r->step >= r->stop)
		end_trace(r);
	if (r->trace_state == WIRE_READY && r->step >= r->start) {
		r->trace_state = WIRE_RUNNING;
		say("trace running at step %d", r->step);
	}
}

static void tell_status(struct rank *r)
{
	bool busy = r->trace_state != WIRE_IDLE;
	if (r->o->rank || now_ns() - r->status_sent_ns < (uint64_t)r->o->status_ms * 1000000u)
		return;
	r->status_sent_ns = now_ns();
	link_trace_status(&r->link, r->trace_state, r->step, busy ? r->start : -1,
			  busy ? r->stop : -1);
}

/* The work of a step is sleep; the monitor's clock goes on in it. */
static void work(struct rank *r)
{
	uint64_t end = now_ns() + (uint64_t)r->o->step_ms * 1000000u;
	for (uint64_t now; (now = now_ns()) < end && !stop_asked();) {
		int64_t ms = (int64_t)((end - now + 999999) / 1000000);
		nap_ms(r->monitor.running && ms > 100 ? 100 : ms);
		monitor_tick(&r->monitor, &r->link, r->o->rank);
	}
}

static void one_step(struct rank *r)
{
	uint64_t start = now_real_ns();
	take_config(r);
	advance_trace(r);
	tell_status(r);
	work(r);
	uint64_t end = now_real_ns();
	if (r->trace_state == WIRE_RUNNING && r->step >= r->start + r->warmup)
		trace_step(&r->trace, r->step, start, end);
	monitor_step(&r->monitor, &r->link, r->o->rank, start, end);
	if (r->o->rank == 0) {
		atomic_store(&r->board->step_ms, (uint32_t)((end - start) / 1000000));
		atomic_store(&r->board->step, (uint32_t)r->step);
	}
}

int npu_run(const struct client_options *o)
{
	struct rank *r = calloc(1, sizeof(*r));
	pid_t poller = -1;
	if (!r)
		return 1;
	r->o = o;
	r->board = board_map();
	if (!r->board || link_open(&r->link, o)) {
		free(r);
		return 1;
	}
	if (o->rank == 0)
		poller = poller_start(o, r->board);
	for (; (!o->steps || r->step < o->steps) && !stop_asked(); r->step++)
		one_step(r);
	if (r->trace_state == WIRE_RUNNING)
		end_trace(r);
	say("done after %d steps", r->step);
	if (poller > 0) {
		kill(poller, SIGTERM);
		waitpid(poller, NULL, 0);
	}
	link_close(&r->link);
	free(r);
	return 0;
}
