/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * sonde top: what takes the time of devices, now. A terminal shows the latest; a file or a pipe
 * gets a block for each interval. A monitor that is off is started, and stopped again at the end;
 * see cli/top/monitor.h.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/text/display_width.h"
#include "base/text/table.h"
#include "cli/ctl/values.h"
#include "cli/screen.h"
#include "cli/top/model.h"
#include "cli/top/monitor.h"
#include "cli/top/text.h"
#include "client/profiler_config.h"

#define ANY_JOB UINT64_MAX
#define NS_PER_S 1000000000ull
#define USUAL_KINDS "Kernel,Communication"
#define PATIENCE_S 20 /* for a first report, beyond two intervals */
#define MUTE_S 6 /* the same for clients that may send none */
#define ENOUGH_ROWS 10 /* for a line about keys */
#define OVER_S 4 /* that what has ended may begin anew, before it is reported to be over */
#define LATE_S 2 /* that the last process is waited for, beyond two intervals */
#define POLL_NS (NS_PER_S / 4) /* how often a report that is awaited is polled */
#define EXTRA_ROWS 40 /* of each process beyond those shown: sums of many are by all of them */

struct top_options {
	struct ctl_common common;
	uint64_t job_id;
	const char *pids;
	unsigned interval_s, lines, count;
	unsigned by;
	char kinds[CONFIG_TEXT_MAX + 1];
	bool once, no_start;
};

struct top_run {
	struct ctl *c;
	const struct top_options *o;
	struct client_answer *answers; /* of the last poll; NULL: none */
	struct top_monitor monitor;
	bool empty; /* nothing is there to show yet: it is polled more often */
	uint64_t over_ns; /* since then there has been nothing to show; 0: there is */
	bool over_said;
	uint64_t mute_ns; /* since then only such are monitored as may send no reports; 0: not so */
	bool screen;
	unsigned by;
	struct top_news news;
};

/* --- asking --- */

static void add_filters(const struct top_options *o, json_t *request)
{
	if (o->job_id != ANY_JOB)
		json_object_set_new(request, "job_id", json_integer((json_int_t)o->job_id));
	if (o->pids)
		json_object_set_new(request, "pids", ctl_pids(o->pids));
}

static int poll_hosts(struct top_run *t, struct err *err)
{
	json_t *request =
		json_pack("{s:s,s:i,s:I}", "fn", "getTop", "limit", (int)(t->o->lines + EXTRA_ROWS),
			  "lease", (json_int_t)t->monitor.lease);

	add_filters(t->o, request);
	client_answers_free(&t->c->group, t->answers);
	t->answers = client_answers_new(&t->c->group);
	return client_ask_all(&t->c->group, request, t->answers, err);
}

/* A daemon that does not know the function closes the connection. */
static void explain_old_daemons(struct top_run *t)
{
	for (size_t i = 0; i < t->c->hosts.n; i++) {
		struct client_answer *a = &t->answers[i];

		if (a->reply && !json_is_array(json_object_get(a->reply, "processes"))) {
			const char *status = json_string_value(json_object_get(a->reply, "status"));

			err_set(&a->err, -1, "the daemon does not report what takes time: %.300s",
				status ? status : "is it one of sonde?");
			json_decref(a->reply);
			a->reply = NULL;
		}
	}
}

/* --- showing --- */

static bool write_out(const struct top_run *t, const struct buf *out)
{
	if (fwrite(out->data, 1, out->len, stdout) == out->len && fflush(stdout) == 0)
		return true;
	if (errno != EPIPE) /* who has read enough knows that */
		ctl_say(t->c, "cannot write the output: %s", strerror(errno));
	return false;
}

static struct top_display display_options(const struct top_run *t)
{
	unsigned rows, width = terminal_columns(STDOUT_FILENO, &rows);
	const char *none = getenv("NO_COLOR");

