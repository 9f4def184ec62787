/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "cli/top/view.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "cli/screen.h"

const char *const top_sorts[] = {"time", "calls", "mean", "p99", "change", "name", NULL};
const char *const top_rank_sorts[] = {"rank", "busy", "kernels", "comm", "step", NULL};
enum { BY_TIME, BY_CALLS, BY_MEAN, BY_P99, BY_CHANGE, BY_NAME, SORTS };
enum { BY_RANK, BY_BUSY, BY_KERNELS, BY_COMM, BY_STEP, RANK_SORTS };

/* --- what is shown --- */

/* Most first, unless inverted; equal ones as the model has them. */
struct item {
	size_t at;
	double value;
	const char *text; /* NULL: by value */
};

static int by_most(const void *a, const void *b)
{
	const struct item *x = a, *y = b;
	int order = x->text		  ? strcmp(x->text, y->text)
		    : x->value > y->value ? -1
					  : x->value < y->value;

	return order ? order : x->at < y->at ? -1 : x->at > y->at;
}

static int by_least(const void *a, const void *b)
{
	return by_most(b, a);
}

static size_t *sort_items(struct item *items, size_t n, bool inverted)
{
	size_t *order = xcalloc(n + 1, sizeof(*order));

	if (n)
		qsort(items, n, sizeof(*items), inverted ? by_least : by_most);
	for (size_t i = 0; i < n; i++)
		order[i] = items[i].at;
	free(items);
	return order;
}

static double kernel_value(const struct top_line *l, unsigned sort)
{
	double ratio;

	switch (sort) {
	case BY_CALLS:
		return l->calls;
	case BY_MEAN:
		return l->calls > 0 ? l->total_ns / l->calls : 0;
	case BY_P99:
		return l->p99_ns;
	case BY_CHANGE:
		return top_line_change(l, &ratio) ? ratio : -1e300;
	default:
		return l->total_ns;
	}
}

static bool has_part(const char *text, const char *part)
{
	return strcasestr(text, part) != NULL;
}

size_t *top_view_kernels(const struct top_view *v, const struct top_model *m, size_t *out_n)
{
	struct item *items = xcalloc(m->nlines + 1, sizeof(*items));
	unsigned sort = v->sort[TOP_KERNELS];
	size_t n = 0;

	for (size_t i = 0; i < m->nlines; i++) {
		const struct top_line *l = &m->lines[i];

		if (has_part(l->name, v->filter.text) || has_part(l->kind, v->filter.text))
			items[n++] = (struct item){i, kernel_value(l, sort),
						   sort == BY_NAME ? l->name : NULL};
	}
	*out_n = n;
	return sort_items(items, n, v->inverted[TOP_KERNELS]);
}

static double rank_value(const struct top_process *p, unsigned sort)
{
	switch (sort) {
	case BY_BUSY:
		return p->busy;
	case BY_KERNELS:
		return p->kernel;
	case BY_COMM:
		return p->comm;
	case BY_STEP:
		return p->step_ns;
	default:
		return 0; /* as the model has them: by rank */
	}
}

/* A filter of a kernel's name leaves the ranks that it takes most time of; a number is a rank or a
 * process. */
static bool is_rank_shown(const struct top_view *v, const struct top_process *p, const char *host)
{
	char rank[24], pid[24];

	snprintf(rank, sizeof(rank), "%lld", (long long)p->rank);
	snprintf(pid, sizeof(pid), "%lld", (long long)p->pid);
	const char *filter = v->filter.text;

	return !*filter || !strcmp(rank, filter) || !strcmp(pid, filter) ||
	       has_part(host, filter) || (p->top_name && has_part(p->top_name, filter));
}

size_t *top_view_ranks(const struct top_view *v, const struct top_model *m, const struct ctl *c,
		       size_t *out_n)
{
	struct item *items = xcalloc(m->nprocesses + 1, sizeof(*items));
	size_t n = 0;

	for (size_t i = 0; i < m->nprocesses; i++) {
		const struct top_process *p = &m->processes[i];

		if (is_rank_shown(v, p, c->hosts.v[p->host].label))
			items[n++] = (struct item){i, rank_value(p, v->sort[TOP_RANKS]), NULL};
	}
	*out_n = n;
	return sort_items(items, n, v->inverted[TOP_RANKS]);
}

/* --- keys --- */

static enum top_table focus_of(const struct top_view *v)
{
	return v->by == TOP_BY_BOTH ? v->focus : v->by == TOP_BY_RANK ? TOP_RANKS : TOP_KERNELS;
}

static void next_sort(struct top_view *v)
{
	enum top_table t = focus_of(v);

	v->sort[t] = (v->sort[t] + 1) % (t == TOP_RANKS ? (unsigned)RANK_SORTS : (unsigned)SORTS);
	v->first[t] = 0;
}

static void change_view(struct top_view *v, int key)
{
	if (key == 'k' || key == 'r' || key == 'b')
		v->by = key == 'k' ? TOP_BY_KERNEL : key == 'r' ? TOP_BY_RANK : TOP_BY_BOTH;
	else if (key == '\t')
		v->focus = v->focus == TOP_RANKS ? TOP_KERNELS : TOP_RANKS;
	else if (key == 's')
		next_sort(v);
	else if (key == 'i')
		v->inverted[focus_of(v)] = !v->inverted[focus_of(v)];
	else if (key == 'p' || key == ' ')
		v->paused = !v->paused;
	else if (key == '/')
		v->filter.typing = true;
	else if (key == SCREEN_ESCAPE)
		*v->filter.text = '\0';
}

bool top_view_key(struct top_view *v, int key)
{
	if (key == 4) /* Ctrl-D */
		return false;
	if (screen_scroll_key(&v->first[focus_of(v)], v->room[focus_of(v)], key))
		return true;
	if (v->filter.typing) {
		screen_filter_key(&v->filter, key);
		v->first[TOP_KERNELS] = v->first[TOP_RANKS] = 0;
		return true;
	}
	bool helped = v->help;
	v->help = !helped && (key == 'h' || key == '?');
	if (!helped && !v->help)
		change_view(v, key);
	return (key != 'q' && key != 'Q') || helped; /* q closes the help first */
}

void top_view_describe(const struct top_view *v, struct buf *out)
{
	enum top_table t = focus_of(v);
	size_t before = out->len;

	if (v->paused)
		buf_add_str(out, "paused; ");
	screen_filter_describe(&v->filter, out);
	if (v->sort[t] || v->inverted[t])
		buf_addf(out, "%s by %s%s; ", t == TOP_RANKS ? "ranks" : "kernels",
			 (t == TOP_RANKS ? top_rank_sorts : top_sorts)[v->sort[t]],
			 v->inverted[t] ? ", inverted" : "");
	if (v->by == TOP_BY_BOTH && t == TOP_RANKS)
		buf_add_str(out, "keys are for the ranks; ");
	if (out->len > before)
		out->len -= 2;
}

void top_view_help(struct buf *out)
{
	buf_add_str(out,
		    "\nKeys\n\n"
		    "  k, r, b          kernels, ranks, both\n"
		    "  up, down         scroll; also page up, page down, home, end\n"
		    "  Tab              with both tables: keys are for the other one\n"
		    "  s                sort by the next column\n"
		    "  i                invert the order\n"
		    "  /                show only names with a text, or one rank; Esc: all\n"
		    "  p, space         pause; again: go on\n"
		    "  h, ?             this; any key ends it\n"
		    "  q                end\n\n"
		    "The slowest rank is always shown: first, if it has no place elsewhere.\n");
}
