/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "base/text/table.h"
#include "cli/top/text.h"

#define RANKS 64 /* in the table */
#define NAME_LEAST 24 /* columns of a kernel's name, for which others go */
#define HEAD 2 /* lines above each table */
#define FEW_LINES 4 /* of the table of kernels, at least, however low the terminal is */

static void change_cell(const struct top_line *l, struct table *t)
{
	double ratio;

	if (!top_line_change(l, &ratio))
		table_textf(t, "-");
	else
		table_textf(t, "%+.1f %%", ratio * 100);
}

static void duration_cell(double ns, struct table *t)
{
	char text[16];

	table_textf(t, "%s", ns > 0 ? top_duration(ns, text) : "-");
}

static void add_kernels(const struct top_model *m, const struct top_display *d, size_t lines,
			struct buf *out)
{
	static const char *const titles[] = {">SHARE",	">CALLS", ">TOTAL", ">MEAN", ">P99",
					     ">CHANGE", "KIND",	  "NAME",   NULL};
	static const char *const drop[] = {"TOTAL", "P99", "KIND", "CALLS", "CHANGE", "MEAN", NULL};
	struct table t = {.titles = titles, .drop = drop, .least = NAME_LEAST};
	char text[16];

	for (size_t i = 0; i < m->nlines && i < lines; i++) {
		const struct top_line *l = &m->lines[i];

		if (l->on_device && m->total_ns > 0)
			table_textf(&t, "%.1f %%", l->total_ns / m->total_ns * 100);
		else
			table_textf(&t, "-");
		table_textf(&t, "%.0f", l->calls);
		table_textf(&t, "%s", top_duration(l->total_ns, text));
		table_textf(&t, "%s",
			    top_duration(l->calls > 0 ? l->total_ns / l->calls : 0, text));
		duration_cell(l->p99_ns, &t);
		change_cell(l, &t);
		table_textf(&t, "%s", l->kind);
		table_textf(&t, "%.1000s", l->name);
	}
	table_print(&t, d->width, out);
	table_release(&t);
}

static void id_cell(int64_t n, struct table *t)
{
	if (n < 0)
		table_textf(t, "-");
	else
		table_textf(t, "%lld", (long long)n);
}

/* What is not collected is not 0. */
static void part_cell(bool known, double part, struct table *t)
{
	char text[16];

	table_textf(t, "%s", known ? top_percent(part, text) : "-");
}

static void rank_row(const struct top_model *m, const struct ctl *c, size_t i, struct table *t)
{
	const struct top_process *p = &m->processes[i];

	id_cell(p->rank, t);
	table_textf(t, "%s", c->hosts.v[p->host].label);
	id_cell(p->pid, t);
	id_cell(p->device, t);
	part_cell(p->has_kernel || p->has_comm || p->has_copy, p->busy, t);
	part_cell(p->has_kernel, p->kernel, t);
	part_cell(p->has_comm, p->comm, t);
	part_cell(p->has_copy, p->copy, t);
	duration_cell(p->step_ns, t);
	if (p->late)
		table_textf(t, "silent for %.0f s", p->age_s);
	else if (m->slowest.by != TOPLIST_SLOW_NONE && m->slowest.at == i)
		table_textf(t, "slowest");
	else
		table_textf(t, "%s", p->losses[TOPLIST_LOST] > 0 ? "incomplete" : "");
	table_textf(t, "%.1000s", p->top_name ? p->top_name : "-");
}

static void add_ranks(const struct top_model *m, const struct ctl *c, const struct top_display *d,
		      struct buf *out)
{
	static const char *const titles[] = {">RANK", "HOST",	  ">PID",	  ">DEV",
					     ">BUSY", ">KERNELS", ">COMM",	  ">COPIES",
					     ">STEP", "NOTE",	  "MOST TIME IN", NULL};
	static const char *const drop[] = {"COPIES", "DEV",  "KERNELS", "PID",
					   "HOST",   "COMM", "STEP",	NULL};
	struct table t = {.titles = titles, .drop = drop, .least = NAME_LEAST / 2};
	bool comm = false, copy = false;

	for (size_t i = 0; i < m->nprocesses && i < RANKS; i++) {
		comm = comm || m->processes[i].has_comm;
		copy = copy || m->processes[i].has_copy;
		rank_row(m, c, i, &t);
	}
	if (c->hosts.n == 1)
		table_hide(&t, "HOST");
	if (!comm)
		table_hide(&t, "COMM");
	if (!copy)
		table_hide(&t, "COPIES");
	table_print(&t, d->width, out);
	if (m->nprocesses > RANKS)
		buf_addf(out, "and %zu more\n", m->nprocesses - RANKS);
	table_release(&t);
}

static size_t lines_in(const struct buf *b)
{
	size_t n = 0;

	for (size_t i = 0; i < b->len; i++)
		n += b->data[i] == '\n';
	return n;
}

/* Of the table of kernels: it gives way to that of ranks, to a point. */
static size_t lines_of_kernels(const struct top_model *m, const struct top_display *d, bool by_rank,
			       const struct buf *above)
{
	size_t used = lines_in(above) + HEAD, most = d->lines;

	if (by_rank)
		used += HEAD + (m->nprocesses < RANKS ? m->nprocesses : RANKS);
	if (d->rows && used + most > d->rows)
		most = d->rows > used ? d->rows - used : 0;
	return most > FEW_LINES || most == d->lines ? most : FEW_LINES;
}

void top_text_tables(const struct top_model *m, const struct ctl *c, const struct top_display *d,
		     struct buf *out)
{
	bool by_rank = d->by == TOP_BY_RANK || (d->by == TOP_BY_BOTH && m->nprocesses > 1);

	size_t lines = lines_of_kernels(m, d, by_rank, out);

	if (d->by != TOP_BY_RANK && m->nlines) {
		buf_add_char(out, '\n');
		add_kernels(m, d, lines, out);
	}
	if (by_rank && m->nprocesses) {
		buf_add_char(out, '\n');
		add_ranks(m, c, d, out);
	}
}
