/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * sonde ctl watch: states and processes of hosts, again and again. A terminal shows the latest; a
 * file or a pipe gets a line for each host and look.
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
#include "cli/ctl/processes.h"

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

/* One look. */
struct look {
	struct ctl_answer *status, *processes;
};

static volatile sig_atomic_t must_draw; /* what is on the screen is out of place */

static void leave(int signal_number)
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

static const char *text(const struct ctl_answer *a, const char *key)
{
	const char *value = json_string_value(json_object_get(a->reply, key));

	return value ? value : "-";
}

/* A number, or "-" from a daemon that does not tell it. */
static const char *number(const struct ctl_answer *a, const char *key, char out[24])
{
	const json_t *n = json_object_get(a->reply, key);

	snprintf(out, 24, "-");
	if (json_is_integer(n))
		snprintf(out, 24, "%lld", (long long)json_integer_value(n));
	return out;
}

static int take_look(struct ctl *c, struct look *l, struct err *err)
{
	json_t *list = json_pack("{s:s, s:i}", "fn", "listProcesses", "limit",
				 c->hosts.n == 1 ? PROCESSES_MAX : 0);

	l->status = ctl_answers_new(c);
	l->processes = ctl_answers_new(c);
	int r = ctl_ask_all(c, json_pack("{s:s}", "fn", "getStatus"), l->status, err);
	int second = ctl_ask_all(c, list, l->processes, r == 0 ? err : NULL);
	return r < 0 ? r : second;
}

static void look_release(const struct ctl *c, struct look *l)
{
	ctl_answers_free(c, l->status);
	ctl_answers_free(c, l->processes);
}

static void clock_text(char out[16])
{
	time_t now = time(NULL);
	struct tm tm;

	localtime_r(&now, &tm);
	strftime(out, 16, "%H:%M:%S", &tm);
}

static void add_lines(const struct ctl *c, const struct look *l, struct buf *out)
{
	char now[16], step[24], total[24];
	struct buf line = {0};

	clock_text(now);
	for (size_t i = 0; i < c->hosts.n; i++) {
		const struct ctl_answer *s = &l->status[i];

		buf_clear(&line);
		buf_addf(&line, "%s %s ", now, c->hosts.v[i].label);
		if (s->reply)
			buf_addf(&line, "nputrace=%s npumonitor=%s step=%s processes=%s",
				 text(s, "nputrace"), text(s, "npumonitor"),
				 number(s, "current_step", step),
				 number(&l->processes[i], "total", total));
		else
			buf_addf(&line, "failed: %s", s->err.text);
		text_add_printable(out, buf_str(&line), line.len);
		buf_add_char(out, '\n');
	}
	buf_release(&line);
}

static void add_hosts(const struct ctl *c, const struct look *l, unsigned width, struct buf *out)
{
	static const char *const titles[] = {"HOST",	   "NPUTRACE", "NPUMONITOR", ">STEP",
					     ">PROCESSES", "NOTE",     NULL};
	struct table t = {.titles = titles};
	char n[24];

	for (int failed = 1; failed >= 0; failed--)
		for (size_t i = 0; i < c->hosts.n; i++) {
			const struct ctl_answer *s = &l->status[i];

			if ((s->reply == NULL) != failed)
				continue;
			table_textf(&t, "%s", c->hosts.v[i].label);
			table_textf(&t, "%s", text(s, "nputrace"));
			table_textf(&t, "%s", text(s, "npumonitor"));
			table_textf(&t, "%s", number(s, "current_step", n));
			table_textf(&t, "%s", number(&l->processes[i], "total", n));
			table_textf(&t, "%s", s->reply ? "" : s->err.text);
		}
	table_print(&t, width, out);
	table_release(&t);
}

static void add_processes(const struct ctl *c, const struct look *l, unsigned width,
			  struct buf *out)
{
	struct table t = {.titles = ctl_process_titles(c)};
	json_t *process;
	size_t i;

	json_array_foreach(json_object_get(l->processes[0].reply, "processes"), i, process)
		ctl_process_row(c, 0, process, &t);
	buf_add_char(out, '\n');
	table_print(&t, width, out);
	table_release(&t);
}

/* The whole screen from its first line: nothing is cleared before it is written over. */
static void draw(const struct ctl *c, const struct watch_options *o, const struct look *l,
		 struct buf *out)
{
	unsigned rows, width = terminal_columns(STDOUT_FILENO, &rows);
	struct buf all = {0};
	char now[16];

