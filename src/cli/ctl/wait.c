/* SPDX-License-Identifier: MulanPSL-2.0 */
/* --wait of requests to profilers: how it went in each process, printed. */
#include "cli/ctl/request.h"
#include "cli/ctl/values.h"

static const char *describe_process(const struct wait *w, const struct wait_process *p)
{
	static const char *const done[] = {[WAIT_FILES] = "the trace is over",
					   [WAIT_MONITOR_ON] = "the monitor is on",
					   [WAIT_MONITOR_OVER] = "the monitor has run its time",
					   [WAIT_MONITOR_OFF] = "the monitor is off"};

	if (p->state == WAIT_GOES_ON)
		return "not done yet when --wait-timeout was over";
	if (p->state != WAIT_DONE || !p->words)
		return p->state == WAIT_DONE ? done[w->what] : p->words;
	return "written to ";
}

static void add_process(const struct ctl *c, const struct wait *w, size_t host,
			const struct wait_process *p, struct buf *out)
{
	const char *words = describe_process(w, p);

	buf_addf(out, "Process %lld", (long long)p->pid);
	if (c->hosts.n > 1)
		buf_addf(out, " on %s", c->hosts.v[host].label);
	buf_addf(out, ": %s%s%s\n", p->state == WAIT_FAILED ? "failed: " : "", words,
		 p->state == WAIT_DONE && p->words ? p->words : "");
}

int ctl_wait_print(struct ctl *c, const struct wait *w)
{
	struct buf text = {0};
	size_t all = 0,
	       bad = wait_count(w, &c->group, WAIT_FAILED) + wait_count(w, &c->group, WAIT_GOES_ON);

	for (size_t i = 0; i < c->hosts.n; i++)
		for (size_t k = 0; k < w->hosts[i].n; k++, all++)
			add_process(c, w, i, &w->hosts[i].processes[k], &text);
	int status = command_print(c->cmd, &text);
	if (bad)
		ctl_notice(c, "not carried out in %zu of %zu process%s", bad, all,
			   all == 1 ? "" : "es");
	buf_release(&text);
	return status;
}

void ctl_wait_add_json(const struct wait *w, size_t host, json_t *row)
{
	const struct wait_host *h = &w->hosts[host];
	json_t *list = json_array();

	for (size_t k = 0; k < h->n; k++) {
		const struct wait_process *p = &h->processes[k];
		bool good = p->state == WAIT_DONE;

		json_array_append_new(
			list,
			json_pack("{s:I,s:s,s:o,s:o}", "pid", (json_int_t)p->pid, "state",
				  wait_state_names[p->state], "path",
				  good && p->words ? json_string(p->words) : json_null(), "why",
				  good ? json_null() : json_string(describe_process(w, p))));
	}
	json_object_set_new(row, "wait", list);
}

int ctl_wait_status(const struct ctl *c, const struct wait *w)
{
	bool bad = wait_count(w, &c->group, WAIT_FAILED) || wait_count(w, &c->group, WAIT_GOES_ON);

	return bad ? EXIT_FINDING : EXIT_DONE;
}
