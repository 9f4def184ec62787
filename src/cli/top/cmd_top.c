/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * sonde top: what takes the time of devices, now. A terminal shows the latest; a file or a pipe
 * gets a block for each interval. A monitor that is off is started, and stopped again at the end;
 * see client/top/follow.h.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "activity/live/toplist.h"
#include "base/clock.h"
#include "base/text/display_width.h"
#include "base/text/sparkline.h"
#include "base/text/table.h"
#include "cli/ctl/values.h"
#include "cli/screen.h"
#include "cli/top/text.h"
#include "client/profiler_config.h"
#include "client/top/follow.h"

#define ANY_JOB UINT64_MAX
#define USUAL_KINDS "Kernel,Communication"
#define ENOUGH_ROWS 10 /* for a line about keys */
#define COURSE_ROWS 18 /* for one about the course of time */
#define BUSY_REPORTS 120

/* Beyond enum top_by: whose work it is. */
enum { BY_MODULE = TOP_BY_RANK + 1, BY_LINE };
#define OWNER_KINDS "Kernel,Communication,MemCpy,MemSet"

struct top_options {
	struct ctl_common common;
	uint64_t job_id;
	const char *pids;
	unsigned interval_s, lines, count;
	unsigned by, sort, rank_sort;
	const char *filter;
	char kinds[CONFIG_TEXT_MAX + 1];
	bool once, no_start;
};

/* How busy the devices were, report by report, for the screen. */
struct busy_course {
	uint64_t permille[BUSY_REPORTS]; /* oldest first */
	size_t n;
};

struct top_run {
	struct ctl *c;
	const struct top_options *o;
	bool screen, entered; /* it is to be used; it is */
	struct top_view view;
	const struct top_model *m; /* of the last poll, as it is shown */
	const struct client_answer *answers;
	struct busy_course course;
	struct frozen {
		struct client_answer *answers; /* NULL: it is not paused */
		struct top_model m;
	} frozen;
};

/* What is shown of the answers, and what a monitor is started with. */
static const char *shown_kinds(const struct top_options *o)
{
	return o->by == BY_MODULE ? TOPLIST_MODULE : o->by == BY_LINE ? TOPLIST_LINE : o->kinds;
}

static const char *start_kinds(const struct top_options *o)
{
	return *o->kinds ? o->kinds : o->by >= BY_MODULE ? OWNER_KINDS : USUAL_KINDS;
}

/* --- showing --- */

static bool write_out(const struct top_run *t, const struct buf *out)
{
	if (fwrite(out->data, 1, out->len, stdout) == out->len && fflush(stdout) == 0)
		return true;
	if (errno != EPIPE) /* the reader has closed the pipe on purpose */
		ctl_notice(t->c, "cannot write the output: %s", strerror(errno));
	return false;
}

static struct top_display display_options(struct top_run *t)
{
	unsigned rows, width = terminal_columns(STDOUT_FILENO, &rows);
	const char *none = getenv("NO_COLOR");

	return (struct top_display){.view = &t->view,
				    .lines = t->o->lines,
				    .width = width,
				    .rows = t->screen && rows ? rows - 1 : 0,
				    .colours = width && !(none && *none) && screen_is_able()};
}

/* The first of them for which there is room, or the last; ended by NULL. */
static const char *first_that_fits(const char *const *texts, unsigned width)
{
	unsigned columns;

	for (; width && texts[1]; texts++) {
		text_fit_columns(*texts, strlen(*texts), 0, &columns);
		if (columns <= width)
			break;
	}
	return *texts;
}

/* What is filtered, sorted, paused: one line, if there is room. */
static void add_state(const struct top_run *t, const struct top_display *l, struct buf *out)
{
	struct buf words = {0};
	unsigned columns;

	top_view_describe(&t->view, &words);
	size_t fit = text_fit_columns(buf_str(&words), words.len, l->width, &columns);
	if (words.len)
		buf_addf(out, "%.*s\n", (int)fit, buf_str(&words));
	buf_release(&words);
}