	clock_text(now);
	buf_addf(&all, "%s  %zu host%s, every %u s; Ctrl-C ends\n\n", now, c->hosts.n,
		 c->hosts.n == 1 ? "" : "s", o->interval_s);
	add_hosts(c, l, width, &all);
	if (c->hosts.n == 1)
		add_processes(c, l, width, &all);
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

/* Waits until it is time for the next look, or there is another reason for one. */
static void wait_until(uint64_t until_ns)
{
	uint64_t now;

	while ((now = clock_mono_ns()) < until_ns && !must_draw)
		poll(NULL, 0, (int)((until_ns - now) / 1000000) + 1);
}

static bool any_failed(const struct ctl *c, const struct look *l)
{
	for (size_t i = 0; i < c->hosts.n; i++)
		if (!l->status[i].reply)
			return true;
	return false;
}

static json_t *look_json(const struct ctl *c, const struct look *l)
{
	json_t *list = json_array();

	for (size_t i = 0; i < c->hosts.n; i++) {
		json_t *row = ctl_answer_json(c, i, &l->status[i]);
		json_t *processes = json_object_get(l->processes[i].reply, "processes");

		json_object_set(row, "processes", processes ? processes : json_null());
		json_array_append_new(list, row);
	}
	return list;
}

/* One line for each look, so that a reader knows when it has all of it. */
static void add_json(const struct ctl *c, const struct look *l, struct buf *out)
{
	size_t flags = JSON_COMPACT | (isatty(STDOUT_FILENO) ? JSON_ENSURE_ASCII : 0);
	json_t *list = look_json(c, l);
	char *line = json_dumps(list, flags);

	buf_addf(out, "%s\n", line ? line : "[]");
	free(line);
	json_decref(list);
}

/* The exit status if it were the last look; negative: it cannot go on. */
static int look_once(struct ctl *c, const struct watch_options *o, bool screen)
{
	struct buf out = {0};
	struct look l = {0};
	struct err err = {0};
	int status;

	if (take_look(c, &l, &err) < 0) {
		status = ctl_fail(c, &err, EXIT_FAILED);
	} else {
		if (o->common.json)
			add_json(c, &l, &out);
		else if (screen)
			draw(c, o, &l, &out);
		else
			add_lines(c, &l, &out);
		status = command_print(c->cmd, &out);
	}
	status = status != EXIT_DONE ? -1 : any_failed(c, &l) ? EXIT_FAILED : EXIT_DONE;
	look_release(c, &l);
	buf_release(&out);
	return status;
}

static void take_screen(void)
{
	static const int ends[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};

	printf(ENTER_SCREEN);
	fflush(stdout);
	for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++)
		signal(ends[i], leave);
	signal(SIGWINCH, on_resize);
	if (signal(SIGTSTP, pause_screen) == SIG_IGN)
		signal(SIGTSTP, SIG_IGN);
}

static int watch(struct ctl *c, const struct watch_options *o)
{
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
		status = look_once(c, o, screen);
	}
	if (screen) {
		printf(LEAVE_SCREEN);
		fflush(stdout);
	}
	return status < 0 ? EXIT_FAILED : status;
}

static int watch_run(const struct command *cmd, int argc, char **argv)
{
	struct watch_options o = {CTL_COMMON_DEFAULTS, .interval_s = 1};
	struct args a = {.target = &o};
	struct ctl c = {0};

	int status = ctl_begin(&c, cmd, &a, argc, argv);
	if (status < 0)
		status = ctl_open(&c, false);
	if (status < 0)
		status = watch(&c, &o);
	ctl_end(&c);
	args_release(&a);
	return status;
}

static const struct opt options[] = {
	{.group = "Watching",
	 .name = "interval",
	 .kind = OPT_UINT,
	 .arg = "SECONDS",
	 .min = 1,
	 .max = 86400,
	 .offset = offsetof(struct watch_options, interval_s),
	 .default_text = "1",
	 .help = "Time between two looks."},
	{.name = "count",
	 .letters = "n",
	 .kind = OPT_UINT,
	 .arg = "N",
	 .min = 0,
	 .max = UINT32_MAX,
	 .offset = offsetof(struct watch_options, count),
	 .default_text = "0, until it is stopped",
	 .help = "End after so many looks."},
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
		 .description =
			 "Shows the states of hosts, and of one host its processes, again every "
			 "second. Hosts that do not answer come first. When the output is no "
			 "terminal, each look is a line for each host; with --json it is one line "
			 "with all of them.",
		 .usage = usage,
		 .options = options,
		 .examples = examples,
		 .flags = ARGS_GFLAGS},
	.run = watch_run,
};
