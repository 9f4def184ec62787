/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * sonde stack live: the functions that Python spends its time in, of all ranks, again and again. A
 * terminal shows the latest and listens to keys; a file or a pipe gets a block for each interval.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/text/display_width.h"
#include "base/text/sparkline.h"
#include "base/text/table.h"
#include "cli/command.h"
#include "cli/screen.h"
#include "cli/screen_keys.h"
#include "cli/stack/options.h"
#include "sampler/live/live.h"
#include "sampler/snapshot/take.h"

#define EXACT_NS 5000000u /* between rounds: less often than that, each stack is proved */
#define MILLION 1000000u

struct live_options {
	struct stack_options
		stack; /* of it which processes, interval, duration, threads, moments */
	uint64_t every_ns;
	unsigned by, sort, top;
	const char *filter;
	bool json, once;
};

struct live_run {
	const struct command *cmd;
	const struct live_options *o;
	struct snap_sampler sampler;
	struct stack_live *live;
	struct stack_live_view view;
	struct screen_list list;
	bool screen, quit;
};

/* --- what is shown --- */

static void add_line(const struct buf *line, unsigned width, struct buf *out)
{
	unsigned columns;
	size_t fit = text_fit_columns(line->data, line->len, width, &columns);

	buf_addf(out, "%.*s\n", (int)fit, line->len ? line->data : "");
}

static void add_heading(const struct live_run *r, const struct stack_live_table *t, unsigned width,
			struct buf *out)
{
	char now[16];
	time_t clock = time(NULL);
	struct buf line = {0};
	struct tm tm;

	localtime_r(&clock, &tm);
	strftime(now, sizeof(now), "%H:%M:%S", &tm);
	buf_addf(&line, "%s  by %s, %.0f s", now, stack_live_by_names[r->view.by], t->all_s);
	if (r->view.moments.gil)
		buf_add_str(&line, ", with the GIL only");
	if (r->view.moments.running)
		buf_add_str(&line, ", running only");
	if (r->list.sort || r->list.inverted)
		buf_addf(&line, ", sorted by %s%s", stack_live_sort_names[r->list.sort],
			 r->list.inverted ? ", inverted" : "");
	buf_add_str(&line, "   q: end, h: help, v: view, g: GIL, r: running");
	add_line(&line, width, out);
	buf_clear(&line);
	if (r->list.paused)
		buf_add_str(&line, "paused; ");
	screen_filter_describe(&r->list.filter, &line);
	if (line.len) {
		line.len -= 2;
		add_line(&line, width, out);
	}
	buf_release(&line);
}

static void add_words(const struct live_run *r, const struct stack_live_table *t, unsigned width,
		      struct buf *out)
{
	struct buf words = {0};

	stack_live_describe(t, &r->view, &words);
	for (const char *line = buf_str(&words); *line;) {
		size_t len = strcspn(line, "\n");

		text_add_wrapped(out, line, len, width, "", "");
		line += len + (line[len] == '\n');
	}
	buf_add_char(out, '\n');
	buf_release(&words);
}

static void add_row(const struct stack_live_table *t, const struct stack_live_row *row,
		    struct table *table)
{
	struct buf cell = {0};

	table_textf(table, "%.0f %%", row->self * 100);
	text_add_bar(&cell, (uint64_t)(row->self * MILLION), MILLION, 8);
	table_cell(table, &cell);
	table_textf(table, "%.0f %%", row->total * 100);
	table_textf(table, "%.1f s", row->self_s);
	table_textf(table, "%.1f s", row->total_s);
	table_textf(table, "%u", row->processes);
	text_add_sparkline(&cell, row->intervals, t->nintervals, 12, MILLION);
	table_cell(table, &cell);
	buf_addf(&cell, "%s%s%s", row->name, row->via ? " > " : "", row->via ? row->via : "");
	table_cell(table, &cell);
	buf_release(&cell);
}

static void add_table(struct live_run *r, const struct stack_live_table *t, unsigned width,
		      unsigned rows, struct buf *out)
{
	const char *titles[] = {
		">SELF",
		"",
		">TOTAL",
		">SELF TIME",
		">TOTAL TIME",
		">IN",
		"OVER TIME",
		r->view.by == STACK_LIVE_LINE ? "LINE OF THE JOB > WHAT IT CALLS" : "FUNCTION",
		NULL};
	static const char *const drop[] = {"OVER TIME", "TOTAL TIME", "SELF TIME", "", "IN", NULL};
	struct table table = {.titles = titles, .drop = drop, .least = 28};
	size_t n = r->o->top < t->n ? r->o->top : t->n, first = 0;

	if (rows) {
		unsigned used = screen_count_lines(out) + 2;

		n = screen_list_fit(&r->list, t->n, rows > used ? rows - used : 1);
		first = r->list.first;
	}
	for (size_t i = 0; i < n; i++)
		add_row(t, &t->list[first + i], &table);
	if (t->n)
		table_print(&table, width, out);
	if (!t->n && *r->list.filter.text)
		buf_add_str(out, "No name contains this text.\n");
	else if (rows && t->n > n)
		buf_addf(out, "%zu to %zu of %zu\n", first + 1, first + n, t->n);
	else if (t->n > n)
		buf_addf(out, "and %zu more (--top)\n", t->n - n);
	table_release(&table);
}

