/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * sonde ctl watch: states and processes of hosts, again and again. A terminal shows the latest; a
 * file or a pipe gets a line for each host and round.
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/text/display_width.h"
#include "base/text/printable.h"
#include "cli/ctl/ctl.h"
#include "cli/screen.h"
#include "client/watch.h"

struct watch_options {
	struct ctl_common common;
	unsigned interval_s;
	unsigned count; /* 0: until it is stopped */
};

struct watch_run {
	struct ctl *c;
	const struct watch_options *o;
	bool screen;
	int status; /* if the last round were the end */
};

static const char *text_of(const struct client_answer *a, const char *key)
{
	const char *value = json_string_value(json_object_get(a->reply, key));

	return value ? value : "-";
}

/* A number, or "-" from a daemon that does not report it. */
static const char *number_of(const struct client_answer *a, const char *key, char out[24])
{
	const json_t *n = json_object_get(a->reply, key);

	snprintf(out, 24, "-");
	if (json_is_integer(n))
		snprintf(out, 24, "%lld", (long long)json_integer_value(n));
	return out;
}

static void clock_text(char out[16])
{
	time_t now = time(NULL);
	struct tm tm;

	localtime_r(&now, &tm);
	strftime(out, 16, "%H:%M:%S", &tm);
}

static void add_lines(const struct ctl *c, const struct client_round *r, struct buf *out)
{
	char now[16], step[24], total[24];
	struct buf line = {0};

	clock_text(now);
	for (size_t i = 0; i < c->hosts.n; i++) {
		const struct client_answer *s = &r->status[i];

		buf_clear(&line);
		buf_addf(&line, "%s %s ", now, c->hosts.v[i].label);
		if (s->reply)
			buf_addf(&line, "nputrace=%s npumonitor=%s step=%s processes=%s",
				 text_of(s, "nputrace"), text_of(s, "npumonitor"),
				 number_of(s, "current_step", step),
				 number_of(&r->processes[i], "total", total));
		else
			buf_addf(&line, "failed: %s", s->err.text);
		text_add_printable(out, buf_str(&line), line.len);
		buf_add_char(out, '\n');
	}
	buf_release(&line);
}

static void add_hosts(const struct ctl *c, const struct client_round *r, unsigned width,
		      struct buf *out)
{
	static const char *const titles[] = {"HOST",	   "NPUTRACE", "NPUMONITOR", ">STEP",
					     ">PROCESSES", "NOTE",     NULL};
	struct table t = {.titles = titles};
	char n[24];

	for (int failed = 1; failed >= 0; failed--)
		for (size_t i = 0; i < c->hosts.n; i++) {
			const struct client_answer *s = &r->status[i];

			if ((s->reply == NULL) != failed)
				continue;
			table_text(&t, c->hosts.v[i].label);
			table_text(&t, text_of(s, "nputrace"));
			table_text(&t, text_of(s, "npumonitor"));
			table_text(&t, number_of(s, "current_step", n));
			table_text(&t, number_of(&r->processes[i], "total", n));
			table_text(&t, s->reply ? "" : s->err.text);
		}
	table_print(&t, width, out);
	table_release(&t);
}

static void add_processes(const struct ctl *c, const struct client_round *r, unsigned width,
			  struct buf *out)
{
	const char *titles[TABLE_COLUMNS + 1];
	struct table t = {.titles = titles};
	json_t *process;
	size_t i;

	ctl_set_titles(ctl_process_columns, false, false, titles);
	json_array_foreach(json_object_get(r->processes[0].reply, "processes"), i, process)
		ctl_add_process(c, 0, process, &t);
	buf_add_char(out, '\n');
	table_print(&t, width, out);
	table_release(&t);
}

