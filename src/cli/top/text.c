/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "cli/top/text.h"

#include "base/clock.h"
#include "base/text/display_width.h"
#include "base/text/printable.h"
#include "unwind/symbols/demangle.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BOLD "\033[1m"
#define RED "\033[31m"
#define YELLOW "\033[33m"
#define PLAIN "\033[0m"
#define NAME_COLUMNS 60 /* of a kernel in a sentence */
#define SAID 3 /* regressions that are said in words; the others are counted */
#define NO_MORE 0.0005 /* that is no percent any more */
#define WORTH_SAYING 0.02 /* of the time, that it was told too late */

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

/* Somebody else's name, cut: the end of a long C++ name says little. */
static void add_name(struct buf *out, const char *name, const struct top_look *look)
{
	unsigned columns, most = look->width / 2 && look->width / 2 < NAME_COLUMNS ? look->width / 2
										   : NAME_COLUMNS;
	struct buf clean = {0};

	text_add_printable(&clean, name, strlen(name));
	size_t fit = text_fit_columns(buf_str(&clean), clean.len, most, &columns);
	buf_addf(out, "'%.*s%s'", (int)fit, buf_str(&clean), fit < clean.len ? "…" : "");
	buf_release(&clean);
}

static void say(struct buf *out, const struct top_look *look, const char *colour,
		struct buf *sentence)
{
	bool coloured = look->colours && colour;

	text_add_wrapped(out, buf_str(sentence), sentence->len, look->width, coloured ? colour : "",
			 coloured ? PLAIN : "");
	buf_clear(sentence);
}

/* --- the answer --- */

static size_t fresh(const struct top_model *m)
{
	size_t n = 0;

	for (size_t i = 0; i < m->nprocesses; i++)
		n += !m->processes[i].late;
	return n;
}

/* A part of the time: what it is in, on average, and of how many processes that is known. */
struct part {
	const char *name;
	double sum;
	size_t n;
};

static void add_part(struct part *p, bool known, double value)
{
	p->sum += known ? value : 0;
	p->n += known;
}

static void say_parts(const struct part *parts, size_t n, struct buf *s)
{
	const char *between = ": ";
	char text[16];

	for (size_t i = 0; i < n; i++)
		if (parts[i].n) {
			buf_addf(s, "%s%s %s", between, parts[i].name,
				 top_percent(parts[i].sum / (double)parts[i].n, text));
			between = ", ";
		}
	between = "; not collected: ";
	for (size_t i = 0; i < n; i++)
		if (!parts[i].n) {
			buf_addf(s, "%s%s", between, parts[i].name);
			between = ", ";
		}
	buf_add_char(s, '.');
}

static bool is_filtered(const struct top_model *m)
{
	for (size_t i = 0; i < m->nprocesses; i++)
		if (!m->processes[i].late && m->processes[i].filtered)
			return true;
	return false;
}

static void say_busy(const struct top_model *m, const struct top_look *look, struct buf *s)
{
	struct part busy = {0},
		    parts[] = {{"kernels", 0, 0}, {"communication", 0, 0}, {"copies", 0, 0}};
	char text[16];

	for (size_t i = 0; i < m->nprocesses; i++) {
		const struct top_process *p = &m->processes[i];

		if (p->late)
			continue;
		add_part(&busy, p->has_kernel || p->has_comm || p->has_copy, p->busy);
		add_part(&parts[0], p->has_kernel, p->kernel);
		add_part(&parts[1], p->has_comm, p->comm);
		add_part(&parts[2], p->has_copy, p->copy);
	}
	if (!busy.n) /* who tells of marks alone is no idle device */
		return;
	top_percent(busy.sum / (double)busy.n, text);
	if (is_filtered(m))
		buf_addf(s,
			 "What the monitor's --filter lets through, and these numbers are of "
			 "nothing else, keeps devices busy %s of the time",
			 text);
	else
		buf_addf(s, "Devices are busy %s of the time", text);
	say_parts(parts, sizeof(parts) / sizeof(parts[0]), s);
	if (!m->nlines || m->total_ns <= 0 || !m->lines[0].on_device)
		return;
	buf_add_str(s, " Most of it, ");
	buf_addf(s, "%s, is ", top_percent(m->lines[0].total_ns / m->total_ns, text));
	add_name(s, m->lines[0].name, look);
	buf_add_char(s, '.');
}