static void add_help(struct buf *out)
{
	buf_addf(out,
		 "\nKeys\n\n"
		 "  v                lines of the job's own code, or all functions\n"
		 "  g                only stacks of threads that have the GIL, or all\n"
		 "  r                only stacks of threads that run, or all\n"
		 "%s",
		 screen_list_help);
}

static int show_screen(struct live_run *r)
{
	unsigned rows, width = terminal_columns(STDOUT_FILENO, &rows);
	struct stack_live_table t;
	struct buf out = {0};
	int status;

	r->view.sort = r->list.sort;
	r->view.inverted = r->list.inverted;
	r->view.filter = r->list.filter.text;
	stack_live_table(r->live, &r->view, &t);
	if (r->screen) {
		add_heading(r, &t, width, &out);
		if (r->list.help)
			add_help(&out);
	}
	if (r->o->json) {
		json_t *o = stack_live_json(&t, &r->view, r->o->top);

		status = r->o->once ? command_print_json(r->cmd, o)
				    : command_print_json_line(r->cmd, o);
	} else {
		if (!r->screen || !r->list.help) {
			add_words(r, &t, width, &out);
			add_table(r, &t, width, r->screen ? rows - 1 : 0, &out);
		}
		if (!r->screen && !r->o->once)
			buf_add_char(&out, '\n');
		status = r->screen ? (screen_draw(&out) ? EXIT_DONE : EXIT_FAILED)
				   : command_print(r->cmd, &out);
	}
	stack_live_table_release(&t);
	buf_release(&out);
	return status;
}

/* --- the loop --- */

static int take_key(struct live_run *r, int key)
{
	enum screen_did did = screen_list_key(&r->list, key);

	if (did == SCREEN_IGNORED && key == 'v')
		r->view.by = !r->view.by;
	else if (did == SCREEN_IGNORED && key == 'g')
		r->view.moments.gil = !r->view.moments.gil;
	else if (did == SCREEN_IGNORED && key == 'r')
		r->view.moments.running = !r->view.moments.running;
	r->quit = did == SCREEN_QUIT;
	return r->quit ? EXIT_DONE : show_screen(r);
}

/* Until then, or until a key has asked for the end. */
static int wait_until_ns(struct live_run *r, uint64_t until_ns)
{
	int status = EXIT_DONE;

	while (status == EXIT_DONE && !r->quit && !screen_must_end() &&
	       clock_mono_ns() < until_ns) {
		int key = screen_wait(until_ns, r->screen);

		if (key)
			status = take_key(r, key);
		else if (r->screen && clock_mono_ns() < until_ns)
			status = show_screen(r); /* of another size */
	}
	return status;
}

static bool is_over(const struct live_run *r, uint64_t end_ns)
{
	struct targets *t = r->sampler.targets;

	return r->quit || screen_must_end() || (end_ns && clock_mono_ns() >= end_ns) ||
	       (!targets_open(t) && !targets_waiting(t));
}

static int sample_round(struct live_run *r)
{
	const struct live_options *o = r->o;
	uint64_t next_ns = clock_mono_ns(), interval_ns = next_ns + o->every_ns;
	uint64_t end_ns = o->stack.duration_ns ? next_ns + o->stack.duration_ns : 0;
	int status = EXIT_DONE;
	bool shown = false;

	snap_sampler_round(&r->sampler); /* learns where things lie */
	while (status == EXIT_DONE && !is_over(r, end_ns) && !(o->once && shown)) {
		snap_sampler_round(&r->sampler);
		stack_live_round(r->live, r->sampler.targets);
		next_ns += o->stack.interval_ns;
		uint64_t now_ns = clock_mono_ns();
		if (now_ns >= interval_ns && !r->list.paused) {
			stack_live_end_interval(r->live, now_ns);
			status = show_screen(r);
			shown = true;
			interval_ns = now_ns + o->every_ns;
		}
		if (next_ns < now_ns)
			next_ns = now_ns; /* behind: no rounds are made up for */
		if (status == EXIT_DONE)
			status = wait_until_ns(r, next_ns);
		targets_refresh(r->sampler.targets, false, NULL);
	}
	if (status == EXIT_DONE && !shown && !screen_must_end() && !r->quit) {
		stack_live_end_interval(r->live, clock_mono_ns());
		if (!r->screen)
			status = show_screen(r);
	}
	return status;
}

