/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "cli/top_text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "analyze/frames.h"
#include "base/clock.h"
#include "base/demangle.h"
#include "cli/ctl_table.h"
#include "cli/ctl_text.h"

#define BOLD "\033[1m"
#define RED "\033[31m"
#define YELLOW "\033[33m"
#define PLAIN "\033[0m"
#define NAME_COLUMNS 60 /* of a kernel in a sentence */
#define SAID 3 /* regressions that are said in words; the others are counted */
#define RANKS 64 /* in the table */
#define NO_MORE 0.0005 /* that is no percent any more */
#define WORTH_SAYING 0.02 /* of the time, that it was told too late */

/* "1.23 ms": three digits and a unit. */
static const char *duration(double ns, char out[16])
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

static const char *percent(double ratio, char out[16])
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
static void add_name(struct buf *out, const char *name)
{
	struct buf clean = {0};
	unsigned columns;

	frame_add_printable(&clean, name, strlen(name));
	size_t fit = ctl_text_fit(buf_str(&clean), clean.len, NAME_COLUMNS, &columns);
	buf_addf(out, "'%.*s%s'", (int)fit, buf_str(&clean), fit < clean.len ? "…" : "");
	buf_release(&clean);
}

static void say(struct buf *out, const struct top_look *look, const char *colour,
		struct buf *sentence)
{
	unsigned columns;
	size_t fit = ctl_text_fit(buf_str(sentence), sentence->len, look->width, &columns);

	if (look->colours && colour)
		buf_add_str(out, colour);
	buf_add(out, sentence->data, fit);
	if (look->colours && colour)
		buf_add_str(out, PLAIN);
	buf_add_char(out, '\n');
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

static void say_busy(const struct top_model *m, struct buf *s)
{
	double busy = 0, kernel = 0, comm = 0, copy = 0, n = (double)fresh(m);
	char a[16], b[16], d[16], e[16];

	for (size_t i = 0; i < m->nprocesses; i++) {
		const struct top_process *p = &m->processes[i];

		if (p->late)
			continue;
		busy += p->busy / n;
		kernel += p->kernel / n;
		comm += p->comm / n;
		copy += p->copy / n;
	}
	buf_addf(s, "Devices are busy %s of the time: kernels %s, communication %s, copies %s.",
		 percent(busy, a), percent(kernel, b), percent(comm, d), percent(copy, e));
	if (!m->nlines || m->total_ns <= 0 || !m->lines[0].on_device)
		return;
	buf_add_str(s, " Most of it, ");
	buf_addf(s, "%s, is ", percent(m->lines[0].total_ns / m->total_ns, a));
	add_name(s, m->lines[0].name);
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
	percent(m->slowest.ratio, ratio);
	if (m->slowest.by == TOPLIST_SLOW_STEPS)
		buf_addf(s, "): its steps take %s longer than those of the others", ratio);
	else
		buf_addf(s, "): the others wait %s of the time for it", ratio);
	if (m->slowest.behind_ns)
		buf_addf(s, ", %s a step", duration((double)m->slowest.behind_ns, behind));
	buf_add_char(s, '.');
}

/* It is said until the daemon is sure that it is over, and meanwhile it may be as usual. */
static void say_regression(const struct ctl *c, const json_t *r, struct buf *s)
{
	double mean = json_number_value(json_object_get(r, "mean_ns"));
	double usual = json_number_value(json_object_get(r, "baseline_ns"));
	const json_t *rank = json_object_get(r, "rank");
	const char *name = json_string_value(json_object_get(r, "name"));
	const char *kind = json_string_value(json_object_get(r, "kind"));
	const char *host = json_string_value(json_object_get(r, "host"));
	double slower = usual > 0 ? mean / usual - 1 : 0;
	bool is_slower = slower >= NO_MORE;
	bool waits = kind && (!strcmp(kind, "Communication") || !strcmp(kind, "Hccl"));
	char time[16], more[16], since[16];

	buf_add_str(s, is_slower ? "Slower than before: " : "No longer slower: ");
	char *plain = name ? demangle(name) : NULL;
	add_name(s, plain ? plain : name ? name : "?");
	free(plain);
	if (json_is_integer(rank))
		buf_addf(s, " on rank %lld", (long long)json_integer_value(rank));
	if (c->hosts.n > 1)
		buf_addf(s, " (%s)", host ? host : "?");
	buf_addf(s, " takes %s", duration(mean, time));
	if (is_slower)
		buf_addf(s, ", %s more than usual, since ", percent(slower, more));
	else
		buf_add_str(s, " again, as usual; it was slower since ");
	buf_add_str(s, clock_of(json_integer_value(json_object_get(r, "since")), since));
	if (is_slower && waits)
		buf_add_str(s, "; the time it waits for other ranks is in it");
	buf_add_char(s, '.');
}

static void say_losses(const struct top_losses *l, const struct top_look *look, struct buf *s,
		       struct buf *out)
{
	const struct {
		double n;
		const char *one, *many, *what;
	} losses[] = {
		{l->lost, "activity is", "activities are",
		 "missing from these numbers: there was no room"},
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
		percent(most, part));
	say(out, look, YELLOW, s);
}

static void say_rest(const struct top_model *m, const struct ctl *c, const struct top_look *look,
		     struct buf *s, struct buf *out)
{
	size_t late = m->nprocesses - fresh(m);

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
		buf_addf(s, "%u of %zu hosts did not answer.", m->failed, c->hosts.n);
		say(out, look, RED, s);
	}
}

