/* SPDX-License-Identifier: MulanPSL-2.0 */
/* The summary for people: an answer, a table, the places that hold memory, and what is missing. */
#include "memory/analysis/summary/summary.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/text/plain_words.h"
#include "base/text/printable.h"
#include "memory/analysis/common/blocks.h"
#include "memory/analysis/common/memory_words.h"
#include "memory/analysis/common/report.h"
#include "memory/analysis/summary/query.h"

#define MAX_POOLS 40 /* listed; JSON has them all */
#define MAX_PROCESSES 20

struct view {
	struct page page;
	const struct summary *s;
	struct summary_pool **pools; /* that are listed */
	size_t npools, pools_total;
};

/* --- the table --- */

static int higher_first(const void *pa, const void *pb)
{
	const struct summary_pool *a = *(struct summary_pool *const *)pa;
	const struct summary_pool *b = *(struct summary_pool *const *)pb;

	if (a->bytes.peak_bytes != b->bytes.peak_bytes)
		return a->bytes.peak_bytes > b->bytes.peak_bytes ? -1 : 1;
	return (a->number > b->number) - (a->number < b->number);
}

static void list_pools(struct view *g)
{
	size_t cap = 0;

	for (size_t i = 0; i < g->s->nprocesses; i++) {
		const struct summary_process *p = g->s->processes[i];
		struct summary_pool **sorted = summary_pools(p);

		g->pools = xgrow(g->pools, &cap, g->npools + p->npools, sizeof(*g->pools));
		for (size_t k = 0; k < p->npools; k++)
			g->pools[g->npools++] = sorted[k];
		free(sorted);
	}
	g->pools_total = g->npools;
	if (g->npools <= MAX_POOLS)
		return;
	qsort(g->pools, g->npools, sizeof(*g->pools), higher_first);
	g->npools = MAX_POOLS;
}

static void fill_row(const struct view *g, const struct summary_pool *pool, struct table *t)
{
	struct summary_held alive = summary_alive(pool);
	char device[16];
	struct buf cell = {0};

	buf_add_u64(&cell, pool->process->pid);
	table_cell(t, &cell);
	table_text(t, blocks_device_name(pool->device, device));
	table_text(t, words_pool(pool->type));
	table_count(t, pool->mallocs);
	table_count(t, pool->frees);
	table_bytes(t, pool->bytes.peak_bytes);
	if (pool->bytes.peak_bytes)
		words_time(&cell, pool->bytes.peak_time_ns - g->s->first_ns);
	else
		buf_add_char(&cell, '-');
	table_cell(t, &cell);
	table_count(t, alive.blocks);
	table_bytes(t, alive.bytes);
	buf_release(&cell);
}

static void print_table(const struct view *g)
{
	static const char *const titles[] = {"Process", "Device",      "Pool",
					     "Allocs",	"Frees",       "Peak",
					     "Peak at", "Blocks left", "Bytes left"};
	struct table t = {.columns = 9, .text_columns = 3};

	t.titles = titles;
	for (size_t i = 0; i < g->npools; i++)
		fill_row(g, g->pools[i], &t);
	buf_add_char(g->page.out, '\n');
	page_table(&g->page, &t);
	if (g->pools_total > g->npools)
		buf_addf(g->page.out,
			 "These are the %zu pools with the highest peaks, of %zu (JSON has all).\n",
			 g->npools, g->pools_total);
}

static void print_processes(const struct view *g)
{
	size_t named = 0;

	for (size_t i = 0; i < g->s->nprocesses; i++) {
		const struct summary_process *p = g->s->processes[i];

		if (!p->cmdline || !*p->cmdline || !p->seen.rows)
			continue;
		if (named++ >= MAX_PROCESSES)
			continue;
		if (named == 1)
			buf_add_char(g->page.out, '\n');
		buf_addf(g->page.out, "Process %u: ", p->pid);
		text_add_printable(g->page.out, p->cmdline, strlen(p->cmdline));
		buf_add_char(g->page.out, '\n');
	}
	if (named > MAX_PROCESSES)
		buf_addf(g->page.out, "and %zu more processes\n", named - MAX_PROCESSES);
}

static void print_calls(const struct view *g, const struct summary_counts *c)
{
	struct buf t = {0};

	if (!g->s->calls || (!c->mallocs && !c->frees)) /* then it is the answer */
		return;
	buf_add_char(g->page.out, '\n');
	summary_say_calls(g->s, &t);
	page_paragraph(&g->page, 0, &t);
}

