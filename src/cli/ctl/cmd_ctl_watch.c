/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * sonde ctl watch: states and processes of hosts, again and again. A terminal shows the latest; a
 * file or a pipe gets a line for each host and round.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/text/display_width.h"
#include "base/text/printable.h"
#include "cli/ctl/ctl.h"

#define ENTER_SCREEN "\033[?1049h\033[?25l"
#define LEAVE_SCREEN "\033[?25h\033[?1049l"
#define HOME "\033[H"
#define CLEAR_LINE "\033[K"
#define CLEAR_BELOW "\033[J"
#define PROCESSES_MAX 256 /* of one host; of many only their number is shown */

struct watch_options {
	struct ctl_common common;
	unsigned interval_s;
	unsigned count; /* 0: until it is stopped */
};

/* The answers of all hosts at one moment. */
struct round {
	struct ctl_answer *status, *processes;
};

static volatile sig_atomic_t must_draw; /* what is on the screen is out of place */

static void leave_screen(int signal_number)
{
	ssize_t n = write(STDOUT_FILENO, LEAVE_SCREEN, strlen(LEAVE_SCREEN));

	(void)n;
	(void)signal_number;
	_exit(EXIT_DONE);
}

/* Ctrl-Z: the shell gets its own screen back, and we ours when we go on. */
static void pause_screen(int signal_number)
{
	int before = errno;
	ssize_t n = write(STDOUT_FILENO, LEAVE_SCREEN, strlen(LEAVE_SCREEN));

	(void)signal_number;
	raise(SIGSTOP);
	n = write(STDOUT_FILENO, ENTER_SCREEN, strlen(ENTER_SCREEN));
	(void)n;
	must_draw = 1;
	errno = before;
}

static void on_resize(int signal_number)
{
	(void)signal_number;
	must_draw = 1;
}

static const char *text_of(const struct ctl_answer *a, const char *key)
{
	const char *value = json_string_value(json_object_get(a->reply, key));

	return value ? value : "-";
}

/* A number, or "-" from a daemon that does not report it. */
static const char *number_of(const struct ctl_answer *a, const char *key, char out[24])
{
	const json_t *n = json_object_get(a->reply, key);

	snprintf(out, 24, "-");
	if (json_is_integer(n))
		snprintf(out, 24, "%lld", (long long)json_integer_value(n));
	return out;
}

static int ask_hosts(struct ctl *c, struct round *r, struct err *err)
{
	json_t *list = json_pack("{s:s, s:i}", "fn", "listProcesses", "limit",
				 c->hosts.n == 1 ? PROCESSES_MAX : 0);

	r->status = ctl_answers_new(c);
	r->processes = ctl_answers_new(c);
	int first = ctl_ask_all(c, json_pack("{s:s}", "fn", "getStatus"), r->status, err);
	int second = ctl_ask_all(c, list, r->processes, first == 0 ? err : NULL);
	return first < 0 ? first : second;
}

static void release_round(const struct ctl *c, struct round *r)
{
	ctl_answers_free(c, r->status);
	ctl_answers_free(c, r->processes);
}

static void clock_text(char out[16])
{
	time_t now = time(NULL);
	struct tm tm;

	localtime_r(&now, &tm);
	strftime(out, 16, "%H:%M:%S", &tm);
}