/* One line, and one for the keys if they have no room beside. */
static void add_heading(const struct top_run *t, const struct top_model *m,
			const struct top_display *l, struct buf *out)
{
	static const char *const keys[] = {"q: end, k: kernels, r: ranks, b: both, h: help",
					   "q: end; k, r, b: tables; h: help", "q: end, h: help",
					   "q: end", NULL};
	char clock[16], number[48], all[192], some[128];
	const char *const texts[] = {all, some, clock, NULL};
	time_t now = time(NULL);
	struct tm tm;

	localtime_r(&now, &tm);
	strftime(clock, sizeof(clock), "%H:%M:%S", &tm);
	snprintf(number, sizeof(number), "%zu process%s", m->nprocesses,
		 m->nprocesses == 1 ? "" : "es");
	snprintf(some, sizeof(some), "%s  %s, monitor on in %u", clock, number, m->running);
	snprintf(all, sizeof(all), "%s  %s on %zu host%s, monitor on in %u", clock, number,
		 t->c->hosts.n, t->c->hosts.n == 1 ? "" : "s", m->running);
	if (t->screen)
		snprintf(all + strlen(all), sizeof(all) - strlen(all), ", every %u s",
			 t->o->interval_s);
	const char *line = first_that_fits(texts, l->width);
	buf_add_str(out, line);
	if (t->screen && strlen(line) + 3 + strlen(keys[0]) <= l->width)
		buf_addf(out, "   %s", keys[0]);
	else if (t->screen && l->rows >= ENOUGH_ROWS)
		buf_addf(out, "\n%s", first_that_fits(keys, l->width));
	buf_add_char(out, '\n');
	if (t->screen)
		add_state(t, l, out);
}

/* What is shown while it is paused: the answers of that moment. */
static void freeze_screen(struct top_run *t)
{
	size_t n = t->c->hosts.n;
	const struct top_model *now = t->m;
	struct top_model *m = &t->frozen.m;

	t->frozen.answers = client_answers_new(&t->c->group);
	for (size_t i = 0; i < n; i++) {
		t->frozen.answers[i].reply = json_incref(t->answers[i].reply);
		t->frozen.answers[i].err = t->answers[i].err;
	}
	top_model_make(m, &t->c->group, t->frozen.answers, shown_kinds(t->o));
	m->reports_nothing = now->reports_nothing;
	m->ended = now->ended;
	m->stopped = now->stopped;
	m->starting = now->starting;
	m->lost_monitor = now->lost_monitor;
	m->was_known = now->was_known;
}

static void unfreeze_screen(struct top_run *t)
{
	if (!t->frozen.answers)
		return;
	top_model_release(&t->frozen.m);
	client_answers_free(&t->c->group, t->frozen.answers);
	t->frozen.answers = NULL;
}

static void keep_busy(struct busy_course *c, const struct top_model *m)
{
	if (m->busy.time_s <= 0)
		return;
	if (c->n == BUSY_REPORTS)
		memmove(c->permille, c->permille + 1, --c->n * sizeof(c->permille[0]));
	c->permille[c->n++] = (uint64_t)(1000 * m->busy.busy_s / m->busy.time_s + 0.5);
}

/* One line, in the scale from idle to busy all the time. */
static void add_course(const struct top_run *t, const struct top_display *l, struct buf *out)
{
	static const char words[] = "Busy over time: ";
	unsigned room = l->width > sizeof(words) ? l->width - (unsigned)sizeof(words) : 0;
	const struct busy_course *c = &t->course;
	size_t shown = c->n < room ? c->n : room;

	if (!t->screen || c->n < 2 || l->rows < COURSE_ROWS || !shown)
		return;
	buf_add_str(out, words);
	text_add_sparkline(out, c->permille + c->n - shown, shown, room, 1000);
	buf_add_char(out, '\n');
}