static void print_counts(const struct view *g)
{
	struct summary_counts c;
	struct buf t = {0};

	summary_count_all(g->s, &c);
	print_calls(g, &c);
	const struct {
		uint64_t n;
		const char *noun;
	} words[] = {{c.operators, "operator launch"},
		     {c.kernels, "kernel launch"},
		     {c.accesses, "access"},
		     {c.steps, "step"},
		     {c.marks, "mark"},
		     {c.ranges, "range"},
		     {c.snapshots, "snapshot"}};
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		size_t len = strlen(words[i].noun);
		bool hissing = strchr("hs", words[i].noun[len - 1]) != NULL;

		if (!words[i].n)
			continue;
		buf_add_str(&t, t.len ? ", " : "Also recorded: ");
		words_count(&t, words[i].n);
		buf_addf(&t, " %s%s", words[i].noun, words[i].n == 1 ? "" : hissing ? "es" : "s");
	}
	if (t.len) {
		buf_add_str(&t, ".");
		buf_add_char(g->page.out, '\n');
		page_paragraph(&g->page, 0, &t);
	}
}

/* --- places --- */

static void print_place(const struct view *g, const struct summary_place *place)
{
	buf_add_str(g->page.out, "    ");
	page_ink(&g->page, INK_WARNING);
	words_held(g->page.out, place->held.bytes, place->held.blocks);
	page_ink(&g->page, INK_PLAIN);
	if (!place->stack.c && !place->stack.py)
		buf_add_str(g->page.out, place->before ? ", allocated before recording began"
						       : ", no call stack recorded");
	buf_add_char(g->page.out, '\n');
	page_stack(&g->page, 8, place->stack);
}

static void print_places(const struct view *g, const struct summary_pool *pool, bool at_peak)
{
	struct summary_held rest = {0};
	size_t n;
	struct summary_place *places = summary_places(g->s, pool, at_peak, &n);

	n = summary_merge_places(places, n);
	for (size_t i = 0; i < n; i++) {
		if (i < g->page.style->top) {
			print_place(g, &places[i]);
			continue;
		}
		rest.blocks += places[i].held.blocks;
		rest.bytes += places[i].held.bytes;
	}
	if (n > g->page.style->top && g->page.style->top) {
		buf_add_str(g->page.out, "    ");
		words_held(g->page.out, rest.bytes, rest.blocks);
		buf_add_str(g->page.out, " from ");
		words_of(g->page.out, n - g->page.style->top, "more place");
		buf_add_char(g->page.out, '\n');
	}
	free(places);
}

static void print_pool_name(const struct view *g, const struct summary_pool *pool)
{
	char dev[16];

	buf_addf(g->page.out, "  Process %u, device %s, %s: ", pool->process->pid,
		 blocks_device_name(pool->device, dev), words_pool(pool->type));
}

static void print_alive(const struct view *g)
{
	bool any = false;

	for (size_t i = 0; i < g->npools && g->page.style->top; i++) {
		struct summary_held alive = summary_alive(g->pools[i]);

		if (!alive.blocks)
			continue;
		if (!any)
			page_title(&g->page, "Still allocated at the end");
		any = true;
		print_pool_name(g, g->pools[i]);
		words_held(g->page.out, alive.bytes, alive.blocks);
		buf_add_char(g->page.out, '\n');
		print_places(g, g->pools[i], false);
	}
}

/* The pool to explain: the highest peak, of a framework's pool if there is one. */
static const struct summary_pool *peak_pool(const struct view *g)
{
	const struct summary_pool *best = NULL;

	for (size_t i = 0; i < g->npools; i++) {
		const struct summary_pool *p = g->pools[i];
		bool better = best && blocks_is_driver(best->type) && !blocks_is_driver(p->type);
		bool same = best && blocks_is_driver(best->type) == blocks_is_driver(p->type);

		if (p->bytes.peak_bytes &&
		    (!best || better || (same && p->bytes.peak_bytes > best->bytes.peak_bytes)))
			best = p;
	}
	return best;
}

static void print_peak(const struct view *g)
{
	const struct summary_pool *pool = peak_pool(g);

	if (!pool || !g->page.style->top || g->s->stacks.count < 2)
		return;
	page_title(&g->page, "Held at the highest peak");
	print_pool_name(g, pool);
	words_held(g->page.out, pool->bytes.peak_bytes, pool->peak_blocks);
	buf_add_str(g->page.out, ", ");
	words_time(g->page.out, pool->bytes.peak_time_ns - g->s->first_ns);
	buf_add_str(g->page.out, " after the start\n");
	print_places(g, pool, true);
}

static void print_use(const struct view *g)
{
	for (size_t i = 0; i < g->npools; i++) {
		struct buf t = {0};

		summary_use_text(g->s, g->pools[i], &t);
		if (t.len) {
			buf_add_char(g->page.out, '\n');
			page_paragraph(&g->page, 0, &t);
		}
		buf_release(&t);
	}
}