static void add_screen(const struct ctl *c, const struct watch_options *o,
		       const struct client_round *r, struct buf *out)
{
	unsigned width = terminal_columns(STDOUT_FILENO, NULL), columns;
	char now[16], heading[96];

	clock_text(now);
	int len = snprintf(heading, sizeof(heading), "%s  %zu host%s, every %u s; Ctrl-C ends", now,
			   c->hosts.n, c->hosts.n == 1 ? "" : "s", o->interval_s);
	buf_add(out, heading, text_fit_columns(heading, (size_t)len, width, &columns));
	buf_add_str(out, "\n\n");
	add_hosts(c, r, width, out);
	if (c->hosts.n == 1)
		add_processes(c, r, width, out);
}

static bool any_failed(const struct ctl *c, const struct client_round *r)
{
	for (size_t i = 0; i < c->hosts.n; i++)
		if (!r->status[i].reply)
			return true;
	return false;
}

static json_t *round_json(const struct ctl *c, const struct client_round *r)
{
	json_t *list = json_array();

	for (size_t i = 0; i < c->hosts.n; i++) {
		json_t *row = ctl_answer_json(c, i, &r->status[i]);
		json_t *processes = json_object_get(r->processes[i].reply, "processes");

		json_object_set(row, "processes", processes ? processes : json_null());
		json_array_append_new(list, row);
	}
	return list;
}

static bool show_round(void *arg, const struct client_round *r)
{
	struct watch_run *w = arg;
	struct buf out = {0};
	bool good;

	if (w->screen) {
		add_screen(w->c, w->o, r, &out);
		good = screen_draw(&out);
	} else if (w->o->common.json) {
		good = command_print_json_line(w->c->cmd, round_json(w->c, r)) == EXIT_DONE;
	} else {
		add_lines(w->c, r, &out);
		good = command_print(w->c->cmd, &out) == EXIT_DONE;
	}
	buf_release(&out);
	w->status = good && !any_failed(w->c, r) ? EXIT_DONE : EXIT_FAILED;
	return good;
}

static bool wait_for_round(void *arg, uint64_t until_ns)
{
	(void)arg;
	screen_wait(until_ns, false);
	return true;
}

static int watch_hosts(struct ctl *c, void *options)
{
	const struct watch_options *o = options;
	struct watch_run w = {.c = c, .o = o, .screen = isatty(STDOUT_FILENO) && !o->common.json};
	struct client_watch watch = {.interval_s = o->interval_s,
				     .rounds = o->count,
				     .show = show_round,
				     .wait = wait_for_round,
				     .arg = &w};
	struct err err = {0};

	signal(SIGPIPE, SIG_DFL);
	if (w.screen) {
		c->group.progress = NULL;
		screen_signals(true);
		screen_enter(false);
	}
	int r = client_watch(&c->group, &watch, &err);
	if (w.screen)
		screen_leave();
	return r < 0 ? ctl_fail(c, &err, EXIT_FAILED) : w.status;
}

static const struct watch_options defaults = {CTL_COMMON_DEFAULTS, .interval_s = 1};
static const struct ctl_steps steps = {&defaults, sizeof(defaults), .run = watch_hosts};

static const struct opt options[] = {
	OPTION_UINT("interval", "SECONDS", offsetof(struct watch_options, interval_s), 1, 86400,
		    "1", "Time between two rounds.", .group = "Watching"),
	OPTION_UINT("count", "N", offsetof(struct watch_options, count), 0, UINT32_MAX,
		    "0, until it is stopped", "End after this many rounds.", .letters = "n"),
	CTL_COMMON_ROWS,
};

static const struct args_example examples[] = {
	{"this host", "sonde ctl watch"},
	{"write a minute of a job's states to a file",
	 "sonde ctl watch --slurm-job 4711 -n 60 > states.txt"},
	{NULL, NULL},
};

const struct command cmd_ctl_watch = CTL_COMMAND(
	"watch", ctl_command_usage, options, examples, &steps,
	.summary = "show states and processes as they change",
	.description = "Shows the states of hosts, and of one host its processes, again "
		       "every second. Hosts that do not answer come first. When the "
		       "output is no terminal, each round is a line for each host; with "
		       "--json it is one line with all of them.");
