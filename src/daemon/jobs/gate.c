/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Whether a request may go out now. What is known of the NPU is what processes report, and anybody
 * on the node can report anything: so a request waits for what the user's own processes report,
 * never for those of another.
 */
#include <string.h>

#include "daemon/jobs/jobs_impl.h"

#define STOP_MS 30000 /* that a monitor takes to end, at most, once it is asked to */

static int weight_of(int state)
{
	static const int weights[] = {[FABRIC_UNINITIALIZED + 1] = 0,
				      [FABRIC_IDLE + 1] = 2,
				      [FABRIC_READY + 1] = 3,
				      [FABRIC_RUNNING + 1] = 4};

	return state >= FABRIC_UNINITIALIZED && state <= FABRIC_READY ? weights[state + 1] : 1;
}

/* Of two with the same state: who knows its step, which the process that polls for a job does not;
 * then who has reported last. */
static bool is_before(const struct jobs_process *p, const struct jobs_process *leader)
{
	bool known = p->current_step >= 0, leader_known = leader->current_step >= 0;

	return known != leader_known ? known : p->status_ms > leader->status_ms;
}

static void add_states(struct jobs_aggregate *a, const struct jobs_process *p, int trace,
		       int monitor)
{
	int more = weight_of(trace) - weight_of(a->trace);

	if (weight_of(monitor) > weight_of(a->monitor))
		a->monitor = monitor;
	a->recorded |= monitor == FABRIC_RUNNING && jobs_guest_is_recorded(p->guest);
	a->monitor_reported = a->monitor_reported || p->received & JOBS_RECEIVED_MONITOR;
	if (!(p->received & JOBS_RECEIVED_TRACE))
		return;
	if (!a->leader || more > 0 || (more == 0 && is_before(p, a->leader))) {
		a->leader = p;
		a->trace = trace;
	}
}

struct jobs_aggregate jobs_aggregate(const struct jobs *j, const struct access_grant *who)
{
	struct jobs_aggregate a = {.trace = FABRIC_UNINITIALIZED, .monitor = FABRIC_UNINITIALIZED};
	int64_t now = jobs_now_ms();
	const struct jobs_process *p;

	for (struct jobs_cursor c = {.who = who}; (p = jobs_next(j, &c));)
		add_states(&a, p, p->trace, jobs_monitor_state(p, now));
	return a;
}

const char *jobs_state_name(int state)
{
	static const char *const names[] = {"Uninitialized", "Idle", "Running", "Ready"};

	return state >= FABRIC_UNINITIALIZED && state <= FABRIC_READY ? names[state + 1]
								      : "unknown";
}

json_t *jobs_get_status(struct jobs *j, const struct access_grant *who, const json_t *unused)
{
	struct jobs_aggregate a = jobs_aggregate(j, who);
	json_t *out = json_pack("{s:i,s:s,s:s}", "current_step",
				a.leader ? a.leader->current_step : -1, "npumonitor",
				jobs_state_name(a.monitor), "nputrace", jobs_state_name(a.trace));

	(void)unused;
	if (a.trace == FABRIC_RUNNING || a.trace == FABRIC_READY) {
		json_object_set_new(out, "start_step", json_integer(a.leader->start_step));
		json_object_set_new(out, "stop_step", json_integer(a.leader->stop_step));
	}
	return out;
}

/* --- users --- */

/* All of it in one value of a map. */
static uint64_t pack_states(struct jobs_aggregate a)
{
	return (uint64_t)a.recorded << 17 | (uint64_t)a.monitor_reported << 16 |
	       (uint64_t)(a.trace - FABRIC_UNINITIALIZED) << 8 |
	       (uint64_t)(a.monitor - FABRIC_UNINITIALIZED);
}

struct jobs_aggregate jobs_of_user(const struct hmap *by_user, uid_t uid)
{
	uint64_t v = hmap_get(by_user, uid);

	if (v == HMAP_NONE)
		v = 0;
	return (struct jobs_aggregate){.trace = (int)(v >> 8 & 0xff) + FABRIC_UNINITIALIZED,
				       .monitor = (int)(v & 0xff) + FABRIC_UNINITIALIZED,
				       .monitor_reported = v >> 16 & 1,
				       .recorded = v >> 17 & 1};
}

/* Its last request was to stop the monitor, and that is on its way. */
static bool is_stopped(const struct jobs_process *p, int64_t now_ms)
{
	bool last = p->switched_off || p->stopped_lease;
	bool pending = p->pending && p->pending->stops;

	return last && (pending || (p->stopped_ms && now_ms - p->stopped_ms < STOP_MS));
}

