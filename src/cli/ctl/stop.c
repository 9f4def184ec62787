/* SPDX-License-Identifier: MulanPSL-2.0 */
/* nputrace --stop: the outcome in each process, printed. */
#include <string.h>

#include "base/text/printable.h"
#include "cli/ctl/ctl.h"
#include "cli/ctl/values.h"
#include "client/stop_trace.h"

struct run {
	struct ctl *c;
	struct stop_results r;
	bool waits;
	size_t failed; /* traces whose files are not there */
};

static void add_rows(const struct run *r, size_t i, struct table *t)
{
	const struct stopped_host *h = &r->r.hosts[i];
	bool several = r->c->hosts.n > 1;

	for (size_t k = 0; k < h->n; k++) {
		if (several)
			table_text(t, r->c->hosts.v[i].label);
		table_textf(t, "%lld", (long long)h->processes[k].pid);
		table_text(t, trace_end_names[h->processes[k].end]);
		table_text(t, h->processes[k].words);
	}
	if (h->n || !several)
		return;
	table_text(t, r->c->hosts.v[i].label);
	table_text(t, "-");
	table_text(t, r->r.answers[i].reply && !stop_is_refused(&r->r, i) &&
				      !stop_is_of_others(&r->r, i)
			      ? "no match"
			      : "failed");
	table_text(t, stop_reason(&r->r, i));
}

static void print_totals(const struct run *r)
{
	const size_t *n = r->r.ends;
	const char *name = ctl_name(r->c);

	if (n[TRACE_ENDED])
		ctl_notice(
			r->c,
			"%zu trace%s ended: the files are complete within some seconds, when '%s "
			"status' says Idle",
			n[TRACE_ENDED], n[TRACE_ENDED] == 1 ? " is" : "s are", name);
	if (n[TRACE_DROPPED])
		ctl_notice(r->c, "%zu trace%s dropped that had not begun: nothing is written",
			   n[TRACE_DROPPED], n[TRACE_DROPPED] == 1 ? " is" : "s are");
	if (n[TRACE_NOT_ENDED])
		ctl_notice(r->c, "%zu %s not ended", n[TRACE_NOT_ENDED],
			   n[TRACE_NOT_ENDED] == 1 ? "trace is" : "traces are");
	if (n[TRACE_NONE] && !n[TRACE_ENDED] && !n[TRACE_DROPPED] && !n[TRACE_NOT_ENDED])
		ctl_notice(r->c, "nothing was ended: no trace waits or runs in %zu process%s",
			   n[TRACE_NONE], n[TRACE_NONE] == 1 ? "" : "es");
}

/* Where the files are, with --wait. */
static int print_files(const struct run *r)
{
	struct buf text = {0};

	for (size_t i = 0; i < r->c->hosts.n; i++)
		for (size_t k = 0; k < r->r.hosts[i].n; k++) {
			const struct stopped_process *p = &r->r.hosts[i].processes[k];
			const char *words = p->path ? p->path : p->why ? p->why : "not written yet";

			if (p->end != TRACE_ENDED)
				continue;
			buf_addf(&text, "Process %lld", (long long)p->pid);
			if (r->c->hosts.n > 1)
				buf_addf(&text, " on %s", r->c->hosts.v[i].label);
			buf_add_str(&text, p->path ? ": written to " : ": failed: ");
			text_add_printable(&text, words, strlen(words));
			buf_add_char(&text, '\n');
		}
	int status = command_print(r->c->cmd, &text);
	buf_release(&text);
	return status;
}

static int print_text(const struct run *r)
{
	static const char *const titles[] = {"HOST", ">PID", "TRACE", "NOTE", NULL};
	struct table t = {.titles = titles + (r->c->hosts.n == 1)};
	struct buf text = {0};

	if (r->c->hosts.n == 1 && r->r.answers[0].reply)
		buf_addf(&text, "response = %s\n", r->r.answers[0].raw);
	for (size_t i = 0; i < r->c->hosts.n; i++)
		add_rows(r, i, &t);
	if (t.n)
		table_print(&t, 0, &text);
	int status = command_print(r->c->cmd, &text);
	if (r->c->hosts.n == 1 && r->r.answers[0].reply && !r->r.hosts[0].n)
		ctl_notice(r->c, "nothing was ended: %s", stop_reason(&r->r, 0));
	print_totals(r);
	if (r->waits && status == EXIT_DONE)
		status = print_files(r);
	table_release(&t);
	buf_release(&text);
	return status;
}

static void set_processes(const void *run, size_t i, json_t *row)
{
	const struct run *r = run;
	const struct stopped_host *h = &r->r.hosts[i];
	json_t *all = json_array();

	for (size_t k = 0; k < h->n; k++) {
		const struct stopped_process *p = &h->processes[k];
		json_t *o = json_pack("{s:I, s:s, s:s}", "pid", (json_int_t)p->pid, "trace",
				      trace_end_names[p->end], "note", p->words);

		if (r->waits)
			json_object_update_new(
				o, json_pack("{s:s?, s:s?}", "path", p->path, "why", p->why));
		json_array_append_new(all, o);
	}
	json_object_set_new(row, "processes", all);
	json_object_set_new(row, "note", h->n ? json_null() : json_string(stop_reason(&r->r, i)));
}

/* --- all of it --- */

/* A trace that goes on, or a host on which there was none to end, is what status 3 is for. */
static int exit_status(const struct run *r)
{
	bool refused = false, without = false;

	for (size_t i = 0; i < r->c->hosts.n; i++) {
		const size_t *n = r->r.hosts[i].ends;

		refused = refused || stop_is_refused(&r->r, i) || stop_is_of_others(&r->r, i);
		without = without || n[TRACE_NOT_ENDED] || !(n[TRACE_ENDED] + n[TRACE_DROPPED]);
	}
	if (ctl_failures(r->c, r->r.answers) != EXIT_DONE || refused)
		return EXIT_FAILED;
	without = without && (ctl_is_strict(r->c) || r->waits);
	return without || r->failed ? EXIT_FINDING : EXIT_DONE;
}

/* Traces without files, after the wait. */
static size_t count_failed(const struct run *r)
{
	size_t n = 0;

	for (size_t i = 0; i < r->c->hosts.n; i++)
		for (size_t k = 0; k < r->r.hosts[i].n; k++)
			n += r->r.hosts[i].processes[k].end == TRACE_ENDED &&
			     !r->r.hosts[i].processes[k].path;
	return n;
}

int ctl_stop_run(struct ctl *c, uint64_t job_id, const char *pids, unsigned wait_s)
{
	json_t *list = ctl_pids(pids);
	struct run r = {.c = c, .waits = wait_s};
	struct err err = {0};
	int status;

	if (stop_trace(&c->group, job_id, list, &r.r, &err) < 0) {
		status = ctl_fail(c, &err, EXIT_FAILED);
	} else {
		if (wait_s) {
			c->group.progress = NULL; /* there are many rounds */
			(void)stop_trace_wait(&c->group, &r.r, wait_s, NULL);
			r.failed = count_failed(&r);
		}
		status = c->common->json ? ctl_print_json(c, r.r.answers, set_processes, &r)
					 : print_text(&r);
		if (status == EXIT_DONE)
			status = exit_status(&r);
	}
	stop_results_release(&c->group, &r.r);
	json_decref(list);
	return status;
}