static void add_lines(const struct ctl *c, const struct round *r, struct buf *out)
{
	char now[16], step[24], total[24];
	struct buf line = {0};

	clock_text(now);
	for (size_t i = 0; i < c->hosts.n; i++) {
		const struct ctl_answer *s = &r->status[i];

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

static void add_hosts(const struct ctl *c, const struct round *r, unsigned width, struct buf *out)
{
	static const char *const titles[] = {"HOST",	   "NPUTRACE", "NPUMONITOR", ">STEP",
					     ">PROCESSES", "NOTE",     NULL};
	struct table t = {.titles = titles};
	char n[24];

	for (int failed = 1; failed >= 0; failed--)
		for (size_t i = 0; i < c->hosts.n; i++) {
			const struct ctl_answer *s = &r->status[i];

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

static void add_processes(const struct ctl *c, const struct round *r, unsigned width,
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

/* The whole screen from its first line: nothing is cleared before it is written over. */
static void draw_screen(const struct ctl *c, const struct watch_options *o, const struct round *r,
			struct buf *out)
{
	unsigned rows, width = terminal_columns(STDOUT_FILENO, &rows);
	struct buf all = {0};
	char now[16];

	clock_text(now);
	buf_addf(&all, "%s  %zu host%s, every %u s; Ctrl-C ends\n\n", now, c->hosts.n,
		 c->hosts.n == 1 ? "" : "s", o->interval_s);
	add_hosts(c, r, width, &all);
	if (c->hosts.n == 1)
		add_processes(c, r, width, &all);
	buf_add_str(out, HOME);
	const char *line = buf_str(&all);
	for (unsigned row = 1; *line && row < rows; row++) {
		size_t len = strcspn(line, "\n");
		unsigned columns;

		buf_add(out, line, text_fit_columns(line, len, width, &columns));
		/* behind a full line it would clear the last character */
		buf_add_str(out, columns < width ? CLEAR_LINE "\n" : "\n");
		line += len + (line[len] == '\n');
	}
	buf_add_str(out, CLEAR_BELOW);
	buf_release(&all);
}

/* Waits until it is time for the next round, or the screen must be drawn again. */
static void wait_until(uint64_t until_ns)
{
	uint64_t now;

	while ((now = clock_mono_ns()) < until_ns && !must_draw)
		poll(NULL, 0, (int)((until_ns - now) / 1000000) + 1);
}

static bool any_failed(const struct ctl *c, const struct round *r)
{
	for (size_t i = 0; i < c->hosts.n; i++)
		if (!r->status[i].reply)
			return true;
	return false;
}

static json_t *round_json(const struct ctl *c, const struct round *r)
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

/* The exit status if it were the last round; negative: it cannot go on. */
static int show_round(struct ctl *c, const struct watch_options *o, bool screen)
{
	struct buf out = {0};
	struct round r = {0};
	struct err err = {0};
	int status;

	if (ask_hosts(c, &r, &err) < 0) {
		status = ctl_fail(c, &err, EXIT_FAILED);
	} else {
		if (screen)
			draw_screen(c, o, &r, &out);
		else if (!o->common.json)
			add_lines(c, &r, &out);
		status = o->common.json ? command_print_json_line(c->cmd, round_json(c, &r))
					: command_print(c->cmd, &out);
	}
	status = status != EXIT_DONE ? -1 : any_failed(c, &r) ? EXIT_FAILED : EXIT_DONE;
	release_round(c, &r);
	buf_release(&out);
	return status;
}

static void take_screen(void)
{
	static const int ends[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};

	printf(ENTER_SCREEN);
	fflush(stdout);
	for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++)
		signal(ends[i], leave_screen);
	signal(SIGWINCH, on_resize);
	if (signal(SIGTSTP, pause_screen) == SIG_IGN)
		signal(SIGTSTP, SIG_IGN);
}

static int watch_hosts(struct ctl *c, void *options)
{
	const struct watch_options *o = options;
	bool screen = isatty(STDOUT_FILENO) && !o->common.json;
	uint64_t next = clock_mono_ns();
	int status = EXIT_DONE;

	signal(SIGPIPE, SIG_DFL);
	c->quiet = screen;
	if (screen)
		take_screen();
	for (unsigned i = 0; status >= 0 && (!o->count || i < o->count); i++) {
		if (i)
			wait_until(next);
		must_draw = 0;
		next = clock_mono_ns() + o->interval_s * 1000000000ull;
		status = show_round(c, o, screen);
	}
	if (screen) {
		printf(LEAVE_SCREEN);
		fflush(stdout);
	}
	return status < 0 ? EXIT_FAILED : status;
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

static const char *const usage[] = {"[options]", NULL};

static const struct args_example examples[] = {
	{"this host", "sonde ctl watch"},
	{"write a minute of a job's states to a file",
	 "sonde ctl watch --slurm-job 4711 -n 60 > states.txt"},
	{NULL, NULL},
};

const struct command cmd_ctl_watch = {
	.name = "ctl watch",
	.alias = "dyno watch",
	.spec = {.name = "sonde ctl watch",
		 .summary = "show states and processes as they change",
		 .description = "Shows the states of hosts, and of one host its processes, again "
				"every second. Hosts that do not answer come first. When the "
				"output is no terminal, each round is a line for each host; with "
				"--json it is one line with all of them.",
		 .usage = usage,
		 .options = options,
		 .examples = examples,
		 .flags = ARGS_GFLAGS},
	.run = ctl_command,
	.data = &steps,
};
