/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "cli/top/text.h"

#include "base/clock.h"
#include "base/text/display_width.h"
#include "base/text/printable.h"
#include "unwind/symbols/demangle.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BOLD "\033[1m"
#define RED "\033[31m"
#define YELLOW "\033[33m"
#define PLAIN "\033[0m"
#define NAME_COLUMNS 60 /* of a kernel in a sentence */
#define MAX_SHOWN 3 /* regressions in sentences; the others are counted */
#define MANY_TIMES 10 /* percents say little from there on */
#define NO_MORE 0.0005 /* that is no percent any more */
#define WORTH_SHOWING 0.02 /* of the time, that it was reported too late */

const char *top_duration(double ns, char out[16])
{
	static const char *const units[] = {"ns", "us", "ms", "s"};
	unsigned unit = 0;

	while (ns >= 999.5 && unit < 3) {
		ns /= 1000;
		unit++;
	}
	snprintf(out, 16, "%.*f %s",
		 !unit || ns >= 99.95 ? 0
		 : ns >= 9.995	      ? 1
				      : 2,
		 ns, units[unit]);
	return out;
}

const char *top_percent(double ratio, char out[16])
{
	snprintf(out, 16, "%.*f %%", fabs(ratio) >= 0.0995 ? 0 : 1, ratio * 100);
	return out;
}

static const char *clock_of(int64_t ns, char out[16])
{
	time_t s = (time_t)(ns / 1000000000);
	struct tm tm;

	localtime_r(&s, &tm);
	strftime(out, 16, "%H:%M:%S", &tm);
	return out;
}

/* A name that somebody else has chosen, cut: the end of a long C++ name says little. */
static void add_name(struct buf *out, const char *name, const struct top_display *d)
{
	unsigned columns, half = d->width / 2;
	struct buf clean = {0};

	text_add_printable(&clean, name, strlen(name));
	size_t fit = text_fit_columns(buf_str(&clean), clean.len,
				      half && half < NAME_COLUMNS ? half : NAME_COLUMNS, &columns);
	buf_addf(out, "'%.*s%s'", (int)fit, buf_str(&clean), fit < clean.len ? "…" : "");
	buf_release(&clean);
}

/* --- why there is nothing to show, and what to do about it --- */

/* The monitor was on while we polled, and is not any more. False: it is not so. */
static bool add_ended(const struct top_model *m, struct buf *s)
{
	if (m->ended && !m->running && !m->paused)
		buf_addf(s, "The monitor %s. 'sonde top', started anew, starts it.",
			 m->stopped ? "was stopped by a request"
				    : "has ended: its --duration is over");
	else if (m->was_known && !m->known && !m->failed)
		buf_add_str(s, "The processes have ended.");
	return s->len > 0;
}

/* What is shown is of monitors that are off. False: it is not so. */
static bool add_off(const struct top_model *m, struct buf *s)
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

/* A command of `sonde ctl` that can be typed here as it is. */
static void add_command(struct buf *s, const struct ctl *c, const char *words)
{
	buf_add_str(s, "sonde ctl ");
	if (c->common->port != RPC_PORT)
		buf_addf(s, "--port %u ", c->common->port);
	buf_add_str(s, words);
}

static const char *plural_es(unsigned n)
{
	return n == 1 ? "" : "es";
}

static void describe_no_processes(const struct top_model *m, const struct ctl *c, struct buf *s)
{
	if (!m->registered && m->others) {
		buf_addf(s,
			 "No process of yours that can be monitored has registered; %u of other "
			 "users %s, which only they, root and the daemon's --admin-group see.",
			 m->others, m->others == 1 ? "has" : "have");
		return;
	}
	if (!m->registered) {
		buf_add_str(s, "No process that can be monitored has registered: start jobs with "
			       "'sonde monitor -- COMMAND', after the daemon.");
		return;
	}
	buf_addf(s, "%u process%s can be monitored, but none that was asked for is among them: '",
		 m->registered, plural_es(m->registered));
	add_command(s, c, "ps");
	buf_add_str(s, "' shows which there are, for --pids and --job-id.");
}

/* A framework's own monitor, to which a report for us means nothing. */
static void describe_no_reports(const struct ctl *c, struct buf *s)
{
	buf_add_str(s, "The monitor is on, but no report has come: in these processes it is a "
		       "framework's own, which sends none to this command. Its numbers are in the "
		       "daemon's /metrics, and '");
	add_command(s, c, "npu-monitor --npu-monitor-start --log-file DIRECTORY");
	buf_add_str(s, "' has it write them to files. Jobs that are started with 'sonde monitor -- "
		       "COMMAND' can be shown here.");
}