void top_text_nothing(const struct top_model *m, struct buf *s)
{
	if (m->failed && !m->known)
		return;
	if (!m->known)
		buf_add_str(s, "No process that can be monitored has registered: start jobs with "
			       "'sonde monitor -- COMMAND', after the daemon.");
	else if (m->running)
		buf_add_str(s, "The monitor is on; the first report is on its way.");
	else
		buf_addf(s, "%u process%s, and the monitor is off.", m->known,
			 m->known == 1 ? " can be monitored" : "es can be monitored");
}

void top_text_answer(const struct top_model *m, const struct ctl *c, const struct top_look *look,
		     struct buf *out)
{
	size_t n = json_array_size(m->regressions);
	struct buf s = {0};

	if (fresh(m))
		say_busy(m, &s);
	else
		top_text_nothing(m, &s);
	if (s.len)
		say(out, look, BOLD, &s);
	if (fresh(m) && !m->nlines) {
		buf_add_str(&s,
			    "Nothing is told of kernels: the monitor runs with other kinds. 'sonde "
			    "ctl npu-monitor --mspti-activity-kind Kernel,Communication' "
			    "changes that.");
		say(out, look, YELLOW, &s);
	}
	if (m->slowest.by != TOPLIST_SLOW_NONE) {
		say_slowest(m, c, &s);
		say(out, look, YELLOW, &s);
	}
	for (size_t i = 0; i < n && i < SAID; i++) {
		say_regression(c, json_array_get(m->regressions, i), &s);
		say(out, look, RED, &s);
	}
	if (n > SAID) {
		buf_addf(&s, "%zu more have become slower.", n - SAID);
		say(out, look, RED, &s);
	}
	say_rest(m, c, look, &s, out);
	buf_release(&s);
}

/* --- tables --- */

static void change_cell(const struct top_line *l, struct ctl_table *t)
{
	double ratio;

	if (!top_line_change(l, &ratio))
		ctl_table_cell(t, "-");
	else
		ctl_table_cell(t, "%+.1f %%", ratio * 100);
}

static void kernels(const struct top_model *m, const struct top_look *look, struct buf *out)
{
	static const char *const titles[] = {">SHARE",	">CALLS", ">TOTAL", ">MEAN", ">P99",
					     ">CHANGE", "KIND",	  "NAME",   NULL};
	struct ctl_table t = {.titles = titles};
	char text[16];

	for (size_t i = 0; i < m->nlines && i < look->lines; i++) {
		const struct top_line *l = &m->lines[i];

		if (l->on_device && m->total_ns > 0)
			ctl_table_cell(&t, "%.1f %%", l->total_ns / m->total_ns * 100);
		else
			ctl_table_cell(&t, "-");
		ctl_table_cell(&t, "%.0f", l->calls);
		ctl_table_cell(&t, "%s", duration(l->total_ns, text));
		ctl_table_cell(&t, "%s", duration(l->calls > 0 ? l->total_ns / l->calls : 0, text));
		if (l->p99_ns > 0)
			ctl_table_cell(&t, "%s", duration(l->p99_ns, text));
		else
			ctl_table_cell(&t, "-");
		change_cell(l, &t);
		ctl_table_cell(&t, "%s", l->kind);
		ctl_table_cell(&t, "%.1000s", l->name);
	}
	ctl_table_print(&t, look->width, out);
	ctl_table_release(&t);
}

static void id_cell(int64_t n, struct ctl_table *t)
{
	if (n < 0)
		ctl_table_cell(t, "-");
	else
		ctl_table_cell(t, "%lld", (long long)n);
}

