/* SPDX-License-Identifier: MulanPSL-2.0 */
/* The summary for people: an answer, a table, the places that hold memory, and what is missing. */
#include "analyze/summary.h"

#include <stdio.h>
#include <stdlib.h>

#include "analyze/summary_query.h"
#include "analyze/summary_words.h"
#include "base/args.h"
#include "base/mem.h"

#define WIDTH 96
#define MAX_POOLS 40 /* listed; JSON has them all */
#define MAX_PROCESSES 20
#define MAX_FRAMES 5

#define COLUMNS 9
#define CELL_BYTES 32

/* One text in the making. */
struct page {
	const struct summary *s;
	struct buf *out;
	bool colour;
	unsigned top;
	struct summary_pool **pools; /* that are listed */
	size_t npools, pools_total;
};

enum ink { INK_HEADING = 1, INK_DIM = 2, INK_GOOD = 32, INK_WARNING = 33, INK_BAD = 31 };

static void ink(const struct page *g, enum ink code)
{
	if (g->colour)
		buf_addf(g->out, "\033[%dm", (int)code);
}

static void plain(const struct page *g)
{
	if (g->colour)
		buf_add_str(g->out, "\033[0m");
}

static void heading(const struct page *g, const char *text)
{
	buf_add_char(g->out, '\n');
	ink(g, INK_HEADING);
	buf_add_str(g->out, text);
	plain(g);
	buf_add_char(g->out, '\n');
}

static void paragraph(const struct page *g, struct buf *text)
{
	args_wrap(g->out, buf_str(text), 0, 0, WIDTH);
	buf_release(text);
}

/* --- the table --- */

static int higher_first(const void *pa, const void *pb)
{
	const struct summary_pool *a = *(struct summary_pool *const *)pa;
	const struct summary_pool *b = *(struct summary_pool *const *)pb;

	if (a->bytes.peak_bytes != b->bytes.peak_bytes)
		return a->bytes.peak_bytes > b->bytes.peak_bytes ? -1 : 1;
	return (a->number > b->number) - (a->number < b->number);
}

static void list_pools(struct page *g)
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

static void put_cell(char *cell, struct buf *text)
{
	snprintf(cell, CELL_BYTES, "%s", buf_str(text));
	buf_clear(text);
}

static void fill_row(const struct page *g, const struct summary_pool *pool,
		     char row[COLUMNS][CELL_BYTES])
{
	struct summary_held alive = summary_alive(pool);
	char dev[SUMMARY_DEVICE_BYTES];
	struct buf t = {0};

	buf_add_u64(&t, pool->process->pid);
	put_cell(row[0], &t);
	buf_add_str(&t, summary_device_text(pool->device, dev));
	put_cell(row[1], &t);
	buf_add_str(&t, row_type_text(pool->type, ROW_SEED));
	put_cell(row[2], &t);
	words_count(&t, pool->mallocs);
	put_cell(row[3], &t);
	words_count(&t, pool->frees);
	put_cell(row[4], &t);
	words_bytes(&t, pool->bytes.peak_bytes);
	put_cell(row[5], &t);
	if (pool->bytes.peak_bytes)
		words_time(&t, pool->bytes.peak_time_ns - g->s->first_ns);
	else
		buf_add_char(&t, '-');
	put_cell(row[6], &t);
	words_count(&t, alive.blocks);
	put_cell(row[7], &t);
	words_bytes(&t, alive.bytes);
	put_cell(row[8], &t);
	buf_release(&t);
}

static void print_row(const struct page *g, char row[COLUMNS][CELL_BYTES], const size_t *width)
{
	for (int c = 0; c < COLUMNS; c++)
		buf_addf(g->out, c < 3 ? "%s%-*s" : "%s%*s", c ? "  " : "", (int)width[c], row[c]);
	buf_add_char(g->out, '\n');
}

static void print_table(const struct page *g)
{
	static const char *const titles[COLUMNS] = {"Process", "Device",      "Pool",
						    "Allocs",  "Frees",	      "Peak",
						    "Peak at", "Blocks left", "Bytes left"};
	char(*rows)[COLUMNS][CELL_BYTES] = xcalloc(g->npools + 1, sizeof(*rows));
	size_t width[COLUMNS] = {0};

	for (int c = 0; c < COLUMNS; c++)
		snprintf(rows[0][c], CELL_BYTES, "%s", titles[c]);
	for (size_t i = 0; i < g->npools; i++)
		fill_row(g, g->pools[i], rows[i + 1]);
	for (size_t i = 0; i <= g->npools; i++)
		for (int c = 0; c < COLUMNS; c++)
			if (strlen(rows[i][c]) > width[c])
				width[c] = strlen(rows[i][c]);
	buf_add_char(g->out, '\n');
	ink(g, INK_HEADING);
	print_row(g, rows[0], width);
	plain(g);
	for (size_t i = 0; i < g->npools; i++)
		print_row(g, rows[i + 1], width);
	if (g->pools_total > g->npools)
		buf_addf(g->out,
			 "These are the %zu pools with the highest peaks, of %zu (JSON has all).\n",
			 g->npools, g->pools_total);
	free(rows);
}