static void describe_no_monitor(const struct top_model *m, const struct ctl *c, struct buf *s)
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
		buf_addf(s, "Starting the monitor in %u process%s …", m->known,
			 plural_es(m->known));
		return;
	}
	buf_addf(s, "%u process%s can be monitored, and the monitor is off", m->known,
		 plural_es(m->known));
	if (!m->tracing) {
		buf_add_char(s, '.');
		return;
	}
	buf_addf(s,
		 ": nputrace has %u of them, and only one of the two can be on. Wait until that is "
		 "over, or end it with '",
		 m->tracing);
	add_command(s, c, "nputrace --stop");
	buf_add_str(s, "'.");
}

void top_text_nothing(const struct top_model *m, const struct ctl *c, struct buf *s)
{
	if (add_ended(m, s) || (m->failed && !m->known))
		return;
	if (!m->known)
		describe_no_processes(m, c, s);
	else if (m->reports_nothing)
		describe_no_reports(c, s);
	else if (m->running)
		buf_add_str(s, "The monitor is on; the first report is on its way.");
	else
		describe_no_monitor(m, c, s);
}

/* The answer on its way: sentences are put together in `s`, and each becomes lines of `out`. */
struct answer {
	const struct top_model *m;
	const struct ctl *c;
	const struct top_display *d;
	struct buf s, *out;
};

/* Ends the sentence in a->s. colour: NULL is none. */
static void end_sentence(struct answer *a, const char *colour)
{
	bool coloured = a->d->colours && colour;

	text_add_wrapped(a->out, buf_str(&a->s), a->s.len, a->d->width, coloured ? colour : "",
			 coloured ? PLAIN : "");
	buf_clear(&a->s);
}

__attribute__((format(printf, 3, 4))) static void add_sentence(struct answer *a, const char *colour,
							       const char *fmt, ...)
{
	char *text = NULL;
	va_list args;

	va_start(args, fmt);
	if (vasprintf(&text, fmt, args) >= 0)
		buf_add_str(&a->s, text);
	va_end(args);
	free(text);
	end_sentence(a, colour);
}

/* --- the answer --- */

static size_t count_fresh(const struct top_model *m)
{
	size_t n = 0;

	for (size_t i = 0; i < m->nprocesses; i++)
		n += !m->processes[i].late;
	return n;
}

/* What the time of devices went into. */
struct part {
	const char *name;
	const struct top_part *of;
};

static double part_of(const struct top_part *p)
{
	return p->time_s > 0 ? p->busy_s / p->time_s : 0;
}

static void describe_parts(const struct part *parts, size_t n, struct buf *s)
{
	const char *between = ": ";
	char text[16];

	for (size_t i = 0; i < n; i++)
		if (parts[i].of->time_s > 0) {
			buf_addf(s, "%s%s %s", between, parts[i].name,
				 top_percent(part_of(parts[i].of), text));
			between = ", ";
		}
	between = "; not collected: ";
	for (size_t i = 0; i < n; i++)
		if (parts[i].of->time_s <= 0) {
			buf_addf(s, "%s%s", between, parts[i].name);
			between = ", ";
		}
	buf_add_char(s, '.');
}

static void describe_busy(struct answer *a)
{
	const struct top_model *m = a->m;
	const struct part parts[] = {
		{"kernels", &m->kernel}, {"communication", &m->comm}, {"copies", &m->copy}};
	bool filtered = false;
	char text[16];

	for (size_t i = 0; i < m->nprocesses; i++)
		filtered |= !m->processes[i].late && m->processes[i].filtered;
	if (m->busy.time_s <= 0) /* marks alone do not make a device idle */
		return;
	top_percent(part_of(&m->busy), text);
	if (filtered)
		buf_addf(&a->s,
			 "What the monitor's --filter lets through, and these numbers are of "
			 "nothing else, keeps devices busy %s of the time",
			 text);
	else
		buf_addf(&a->s, "Devices are busy %s of the time", text);
	describe_parts(parts, sizeof(parts) / sizeof(parts[0]), &a->s);
	if (m->nlines && m->time_ns > 0 && m->lines[0].on_device) {
		buf_add_char(&a->s, ' ');
		add_name(&a->s, m->lines[0].name, a->d);
		buf_addf(&a->s, " takes the most, %s of the time.",
			 top_percent(top_line_share(m, &m->lines[0]), text));
	}
	end_sentence(a, BOLD);
}

