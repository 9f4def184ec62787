/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "cli/ctl/request.h"

#include <stdio.h>

#include "cli/ctl/clocks.h"
#include "cli/ctl/values.h"

/* --- why nothing was triggered --- */

/* What to check when there is no process, by the kind that was expected. */
static void explain_no_process(enum profiler_kind kind, struct buf *out)
{
	if (kind == PROFILER_GPUTRACE)
		buf_add_str(out,
			    "no process matched: was the job started with KINETO_USE_DAEMON=1, "
			    "after the daemon, and the daemon with --enable-ipc-monitor? under "
			    "Slurm give its id with --job-id; in a container both need the same "
			    "KINETO_IPC_SOCKET_DIR or network namespace");
	else
		buf_add_str(out,
			    "no process has registered: start the daemon with --enable-ipc-monitor "
			    "first, then the job with MSMONITOR_USE_DAEMON=1 or by 'sonde "
			    "monitor', as the same user, and wait for its first steps");
}

/* From the states alone. */
static void explain_by_status(enum profiler_kind kind, const json_t *status, const char *name,
			      struct buf *out)
{
	if (kind != PROFILER_NPU_MONITOR && client_text_is(status, "npumonitor", "Running"))
		buf_addf(out,
			 "npu-monitor is running, and the two cannot run together: stop it with "
			 "'%s npu-monitor --npu-monitor-stop' and try again",
			 name);
	else if (kind == PROFILER_NPU_MONITOR && client_text_is(status, "nputrace", "Running"))
		buf_addf(out,
			 "a trace is being taken, and the two cannot run together: try again when "
			 "'%s status' says Idle",
			 name);
	else if (kind == PROFILER_GPUTRACE)
		buf_add_str(
			out,
			"this daemon holds it to the rules of NPU processes, as the dynolog of "
			"msMonitor does, and traces no others: run 'sonde daemon' there instead");
	else
		explain_no_process(kind, out);
}

void ctl_outcome_why(enum profiler_kind kind, const struct profiler_outcome *o,
		     const json_t *explained, const json_t *status, const char *name,
		     struct buf *out)
{
	const char *reason = json_string_value(json_object_get(explained, "reason"));

	if (o->state == PROFILER_REFUSED && o->others)
		buf_addf(out,
			 "the %s that match%s belong%s to other users: ask as root, or as a member "
			 "of the daemon's --admin-group",
			 o->others == 1 ? "process" : "processes", o->others == 1 ? "es" : "",
			 o->others == 1 ? "s" : "");
	else if (o->state == PROFILER_REFUSED)
		buf_add_str(out, "the daemon does not accept the request");
	else if (o->state == PROFILER_BUSY)
		buf_addf(out,
			 "%zu process%s not fetched an earlier request yet: try again in some "
			 "seconds",
			 o->matched,
			 o->matched == 1 ? " matched, but has" : "es matched, but have");
	else if (o->state == PROFILER_HELD)
		buf_addf(out, "%zu matched, but --process-limit lets none have it", o->matched);
	else if (reason)
		buf_add_str(out, reason);
	else if (o->state == PROFILER_NO_MATCH)
		explain_no_process(kind, out);
	else
		explain_by_status(kind, status, name, out);
}

void ctl_outcome_rest(const struct profiler_outcome *o, unsigned process_limit, struct buf *out)
{
	size_t left = o->matched - o->triggered;

	if (o->others)
		buf_addf(out, "%zu more match%s, but belong%s to other users", o->others,
			 o->others == 1 ? "es" : "", o->others == 1 ? "s" : "");
	if (o->matched <= o->triggered)
		return;
	if (o->others)
		buf_add_str(out, "; ");
	if (o->busy && o->busy >= left)
		buf_addf(out, "%zu more matched, but have not fetched an earlier request yet",
			 left);
	else
		buf_addf(out,
			 "%zu more matched and were left out: --process-limit is %u, ask for all "
			 "with --process-limit %zu",
			 left, process_limit, o->matched);
}