/* Users whose frameworks were all asked to stop their monitors, by the processes that poll. */
static void find_stopped(const struct jobs *j, int64_t now_ms, struct hmap *out)
{
	const struct jobs_process *p;

	*out = (struct hmap){0};
	for (struct jobs_cursor c = {0}; (p = jobs_next(j, &c));) {
		bool stopped = is_stopped(p, now_ms);

		if (!p->guest && (stopped || p->switched))
			hmap_put(out, p->uid, stopped && hmap_get(out, p->uid) != 0);
	}
}

/* What somebody has stopped ends before it takes the next request, whatever it reports until then:
 * that request waits for it. */
static int next_monitor(const struct jobs_process *p, const struct hmap *stopped, int64_t now_ms)
{
	int state = jobs_monitor_state(p, now_ms);
	bool ends = p->guest ? is_stopped(p, now_ms) : hmap_get(stopped, p->uid) == 1;

	return ends && state == FABRIC_RUNNING ? FABRIC_IDLE : state;
}

static int next_trace(const struct jobs_process *p)
{
	return p->guest && p->guest->ends_trace ? FABRIC_IDLE : p->trace;
}

void jobs_by_user(const struct jobs *j, struct hmap *out)
{
	int64_t now = jobs_now_ms();
	const struct jobs_process *p;
	struct hmap stopped;

	find_stopped(j, now, &stopped);
	*out = (struct hmap){0};
	for (struct jobs_cursor c = {0}; (p = jobs_next(j, &c));) {
		struct jobs_aggregate a = jobs_of_user(out, p->uid);

		if (!(p->received & (JOBS_RECEIVED_TRACE | JOBS_RECEIVED_MONITOR)))
			continue;
		a.leader = p; /* the states count here, not who reported them last */
		add_states(&a, p, next_trace(p), next_monitor(p, &stopped, now));
		hmap_put(out, p->uid, pack_states(a));
	}
	hmap_release(&stopped);
}

/* --- the gate --- */

const char *jobs_gate(enum config_kind kind, struct jobs_aggregate a)
{
	/* A monitor reports its state when it begins, and that may have been to a daemon before
	 * this one. Nothing would ever be accepted again if that counted as not being there. */
	if (!a.monitor_reported && a.trace != FABRIC_UNINITIALIZED)
		a.monitor = FABRIC_IDLE;
	switch (kind) {
	case CONFIG_NPU_MONITOR:
		if (a.trace == FABRIC_RUNNING || a.monitor == FABRIC_UNINITIALIZED)
			return "ineffective";
		return a.trace == FABRIC_IDLE || a.trace == FABRIC_READY ? "effective" : "unknown";
	case CONFIG_NPU_TRACE:
		if (a.monitor == FABRIC_RUNNING || a.trace == FABRIC_UNINITIALIZED)
			return "ineffective";
		return a.monitor == FABRIC_IDLE ? "effective" : "unknown";
	default:
		return "effective";
	}
}

bool jobs_gate_open(enum config_kind kind, struct jobs_aggregate a)
{
	return !strcmp(jobs_gate(kind, a), "effective");
}

const char *jobs_gate_reason(enum config_kind kind, struct jobs_aggregate a)
{
	if (a.trace == FABRIC_UNINITIALIZED && a.monitor == FABRIC_UNINITIALIZED)
		return "no NPU framework has reported to this daemon: start the daemon first, then "
		       "the job with MSMONITOR_USE_DAEMON=1, or by 'sonde monitor'";
	if (kind == CONFIG_NPU_TRACE && a.monitor == FABRIC_RUNNING && a.recorded)
		return "sonde record is recording processes of this user already, kernels "
		       "included: 'sonde record --dump PID' makes a copy of what it has now, "
		       "'sonde timeline DIR' shows it";
	if (kind == CONFIG_NPU_TRACE && a.monitor == FABRIC_RUNNING)
		return "npu-monitor is running, and only one of the two can: stop it with 'dyno "
		       "npu-monitor --npu-monitor-stop'";
	if (kind == CONFIG_NPU_TRACE && a.monitor == FABRIC_READY)
		return "npu-monitor is paused for a trace by PyTorch's own profiler, and resumes "
		       "afterwards: wait, and stop it with 'dyno npu-monitor "
		       "--npu-monitor-stop'";
	if (kind == CONFIG_NPU_MONITOR && a.trace == FABRIC_RUNNING)
		return "nputrace is collecting, and only one of the two can: wait until 'dyno "
		       "status' says Idle, or end it with 'dyno nputrace --stop'";
	return "the NPU framework reports a state in which it takes no request; see 'dyno status'";
}