	return (struct top_display){.by = (enum top_by)t->by,
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

/* One line, and one for the keys if they have no room beside. */
static void add_heading(const struct top_run *t, const struct top_model *m,
			const struct top_display *l, struct buf *out)
{
	static const char *const keys[] = {"q: end, k: kernels, r: ranks, b: both",
					   "q: end; k, r, b: tables", "q: end", NULL};
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
}

static bool print_answers(struct top_run *t, const struct top_model *m)
{
	struct top_display l = display_options(t);
	struct buf out = {0};

	if (t->o->common.json) {
		json_t *o = top_text_json(m, t->c, t->answers, &l);
		size_t flags = JSON_COMPACT | (isatty(STDOUT_FILENO) ? JSON_ENSURE_ASCII : 0);
		char *text = json_dumps(o, flags);

		buf_addf(&out, "%s\n", text ? text : "{}");
		free(text);
		json_decref(o);
	} else {
		add_heading(t, m, &l, &out);
		top_text_answer(m, t->c, &l, &out);
		top_text_tables(m, t->c, &l, &out);
		if (!t->screen)
			buf_add_char(&out, '\n');
	}
	bool good = t->screen ? screen_draw(&out) : write_out(t, &out);
	buf_release(&out);
	top_news_shown(&t->news, m);
	return good;
}

/* --- the loop --- */

static bool handle_key(struct top_run *t, int key)
{
	switch (key) {
	case 'k':
		t->by = TOP_BY_KERNEL;
		break;
	case 'r':
		t->by = TOP_BY_RANK;
		break;
	case 'b':
		t->by = TOP_BY_BOTH;
		break;
	default:
		break;
	}
	return key != 'q' && key != 'Q' && key != 4; /* Ctrl-D */
}

enum outcome { GO_ON, DONE, NOTHING, BROKEN, UNREACHABLE };

/* Nothing more comes: the monitor has ended while we polled, or the process has. It may be a
 * matter of moments, when a daemon or a job is started anew. */
static bool is_over(struct top_run *t, const struct top_model *m, uint64_t now)
{
	bool over = !m->running && !m->paused && (m->ended || (m->was_known && !m->known));

	if (!over)
		t->over_ns = 0;
	else if (!t->over_ns)
		t->over_ns = now;
	return over && now - t->over_ns > OVER_S * NS_PER_S;
}

/* All that are monitored are clients of others, and none has reported for longer than one of ours
 * would take. */
static bool is_mute(struct top_run *t, const struct top_model *m, uint64_t now)
{
	if (m->nprocesses || m->running > m->mute || !m->known)
		t->mute_ns = 0;
	else if (m->mute && !t->mute_ns)
		t->mute_ns = now;
	/* whether it is on is not known of such at every moment */
	return t->mute_ns && now - t->mute_ns > (2 * t->o->interval_s + MUTE_S) * NS_PER_S;
}

static void report_nothing(const struct top_run *t, const struct top_model *m)
{
	struct buf words = {0};

	top_text_nothing(m, t->c, &words);
	if (words.len)
		ctl_say(t->c, "%s", buf_str(&words));
	buf_release(&words);
}

/* One poll, and what follows from it. */
static enum outcome handle_answers(struct top_run *t, struct top_model *m, unsigned *shown,
				   uint64_t patience_ns)
{
	uint64_t now = clock_mono_ns();

	if (t->screen)
		return print_answers(t, m) ? GO_ON : BROKEN;
	if (top_news_is(&t->news, m, t->o->once, (2 * t->o->interval_s + LATE_S) * NS_PER_S)) {
		if (!print_answers(t, m))
			return BROKEN;
		(*shown)++;
	}
	if (t->o->once && *shown)
		return DONE;
	if (t->o->count && *shown >= t->o->count)
		return DONE;
	/* who waits for so many reports, or the first of a monitor that is on, gets them, or learns
	 * that none comes */
	bool over = is_over(t, m, now), bounded = t->o->once || t->o->count;
	bool hopeless = (!m->running && !m->paused && (t->o->no_start || !m->known)) || m->is_mute;
	if ((over && bounded) || (!*shown && (now > patience_ns || (hopeless && t->o->once))))
		return NOTHING;
	if (over && !t->over_said)
		report_nothing(t, m);
	t->over_said = over;
	return GO_ON;
}

static bool nobody_answers(const struct top_run *t)
{
	for (size_t i = 0; i < t->c->hosts.n; i++)
		if (t->answers[i].reply)
			return false;
	return true;
}

/* Until the next poll. False: the user wants to end. */
static bool wait_for_poll(struct top_run *t)
{
	uint64_t moment = t->screen && !t->empty ? t->o->interval_s * NS_PER_S : POLL_NS;
	uint64_t until = clock_mono_ns() + moment;
	int key = 0;

	for (bool again = true; again && !screen_must_end();) {
		uint64_t due = t->monitor.renew_ns;

		again = due < until;
		key = screen_wait(again ? due : until, t->screen);
		if (clock_mono_ns() >= t->monitor.renew_ns)
			top_monitor_renew(&t->monitor);
		else
			again = false; /* a key, or a terminal of another size */
	}
	return handle_key(t, key);
}

static enum outcome show_answers(struct top_run *t, unsigned *shown, uint64_t patience)
{
	struct top_model m;

	explain_old_daemons(t);
	top_news_note(&t->news, t->c, t->answers);
	top_monitor_start(&t->monitor, t->answers);
	top_monitor_drop_old(&t->monitor, t->answers);
	top_model_make(&m, t->c, t->answers, t->o->kinds);
	top_monitor_describe(&t->monitor, t->answers, &m);
	m.is_mute = is_mute(t, &m, clock_mono_ns());
	enum outcome outcome = handle_answers(t, &m, shown, patience);
	if (outcome == NOTHING)
		report_nothing(t, &m);
	t->empty = !m.nprocesses;
	top_model_release(&m);
	return outcome;
}

static int run_loop(struct top_run *t)
{
	uint64_t patience = clock_mono_ns() + (2 * t->o->interval_s + PATIENCE_S) * NS_PER_S;
	uint64_t heard = 0;
	enum outcome outcome = GO_ON;
	struct err err = {0};
	unsigned shown = 0;

	while (outcome == GO_ON && !screen_must_end()) {
		if (poll_hosts(t, &err) < 0) {
			outcome = UNREACHABLE;
			break;
		}
		if (!nobody_answers(t)) {
			if (!heard && t->screen)
				screen_enter(true);
			heard = clock_mono_ns();
		} else if (!heard ||
			   (!t->screen && clock_mono_ns() - heard > PATIENCE_S * NS_PER_S)) {
			outcome = UNREACHABLE;
			break;
		}
		outcome = show_answers(t, &shown, patience);
		if (outcome == GO_ON && !wait_for_poll(t))
			outcome = DONE;
	}
	if (heard && t->screen)
		screen_leave();
	if (err.code < 0) {
		client_answers_free(&t->c->group, t->answers); /* nobody was asked */
		t->answers = NULL;
		return command_fail(t->c->cmd, &err, EXIT_FAILED);
	}
	if (outcome == UNREACHABLE || (outcome == BROKEN && !t->screen))
		return EXIT_FAILED;
	return outcome == NOTHING ? EXIT_FINDING : EXIT_DONE;
}

/* Which hosts failed at the last poll. One says why, and what to do about it. */
static int report_failures(const struct top_run *t, int status)
{
	const struct ctl *c = t->c;

	if (c->hosts.n > 1 && nobody_answers(t)) {
		ctl_say(c, "none of %zu hosts answers; %s", c->hosts.n, t->answers[0].err.text);
		return EXIT_FAILED;
	}
	int failed = ctl_failures(c, t->answers);
	return status == EXIT_DONE || failed != EXIT_DONE ? failed : status;
}

static int show_top(struct ctl *c, const struct top_options *o)
{
	struct top_run t = {.c = c,
			    .o = o,
			    .by = o->by,
			    .screen = screen_is_able() && !o->common.json && !o->once && !o->count};

	t.monitor = (struct top_monitor){.c = c,
					 .pids = o->pids,
					 .job_id = o->job_id == ANY_JOB ? 0 : (int64_t)o->job_id,
					 .interval_s = o->interval_s,
					 .kinds = *o->kinds ? o->kinds : USUAL_KINDS,
					 .only_look = o->no_start,
					 .quiet = t.screen};
	c->group.progress = NULL; /* there are many rounds */
	top_news_begin(&t.news, c);
	top_monitor_begin(&t.monitor);
	screen_signals(false);
	int status = run_loop(&t);
	if (t.answers)
		status = report_failures(&t, status);
	top_monitor_end(&t.monitor);
	client_answers_free(&c->group, t.answers);
	top_news_release(&t.news);
	return status;
}

static int top_run(const struct command *cmd, int argc, char **argv)
{
	struct top_options o = {CTL_COMMON_DEFAULTS, .job_id = ANY_JOB, .interval_s = 2,
				.lines = 15};
	struct args a = {.target = &o};
	struct ctl c = {0};

	int status = ctl_begin(&c, cmd, &a, argc, argv);
	if (status < 0)
		status = ctl_open(&c, false);
	if (status < 0)
		status = show_top(&c, &o);
	ctl_end(&c);
	args_release(&a);
	return status;
}

static const char *const by_choices[] = {"both", "kernel", "rank", NULL};

#define AT(member) offsetof(struct top_options, member)
static const struct opt options[] = {
	OPTION_CHOICE("by", "WHAT", by_choices, AT(by), "both",
		      "A table by kernel, by rank, or both.", .group = "What to show"),
	OPTION_UINT("top", "N", AT(lines), 1, 160, "15", "Lines of the table by kernel.",
		    .letters = "n"),
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
	 "SHARE is of the time that all devices spent; kernels that run at the same time count "
	 "both. MEAN of communication has the time in it that a rank waits for the others. CHANGE "
	 "compares the mean time of a call with that of the report before. P99 is the "
	 "highest of any rank. Of names of C++ people see what they mean.\n\n"
	 "Ranks that step together take equally long: the slowest is the one that the others wait "
	 "for, and so the one that spends the least time communicating. Where steps differ, it is "
	 "the one with the longest."},
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