static void add_text(struct top_run *t, const struct top_model *m, struct top_display *l,
		     struct buf *out)
{
	add_heading(t, m, l, out);
	if (t->view.help) {
		top_view_help(out);
		return;
	}
	top_text_answer(m, t->c, l, out);
	add_course(t, l, out);
	top_text_tables(m, t->c, l, out);
}

static bool draw_screen(struct top_run *t)
{
	struct top_display l = display_options(t);
	struct buf out = {0};

	add_text(t, t->frozen.answers ? &t->frozen.m : t->m, &l, &out);
	bool good = screen_draw(&out);
	buf_release(&out);
	return good;
}

static bool print_answers(void *arg, const struct top_model *m, const struct client_answer *answers)
{
	struct top_run *t = arg;
	struct top_display l = display_options(t);
	struct buf out = {0};

	t->m = m;
	t->answers = answers;
	keep_busy(&t->course, m);
	if (t->screen)
		return draw_screen(t);
	if (t->o->common.json) {
		json_t *o = top_text_json(m, t->c, answers, &l);
		size_t flags = JSON_COMPACT | (isatty(STDOUT_FILENO) ? JSON_ENSURE_ASCII : 0);
		char *text = json_dumps(o, flags);

		buf_addf(&out, "%s\n", text ? text : "{}");
		free(text);
		json_decref(o);
	} else {
		add_text(t, m, &l, &out);
		buf_add_char(&out, '\n');
	}
	bool good = write_out(t, &out);
	buf_release(&out);
	return good;
}

/* --- the loop --- */

/* Keys change what is shown of what is there: nobody is asked for it. */
static bool wait_for_key(void *arg, uint64_t until_ns)
{
	struct top_run *t = arg;

	for (;;) {
		int key = screen_wait(until_ns, t->screen);
		bool more = !key || top_view_key(&t->view, key);

		if (!more || screen_must_end())
			return more;
		if (!key && (clock_mono_ns() >= until_ns || !t->screen))
			return true;
		if (!t->m)
			continue;
		if (t->view.paused && !t->frozen.answers)
			freeze_screen(t);
		else if (!t->view.paused)
			unfreeze_screen(t);
		if (!draw_screen(t))
			return false;
	}
}

static void enter_screen(void *arg)
{
	struct top_run *t = arg;

	if (t->screen)
		screen_enter(true);
	t->entered = t->screen;
}

static void report_nothing(void *arg, const struct top_model *m)
{
	const struct top_run *t = arg;
	struct buf words = {0};

	top_text_nothing(m, t->c, &words);
	if (words.len)
		ctl_notice(t->c, "%s", buf_str(&words));
	buf_release(&words);
}

static void report_message(void *arg, const char *text)
{
	ctl_notice(((const struct top_run *)arg)->c, "%s", text);
}

/* Which hosts failed at the last poll. One says why, and what to do about it. */
static int report_failures(const struct ctl *c, const struct top_follow *f, int status)
{
	if (c->hosts.n > 1 && !top_follow_anybody_answers(f)) {
		ctl_notice(c, "none of %zu hosts answers; %s", c->hosts.n, f->answers[0].err.text);
		return EXIT_FAILED;
	}
	int failed = ctl_failures(c, f->answers);
	return status == EXIT_DONE || failed != EXIT_DONE ? failed : status;
}

static int exit_status(const struct top_run *t, enum top_end end)
{
	if (end == TOP_UNREACHABLE || (end == TOP_BROKEN && !t->screen))
		return EXIT_FAILED;
	return end == TOP_NOTHING ? EXIT_FINDING : EXIT_DONE;
}

