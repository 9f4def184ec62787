/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Why there is nothing to show, and what to do about it. */
#include "base/text/printable.h"
#include "cli/top/text.h"

#include <string.h>

bool top_text_ended(const struct top_model *m, struct buf *s)
{
	if (m->ended && !m->running && !m->paused)
		buf_addf(s, "The monitor %s. 'sonde top', started anew, starts it.",
			 m->stopped ? "was stopped by an order"
				    : "has ended: its --duration is over");
	else if (m->was_known && !m->known && !m->failed)
		buf_add_str(s, "The processes have ended.");
	return s->len > 0;
}

bool top_text_off(const struct top_model *m, struct buf *s)
{
	double age = 0;

	if (m->running || m->paused || m->starting)
		return false;
	for (size_t i = 0; i < m->nprocesses; i++)
		if (!m->processes[i].late && m->processes[i].age_s > age)
			age = m->processes[i].age_s;
	buf_addf(s, "The monitor is off: these are its last numbers, of %.0f s ago.", age);
	return true;
}

void top_text_command(struct buf *s, const struct ctl *c, const char *words)
{
	buf_add_str(s, "sonde ctl ");
	if (c->common->port != RPC_PORT)
		buf_addf(s, "--port %u ", c->common->port);
	buf_add_str(s, words);
}

static const char *es(unsigned n)
{
	return n == 1 ? "" : "es";
}

static void say_nobody(const struct top_model *m, const struct ctl *c, struct buf *s)
{
	if (!m->registered) {
		buf_add_str(s, "No process that can be monitored has registered: start jobs with "
			       "'sonde monitor -- COMMAND', after the daemon.");
		return;
	}
	buf_addf(s, "%u process%s can be monitored, but none that was asked for is among them: '",
		 m->registered, es(m->registered));
	top_text_command(s, c, "ps");
	buf_add_str(s, "' shows which there are, for --pids and --job-id.");
}

/* A framework's own monitor, to which a report for us means nothing. */
static void say_mute(const struct ctl *c, struct buf *s)
{
	buf_add_str(s, "The monitor is on, but no report has come: in these processes it is a "
		       "framework's own, which sends none to this command. Its numbers are in the "
		       "daemon's /metrics, and '");
	top_text_command(s, c, "npu-monitor --npu-monitor-start --log-file DIRECTORY");
	buf_add_str(s, "' has it write them to files. Jobs that are started with 'sonde monitor -- "
		       "COMMAND' can be shown here.");
}

static void say_no_monitor(const struct top_model *m, const struct ctl *c, struct buf *s)
{
	if (m->starting && !m->tracing && m->refused) {
		const char *why = json_string_value(json_object_get(m->refused, "why"));
		buf_addf(s, "The monitor does not start in process %lld: ",
			 (long long)json_integer_value(json_object_get(m->refused, "pid")));
		text_add_printable(s, why ? why : "", why ? strlen(why) : 0);
		buf_add_char(s, '.');
		return;
	}
	if (m->starting && !m->tracing) {
		buf_addf(s, "Starting the monitor in %u process%s …", m->known, es(m->known));
		return;
	}
	buf_addf(s, "%u process%s can be monitored, and the monitor is off", m->known,
		 es(m->known));
	if (!m->tracing) {
		buf_add_char(s, '.');
		return;
	}
	buf_addf(s,
		 ": nputrace has %u of them, and only one of the two can be on. Wait until that is "
		 "over, or end it with '",
		 m->tracing);
	top_text_command(s, c, "nputrace --stop");
	buf_add_str(s, "'.");
}

void top_text_nothing(const struct top_model *m, const struct ctl *c, struct buf *s)
{
	if (top_text_ended(m, s) || (m->failed && !m->known))
		return;
	if (!m->known)
		say_nobody(m, c, s);
	else if (m->is_mute)
		say_mute(c, s);
	else if (m->running)
		buf_add_str(s, "The monitor is on; the first report is on its way.");
	else
		say_no_monitor(m, c, s);
}
