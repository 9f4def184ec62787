/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Growth over time, of processes without steps, also where others have steps: the workers of a
 * loader have none. Their time is divided into windows of the same
 * length, GROWTH_WINDOWS at most: when there are as many, two neighbours become one. Of each call
 * site the least number of bytes that it held in each window is kept (its floor): what is allocated
 * and freed again within a window does not count.
 *
 * The first quarter of the windows is the start-up, and the last one may be the end. In the others a
 * call site grows if
 *
 *	its floor rises in three of four windows or more, never falls, and still rises at the end;
 *	no window has half of the growth or more: it was no single event;
 *	the second half of the time has at least half as much growth as the first: a cache that fills
 *	up takes less and less.
 *
 * Whether that is a leak, nobody can say without steps: the answer has a confidence. It is "likely"
 * if the floor rose in nine of ten windows and the call site is known, and else "possible".
 */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "formats/json_value.h"
#include "memory/analysis/common/fields.h"
#include "memory/analysis/common/report.h"
#include "memory/analysis/leaks/leaks_impl.h"
#include "memory/analysis/processes/processes.h"
#include "wire/record.h"

#define FIRST_LENGTH_NS 10000000ull
#define MAX_LENGTH_NS (1ull << 60)
#define MIN_TIME_NS 10000000000ull /* a shorter job is its start-up */
#define MIN_HOST_BYTES (64ull << 10)
#define MINUTE_NS 60000000000ull

/* --- following --- */

void growth_advance(struct growth_windows *w, uint64_t time_ns)
{
	if (!w->length_ns)
		*w = (struct growth_windows){.end_ns = time_ns + FIRST_LENGTH_NS,
					     .length_ns = FIRST_LENGTH_NS};
	while (time_ns >= w->end_ns && w->length_ns < MAX_LENGTH_NS) {
		if (++w->n == GROWTH_WINDOWS) {
			w->n /= 2;
			w->length_ns *= 2;
			w->merges++;
		}
		w->end_ns += w->length_ns;
	}
}

/* The site has not changed since its last window that is known. */
static void fill_windows(struct growth *g, uint32_t until)
{
	while (g->n < until) {
		g->floors[g->n++] = g->low;
		g->low = g->bytes;
	}
}

static void merge_windows(struct growth *g)
{
	for (size_t i = 0; i < GROWTH_WINDOWS / 2; i++) {
		uint64_t a = g->floors[2 * i], b = g->floors[2 * i + 1];
		g->floors[i] = a < b ? a : b;
	}
	g->n = GROWTH_WINDOWS / 2;
	g->merges++;
}

static void settle_windows(struct growth *g, const struct growth_windows *w)
{
	while (g->merges < w->merges) {
		fill_windows(g, GROWTH_WINDOWS);
		merge_windows(g);
	}
	fill_windows(g, w->n);
}

void growth_count(struct leak_site *s, const struct growth_windows *w, int64_t bytes)
{
	if (!s->growth) {
		s->growth = xcalloc(1, sizeof(*s->growth));
		s->growth->n = w->n;
		s->growth->merges = w->merges;
	}
	settle_windows(s->growth, w);
	/* Blocks from before it was counted may go. */
	bool more = bytes >= 0 || 0 - (uint64_t)bytes <= s->growth->bytes;
	s->growth->bytes = more ? s->growth->bytes + (uint64_t)bytes : 0;
	if (s->growth->bytes < s->growth->low)
		s->growth->low = s->growth->bytes;
}

/* --- judging --- */

bool growth_is_known(const struct leak_process *p)
{
	const struct growth_windows *w = &p->windows;

	return !p->ends && w->n >= GROWTH_WINDOWS / 2 && w->n * w->length_ns >= MIN_TIME_NS;
}

bool growth_is_judged(const struct leaks *l)
{
	for (size_t i = 0; i < l->base.blocks->nprocesses; i++) {
		const struct leak_process *p = l->base.blocks->processes[i]->own;

		if (p && growth_is_known(p))
			return true;
	}
	return false;
}

/* A module that is being imported allocates what it keeps. */
static bool is_import(const struct leaks *l, const struct leak_site *s)
{
	struct stack stack = stacks_get(leaks_stacks(l), s->stack);

	return stack.py && strstr(stack.py, "<frozen importlib");
}

/* Sets what is known of a site that grows. */
static bool judge_growth(const uint64_t *f, size_t n, struct growth_finding *out)
{
	size_t mid = n / 2, fell = 0;
	uint64_t most = 0;

	out->windows = (uint32_t)n - 1;
	for (size_t i = 1; i < n; i++) {
		uint64_t rise = f[i] > f[i - 1] ? f[i] - f[i - 1] : 0;

		out->rose += rise != 0;
		fell += f[i] < f[i - 1];
		most = rise > most ? rise : most;
	}
	out->bytes = fell ? 0 : f[n - 1] - f[0];
	return out->bytes && 4 * out->rose >= 3 * out->windows && f[n - 1] > f[n - 3] &&
	       most < out->bytes / 2 && 2 * (f[n - 1] - f[mid]) >= f[mid] - f[0];
}