static void print_processes(const struct page *g)
{
	size_t named = 0;

	for (size_t i = 0; i < g->s->nprocesses; i++) {
		const struct summary_process *p = g->s->processes[i];

		if (!p->cmdline || !*p->cmdline || !p->seen.rows)
			continue;
		if (named++ >= MAX_PROCESSES)
			continue;
		if (named == 1)
			buf_add_char(g->out, '\n');
		buf_addf(g->out, "Process %u: ", p->pid);
		frame_add_printable(g->out, p->cmdline, strlen(p->cmdline));
		buf_add_char(g->out, '\n');
	}
	if (named > MAX_PROCESSES)
		buf_addf(g->out, "and %zu more processes\n", named - MAX_PROCESSES);
}

static void print_counts(const struct page *g)
{
	struct summary_counts c;
	struct buf t = {0};

	summary_count_all(g->s, &c);
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
		buf_add_char(g->out, '\n');
		paragraph(g, &t);
	}
}

/* --- places --- */

static void print_frames(const struct page *g, const char *text, bool python)
{
	struct frame_line lines[MAX_FRAMES];
	size_t n = frames_pick(text, python, lines, MAX_FRAMES);

	for (size_t i = 0; i < n; i++) {
		buf_add_str(g->out, "        ");
		frame_describe(&lines[i], python, g->out);
		buf_add_char(g->out, '\n');
	}
}

static void print_held(const struct page *g, struct summary_held held)
{
	words_bytes(g->out, held.bytes);
	buf_add_str(g->out, " in ");
	words_of(g->out, held.blocks, "block");
}

static void print_place(const struct page *g, const struct summary_place *place)
{
	buf_add_str(g->out, "    ");
	ink(g, INK_WARNING);
	print_held(g, place->held);
	plain(g);
	if (!place->stack.c && !place->stack.py)
		buf_add_str(g->out, ", no call stack recorded");
	buf_add_char(g->out, '\n');
	ink(g, INK_DIM);
	if (place->stack.py)
		print_frames(g, place->stack.py, true);
	if (place->stack.c)
		print_frames(g, place->stack.c, false);
	plain(g);
}

static void print_places(const struct page *g, const struct summary_pool *pool, bool at_peak)
{
	struct summary_held rest = {0};
	size_t n;
	struct summary_place *places = summary_places(g->s, pool, at_peak, &n);

	for (size_t i = 0; i < n; i++) {
		if (i < g->top) {
			print_place(g, &places[i]);
			continue;
		}
		rest.blocks += places[i].held.blocks;
		rest.bytes += places[i].held.bytes;
	}
	if (n > g->top && g->top) {
		buf_add_str(g->out, "    ");
		print_held(g, rest);
		buf_add_str(g->out, " from ");
		words_of(g->out, n - g->top, "more place");
		buf_add_char(g->out, '\n');
	}
	free(places);
}

static void print_pool_name(const struct page *g, const struct summary_pool *pool)
{
	char dev[SUMMARY_DEVICE_BYTES];

	buf_addf(g->out, "  Process %u, device %s, %s: ", pool->process->pid,
		 summary_device_text(pool->device, dev), row_type_text(pool->type, ROW_SEED));
}

static void print_alive(const struct page *g)
{
	bool any = false;

	for (size_t i = 0; i < g->npools && g->top; i++) {
		struct summary_held alive = summary_alive(g->pools[i]);

		if (!alive.blocks)
			continue;
		if (!any)
			heading(g, "Still allocated at the end");
		any = true;
		print_pool_name(g, g->pools[i]);
		print_held(g, alive);
		buf_add_char(g->out, '\n');
		print_places(g, g->pools[i], false);
	}
}

/* The pool to explain: the highest peak, of a framework's pool if there is one. */
static const struct summary_pool *peak_pool(const struct page *g)
{
	const struct summary_pool *best = NULL;

	for (size_t i = 0; i < g->npools; i++) {
		const struct summary_pool *p = g->pools[i];
		bool better = best && summary_is_driver(best->type) && !summary_is_driver(p->type);
		bool same = best && summary_is_driver(best->type) == summary_is_driver(p->type);

		if (p->bytes.peak_bytes &&
		    (!best || better || (same && p->bytes.peak_bytes > best->bytes.peak_bytes)))
			best = p;
	}
	return best;
}