static void say_slowest(const struct top_model *m, const struct ctl *c, struct buf *s)
{
	const struct top_process *p = &m->processes[m->slowest.at];
	char ratio[16], behind[16];

	buf_addf(s, "Rank %lld is the slowest (process %lld", (long long)p->rank,
		 (long long)p->pid);
	if (c->hosts.n > 1)
		buf_addf(s, " on %s", c->hosts.v[p->host].label);
	top_percent(m->slowest.ratio, ratio);
	if (m->slowest.by == TOPLIST_SLOW_STEPS)
		buf_addf(s, "): its steps take %s longer than those of the others", ratio);
	else
		buf_addf(s, "): the others wait %s of the time for it", ratio);
	if (m->slowest.behind_ns)
		buf_addf(s, ", %s a step", top_duration((double)m->slowest.behind_ns, behind));
	buf_add_char(s, '.');
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

static void say_where(const struct ctl *c, const json_t *r, size_t more, struct buf *s)
{
	const json_t *rank = json_object_get(r, "rank");

	if (json_is_integer(rank))
		buf_addf(s, " on rank %lld", (long long)json_integer_value(rank));
	if (c->hosts.n > 1)
		buf_addf(s, " (%s)", text_of(r, "host"));
	if (more)
		buf_addf(s, " and %zu more", more);
}

/* It is said until the daemon is sure that it is over, and meanwhile it may be as usual. `more`:
 * other ranks of which the same is true. */
static void say_regression(const struct ctl *c, const struct top_look *look, const json_t *r,
			   size_t more, struct buf *s)
{
	double mean = json_number_value(json_object_get(r, "mean_ns")), slower = slower_by(r);
	const char *name = text_of(r, "name");
	char time[16], part[16], since[16];

	bool waits = toplist_waits(text_of(r, "kind"), name);
	buf_add_str(s, slower <= 0 ? "No longer slower: "
		       : waits	   ? "Waits longer than before: "
				   : "Slower than before: ");
	char *plain = demangle(name);
	add_name(s, plain ? plain : name, look);
	free(plain);
	say_where(c, r, more, s);
	buf_addf(s, " takes %s", top_duration(mean, time));
	if (slower > 0)
		buf_addf(s, ", %s more than usual, since ", top_percent(slower, part));
	else
		buf_add_str(s, " again, as usual; it was slower since ");
	buf_add_str(s, clock_of(json_integer_value(json_object_get(r, "since")), since));
	if (slower > 0 && waits)
		buf_add_str(s, "; the time it waits for other ranks is in it");
	buf_add_char(s, '.');
}

/* Who waits longer is not slower himself: that is said, and is no alarm. */
static bool alarms(const json_t *r)
{
	return slower_by(r) > 0 && !toplist_waits(text_of(r, "kind"), text_of(r, "name"));
}

/* One line for a kernel, whatever ranks it is slower on; the likely cause first. */
static void say_regressions(const struct top_model *m, const struct ctl *c,
			    const struct top_look *look, struct buf *s, struct buf *out)
{
	size_t n = json_array_size(m->regressions), kernels = 0;

	for (size_t i = 0; i < n; i++) {
		const json_t *r = json_array_get(m->regressions, i);
		size_t before = 0, behind = 0;

		for (size_t k = 0; k < n; k++)
			if (k != i && is_same(r, json_array_get(m->regressions, k)))
				++*(k < i ? &before : &behind);
		if (before || kernels++ >= SAID)
			continue;
		say_regression(c, look, r, behind, s);
		say(out, look, alarms(r) ? RED : NULL, s);
	}
	if (kernels > SAID) {
		buf_addf(s, "%zu more have become slower.", kernels - SAID);
		say(out, look, NULL, s);
	}
}

static void say_losses(const struct top_losses *l, const struct top_look *look, struct buf *s,
		       struct buf *out)
{
	const struct {
		double n;
		const char *one, *many, *what;
	} losses[] = {
		{l->lost, "activity is", "activities are", "missing from these numbers"},
		{l->crowded, "activity is", "activities are",
		 "in no sum of the metrics: more than 256 devices"},
		{l->incomplete, "mark is", "marks are",
		 "not told: the end or the beginning did not come"},
		{l->unwritten, "activity is", "activities are",
		 "not in the files of npu-monitor: they could not be written"},
		{l->unsent, "report", "reports",
		 "did not reach the daemon, which was away or too slow"},
	};

	for (size_t i = 0; i < sizeof(losses) / sizeof(losses[0]); i++) {
		if (losses[i].n <= 0)
			continue;
		buf_addf(s, "%.0f %s %s.", losses[i].n,
			 losses[i].n > 1 ? losses[i].many : losses[i].one, losses[i].what);
		say(out, look, YELLOW, s);
	}
}

/* Kernels longer than an interval, or a source that tells late. */
static void say_late(const struct top_model *m, const struct top_look *look, struct buf *s,
		     struct buf *out)
{
	double most = 0;
	char part[16];

	for (size_t i = 0; i < m->nprocesses; i++)
		if (!m->processes[i].late && m->processes[i].told_late > most)
			most = m->processes[i].told_late;
	if (most < WORTH_SAYING)
		return;
	buf_addf(
		s,
		"Activities of up to %s of the time were told too late for their interval: devices "
		"are busier than this says.",
		top_percent(most, part));
	say(out, look, YELLOW, s);
}

static void say_rest(const struct top_model *m, const struct ctl *c, const struct top_look *look,
		     struct buf *s, struct buf *out)
{
	size_t late = m->nprocesses - fresh(m);

	if (m->lost_monitor) {
		buf_add_str(s, "The monitor runs by somebody else's order now: it is shown as it "
			       "comes, and stays on when this ends.");
		say(out, look, NULL, s);
	}
	say_losses(&m->losses, look, s, out);
	say_late(m, look, s, out);
	if (late) {
		buf_addf(s, "%zu of %zu processes do not report any more.", late, m->nprocesses);
		say(out, look, YELLOW, s);
	}
	if (m->paused) {
		buf_addf(s, "%u monitor%s aside for a trace by PyTorch's own profiler.", m->paused,
			 m->paused == 1 ? " steps" : "s step");
		say(out, look, NULL, s);
	}
	if (m->several_jobs) {
		buf_add_str(s, "Ranks come more than once: these are several jobs; --pids chooses "
			       "one.");
		say(out, look, NULL, s);
	}
	if (m->failed) {
		buf_addf(s, "%u of %zu hosts did not answer: %.300s.", m->failed, c->hosts.n,
			 m->why_failed);
		say(out, look, RED, s);
	}
}

static bool collects(const struct top_model *m)
{
	for (size_t i = 0; i < m->nprocesses; i++)
		if (m->processes[i].has_kernel || m->processes[i].has_comm)
			return true;
	return false;
}

static void say_first(const struct top_model *m, const struct ctl *c, const struct top_look *look,
		      struct buf *s, struct buf *out)
{
	if (!fresh(m)) {
		top_text_nothing(m, c, s);
		if (s->len)
			say(out, look, BOLD, s);
		return;
	}
	if (top_text_ended(m, s) || top_text_off(m, s))
		say(out, look, YELLOW, s);
	say_busy(m, look, s);
	if (s->len)
		say(out, look, BOLD, s);
	if (!m->nlines && collects(m)) {
		buf_add_str(s, "Nothing of what is collected ran in this interval.");
		say(out, look, YELLOW, s);
	} else if (!m->nlines) {
		buf_add_str(s, "Nothing is told of kernels: the monitor runs with other kinds. '");
		top_text_command(s, c, "npu-monitor --mspti-activity-kind Kernel,Communication");
		buf_add_str(s, "' changes that.");
		say(out, look, YELLOW, s);
	}
}

void top_text_answer(const struct top_model *m, const struct ctl *c, const struct top_look *look,
		     struct buf *out)
{
	struct buf s = {0};

	say_first(m, c, look, &s, out);
	if (m->slowest.by != TOPLIST_SLOW_NONE) {
		say_slowest(m, c, &s);
		say(out, look, YELLOW, &s);
	}
	say_regressions(m, c, look, &s, out);
	say_rest(m, c, look, &s, out);
	buf_release(&s);
}

/* --- for programs --- */

static json_t *optional(double v)
{
	return v > 0 ? json_real(v) : json_null();
}

static json_t *known_part(bool known, double part)
{
	return known ? json_real(part) : json_null();
}

static json_t *kernel_json(const struct top_model *m, const struct top_line *l)
{
	double ratio;
	json_t *change = top_line_change(l, &ratio) ? json_real(ratio) : json_null();
	json_t *share = l->on_device && m->total_ns > 0 ? json_real(l->total_ns / m->total_ns)
							: json_null();

	return json_pack("{s:s,s:s,s:o,s:I,s:f,s:f,s:o,s:o,s:i}", "kind", l->kind, "name", l->name,
			 "share", share, "calls", (json_int_t)l->calls, "total_ns", l->total_ns,
			 "mean_ns", l->calls > 0 ? l->total_ns / l->calls : 0, "p99_ns",
			 optional(l->p99_ns), "change", change, "processes", (int)l->processes);
}

static void losses_json(const struct top_losses *l, json_t *out)
{
	json_t *o =
		json_pack("{s:f,s:f,s:f,s:f,s:f}", "lost", l->lost, "incomplete", l->incomplete,
			  "crowded", l->crowded, "unwritten", l->unwritten, "unsent", l->unsent);

	json_object_update(out, o);
	json_decref(o);
}

static json_t *rank_json(const struct ctl *c, const struct top_process *p)
{
	json_t *o = json_pack(
		"{s:o,s:I,s:s,s:I,s:o,s:o,s:o,s:o,s:f,s:o,s:I,s:I,s:f,s:f,s:b}", "rank",
		p->rank >= 0 ? json_integer(p->rank) : json_null(), "pid", (json_int_t)p->pid,
		"host", c->hosts.v[p->host].label, "device", (json_int_t)p->device, "busy",
		known_part(p->has_kernel || p->has_comm || p->has_copy, p->busy), "kernels",
		known_part(p->has_kernel, p->kernel), "communication",
		known_part(p->has_comm, p->comm), "copies", known_part(p->has_copy, p->copy),
		"told_late", p->told_late, "step_ns", optional(p->step_ns), "from",
		(json_int_t)p->from_ns, "to", (json_int_t)p->to_ns, "interval_s", p->interval_s,
		"age_s", p->age_s, "late", p->late);

	losses_json(&p->losses, o);
	return o;
}

static json_t *slowest_json(const struct top_model *m)
{
	if (m->slowest.by == TOPLIST_SLOW_NONE)
		return json_null();
	const struct top_process *p = &m->processes[m->slowest.at];
	return json_pack("{s:I,s:I,s:s,s:f,s:o}", "rank", (json_int_t)p->rank, "pid",
			 (json_int_t)p->pid, "by",
			 m->slowest.by == TOPLIST_SLOW_STEPS ? "steps" : "waiting", "ratio",
			 m->slowest.ratio, "behind_ns", optional((double)m->slowest.behind_ns));
}

static json_t *hosts_json(const struct ctl *c, const struct ctl_answer *answers)
{
	json_t *list = json_array();

	for (size_t i = 0; i < c->hosts.n; i++) {
		json_t *row = ctl_answer_json(c, i, &answers[i]);

		json_object_del(row, "reply");
		json_array_append_new(list, row);
	}
	return list;
}

json_t *top_text_json(const struct top_model *m, const struct ctl *c,
		      const struct ctl_answer *answers, const struct top_look *look)
{
	struct top_look plain = {.by = look->by};
	json_t *lines = json_array(), *processes = json_array();
	struct buf words = {0};

	for (size_t i = 0; i < m->nlines && i < look->lines; i++)
		json_array_append_new(lines, kernel_json(m, &m->lines[i]));
	for (size_t i = 0; i < m->nprocesses; i++)
		json_array_append_new(processes, rank_json(c, &m->processes[i]));
	top_text_answer(m, c, &plain, &words);
	json_t *o = json_pack("{s:I,s:s,s:o,s:o,s:o,s:O,s:o,s:i,s:i,s:i}", "time_ns",
			      (json_int_t)clock_real_ns(), "answer", buf_str(&words), "kernels",
			      lines, "ranks", processes, "slowest", slowest_json(m), "regressions",
			      m->regressions, "hosts", hosts_json(c, answers), "known",
			      (int)m->known, "running", (int)m->running, "paused", (int)m->paused);
	losses_json(&m->losses, o);
	buf_release(&words);
	return o;
}

/* Why there is nothing to show, and what to do about it. */

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