static bool is_large(const struct leaks *l, const struct growth_finding *f)
{
	if (l->min_bytes != UINT64_MAX)
		return f->bytes >= l->min_bytes;
	return f->site->pool->device->device != DEV_HOST || f->bytes >= MIN_HOST_BYTES;
}

static void add_growth(struct leaks *l, struct leak_site *s, struct leak_answer *out)
{
	const struct leak_process *p = s->pool->process->own;
	struct growth_finding f = {.site = s};

	if (!s->growth || !p || !growth_is_known(p))
		return;
	settle_windows(s->growth, &p->windows);
	uint32_t from = p->windows.n / 4, until = p->windows.n - 1;
	if (!judge_growth(s->growth->floors + from, until - from, &f) || !is_large(l, &f) ||
	    is_import(l, s))
		return;
	f.likely = s->stack && 10 * f.rose >= 9 * f.windows;
	f.span_ns = f.windows * p->windows.length_ns;
	f.bytes_per_minute = (uint64_t)((double)f.bytes * MINUTE_NS / (double)f.span_ns);
	LIST_ADD(out->growths, out->ngrowths, out->growths_cap, f);
}

static int by_confidence(const void *pa, const void *pb)
{
	const struct growth_finding *a = pa, *b = pb;

	return ORDER(b->likely, a->likely) ?: ORDER(b->bytes_per_minute, a->bytes_per_minute)
	       ?: ORDER(a->site->number, b->site->number);
}

/* Is a single size of it among the first n? Then that says more. */
static bool has_size(const struct leak_answer *a, const struct leak_site *parent)
{
	for (size_t i = 0; i < a->ngrowths; i++)
		if (a->growths[i].site->parent == parent)
			return true;
	return false;
}

void growth_judge(struct leaks *l, struct leak_answer *out)
{
	for (size_t i = 0; i < l->nsites; i++)
		if (!l->sites[i]->is_parent)
			add_growth(l, l->sites[i], out);
	for (size_t i = 0; i < l->nsites; i++)
		if (l->sites[i]->is_parent && !has_size(out, l->sites[i]))
			add_growth(l, l->sites[i], out);
	SORT(out->growths, out->ngrowths, by_confidence);
}

/* --- words --- */

#define MAX_SHOWN 3

static void describe_place(const struct leaks *l, const struct growth_finding *f, struct buf *out)
{
	const struct leak_site *s = f->site;

	if (!stacks_where(leaks_stacks(l), s->stack, out))
		add_text(out, "blocks of {}{} without a call stack",
			 TEXT(s->is_parent ? "up to " : ""), BYTES(s->size));
}

static void describe_growth(const struct leaks *l, const struct growth_finding *f, bool others,
			    struct buf *out)
{
	const struct leak_process *p = f->site->pool->process->own;

	add_text(out, "ver {} windows of {}, ", NUMBER(f->windows), DURATION(p->windows.length_ns));
	words_device(out, f->site->pool->device->device, false);
	add_text(out, " of ");
	processes_describe(l->base.processes, f->site->pool->process->pid, out);
	add_text(out, others ? ", which has no steps, from " : " from ");
	describe_place(l, f, out);
	add_text(out, " grew in {} of {}, {}/min ({} so far): {} a leak.", NUMBER(f->rose),
		 NUMBER(f->windows), BYTES(f->bytes_per_minute), BYTES(f->bytes),
		 TEXT(f->likely ? "likely" : "possibly"));
}

void growth_describe(const struct leaks *l, const struct leak_answer *a,
		     enum growth_context context, struct buf *out)
{
	size_t n = a->ngrowths;

	for (size_t i = 0; i < n && i < MAX_SHOWN; i++) {
		add_text(out, i == 0 && context == GROWTH_GOES_ON ? " o" : " O");
		describe_growth(l, &a->growths[i], context != GROWTH_ALONE, out);
	}
	if (n > MAX_SHOWN)
		add_text(out, " {} {} over time, too.", COUNT_OF(n - MAX_SHOWN, "more place"),
			 TEXT(n == MAX_SHOWN + 1 ? "grows" : "grow"));
}

static json_t *growth_value(const struct leaks *l, const struct growth_finding *f)
{
	const struct leak_process *p = f->site->pool->process->own;
	json_t *o = json_object();

	put_in_pool(o, f->site->pool);
	put_text(o, "confidence", f->likely ? "likely" : "possible");
	put_number(o, "windows", f->windows);
	put_number(o, "window_ns", p->windows.length_ns);
	put_number(o, "windows_grown", f->rose);
	put_number(o, "bytes", f->bytes);
	put_number(o, "bytes_per_minute", f->bytes_per_minute);
	put_known(o, "block_bytes", f->site->size && !f->site->is_parent, f->site->size);
	put_stack(o, leaks_stacks(l), f->site->stack);
	return o;
}

json_t *growth_json(const struct leaks *l, const struct leak_answer *a)
{
	json_t *list = json_array();

	for (size_t i = 0; i < a->ngrowths; i++)
		json_array_append_new(list, growth_value(l, &a->growths[i]));
	return list;
}