static void describe_slowest(struct answer *a)
{
	const struct toplist_slowest *slow = &a->m->slowest;
	char ratio[16], behind[16];

	if (slow->by == TOPLIST_SLOW_NONE)
		return;
	const struct top_process *p = &a->m->processes[slow->at];
	buf_addf(&a->s, "Rank %lld is the slowest (process %lld", (long long)p->rank,
		 (long long)p->pid);
	if (a->c->hosts.n > 1)
		buf_addf(&a->s, " on %s", a->c->hosts.v[p->host].label);
	top_percent(slow->ratio, ratio);
	if (slow->by == TOPLIST_SLOW_STEPS)
		buf_addf(&a->s, "): its steps take %s longer than those of the others", ratio);
	else
		buf_addf(&a->s, "): the others wait %s of the time for it", ratio);
	if (slow->behind_ns)
		buf_addf(&a->s, ", %s a step", top_duration((double)slow->behind_ns, behind));
	add_sentence(a, YELLOW, ".");
}

static double slower_by(const json_t *r)
{
	double usual = json_number_value(json_object_get(r, "baseline_ns"));
	double slower =
		usual > 0 ? json_number_value(json_object_get(r, "mean_ns")) / usual - 1 : 0;

	return slower >= NO_MORE ? slower : 0;
}

static const char *text_of(const json_t *o, const char *key)
{
	const char *text = json_string_value(json_object_get(o, key));

	return text ? text : "?";
}

/* The same kernel on another rank. */
static bool is_same(const json_t *a, const json_t *b)
{
	return !slower_by(a) == !slower_by(b) && !strcmp(text_of(a, "kind"), text_of(b, "kind")) &&
	       !strcmp(text_of(a, "name"), text_of(b, "name"));
}

/* It is reported until the daemon is sure that it is over, and meanwhile it may be as usual.
 * `more`: other ranks of which the same is true. Waiting longer is no fault of the rank, and no
 * alarm. */
static void describe_regression(struct answer *a, const json_t *r, size_t more)
{
	double mean = json_number_value(json_object_get(r, "mean_ns")), slower = slower_by(r);
	const json_t *rank = json_object_get(r, "rank");
	const char *name = text_of(r, "name");
	char time[16], part[16], since[16];

	bool waits = toplist_waits(text_of(r, "kind"), name);
	buf_add_str(&a->s, slower <= 0 ? waits ? "No longer waits: " : "No longer slower: "
			   : waits     ? "Waits longer than before: "
				       : "Slower than before: ");
	char *plain = demangle(name);
	add_name(&a->s, plain ? plain : name, a->d);
	free(plain);
	if (json_is_integer(rank))
		buf_addf(&a->s, " on rank %lld", (long long)json_integer_value(rank));
	if (a->c->hosts.n > 1)
		buf_addf(&a->s, " (%s)", text_of(r, "host"));
	if (more)
		buf_addf(&a->s, " and %zu more", more);
	buf_addf(&a->s, " takes %s", top_duration(mean, time));
	if (slower >= MANY_TIMES - 1)
		buf_addf(&a->s, ", %.0f times the usual, since ", slower + 1);
	else if (slower > 0)
		buf_addf(&a->s, ", %s more than usual, since ", top_percent(slower, part));
	else
		buf_addf(&a->s, " again, as usual; it %s since ",
			 waits ? "waited longer" : "was slower");
	buf_add_str(&a->s, clock_of(json_integer_value(json_object_get(r, "since")), since));
	add_sentence(a, slower > 0 && !waits ? RED : NULL, "%s.",
		     slower > 0 && waits ? "; the time it waits for other ranks is in it" : "");
}

/* One line for a kernel, whatever ranks it is slower on; the likely cause first. */
static void describe_slower(struct answer *a, const json_t *all, const char *more)
{
	size_t n = json_array_size(all), kernels = 0;

	for (size_t i = 0; i < n; i++) {
		const json_t *r = json_array_get(all, i);
		size_t before = 0, behind = 0;

		for (size_t k = 0; k < n; k++)
			if (k != i && is_same(r, json_array_get(all, k)))
				++*(k < i ? &before : &behind);
		if (!before && kernels++ < MAX_SHOWN)
			describe_regression(a, r, behind);
	}
	if (kernels > MAX_SHOWN)
		add_sentence(a, NULL, "%zu more %s.", kernels - MAX_SHOWN, more);
}

