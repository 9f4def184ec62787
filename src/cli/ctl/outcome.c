/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "cli/ctl/outcome.h"

#include <string.h>

const char *const ctl_state_names[CTL_STATES] = {[CTL_TRIGGERED] = "triggered",
						 [CTL_NO_MATCH] = "no match",
						 [CTL_BUSY] = "busy",
						 [CTL_HELD] = "no effect",
						 [CTL_INEFFECTIVE] = "ineffective",
						 [CTL_UNKNOWN] = "unknown",
						 [CTL_REFUSED] = "refused",
						 [CTL_FAILED] = "failed"};

static bool text_is(const json_t *o, const char *key, const char *text)
{
	const char *value = json_string_value(json_object_get(o, key));

	return value && !strcmp(value, text);
}

struct ctl_outcome ctl_outcome_read(const json_t *reply)
{
	json_t *matched = json_object_get(reply, "processesMatched");
	struct ctl_outcome o = {.state = CTL_FAILED};
	json_int_t busy = json_integer_value(json_object_get(reply, "activityProfilersBusy"));

	if (!reply)
		return o;
	o.matched = json_array_size(matched);
	o.triggered = json_array_size(json_object_get(reply, "activityProfilersTriggered"));
	o.busy = busy > 0 ? (size_t)busy : 0;
	if (text_is(reply, "commandStatus", "ineffective"))
		o.state = CTL_INEFFECTIVE;
	else if (text_is(reply, "commandStatus", "unknown"))
		o.state = CTL_UNKNOWN;
	else if (!json_is_array(matched))
		o.state = CTL_REFUSED;
	else if (o.triggered)
		o.state = CTL_TRIGGERED;
	else if (!o.matched)
		o.state = CTL_NO_MATCH;
	else
		o.state = o.busy ? CTL_BUSY : CTL_HELD;
	return o;
}

/* What to check when nobody is there, by the kind of process that was expected. */
static void nobody(enum ctl_kind kind, struct buf *out)
{
	if (kind == CTL_GPUTRACE)
		buf_add_str(out,
			    "no process matched: was the job started with KINETO_USE_DAEMON=1, "
			    "after the daemon, and the daemon with --enable-ipc-monitor? under "
			    "Slurm give its id with --job-id; in a container both need the "
			    "same KINETO_IPC_SOCKET_DIR or network namespace");
	else
		buf_add_str(out, "no process has registered: start the daemon with "
				 "--enable-ipc-monitor first, then the job with "
				 "MSMONITOR_USE_DAEMON=1 or by 'sonde monitor', as the same user, "
				 "and wait for its first steps");
}

/* From the states alone. */
static void by_status(enum ctl_kind kind, const json_t *status, const char *name, struct buf *out)
{
	if (kind != CTL_NPU_MONITOR && text_is(status, "npumonitor", "Running"))
		buf_addf(out,
			 "npu-monitor is running, and the two cannot run together: stop it "
			 "with '%s npu-monitor --npu-monitor-stop' and try again",
			 name);
	else if (kind == CTL_NPU_MONITOR && text_is(status, "nputrace", "Running"))
		buf_addf(out,
			 "a trace is being taken, and the two cannot run together: try again "
			 "when '%s status' says Idle",
			 name);
	else if (kind == CTL_GPUTRACE)
		buf_add_str(out, "this daemon holds it to the rules of NPU processes, as the "
				 "dynolog of msMonitor does, and traces no others: run 'sonde "
				 "daemon' there instead");
	else
		nobody(kind, out);
}

void ctl_outcome_why(enum ctl_kind kind, const struct ctl_outcome *o, const json_t *explained,
		     const json_t *status, const char *name, struct buf *out)
{
	const char *reason = json_string_value(json_object_get(explained, "reason"));

	if (o->state == CTL_REFUSED)
		buf_add_str(out, "the daemon does not accept the request");
	else if (o->state == CTL_BUSY)
		buf_addf(out,
			 "%zu matched, and each has yet to fetch an earlier request: try again "
			 "in some seconds",
			 o->matched);
	else if (o->state == CTL_HELD)
		buf_addf(out, "%zu matched, but --process-limit lets none have it", o->matched);
	else if (reason)
		buf_add_str(out, reason);
	else if (o->state == CTL_NO_MATCH)
		nobody(kind, out);
	else
		by_status(kind, status, name, out);
}

void ctl_outcome_rest(const struct ctl_outcome *o, unsigned process_limit, struct buf *out)
{
	size_t left = o->matched - o->triggered;

	if (o->matched <= o->triggered)
		return;
	if (o->busy && o->busy >= left)
		buf_addf(out, "%zu more matched, but have yet to fetch an earlier request", left);
	else
		buf_addf(out,
			 "%zu more matched and were left out: --process-limit is %u, ask for "
			 "all with --process-limit %zu",
			 left, process_limit, o->matched);
}

void ctl_outcome_without(const json_t *reply, struct buf *out)
{
	const json_t *list = json_object_get(reply, "notHonoured");
	size_t n = json_array_size(list);

	if (!n)
		return;
	buf_addf(out, "%sthe monitor of sonde in these processes goes on without ",
		 out->len ? "; " : "");
	for (size_t i = 0; i < n; i++) {
		const char *name = json_string_value(json_array_get(list, i));

		buf_addf(out, "%s%s", !i ? "" : i + 1 == n ? " and " : ", ", name ? name : "?");
	}
	buf_addf(out, ", which %s not there for it", n == 1 ? "is" : "are");
}

static void add_pids(const json_t *list, struct buf *out)
{
	const size_t most = 4;
	size_t n = json_array_size(list);

	buf_addf(out, " (pid%s", n == 1 ? "" : "s");
	for (size_t i = 0; i < n && i < most; i++)
		buf_addf(out, "%s%lld", i ? ", " : " ",
			 (long long)json_integer_value(json_array_get(list, i)));
	buf_add_str(out, n > most ? ", …)" : ")");
}

void ctl_outcome_traces(const json_t *reply, const char *name, struct buf *out)
{
	const json_t *replaced = json_object_get(reply, "tracesReplaced");
	const json_t *dropped = json_object_get(reply, "tracesDropped");
	const json_t *unknown = json_object_get(reply, "stepsUnknown");
	size_t n = json_array_size(replaced), d = json_array_size(dropped),
	       u = json_array_size(unknown);

	if (n) {
		buf_addf(out, "%sit takes the place of %s that had not begun", out->len ? "; " : "",
			 n == 1 ? "a trace" : "traces");
		add_pids(replaced, out);
	}
	if (d) {
		buf_addf(out, "%s%s that had not begun %s dropped", out->len ? "; " : "",
			 d == 1 ? "a trace" : "traces", d == 1 ? "is" : "are");
		add_pids(dropped, out);
	}
	if (!u)
		return;
	buf_addf(out, "%s%zu process%s no steps yet", out->len ? "; " : "", u,
		 u == 1 ? " tells" : "es tell");
	add_pids(unknown, out);
	buf_addf(out,
		 ": the trace begins when the job does, by an mstx range \"step start\", "
		 "sonde_step() of C, sonde.step() of Python, or an optimizer of PyTorch; '%s "
		 "nputrace --stop' drops one that has not begun",
		 name);
}
