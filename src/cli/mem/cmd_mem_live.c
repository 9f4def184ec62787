/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * sonde mem live: a recording while it grows. A terminal shows the latest and listens to keys; a
 * file or a pipe gets a block for each interval. It ends when the recording does.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/text/display_width.h"
#include "base/text/table.h"
#include "cli/command.h"
#include "cli/mem/analysis_command.h"
#include "cli/screen.h"
#include "cli/screen_keys.h"
#include "memory/live/find_recording.h"
#include "memory/live/live.h"

#define READ_NS 100000000u /* at once, so that keys are answered */
#define FEW_ROWS 5 /* of the table, that are worth more than sentences */

struct live_options {
	bool json, once;
	unsigned interval_s, top, by, sort;
	unsigned pid;
	const char *rank;
	const char *filter;
};

struct live_run {
	const struct command *cmd;
	const struct live_options *o;
	struct live *live;
	struct live_view view;
	int32_t rank; /* that is waited for; -1: none */
	struct screen_list list;
	bool screen, more; /* there is more to read at once */
};

static struct live_display display_of(const struct live_run *r)
{
	unsigned rows, width = terminal_columns(STDOUT_FILENO, &rows);
	const char *none = getenv("NO_COLOR");

	return (struct live_display){.width = width,
				     .rows = r->screen && rows ? rows - 1 : 0,
				     .top = r->o->top,
				     .colours = width && !(none && *none) && screen_is_able()};
}

/* --- the screen --- */

static void add_heading(const struct live_run *r, const struct live_display *display,
			struct buf *out)
{
	char now[16];
	time_t t = time(NULL);
	struct tm tm;
	struct buf line = {0};
	unsigned columns;

	localtime_r(&t, &tm);
	strftime(now, sizeof(now), "%H:%M:%S", &tm);
	buf_addf(&line, "%s  %s, by %s", now,
		 live_state(r->live) == LIVE_RUNNING ? "recording" : "ended",
		 live_by_names[r->view.by]);
	if (r->list.sort || r->list.inverted)
		buf_addf(&line, ", sorted by %s%s", live_sort_names[r->list.sort],
			 r->list.inverted ? ", inverted" : "");
	buf_add_str(&line, "   q: end, h: help, v: view");
	size_t fit = text_fit_columns(buf_str(&line), line.len, display->width, &columns);
	buf_addf(out, "%.*s\n", (int)fit, buf_str(&line));
	buf_clear(&line);
	if (r->list.paused)
		buf_add_str(&line, "paused; ");
	screen_filter_describe(&r->list.filter, &line);
	if (line.len) {
		fit = text_fit_columns(buf_str(&line), line.len - 2, display->width, &columns);
		buf_addf(out, "%.*s\n", (int)fit, buf_str(&line));
	}
	buf_release(&line);
}

/* Sentences as long as the terminal is wide, one line each if there is little room. */
static void add_words(struct live_run *r, const struct live_display *display, struct buf *out)
{
	struct buf words = {0};
	unsigned columns;

	live_describe(r->live, &r->view, &words);
	for (const char *line = buf_str(&words); *line;) {
		size_t len = strcspn(line, "\n");
		bool tight = display->rows && display->rows < 16;
		size_t fit = text_fit_columns(line, len, display->width, &columns);

		if (display->rows && !tight)
			text_add_wrapped(out, line, len, display->width, "", "");
		else {
			buf_add(out, line, display->rows ? fit : len);
			buf_add_char(out, '\n');
		}
		line += len + (line[len] == '\n');
	}
	buf_release(&words);
}

static void add_table(struct live_run *r, struct live_display *display, struct buf *out)
{
	struct live_groups g;
	char shown[80];

	live_groups(r->live, &r->view, &g);
	if (display->rows) {
		unsigned used = screen_count_lines(out) + 1;
		size_t room = display->rows > used + 1 ? display->rows - used - 1 : 1;

		display->top = (unsigned)screen_list_fit(&r->list, g.n, room);
		display->first = r->list.first;
	}
	live_groups_text(&g, &r->view, display, out);
	if (display->rows && g.n > display->top) {
		snprintf(shown, sizeof(shown), "%zu to %zu of %zu", display->first + 1,
			 display->first + display->top, g.n);
		buf_addf(out, "%.*s\n", (int)display->width, shown);
	} else if (!display->rows && g.n > display->top)
		buf_addf(out, "and %zu more (--top)\n", g.n - display->top);
	live_groups_release(&g);
}

static void add_help(struct buf *out)
{
	buf_addf(out,
		 "\nKeys\n\n"
		 "  v                by call site, by owner, by module\n"
		 "  Tab              one process after the other; then all again\n"
		 "%s",
		 screen_list_help);
}