static void print_peak(const struct page *g)
{
	const struct summary_pool *pool = peak_pool(g);

	if (!pool || !g->top || g->s->stacks.count < 2)
		return;
	heading(g, "Held at the highest peak");
	print_pool_name(g, pool);
	print_held(g, (struct summary_held){pool->peak_blocks, pool->bytes.peak_bytes});
	buf_add_str(g->out, ", ");
	words_time(g->out, pool->bytes.peak_time_ns - g->s->first_ns);
	buf_add_str(g->out, " after the start\n");
	print_places(g, pool, true);
}

static void print_ooms(const struct page *g)
{
	char dev[SUMMARY_DEVICE_BYTES];

	if (!g->s->nooms)
		return;
	heading(g, "Out of memory");
	for (unsigned i = 0; i < g->s->nooms; i++) {
		const struct summary_oom *o = &g->s->ooms[i];

		buf_add_str(g->out, "  ");
		words_time(g->out, o->time_ns - g->s->first_ns);
		buf_addf(g->out, " after the start: process %u asked device %s for ", o->pid,
			 summary_device_text(o->device, dev));
		words_bytes(g->out, o->requested_bytes);
		if (o->function[0]) {
			buf_add_str(g->out, " (");
			frame_add_printable(g->out, o->function, strlen(o->function));
			buf_add_char(g->out, ')');
		}
		buf_add_char(g->out, '\n');
	}
}

/* --- what is missing --- */

static void print_doubts(const struct page *g)
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
			 c.unmatched_frees == 1 ? "was" : "were");
	}
	if (g->s->unordered)
		buf_add_str(&t, "The rows were not in the order of time, so the peaks are not "
				"exact.\n");
	if (g->top && any_left && g->s->stacks.count < 2)
		buf_add_str(&t, "No call stacks were recorded; --call-stack=c,python shows where "
				"blocks come from.\n");
	for (size_t i = 0; i < g->s->nnotes; i++) {
		frame_add_printable(&t, g->s->notes[i], strlen(g->s->notes[i]));
		buf_add_char(&t, '\n');
	}
	if (!t.len)
		return;
	buf_add_char(g->out, '\n');
	t.len--;
	paragraph(g, &t);
}

static void print_lost_of(const struct page *g, const struct summary_process *p)
{
	bool any = false;

	if (!p->lost.events && !p->lost.stacks && !p->lost.damaged_bytes)
		return;
	buf_addf(g->out, "  process %u: ", p->pid);
	if (p->lost.events) {
		words_of(g->out, p->lost.events, "event");
		any = true;
	}
	if (p->lost.stacks) {
		buf_add_str(g->out, any ? ", " : "");
		words_of(g->out, p->lost.stacks, "call stack");
		any = true;
	}
	if (p->lost.damaged_bytes) {
		buf_add_str(g->out, any ? ", " : "");
		words_bytes(g->out, p->lost.damaged_bytes);
		buf_add_str(g->out, " of damaged records");
	}
	buf_add_char(g->out, '\n');
}

static void print_lost(const struct page *g)
{
	struct summary_loss lost;

	summary_loss_all(g->s, &lost);
	buf_add_char(g->out, '\n');
	ink(g, lost.events || lost.damaged_bytes ? INK_BAD : INK_GOOD);
	if (lost.events) {
		words_of(g->out, lost.events, "event");
		buf_add_str(g->out, lost.events == 1 ? " was lost." : " were lost.");
	} else if (lost.damaged_bytes) {
		words_bytes(g->out, lost.damaged_bytes);
		buf_add_str(g->out, " of records were damaged; the events in them are lost.");
	} else {
		buf_add_str(g->out,
			    g->s->nnotes ? "No other loss is known." : "No events were lost.");
	}
	if (lost.stacks) {
		buf_add_char(g->out, ' ');
		words_of(g->out, lost.stacks, "call stack");
		buf_add_str(g->out, lost.stacks == 1 ? " was lost." : " were lost.");
	}
	plain(g);
	buf_add_char(g->out, '\n');
	for (size_t i = 0; i < g->s->nprocesses; i++)
		print_lost_of(g, g->s->processes[i]);
}

void summary_text(struct summary *s, unsigned top, bool colour, struct buf *out)
{
	struct page g = {.s = s, .out = out, .colour = colour, .top = top};
	struct buf answer = {0};

	list_pools(&g);
	summary_answer(s, &answer);
	paragraph(&g, &answer);
	print_processes(&g);
	if (g.npools)
		print_table(&g);
	print_counts(&g);
	print_alive(&g);
	print_peak(&g);
	print_ooms(&g);
	print_doubts(&g);
	print_lost(&g);
	free(g.pools);
}