static void print_ooms(const struct view *g)
{
	char dev[16];

	if (!g->s->nooms)
		return;
	page_title(&g->page, "Out of memory");
	for (unsigned i = 0; i < g->s->nooms; i++) {
		const struct summary_oom *o = &g->s->ooms[i];

		buf_add_str(g->page.out, "  ");
		words_time(g->page.out, o->time_ns - g->s->first_ns);
		buf_addf(g->page.out, " after the start: process %u asked device %s for ", o->pid,
			 blocks_device_name(o->device, dev));
		words_bytes(g->page.out, o->requested_bytes);
		if (o->function[0]) {
			buf_add_str(g->page.out, " (");
			text_add_printable(g->page.out, o->function, strlen(o->function));
			buf_add_char(g->page.out, ')');
		}
		buf_add_char(g->page.out, '\n');
	}
}

/* --- what is missing --- */

static void say_no_stacks(const struct view *g, struct buf *out)
{
	bool python = false;

	for (size_t i = 0; i < g->npools; i++)
		python |= words_is_python(g->pools[i]->process->cmdline);
	words_stacks_hint(out, python);
	buf_add_char(out, '\n');
}

static void print_doubts(const struct view *g)
{
	struct summary_counts c;
	struct buf t = {0};
	bool any_left = false;

	summary_count_all(g->s, &c);
	for (size_t i = 0; i < g->npools; i++)
		any_left |= summary_alive(g->pools[i]).blocks != 0;
	if (summary_frees_missing(&c))
		buf_add_str(&t,
			    "Not one free was recorded (was it switched off with --events?), so "
			    "every block counts as still allocated.\n");
	if (c.unmatched_frees) {
		words_of(&t, c.unmatched_frees, "free");
		buf_addf(&t, " %s of blocks whose allocation was not recorded.\n",
			 words_was(c.unmatched_frees));
	}
	if (g->s->unordered)
		buf_add_str(&t, "The rows were not in the order of time, so the peaks are not "
				"exact.\n");
	if (g->page.style->top && any_left && g->s->stacks.count < 2)
		say_no_stacks(g, &t);
	for (size_t i = 0; i < g->s->nnotes; i++) {
		text_add_printable(&t, g->s->notes[i], strlen(g->s->notes[i]));
		buf_add_char(&t, '\n');
	}
	page_remarks(&g->page, &t);
}

static void print_lost_of(const struct view *g, const struct summary_process *p)
{
	bool any = false;

	if (!p->lost.events && !p->lost.stacks && !p->lost.damaged_bytes)
		return;
	buf_addf(g->page.out, "  process %u: ", p->pid);
	if (p->lost.events) {
		words_of(g->page.out, p->lost.events, "event");
		any = true;
	}
	if (p->lost.stacks) {
		buf_add_str(g->page.out, any ? ", " : "");
		words_of(g->page.out, p->lost.stacks, "call stack");
		any = true;
	}
	if (p->lost.damaged_bytes) {
		buf_add_str(g->page.out, any ? ", " : "");
		words_bytes(g->page.out, p->lost.damaged_bytes);
		buf_add_str(g->page.out, " of damaged records");
	}
	buf_add_char(g->page.out, '\n');
}

static void print_lost(const struct view *g)
{
	struct summary_loss lost;

	summary_loss_all(g->s, &lost);
	buf_add_char(g->page.out, '\n');
	page_ink(&g->page, lost.events || lost.damaged_bytes ? INK_BAD : INK_GOOD);
	if (lost.events) {
		words_of(g->page.out, lost.events, "event");
		buf_add_str(g->page.out, lost.events == 1 ? " was lost." : " were lost.");
	} else if (lost.damaged_bytes) {
		words_bytes(g->page.out, lost.damaged_bytes);
		buf_add_str(g->page.out, " of records were damaged; the events in them are lost.");
	} else {
		buf_add_str(g->page.out,
			    g->s->nnotes ? "No other loss is known." : "No events were lost.");
	}
	if (lost.stacks) {
		buf_add_char(g->page.out, ' ');
		words_of(g->page.out, lost.stacks, "call stack");
		buf_add_str(g->page.out, lost.stacks == 1 ? " was lost." : " were lost.");
	}
	page_ink(&g->page, INK_PLAIN);
	buf_add_char(g->page.out, '\n');
	for (size_t i = 0; i < g->s->nprocesses; i++)
		print_lost_of(g, g->s->processes[i]);
}

void summary_text(struct summary *s, unsigned top, bool colour, struct buf *out)
{
	struct analysis_style style = {.colour = colour, .top = top};
	struct view g = {.page = page_begin(&style, out), .s = s};
	struct buf answer = {0};

	list_pools(&g);
	summary_answer(s, &answer);
	page_paragraph(&g.page, 0, &answer);
	print_processes(&g);
	if (g.npools)
		print_table(&g);
	print_use(&g);
	print_counts(&g);
	print_alive(&g);
	print_peak(&g);
	print_ooms(&g);
	print_doubts(&g);
	print_lost(&g);
	free(g.pools);
}