/* The options that a process has reported as unsupported. */
static void add_unsupported(const json_t *reply, struct buf *out)
{
	const json_t *list = json_object_get(reply, "notHonoured");
	size_t n = json_array_size(list);

	if (!n)
		return;
	buf_addf(out, "%sthe monitor of sonde in these processes ignores ", out->len ? "; " : "");
	for (size_t i = 0; i < n; i++) {
		const char *name = json_string_value(json_array_get(list, i));

		buf_addf(out, "%s%s", !i ? "" : i + 1 == n ? " and " : ", ", name ? name : "?");
	}
	buf_addf(out, ": it does not support %s", n == 1 ? "it" : "them");
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

/* What it means for traces that have not begun, and for those that cannot begin yet. */
static void add_traces(const json_t *reply, const char *name, struct buf *out)
{
	const json_t *replaced = json_object_get(reply, "tracesReplaced");
	const json_t *dropped = json_object_get(reply, "tracesDropped");
	const json_t *unknown = json_object_get(reply, "stepsUnknown");
	size_t n = json_array_size(replaced), d = json_array_size(dropped),
	       u = json_array_size(unknown);

	if (n) {
		buf_addf(out, "%sit replaces %s that had not begun", out->len ? "; " : "",
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
		 u == 1 ? " reports" : "es report");
	add_pids(unknown, out);
	buf_addf(out,
		 ": the trace begins when the job does, by an mstx range \"step start\", "
		 "sonde_step() of C, sonde.step() of Python, or an optimizer of PyTorch; '%s "
		 "nputrace --stop' drops one that has not begun, and --duration-ms instead of "
		 "--iterations traces a time",
		 name);
}

/* --- what there is to know about a host --- */

/* A request and its outcome. */
struct run {
	struct ctl *c;
	const struct ctl_request *o;
	const struct profiler_request *q;
	struct profiler_results r;
	struct wait w; /* with --wait */
};

/* What happens next in so many processes. */
static void add_next(const struct ctl_request *o, size_t processes, struct buf *out)
{
	if (o->each)
		buf_addf(out, "%s %s", processes == 1 ? "it" : "each", o->each);
	else
		buf_add_str(out, o->success);
}

/* Which processes failed, and why: the first stands for all. */
static void add_failures(const struct run *r, size_t i, struct buf *out)
{
	json_t *failed = json_object_get(r->r.replies[i].reply, "failed");
	json_t *first = json_array_get(failed, 0);
	const char *why = json_string_value(json_object_get(first, "why"));

	if (!first)
		return;
	if (out->len)
		buf_add_str(out, "; ");
	buf_addf(out, "the request failed in %zu of %zu process%s: %s (process %lld)",
		 profiler_count_failures(&r->r, i), r->r.outcomes[i].triggered,
		 r->r.outcomes[i].triggered == 1 ? "" : "es", why ? why : "no reason given",
		 (long long)json_integer_value(json_object_get(first, "pid")));
}

/* What there is to know about a host, in words. */
static void add_note(const struct run *r, size_t i, struct buf *out)
{
	const struct profiler_outcome *o = &r->r.outcomes[i];
	const char *status = json_string_value(json_object_get(r->r.answers[i].reply, "status"));

	if (o->state == PROFILER_FAILED)
		buf_add_str(out, r->r.answers[i].err.text);
	else if (o->state != PROFILER_TRIGGERED)
		ctl_outcome_why(r->q->kind, o, profiler_explanation(&r->r, i), r->r.status[i].reply,
				ctl_name(r->c), out);
	else if (profiler_step_passed(&r->r, r->q, i))
		buf_addf(out,
			 "step %lld is over already, the job is at step %lld: give a later "
			 "--start-step, or -1 for the next one",
			 (long long)r->q->start_step,
			 (long long)json_integer_value(
				 json_object_get(r->r.status[i].reply, "current_step")));
	else
		ctl_outcome_rest(o, profiler_request_limit(r->q), out);
	if (o->state == PROFILER_TRIGGERED) {
		add_unsupported(r->r.answers[i].reply, out);
		add_traces(r->r.answers[i].reply, ctl_name(r->c), out);
		add_failures(r, i, out);
	}
	if (o->state == PROFILER_REFUSED && status)
		buf_addf(out, ": %s", status);
}

/* --- one host: the lines that scripts know --- */

static const char *config_heading(enum profiler_kind kind)
{
	return kind == PROFILER_GPUTRACE   ? "Kineto config = "
	       : kind == PROFILER_NPUTRACE ? "NpuTrace config = "
					   : "Npu monitor config = ";
}

static void add_files(const struct run *r, const json_t *pids, struct buf *out)
{
	size_t n = json_array_size(pids), i;
	/* a directory for all of them, in which each makes its own */
	bool one = r->q->kind == PROFILER_NPUTRACE && n > 1;
	struct buf path = {0};
	json_t *pid;

	buf_addf(out, "Matched %zu processes\n", n);
	/* dyno always prints where, and scripts read it */
	if (!profiler_count_takers(&r->r, 0) && !ctl_is_dyno(r->c))
		return;
	buf_addf(out, "Trace output files will be written to:\n");
	if (one) {
		r->o->file(r->q->options, profiler_host(&r->c->group, 0), 0, &path);
		buf_addf(out, "    %s (%zu processes)\n", buf_str(&path), n);
	}
	json_array_foreach(one ? NULL : pids, i, pid)
	{
		buf_clear(&path);
		r->o->file(r->q->options, profiler_host(&r->c->group, 0), json_integer_value(pid),
			   &path);
		buf_addf(out, "    %s\n", buf_str(&path));
		if (r->o->memory)
			buf_addf(out, "      Or /tmp/memory_snapshot_%lld.pickle\n",
				 (long long)json_integer_value(pid));
	}
	if (r->o->memory)
		buf_add_str(out, "\nMemory profiles may take 4-5 mins to export.\n"
				 "\nTo view them please drag and drop the file to "
				 "https://docs.pytorch.org/memory_viz\n"
				 "For more info please see "
				 "https://pytorch.org/blog/understanding-gpu-memory-1/\n");
	buf_release(&path);
}

static void add_reply(const struct run *r, struct buf *out)
{
	const struct client_answer *a = &r->r.answers[0];
	json_t *matched = json_object_get(a->reply, "processesMatched");

	bool gpu = r->q->kind == PROFILER_GPUTRACE;

	if (gpu)
		buf_addf(out, "response length = %zu\n", a->raw_bytes);
	buf_addf(out, "response = %s\n%s", a->raw, gpu ? "\n" : "");
	if (!json_is_array(matched) || !r->o->file)
		return;
	if (json_array_size(matched))
		add_files(r, matched, out);
	else
		buf_addf(out, "No processes were matched, please check --job-id or --pids flags\n");
}

static int print_one(const struct run *r)
{
	const struct profiler_outcome *o = &r->r.outcomes[0];
	struct buf text = {0}, note = {0}, next = {0};
	size_t sent = profiler_count_takers(&r->r, 0);

	add_reply(r, &text);
	int status = command_print(r->c->cmd, &text);
	add_note(r, 0, &note);
	if (o->state == PROFILER_TRIGGERED && sent && !profiler_step_passed(&r->r, r->q, 0)) {
		add_next(r->o, sent, &next);
		ctl_notice(r->c, "request sent to %zu process%s; %s", sent, sent == 1 ? "" : "es",
			   buf_str(&next));
	}
	if (note.len)
		ctl_notice(r->c, "%s%s",
			   o->state == PROFILER_TRIGGERED ? "" : "nothing was triggered: ",
			   buf_str(&note));
	buf_release(&text);
	buf_release(&note);
	buf_release(&next);
	return status;
}

/* --- many hosts --- */

static void add_row(const struct run *r, size_t i, struct table *t)
{
	const struct profiler_outcome *o = &r->r.outcomes[i];
	struct buf note = {0};

	add_note(r, i, &note);
	table_text(t, r->c->hosts.v[i].label);
	table_text(t, profiler_state_names[o->state]);
	if (o->state == PROFILER_FAILED) {
		table_text(t, "-");
		table_text(t, "-");
	} else {
		table_textf(t, "%zu", o->matched);
		table_textf(t, "%zu", o->triggered);
	}
	table_cell(t, &note);
	buf_release(&note);
}

static int print_many(const struct run *r)
{
	static const char *const titles[] = {"HOST",	   "STATE", ">MATCHED",
					     ">TRIGGERED", "NOTE",  NULL};
	struct table t = {.titles = titles};
	struct buf text = {0}, next = {0};
	size_t matched = 0, sent = 0;

	for (int failed = 0; failed < 2; failed++)
		for (size_t i = 0; i < r->c->hosts.n; i++)
			if ((r->r.outcomes[i].state >= PROFILER_REFUSED) == failed)
				add_row(r, i, &t);
	for (size_t i = 0; i < r->c->hosts.n; i++) {
		matched += r->r.outcomes[i].matched;
		sent += profiler_count_takers(&r->r, i);
	}
	if (sent)
		add_next(r->o, sent, &next);
	table_print(&t, 0, &text);
	int status = command_print(r->c->cmd, &text);
	ctl_notice(r->c, "%zu hosts: %zu processes matched, request sent to %zu%s%s", r->c->hosts.n,
		   matched, sent, sent ? "; " : "", buf_str(&next));
	table_release(&t);
	buf_release(&next);
	buf_release(&text);
	return status;
}

static json_t *files_json(const struct run *r, size_t i)
{
	json_t *list = json_array(), *pid;
	struct buf path = {0};
	size_t at;

	json_array_foreach(json_object_get(r->r.answers[i].reply, "activityProfilersTriggered"), at,
			   pid)
	{
		buf_clear(&path);
		r->o->file(r->q->options, profiler_host(&r->c->group, i), json_integer_value(pid),
			   &path);
		json_array_append_new(list, json_string(buf_str(&path)));
	}
	buf_release(&path);
	return list;
}

static void set_outcome(const void *run, size_t i, json_t *row)
{
	const struct run *r = run;
	const struct profiler_outcome *o = &r->r.outcomes[i];
	struct buf note = {0};

	add_note(r, i, &note);
	json_object_set_new(row, "state", json_string(profiler_state_names[o->state]));
	json_object_set_new(row, "matched", json_integer((json_int_t)o->matched));
	json_object_set_new(row, "triggered", json_integer((json_int_t)o->triggered));
	json_object_set_new(row, "note", note.len ? json_string(buf_str(&note)) : json_null());
	if (r->o->file)
		json_object_set_new(row, "files", files_json(r, i));
	if (r->w.hosts)
		ctl_wait_add_json(&r->w, i, row);
	buf_release(&note);
}

/* --- all of it --- */

/* What shows the traces of our own monitor: who takes part in such a request replies to it. */
static void print_next_commands(const struct run *r)
{
	const char *dir = r->o->log_file;
	bool ours = false;

	for (size_t i = 0; i < r->c->hosts.n; i++)
		ours |= profiler_count_takers(&r->r, i) &&
			json_array_size(json_object_get(r->r.replies[i].reply, "expected"));
	if (!dir || dir[0] != '/' || r->q->kind != PROFILER_NPUTRACE || !ours)
		return;
	ctl_notice(r->c,
		   "%s: sonde report %s; other commands for this directory: sonde timeline, sonde "
		   "activity summary",
		   r->o->wait.on ? "to see it as a page"
				 : "when it is written, to see it as a page",
		   dir);
}

static int exit_status(const struct run *r)
{
	bool refused = false, without = false, unmatched = false;

	for (size_t i = 0; i < r->c->hosts.n; i++) {
		enum profiler_state s = r->r.outcomes[i].state;

		refused = refused || s == PROFILER_REFUSED;
		without = without || !profiler_is_triggered(&r->r, i) ||
			  profiler_step_passed(&r->r, r->q, i) || profiler_count_failures(&r->r, i);
		unmatched = unmatched || (s < PROFILER_REFUSED && !r->r.outcomes[i].matched);
	}
	int status = ctl_failures(r->c, r->r.answers);
	if (status != EXIT_DONE || refused || (unmatched && r->o->fail_on_no_process))
		return EXIT_FAILED;
	return without && (ctl_is_strict(r->c) || r->o->wait.on) ? EXIT_FINDING : EXIT_DONE;
}

static int print_outcomes(const struct run *r)
{
	if (r->c->common->json)
		return ctl_print_json(r->c, r->r.answers, set_outcome, r);
	if (r->c->hosts.n > 1)
		return print_many(r);
	return r->r.answers[0].reply ? print_one(r) : EXIT_DONE;
}

/* What is about to be sent, as scripts know it. */
static void print_config(const struct run *r)
{
	struct buf config = {0};

	r->q->config(r->q->options, NULL, &config);
	printf("%s\n%s\n", config_heading(r->q->kind), buf_str(&config));
	fflush(stdout);
	buf_release(&config);
}

/* Sends it; with --wait also waits, behind the lines that scripts know. */
static int send_and_print(struct run *r, struct err *err)
{
	bool waits = r->o->wait.on, json = r->c->common->json;
	struct client_group *g = &r->c->group;
	int status = EXIT_DONE;

	ctl_clocks_keep(r->c, r->o->log_file);
	if ((waits && wait_begin(&r->w, g, r->q, err) < 0) ||
	    profiler_request_send(g, r->q, &r->r, err) < 0)
		return ctl_fail(r->c, err, EXIT_FAILED);
	if (!json)
		status = print_outcomes(r);
	g->progress = NULL; /* there are many rounds */
	if (waits && status == EXIT_DONE && wait_run(&r->w, g, r->q, &r->r, err) < 0)
		return ctl_fail(r->c, err, EXIT_FAILED);
	if (waits && status == EXIT_DONE)
		ctl_clocks_keep(r->c, r->o->log_file);
	if (json)
		status = print_outcomes(r);
	else if (waits && status == EXIT_DONE)
		status = ctl_wait_print(r->c, &r->w);
	if (status == EXIT_DONE)
		status = exit_status(r);
	if (status == EXIT_DONE && waits)
		status = ctl_wait_status(r->c, &r->w);
	if (!json && status == EXIT_DONE)
		print_next_commands(r);
	return status;
}

int ctl_request_run(struct ctl *c, const struct ctl_request *o)
{
	struct profiler_request q = o->q;
	struct run r = {.c = c,
			.o = o,
			.q = &q,
			.w = {.what = o->wait_for,
			      .timeout_s = o->wait.timeout_s,
			      .duration_ms = o->duration_ms,
			      .file = o->file}};
	struct err err = {0};

	q.pids = ctl_pids(o->pids);
	/* dyno prints the answer, and scripts know which keys it has */
	q.with_reason = !ctl_is_dyno(c);
	if (c->hosts.n == 1 && !c->common->json)
		print_config(&r);
	int status = send_and_print(&r, &err);
	wait_release(&r.w, &c->group);
	profiler_results_release(&c->group, &r.r);
	json_decref(q.pids);
	return status;
}