static int show_top(struct ctl *c, const struct top_options *o)
{
	static const struct top_follow_ops ops = {.show = print_answers,
						  .report_nothing = report_nothing,
						  .say = report_message,
						  .reached = enter_screen,
						  .wait = wait_for_key,
						  .must_end = screen_must_end};
	struct top_run t = {.c = c,
			    .o = o,
			    .view = {.by = o->by >= BY_MODULE ? TOP_BY_KERNEL : o->by,
				     .sort = {o->sort, o->rank_sort}},
			    .screen = screen_is_able() && !o->common.json && !o->once && !o->count};
	struct top_follow f = {.g = &c->group,
			       .o = {.pids = o->pids ? ctl_pids(o->pids) : NULL,
				     .job_id = o->job_id == ANY_JOB ? -1 : (int64_t)o->job_id,
				     .interval_s = o->interval_s,
				     .lines = o->lines,
				     .count = o->count,
				     .once = o->once,
				     .kinds = shown_kinds(o),
				     .attribute = o->by >= BY_MODULE,
				     .start_kinds = start_kinds(o),
				     .no_start = o->no_start,
				     .live = t.screen},
			       .ops = &ops,
			       .arg = &t};
	struct err err = {0};

	snprintf(t.view.filter.text, sizeof(t.view.filter.text), "%s", o->filter ? o->filter : "");
	c->group.progress = NULL; /* there are many rounds */
	screen_signals(false);
	int status = exit_status(&t, top_follow_run(&f, &err));
	if (t.entered)
		screen_leave();
	if (err.code < 0)
		status = command_fail(c->cmd, &err, EXIT_FAILED);
	if (f.answers)
		status = report_failures(c, &f, status);
	unfreeze_screen(&t);
	top_follow_end(&f);
	json_decref(f.o.pids);
	return status;
}

static int top_run(const struct command *cmd, int argc, char **argv)
{
	struct top_options o = {CTL_COMMON_DEFAULTS, .job_id = ANY_JOB, .interval_s = 2,
				.lines = 15};
	struct args a = {.target = &o};
	struct err err = {0};
	struct ctl c = {0};

	int status = ctl_begin(&c, cmd, &a, argc, argv);
	if (status < 0 && o.filter && strlen(o.filter) > TOP_FILTER_MAX) {
		err_set(&err, -EINVAL, "'--filter' has at most %d bytes", TOP_FILTER_MAX);
		status = command_fail(cmd, &err, EXIT_USAGE);
	}
	if (status < 0)
		status = ctl_open(&c, false);
	if (status < 0)
		status = show_top(&c, &o);
	ctl_end(&c);
	args_release(&a);
	return status;
}

static const char *const by_choices[] = {"both", "kernel", "rank", "module", "line", NULL};

#define AT(member) offsetof(struct top_options, member)
static const struct opt options[] = {
	OPTION_CHOICE(
		"by", "WHAT", by_choices, AT(by), "both",
		"A table by kernel, by rank, or both; or by module of the model (equal layers "
		"as one: h.*.mlp) or line of the program that launched the work, for which a "
		"monitor is started with --attribute.",
		.group = "What to show"),
	OPTION_UINT("top", "N", AT(lines), 1, 160, "15", "Lines of the table by kernel.",
		    .letters = "n"),
	OPTION_CHOICE(
		"sort", "COLUMN", top_sorts, AT(sort), "time",
		"Order of the kernels: time, calls, mean, p99, change or name. Also the key s."),
	OPTION_CHOICE("sort-ranks", "COLUMN", top_rank_sorts, AT(rank_sort), "rank",
		      "Order of the ranks: rank, busy, kernels, comm or step."),
	OPTION_TEXT(
		"filter", "TEXT", AT(filter), NULL,
		"Only kernels with this text in their name or kind, and ranks that they take the "
		"most time of; or one rank or process by its number. Also the key /."),
	OPTION_CALL("kinds", "KINDS", ctl_value_kinds, AT(kinds), USUAL_KINDS,
		    "Kinds of activities to start the monitor with and to show, separated by "
		    "commas: Kernel, Communication, Hccl, MemCpy, MemSet, API, AclAPI, NodeAPI, "
		    "RuntimeAPI, Marker, Memory. Of a monitor that is on already, all that it "
		    "reports are shown unless this is given."),
	OPTION_CALL("pids", "PIDS", ctl_value_pids, AT(pids), NULL,
		    "Only these processes and their descendants, separated by commas."),
	OPTION_CALL("job-id", "ID", ctl_value_u64, AT(job_id), NULL, "Only processes of this job."),
	OPTION_UINT("interval", "SECONDS", AT(interval_s), 1, 3600, "2",
		    "How often the screen is drawn, and a monitor that is started here reports.",
		    .group = "When"),
	OPTION_FLAG("once", AT(once),
		    "Show one report and end: the first of an interval that begins after this "
		    "command, or after the monitor that it starts."),
	OPTION_UINT("count", "N", AT(count), 0, UINT32_MAX, "0, until it is stopped",
		    "End after this many reports. The latest report is the first one shown."),
	OPTION_FLAG("no-start", AT(no_start), "Only observe: do not start a monitor that is off."),
	CTL_ROWS_JSON("Print JSON: a line with one object for each report, of all hosts together; "
		      ".answer has the sentences."),
};