static void add_text(struct live_run *r, struct live_display *display, struct buf *out)
{
	struct buf courses = {0};

	r->view.sort = r->list.sort;
	r->view.inverted = r->list.inverted;
	r->view.filter = r->list.filter.text;
	if (r->screen)
		add_heading(r, display, out);
	if (r->list.help && r->screen) {
		add_help(out);
		return;
	}
	add_words(r, display, out);
	live_courses_text(r->live, &r->view, display, &courses);
	/* of a low terminal the table has the rest */
	if (!display->rows ||
	    screen_count_lines(out) + screen_count_lines(&courses) + FEW_ROWS <= display->rows) {
		if (!r->screen || display->rows > 20)
			buf_add_char(out, '\n');
		buf_add(out, courses.data, courses.len);
		if (!r->screen || display->rows > 20)
			buf_add_char(out, '\n');
	}
	buf_release(&courses);
	add_table(r, display, out);
}

static int show_screen(struct live_run *r)
{
	struct live_display display = display_of(r);
	struct buf out = {0};
	int status = EXIT_DONE;

	if (r->o->json && !r->screen) {
		r->view.sort = r->list.sort;
		r->view.filter = r->list.filter.text;
		json_t *o = live_json(r->live, &r->view, r->o->top);
		return r->o->once ? command_print_json(r->cmd, o)
				  : command_print_json_line(r->cmd, o);
	}
	add_text(r, &display, &out);
	if (r->screen)
		status = screen_draw(&out) ? EXIT_DONE : EXIT_FAILED;
	else
		status = command_print(r->cmd, &out);
	buf_release(&out);
	return status;
}

/* --- keys --- */

static void next_process(struct live_run *r)
{
	const struct live_course *const *list;
	size_t n = live_courses(r->live, &list);
	uint32_t next = UINT32_MAX;

	for (size_t i = 0; i < n; i++) {
		uint32_t pid = list[i]->of ? list[i]->of->process->pid : 0;

		if (pid && (!r->view.by_pid || pid > r->view.pid) && pid < next)
			next = pid;
	}
	r->view.by_pid = next != UINT32_MAX;
	r->view.pid = next;
}

/* False: the user wants to end. */
static bool take_key(struct live_run *r, int key)
{
	enum screen_did did = screen_list_key(&r->list, key);

	if (did == SCREEN_IGNORED && key == 'v') {
		r->view.by = (r->view.by + 1) % (LIVE_BY_MODULE + 1);
		r->list.first = 0;
	} else if (did == SCREEN_IGNORED && key == '\t') {
		next_process(r);
		r->list.first = 0;
	}
	return did != SCREEN_QUIT;
}

/* --- the loop --- */

/* The number of a rank's process is known when it has appeared. */
static void find_rank(struct live_run *r)
{
	const struct processes *ps = live_processes(r->live);

	for (size_t i = 0; r->rank >= 0 && i < ps->n; i++)
		if (ps->list[i].rank == r->rank) {
			r->view.by_pid = true;
			r->view.pid = ps->list[i].pid;
			r->rank = -1;
		}
}

static int read_more(struct live_run *r)
{
	struct err err = {0};
	int got = live_read(r->live, clock_mono_ns() + READ_NS, &err);

	r->more = got > 0;
	find_rank(r);
	return got < 0 ? command_fail(r->cmd, &err, EXIT_FAILED) : EXIT_DONE;
}

/* Keys change what is shown of what is there. False: the user wants to end. */
static bool wait_for_keys(struct live_run *r, uint64_t until_ns, int *status)
{
	while (*status == EXIT_DONE && !screen_must_end()) {
		int key = screen_wait(until_ns, r->screen);

		if (key && !take_key(r, key))
			return false;
		if (!key && clock_mono_ns() >= until_ns)
			return true;
		if (r->screen)
			*status = show_screen(r);
	}
	return false;
}

static int follow_recording(struct live_run *r)
{
	const uint64_t interval_ns = r->o->interval_s * 1000000000ull;
	int status = read_more(r);

	while (status == EXIT_DONE && !screen_must_end()) {
		bool done = !r->more && (r->o->once || live_state(r->live) != LIVE_RUNNING);

		if (done || (r->screen ? !r->list.paused : !r->more))
			status = status == EXIT_DONE && (!done || r->screen) ? show_screen(r)
									     : status;
		if (done || status != EXIT_DONE)
			break;
		if (!wait_for_keys(r, r->more ? 0 : clock_mono_ns() + interval_ns, &status))
			break;
		if (status == EXIT_DONE && !r->list.paused)
			status = read_more(r);
	}
	return status;
}