static void describe_losses(struct answer *a)
{
	static const struct {
		const char *one, *many, *what;
	} words[TOPLIST_LOSSES] = {
		[TOPLIST_LOST] = {"activity is", "activities are", "missing from these numbers"},
		[TOPLIST_CROWDED] = {"activity is", "activities are",
				     "in no sum of the metrics: more than 256 devices"},
		[TOPLIST_INCOMPLETE] = {"mark is", "marks are",
					"not reported: the end or the beginning did not come"},
		[TOPLIST_UNWRITTEN] =
			{"activity is", "activities are",
			 "not in the files of npu-monitor: they could not be written"},
		[TOPLIST_UNSENT] = {"report", "reports",
				    "did not reach the daemon, which was away or too slow"},
	};

	for (unsigned i = 0; i < TOPLIST_LOSSES; i++) {
		double n = a->m->losses[i];

		if (n > 0)
			add_sentence(a, YELLOW, "%.0f %s %s.", n,
				     n > 1 ? words[i].many : words[i].one, words[i].what);
	}
}

/* Kernels longer than an interval, or a source that reports late. */
static void describe_late(struct answer *a)
{
	double most = 0;
	char part[16];

	for (size_t i = 0; i < a->m->nprocesses; i++)
		if (!a->m->processes[i].late && a->m->processes[i].reported_late > most)
			most = a->m->processes[i].reported_late;
	if (most >= WORTH_SHOWING)
		add_sentence(a, YELLOW,
			     "Activities of up to %s of the time were reported too late for their "
			     "interval: "
			     "devices are busier than this says.",
			     top_percent(most, part));
}

static void describe_rest(struct answer *a)
{
	const struct top_model *m = a->m;
	size_t late = m->nprocesses - count_fresh(m);

	if (m->lost_monitor)
		add_sentence(a, NULL,
			     "The monitor runs by somebody else's request now: it is shown as it "
			     "comes, and "
			     "stays on when this ends.");
	describe_losses(a);
	describe_late(a);
	if (late)
		add_sentence(a, YELLOW, "%zu of %zu processes do not report any more.", late,
			     m->nprocesses);
	if (m->paused)
		add_sentence(a, NULL, "%u monitor%s paused for a trace by PyTorch's own profiler.",
			     m->paused, m->paused == 1 ? " is" : "s are");
	if (m->several_jobs)
		add_sentence(
			a, NULL,
			"Ranks come more than once: these are several jobs; --pids chooses one.");
	if (m->failed)
		add_sentence(a, RED, "%u of %zu hosts did not answer: %.300s.", m->failed,
			     a->c->hosts.n, m->why_failed);
}

static bool collects_work(const struct top_model *m)
{
	for (size_t i = 0; i < m->nprocesses; i++)
		if (m->processes[i].has_kernel || m->processes[i].has_comm)
			return true;
	return false;
}

static void describe_first(struct answer *a)
{
	if (!count_fresh(a->m)) {
		top_text_nothing(a->m, a->c, &a->s);
		if (a->s.len)
			end_sentence(a, BOLD);
		return;
	}
	if (add_ended(a->m, &a->s) || add_off(a->m, &a->s))
		end_sentence(a, YELLOW);
	describe_busy(a);
	if (!a->m->nlines && collects_work(a->m)) {
		add_sentence(a, YELLOW, "Nothing of what is collected ran in this interval.");
	} else if (!a->m->nlines) {
		buf_add_str(&a->s, "No kernels are reported: the monitor runs with other kinds. '");
		add_command(&a->s, a->c, "npu-monitor --mspti-activity-kind Kernel,Communication");
		add_sentence(a, YELLOW, "' changes that.");
	}
}

void top_text_answer(const struct top_model *m, const struct ctl *c, const struct top_display *d,
		     struct buf *out)
{
	struct answer a = {.m = m, .c = c, .d = d, .out = out};

	describe_first(&a);
	describe_slowest(&a);
	describe_slower(&a, m->regressions, "have become slower");
	describe_slower(&a, m->waits, "wait longer");
	describe_rest(&a);
	buf_release(&a.s);
}