static const char *const usage[] = {"[options]", NULL};

static const struct args_section sections[] = {
	{"WHAT IS SHOWN",
	 "The answer comes first, in sentences: how busy the devices are and with what, which rank "
	 "is the slowest and by how much, what has become slower than it was, what is missing.\n\n"
	 "All parts are of the time that the devices had, so is SHARE; kernels that run at the "
	 "same time both count. MEAN of communication has the time in it that a rank waits for the "
	 "others. CHANGE "
	 "compares the mean time of a call with that of the report before. P99 is the "
	 "highest of any rank. Of names of C++ people see what they mean.\n\n"
	 "Ranks that step together take equally long: the slowest is the one that the others wait "
	 "for, and so the one that spends the least time communicating. Where steps differ, it is "
	 "the one with the longest."},
	{"KEYS",
	 "On a terminal: k, r and b show the kernels, the ranks, both; arrows, page up and down, "
	 "home and end scroll, Tab lets keys act on the other table; s sorts by the next "
	 "column, i inverts the order; / filters; p pauses; h shows all keys; q ends. The "
	 "slowest rank is always shown."},
	{"THE MONITOR",
	 "The numbers come from the monitor in the processes (npu-monitor). If it is off, it is "
	 "started with the kinds Kernel and Communication, and stopped when this ends, also by "
	 "Ctrl-C, when it is waited for until it is off; if this is killed, it ends by itself some "
	 "ten seconds later. One that is on "
	 "already, "
	 "or that somebody else requests meanwhile, is left as it is: it is shown, and stays "
	 "on. If its owner ends it, or its --duration does, that is reported, and it is not "
	 "started again."},
	{"EXIT STATUS", "0 when it was ended, 1 when a host could not be asked, 2 when the command "
			"line was wrong, 3 when nothing was reported, or less than --count."},
	{"SEE ALSO", "sonde(1), sonde-ctl(1)"},
	{NULL, NULL},
};

static const struct args_example examples[] = {
	{"what takes the time of this machine's devices", "sonde top"},
	{"one answer, for a script", "sonde top --once --json | jq -r .answer"},
	{"the ranks of a Slurm job", "sonde top --slurm-job 4711 --by rank"},
	{NULL, NULL},
};

const struct command cmd_top = {
	.name = "top",
	.page = "sonde-top",
	.spec = {.name = "sonde top",
		 .summary = "what takes the time of the devices, live",
		 .description =
			 "Shows what the devices of running jobs spend their time on, by kernel "
			 "and by rank, again every two seconds: share, calls, mean and 99th "
			 "percentile, change against the report before; which rank is the slowest "
			 "and by how much; what has become slower. Jobs that were started with "
			 "'sonde monitor' or that use torch_npu or MindSpore with sonde's modules "
			 "can be shown.",
		 .usage = usage,
		 .options = options,
		 .examples = examples,
		 .sections = sections,
		 .flags = ARGS_GFLAGS},
	.run = top_run,
};
