/* SPDX-License-Identifier: MulanPSL-2.0 */
#include <stdlib.h>
#include <string.h>

#include "base/text/printable.h"
#include "base/text/table.h"
#include "cli/top/text.h"

#define RANKS 64 /* in the table */
#define NAME_LEAST 24 /* columns of a kernel's name, for which others go */
#define HEAD 2 /* lines above each table */
#define REST 1 /* line below one that does not show all */
#define FEW_LINES 4 /* of the table of kernels, while there is room for some ranks, */
#define FEW_RANKS 3 /* so many */

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

/* The lines of a table that are shown. */
struct window {
	size_t *order, n; /* all of them, as the view has them */
	size_t first, shown;
	size_t pinned; /* index of one that is shown above them; SIZE_MAX: none */
};

static void add_rest(const struct window *w, const struct top_display *d, const char *what,
		     struct buf *out)
{
	size_t hidden = w->n - w->shown;

	if (hidden && d->rows)
		buf_addf(out, "%s %zu to %zu of %zu\n", what, w->first + 1, w->first + w->shown,
			 w->n);
	else if (hidden && *what == 'r')
		buf_addf(out, "and %zu more\n", hidden);
}

static void add_kernels(const struct top_model *m, const struct top_display *d,
			const struct window *w, struct buf *out)
{
	static const char *const titles[] = {">SHARE",	">CALLS", ">TOTAL", ">MEAN", ">P99",
					     ">CHANGE", "KIND",	  "NAME",   NULL};
	static const char *const drop[] = {"TOTAL", "P99", "KIND", "CALLS", "CHANGE", "MEAN", NULL};
	struct table t = {.titles = titles, .drop = drop, .least = NAME_LEAST};
	char text[16];

	for (size_t i = 0; i < w->shown; i++) {
		const struct top_line *l = &m->lines[w->order[w->first + i]];

		if (l->on_device && m->time_ns > 0)
			table_textf(&t, "%.1f %%", top_line_share(m, l) * 100);
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
	add_rest(w, d, "kernels", out);
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
		      const struct window *w, struct buf *out)
{
	static const char *const titles[] = {">RANK", "HOST",	  ">PID",	  ">DEV",
					     ">BUSY", ">KERNELS", ">COMM",	  ">COPIES",
					     ">STEP", "NOTE",	  "MOST TIME IN", NULL};
	static const char *const drop[] = {"COPIES", "DEV",  "KERNELS", "PID",
					   "HOST",   "COMM", "STEP",	NULL};
	struct table t = {.titles = titles, .drop = drop, .least = NAME_LEAST / 2};
	bool comm = false, copy = false;

	if (w->pinned != SIZE_MAX)
		rank_row(m, c, w->pinned, &t);
	for (size_t i = 0; i < w->shown; i++)
		rank_row(m, c, w->order[w->first + i], &t);
	for (size_t i = 0; i < m->nprocesses; i++) {
		comm = comm || m->processes[i].has_comm;
		copy = copy || m->processes[i].has_copy;
	}
	if (c->hosts.n == 1)
		table_hide(&t, "HOST");
	if (!comm)
		table_hide(&t, "COMM");
	if (!copy)
		table_hide(&t, "COPIES");
	table_print(&t, d->width, out);
	add_rest(w, d, "ranks", out);
	table_release(&t);
}

static size_t lines_in(const struct buf *b)
{
	size_t n = 0;

	for (size_t i = 0; i < b->len; i++)
		n += b->data[i] == '\n';
	return n;
}

static size_t smaller_of(size_t a, size_t b)
{
	return a < b ? a : b;
}

/* So many lines of each fit below what is above them. The kernels give way to the ranks, to a
 * point; then the ranks do. */
static void share_room(const struct top_display *d, const struct buf *above, struct window *kernels,
		       struct window *ranks)
{
	bool two = kernels->n && ranks->n;
	size_t used = lines_in(above) + (two ? 2 : 1) * HEAD;
	size_t room = d->rows > used ? d->rows - used : 0;

	kernels->shown = smaller_of(kernels->n, d->lines);
	ranks->shown = smaller_of(ranks->n, RANKS);
	if (!d->rows ||
	    kernels->shown + ranks->shown + REST * (kernels->shown < kernels->n) <= room)
		return;
	size_t few = smaller_of(kernels->shown, FEW_LINES), wanted = ranks->shown + REST;
	kernels->shown = smaller_of(kernels->shown, room > wanted + few ? room - wanted : few);
	while (two && kernels->shown && kernels->shown + FEW_RANKS + 2 * REST > room)
		kernels->shown--;
	if (two && !kernels->shown) { /* not even its head */
		kernels->n = 0;
		room += HEAD;
	}
	size_t taken = kernels->shown + REST * (kernels->shown < kernels->n);
	if (ranks->n && ranks->shown + taken > room)
		ranks->shown = room > taken + 1 + REST ? room - taken - REST : 1;
}

/* From where somebody has scrolled to, but not beyond the end. */
static void place_window(struct window *w, struct top_view *v, enum top_table table)
{
	w->first = smaller_of(v->first[table], w->n - w->shown);
	v->room[table] = w->shown;
	w->pinned = SIZE_MAX;
}

/* The slowest rank is what people look for: one that is not among those shown is put first, in the
 * place of another one. */
static void pin_slowest(const struct top_model *m, const struct top_view *v, struct window *w)
{
	bool is_shown = m->slowest.by == TOPLIST_SLOW_NONE || !w->shown;

	for (size_t i = 0; i < w->shown; i++)
		is_shown = is_shown || w->order[w->first + i] == m->slowest.at;
	if (is_shown)
		return;
	w->pinned = m->slowest.at;
	if (w->shown > 1)
		w->shown--;
	w->first = smaller_of(v->first[TOP_RANKS], w->n - w->shown);
}

void top_text_tables(const struct top_model *m, const struct ctl *c, const struct top_display *d,
		     struct buf *out)
{
	struct top_view *v = d->view;
	bool by_rank = v->by == TOP_BY_RANK || (v->by == TOP_BY_BOTH && m->nprocesses > 1);
	struct window kernels = {0}, ranks = {0};

	if (v->by != TOP_BY_RANK)
		kernels.order = top_view_kernels(v, m, &kernels.n);
	if (by_rank)
		ranks.order = top_view_ranks(v, m, c, &ranks.n);
	share_room(d, out, &kernels, &ranks);
	place_window(&kernels, v, TOP_KERNELS);
	place_window(&ranks, v, TOP_RANKS);
	pin_slowest(m, v, &ranks);
	v->first[TOP_KERNELS] = kernels.first;
	v->first[TOP_RANKS] = ranks.first;
	if (kernels.n) {
		buf_add_char(out, '\n');
		add_kernels(m, d, &kernels, out);
	}
	if (ranks.n) {
		buf_add_char(out, '\n');
		add_ranks(m, c, d, &ranks, out);
	}
	if (*v->filter.text && !kernels.n && !ranks.n) {
		buf_add_str(out, "\nNothing here has '");
		text_add_printable(out, v->filter.text, strlen(v->filter.text));
		buf_add_str(out, "' in its name.\n");
	}
	free(kernels.order);
	free(ranks.order);
}