static int run_live(const struct command *cmd, const struct live_options *o, const char *path)
{
	struct input_choice choice = {.rank = -1};
	struct live_run r = {.cmd = cmd,
			     .o = o,
			     .view = {.by = o->by, .by_pid = o->pid != 0, .pid = o->pid},
			     .list = {.sort = o->sort, .sorts = LIVE_SORT_NAME + 1},
			     .screen = screen_is_able() && !o->json && !o->once};
	struct err err = {0};

	snprintf(r.list.filter.text, sizeof(r.list.filter.text), "%s", o->filter ? o->filter : "");
	if (mem_choice_option(o->pid, o->rank, &choice, &err) < 0)
		return command_fail(cmd, &err, EXIT_USAGE);
	r.rank = choice.by_rank ? choice.rank : -1;
	if (live_open(&r.live, path, &err) < 0)
		return command_fail(cmd, &err, EXIT_FAILED);
	screen_signals(false);
	if (r.screen) {
		if (isatty(STDERR_FILENO)) /* lines of the log would tear the picture */
			log_open("/dev/null", NULL);
		screen_enter(true);
	}
	int status = follow_recording(&r);
	if (r.screen) {
		screen_leave();
		log_close();
	}
	/* the last word stays, and is there for who reads a pipe */
	r.screen = false;
	r.list.help = false;
	if (status == EXIT_DONE && (!screen_must_end() || r.o->once) &&
	    (r.o->once || live_state(r.live) != LIVE_RUNNING))
		status = show_screen(&r);
	live_free(r.live);
	return status;
}

static int mem_live_run(const struct command *cmd, int argc, char **argv)
{
	struct live_options o = {.top = 20, .interval_s = 1};
	struct args a = {.target = &o};
	struct err err = {0};
	struct buf path = {0};
	int status = command_parse(cmd, &a, argc, argv);

	if (status < 0 && live_find(a.words[0], &path, &err) < 0)
		status = command_fail(cmd, &err, EXIT_FAILED);
	if (status < 0)
		status = run_live(cmd, &o, buf_str(&path));
	buf_release(&path);
	args_release(&a);
	return status;
}

#define AT(member) offsetof(struct live_options, member)
static const struct opt options[] = {
	COMMAND_HELP_OPTION,
	OPTION_CHOICE(
		"by", "WHAT", live_by_names, AT(by), "line",
		"A table of call sites (the line of your own code), of owners or of modules of "
		"the model. Also the key v.",
		.group = "What to show"),
	OPTION_CHOICE(
		"sort", "COLUMN", live_sort_names, AT(sort), "held",
		"Order of the table: held, blocks, allocated, calls or name. Also the key s."),
	OPTION_TEXT("filter", "TEXT", AT(filter), NULL,
		    "Only names with this text. Also the key /."),
	OPTION_UINT("pid", "PID", AT(pid), 1, UINT32_MAX - 1, "all processes",
		    "Only this process. Also the key Tab, one after the other."),
	OPTION_TEXT("rank", "RANK", AT(rank), "all ranks", "Only the process of this rank."),
	COMMAND_TOP_OPTION(struct live_options, "Lines of the table, without a terminal."),
	OPTION_UINT("interval", "SECONDS", AT(interval_s), 1, 3600, "1",
		    "How often the recording is read.", .group = "When"),
	OPTION_FLAG("once", AT(once), "Show the present state and end."),
	COMMAND_JSON_OPTION(struct live_options),
	OPT_END,
};

static const char *const usage[] = {"[options] <recording or PID>", NULL};

static const struct args_section sections[] = {
	{"WHAT IS SHOWN",
	 "Sentences first; then for each device and the host what is held now, the most so far and "
	 "its course since the beginning; then from where it comes. HELD is alive now, ALLOCATED "
	 "is everything since the recording began. When the recording has ended, HELD is what its "
	 "processes had when they ended. Blocks of a pool (PTA, TORCH) lie inside those of the "
	 "driver "
	 "(HAL, CUDA), so a line may have both. The numbers are those of recorded blocks: 'sonde "
	 "mem "
	 "show' says how much of the processes' memory these explain."},
	{"THE RECORDING",
	 "A directory of a recording, an output path of msmemscope (the newest recording in it), "
	 "or "
	 "the number of a process that is being recorded. It is only read: the job and its "
	 "recorder do not notice. It ends when the recording does, and its last words stay."},
	{"EXIT STATUS", "0 when it has ended, 1 when the recording could not be read, 2 when the "
			"command line was wrong."},
	{NULL, NULL},
};

static const struct args_example examples[] = {
	{"the memory of a job that is recorded", "sonde mem live memscopeDumpResults"},
	{"of process 4711, by module of the model", "sonde mem live --by=module 4711"},
	{"one answer, for a script", "sonde mem live --once --json 4711 | jq -r .answer[0]"},
	{NULL, NULL},
};

const struct command cmd_mem_live = {
	.name = "mem live",
	.spec = {.name = "sonde mem live",
		 .summary = "show the memory of a job while it is recorded",
		 .description =
			 "Shows a recording while another process writes it: what each process "
			 "holds of every device and of the host, over time, and which lines, "
			 "owners or modules it comes from; full screen on a terminal.",
		 .usage = usage,
		 .options = options,
		 .examples = examples,
		 .sections = sections,
		 .min_words = 1,
		 .max_words = 1},
	.run = mem_live_run,
};