static int run_live(const struct command *cmd, const struct live_options *o)
{
	struct live_run r = {.cmd = cmd,
			     .o = o,
			     .view = {.by = o->by, .moments = o->stack.moments},
			     .list = {.sort = o->sort, .sorts = LIVE_NAME + 1}};
	const struct python_options python = {.states = true,
					      .names = true,
					      .main_only = !o->stack.all_threads,
					      .exact = o->stack.interval_ns >= EXACT_NS};
	bool screen = screen_is_able() && !o->json && !o->once;
	struct err err = {0};
	int status;

	snprintf(r.list.filter.text, sizeof(r.list.filter.text), "%s", o->filter ? o->filter : "");
	snap_sampler_init_as(&r.sampler, &o->stack, &python);
	screen_signals(false);
	if (snap_sampler_find(&r.sampler, &err) < 0) {
		status = command_fail(cmd, &err, EXIT_FAILED);
	} else {
		r.live = stack_live_new(o->stack.all_threads);
		r.screen = screen;
		if (screen)
			screen_enter(true);
		status = sample_round(&r);
		if (screen)
			screen_leave();
		/* what was seen last stays when the processes have ended */
		r.screen = false;
		if (screen && status == EXIT_DONE && !r.quit && !screen_must_end())
			status = show_screen(&r);
		stack_live_free(r.live);
	}
	snap_sampler_release(&r.sampler);
	return status;
}

static int stack_live_run(const struct command *cmd, int argc, char **argv)
{
	struct live_options o = {.top = 20, .every_ns = 1000000000};
	struct args a = {.target = &o};

	stack_options_init(&o.stack);
	o.stack.min_npu_mb = 0;
	o.stack.interval_ns = 10000000;
	int status = command_parse(cmd, &a, argc, argv);
	if (status < 0) {
		command_notices(cmd, &a);
		status = run_live(cmd, &o);
	}
	args_release(&a);
	stack_options_release(&o.stack);
	return status;
}

#define AT(field) offsetof(struct live_options, field)

static const struct opt options[] = {
	COMMAND_HELP_OPTION,
	STACK_WHICH_ROWS(AT(stack), "0"),
	OPTION_CHOICE("by", "WHAT", stack_live_by_names, AT(by), "line",
		      "A table of lines of the job's own code, with what they call, or of all "
		      "functions. Also the key v.",
		      .group = "What to show"),
	OPTION_FLAG("gil", AT(stack.moments.gil),
		    "Only stacks of threads that have the GIL. Also the key g."),
	OPTION_FLAG("running", AT(stack.moments.running),
		    "Only stacks of threads that are on a processor or wait for one. Also the key "
		    "r."),
	OPTION_FLAG("all-threads", AT(stack.all_threads),
		    "All Python threads, not only MainThread."),
	OPTION_CHOICE(
		"sort", "COLUMN", stack_live_sort_names, AT(sort), "self",
		"Order of the table: self, total (of the newest interval), all-self, all-total "
		"(since the beginning) or name. Also the key s."),
	OPTION_TEXT("filter", "TEXT", AT(filter), NULL,
		    "Only names with this text. Also the key /."),
	COMMAND_TOP_OPTION(struct live_options, "Lines of the table, without a terminal."),
	STACK_SECONDS("interval", AT(stack.interval_ns), "0.01",
		      "Time between two samples, also as 5ms.", .group = "When", .letters = "i",
		      .min = 100),
	STACK_SECONDS("every", AT(every_ns), "1", "How often it is shown.", .min = 100000),
	STACK_SECONDS("duration", AT(stack.duration_ns), "until the processes end, or Ctrl-C",
		      "End after this time.", .letters = "d"),
	OPTION_FLAG("once", AT(once), "Show one interval and end."),
	OPTION_FLAG("json", AT(json),
		    "Print JSON: with --once an object, else one in a line for each interval."),
	OPT_END,
};

static const char *const usage[] = {"[-p PID[,PID] | --name TEXT | --parent PID | -a] [options]",
				    NULL};
static const struct args_example examples[] = {
	{"a launcher and all its workers", "sonde stack live --parent 4711"},
	{"who holds the GIL, of all threads", "sonde stack live -p 4711 --gil --all-threads"},
	{"one answer, for a script", "sonde stack live --name train.py --once --json"},
	{NULL, NULL},
};
static const struct args_section sections[] = {
	{"WHAT IS SHOWN",
	 "SELF: the part of the stacks of the newest interval in which the line, or the function, "
	 "was "
	 "the innermost; TOTAL: in which it was anywhere. Times are seconds of threads since the "
	 "beginning. IN: in how many processes. By line, the innermost line of the job's own code "
	 "counts for what it calls in libraries, which is named behind '>'."},
	{"EXIT STATUS", "0 when it was ended or the processes have ended, 1 when no process could "
			"be read, 2 when the command line was wrong."},
	{NULL, NULL},
};

const struct command cmd_stack_live = {
	.name = "stack live",
	.spec = {.name = "sonde stack live",
		 .summary = "show where Python spends its time, of all ranks, live",
		 .description =
			 "Samples the stacks of Python processes, without stopping them, and shows "
			 "which lines of the job's own code, or which functions, they spend "
			 "their time in: all ranks together, full screen on a terminal.",
		 .usage = usage,
		 .options = options,
		 .examples = examples,
		 .sections = sections},
	.run = stack_live_run,
};