static void rank_row(const struct top_model *m, const struct ctl *c, size_t i, struct ctl_table *t)
{
	const struct top_process *p = &m->processes[i];
	char text[16];

	id_cell(p->rank, t);
	if (c->hosts.n > 1)
		ctl_table_cell(t, "%s", c->hosts.v[p->host].label);
	id_cell(p->pid, t);
	id_cell(p->device, t);
	ctl_table_cell(t, "%s", percent(p->busy, text));
	ctl_table_cell(t, "%s", percent(p->kernel, text));
	ctl_table_cell(t, "%s", percent(p->comm, text));
	ctl_table_cell(t, "%s", percent(p->copy, text));
	if (p->step_ns > 0)
		ctl_table_cell(t, "%s", duration(p->step_ns, text));
	else
		ctl_table_cell(t, "-");
	if (p->late)
		ctl_table_cell(t, "silent for %.0f s", p->age_s);
	else if (m->slowest.by != TOPLIST_SLOW_NONE && m->slowest.at == i)
		ctl_table_cell(t, "slowest");
	else
		ctl_table_cell(t, "%s", p->losses.lost > 0 ? "incomplete" : "");
	ctl_table_cell(t, "%.1000s", p->top_name ? p->top_name : "-");
}

static void ranks(const struct top_model *m, const struct ctl *c, const struct top_look *look,
		  struct buf *out)
{
	static const char *const one[] = {">RANK",    ">PID",	      ">DEV",	 ">BUSY",
					  ">KERNELS", ">COMM",	      ">COPIES", ">STEP",
					  "NOTE",     "MOST TIME IN", NULL};
	static const char *const many[] = {">RANK", "HOST",	">PID",		">DEV",
					   ">BUSY", ">KERNELS", ">COMM",	">COPIES",
					   ">STEP", "NOTE",	"MOST TIME IN", NULL};
	struct ctl_table t = {.titles = c->hosts.n > 1 ? many : one};

	for (size_t i = 0; i < m->nprocesses && i < RANKS; i++)
		rank_row(m, c, i, &t);
	ctl_table_print(&t, look->width, out);
	if (m->nprocesses > RANKS)
		buf_addf(out, "and %zu more\n", m->nprocesses - RANKS);
	ctl_table_release(&t);
}

void top_text_tables(const struct top_model *m, const struct ctl *c, const struct top_look *look,
		     struct buf *out)
{
	bool by_rank = look->by == TOP_BY_RANK || (look->by == TOP_BY_BOTH && m->nprocesses > 1);

	if (look->by != TOP_BY_RANK && m->nlines) {
		buf_add_char(out, '\n');
		kernels(m, look, out);
	}
	if (by_rank && m->nprocesses) {
		buf_add_char(out, '\n');
		ranks(m, c, look, out);
	}
}

/* --- for programs --- */

static json_t *optional(double v)
{
	return v > 0 ? json_real(v) : json_null();
}

static json_t *kernel_json(const struct top_model *m, const struct top_line *l)
{
	double ratio;
	json_t *change = top_line_change(l, &ratio) ? json_real(ratio) : json_null();
	json_t *share = l->on_device && m->total_ns > 0 ? json_real(l->total_ns / m->total_ns)
							: json_null();

	return json_pack("{s:s,s:s,s:o,s:f,s:f,s:f,s:o,s:o,s:i}", "kind", l->kind, "name", l->name,
			 "share", share, "calls", l->calls, "total_ns", l->total_ns, "mean_ns",
			 l->calls > 0 ? l->total_ns / l->calls : 0, "p99_ns", optional(l->p99_ns),
			 "change", change, "processes", (int)l->processes);
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
	json_t *o = json_pack("{s:o,s:I,s:s,s:I,s:f,s:f,s:f,s:f,s:f,s:o,s:I,s:I,s:f,s:f,s:b}",
			      "rank", p->rank >= 0 ? json_integer(p->rank) : json_null(), "pid",
			      (json_int_t)p->pid, "host", c->hosts.v[p->host].label, "device",
			      (json_int_t)p->device, "busy", p->busy, "kernels", p->kernel,
			      "communication", p->comm, "copies", p->copy, "told_late",
			      p->told_late, "step_ns", optional(p->step_ns), "from",
			      (json_int_t)p->from_ns, "to", (json_int_t)p->to_ns, "interval_s",
			      p->interval_s, "age_s", p->age_s, "late", p->late);

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
