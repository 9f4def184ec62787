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
#include "client/top/model.h"
#include "client/watch.h"

#define WORD_BYTES 64 /* of a state, as --ranks passes it on */

struct watch_options {
	struct ctl_common common;
	unsigned interval_s;
	unsigned count; /* 0: until it is stopped */
	bool ranks;
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

/* Keys of a process that `sonde ctl watch --ranks` passes on. */
static const char *const rank_keys[] = {"pid",	 "rank",	 "device",    "job_id",
					"state", "current_step", "step_age_s"};

static json_t *part_json(bool known, double part)
{
	return known ? json_real(part) : json_null();
}

/* What a host says is shown beside what others say: it is numbers and short words, or nothing. */
static bool is_plain(const json_t *v)
{
	return json_is_number(v) || (json_is_string(v) && json_string_length(v) <= WORD_BYTES);
}

static json_t *rank_json(const json_t *process, const struct top_process *t, bool slowest)
{
	json_t *o = json_object();

	for (size_t i = 0; i < sizeof(rank_keys) / sizeof(rank_keys[0]); i++) {
		json_t *v = json_object_get(process, rank_keys[i]);

		json_object_set(o, rank_keys[i], is_plain(v) ? v : json_null());
	}
	bool known = t && !t->late;
	if (t && t->rank >= 0 && !json_is_integer(json_object_get(o, "rank")))
		json_object_set_new(o, "rank", json_integer(t->rank)); /* as its monitor has it */
	json_object_set_new(o, "busy", part_json(known, known ? t->busy : 0));
	json_object_set_new(o, "kernels", part_json(known && t->has_kernel, known ? t->kernel : 0));
	json_object_set_new(o, "communication",
			    part_json(known && t->has_comm, known ? t->comm : 0));
	json_object_set_new(o, "copies", part_json(known && t->has_copy, known ? t->copy : 0));
	json_object_set_new(o, "step_ns",
			    part_json(known && t->step_ns > 0, known ? t->step_ns : 0));
	json_object_set_new(o, "slowest", json_boolean(slowest));
	return o;
}

static const struct top_process *find_top(const struct top_model *m, size_t host, int64_t pid)
{
	for (size_t i = 0; i < m->nprocesses; i++)
		if (m->processes[i].host == host && m->processes[i].pid == pid)
			return &m->processes[i];
	return NULL;
}

/* The ranks of a host; who is the slowest is found among those of all hosts. */
static json_t *ranks_json(const struct client_round *r, const struct top_model *m, size_t host)
{
	json_t *list = json_array(), *process;
	size_t i;

	json_array_foreach(json_object_get(r->processes[host].reply, "processes"), i, process)
	{
		if (i >= WATCH_PROCESSES_MAX)
			break; /* it was not asked for more */
		int64_t pid = json_integer_value(json_object_get(process, "pid"));
		const struct top_process *t = find_top(m, host, pid);
		bool slowest = t && m->slowest.by != TOPLIST_SLOW_NONE &&
			       t == &m->processes[m->slowest.at];

		json_array_append_new(list, rank_json(process, t, slowest));
	}
	return list;
}

static json_t *ranks_round_json(const struct ctl *c, const struct client_round *r)
{
	json_t *list = json_array();
	struct top_model m;

	top_model_make(&m, &c->group, r->top, "");
	for (size_t i = 0; i < c->hosts.n; i++) {
		json_t *row = ctl_answer_json(c, i, &r->status[i]);
		const json_t *total = json_object_get(r->processes[i].reply, "total");

		json_object_del(row, "reply"); /* of any size */
		json_object_set_new(row, "total", json_integer(json_integer_value(total)));
		json_object_set_new(row, "ranks", ranks_json(r, &m, i));
		json_array_append_new(list, row);
	}
	top_model_release(&m);
	return list;
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
		good = command_print_json_line(w->c->cmd, r->top ? ranks_round_json(w->c, r)
								 : round_json(w->c, r)) ==
		       EXIT_DONE;
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
				     .ranks = o->ranks && o->common.json,
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
	OPTION_FLAG("ranks", offsetof(struct watch_options, ranks),
		    "With --json: the ranks of every host, how long their steps take, what their "
		    "devices do, and which rank of all is the slowest."),
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
