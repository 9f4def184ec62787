/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Inefficient memory for people: what it costs, where it comes from, what to do about it. */
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/text/plain_words.h"
#include "base/text/printable.h"
#include "memory/analysis/common/memory_words.h"
#include "memory/analysis/common/report.h"
#include "memory/analysis/inefficient/inefficient_impl.h"

#define MAX_POOLS 40 /* listed; JSON has them all */

/* How a kind is spoken of. */
static const struct {
	const char *participle; /* … of it allocated too early */
	const char *heading;
	const char *advice;
	const char *before, *after; /* around the operators of an example */
} words[KINDS] = {
	[INEFFICIENT_EARLY] = {"allocated too early", "Allocated too early",
			       "Allocate these right before they are used for the first time.",
			       "allocated after", "first used by"},
	[INEFFICIENT_LATE] =
		{"freed too late", "Freed too late",
		 "Free these right after their last use: drop the last reference (del) "
		 "there.",
		 "last used by", "freed after"},
	[INEFFICIENT_IDLE] =
		{"left idle", "Left idle",
		 "Between their uses these could be freed and made anew, or be kept on "
		 "the host.",
		 "used by", "next used by"},
};

struct view {
	struct page page;
	const struct verdict *v;
};

/* --- the answer --- */

static bool several_processes(const struct verdict *v)
{
	for (size_t i = 1; i < v->npools; i++)
		if (v->pools[i].clock->pool->process != v->pools[0].clock->pool->process)
			return true;
	return false;
}

static const struct pool_waste *worst_pool(const struct verdict *v)
{
	const struct pool_waste *worst = &v->pools[0];

	for (size_t i = 1; i < v->npools; i++)
		if (v->pools[i].all.at_peak_bytes > worst->all.at_peak_bytes)
			worst = &v->pools[i];
	return worst;
}

static void say_kinds(const struct pool_waste *w, struct buf *t)
{
	const char *between = ": ";

	for (int k = 0; k < KINDS; k++) {
		if (!w->kinds[k].at_peak_bytes)
			continue;
		buf_add_str(t, between);
		words_bytes(t, w->kinds[k].at_peak_bytes);
		buf_addf(t, " %s", words[k].participle);
		between = ", ";
	}
	buf_add_str(t, ".");
}

static void say_cost(const struct verdict *v, const struct pool_waste *w, struct buf *t)
{
	const struct block_pool *pool = w->clock->pool;
	char dev[16];

	words_bytes(t, w->all.at_peak_bytes);
	buf_add_str(t, " of the ");
	words_bytes(t, w->clock->peak_bytes);
	buf_addf(t, " (%.1f %%) that the %s pool of device %s",
		 100.0 * (double)w->all.at_peak_bytes / (double)w->clock->peak_bytes,
		 words_pool(pool->type), blocks_device_name(pool->device->device, dev));
	if (several_processes(v))
		buf_addf(t, " in process %u", pool->process->pid);
	buf_add_str(t, " held at its peak was memory that nobody used at that moment");
	say_kinds(w, t);
}

static void say_findings(const struct verdict *v, struct buf *t)
{
	const struct pool_waste *w = worst_pool(v);
	uint64_t elsewhere = v->all.at_peak_bytes - w->all.at_peak_bytes;

	if (!w->all.at_peak_bytes) {
		words_of(t, v->all.blocks, "block");
		buf_add_str(t, " (");
		words_bytes(t, v->all.bytes);
		buf_add_str(t, v->all.blocks == 1 ? ") was held while nobody used it"
						  : ") were held while nobody used them");
		buf_add_str(t, ", but none of this when a pool stood at its peak: the peak would "
			       "be the same without.");
		return;
	}
	say_cost(v, w, t);
	if (elsewhere) {
		buf_add_str(t, " In other pools it was ");
		words_bytes(t, elsewhere);
		buf_add_str(t, ".");
	}
	if (v->all.bytes > v->all.at_peak_bytes) {
		buf_add_str(t, " Another ");
		words_bytes(t, v->all.bytes - v->all.at_peak_bytes);
		buf_add_str(t, " lay unused at other times, which does not raise the peak.");
	}
}

/* Only of what was looked for: --type and --mem-size leave the rest out. */
static void say_none(const struct inefficient_options *o, struct buf *t)
{
	static const char *const what[INEFFICIENT_KINDS] = {
		[INEFFICIENT_EARLY] = "allocated long before its first use",
		[INEFFICIENT_LATE] = "freed long after its last use",
		[INEFFICIENT_IDLE] = "left idle for most of its life"};
	unsigned left = o->kinds & INEFFICIENT_ALL;

	buf_add_str(t, " none");
	if (o->min_bytes) {
		buf_add_str(t, " of ");
		words_bytes(t, o->min_bytes);
		buf_add_str(t, " or more");
	}
	buf_add_str(t, " was ");
	for (unsigned kind = 0; kind < INEFFICIENT_KINDS; kind++) {
		if (!(left & 1u << kind))
			continue;
		left &= ~(1u << kind);
		buf_add_str(t, what[kind]);
		buf_add_str(t, !left ? "." : left & (left - 1) ? ", " : ", or ");
	}
}

static void say_nothing_found(const struct verdict *v, struct buf *t)
{
	buf_add_str(t, "No inefficient memory: of ");
	words_of(t, v->blocks, "block");
	say_none(&v->a->options, t);
	if (!v->a->marked)
		return;
	buf_add_char(t, ' ');
	words_of(t, v->a->marked, "block");
	buf_addf(t,
		 " %s one of the plain rules and %s marked in the rows, but waited only for a "
		 "moment, for a small part of a long life, or for the first step.",
		 v->a->marked == 1 ? "matches" : "match", v->a->marked == 1 ? "is" : "are");
}

/* Where the most costly ones of each kind come from. */
static void say_largest(const struct verdict *v, struct buf *t)
{
	unsigned told = 0;

	for (size_t i = 0; i < v->sites.n; i++) {
		const struct site *s = &v->sites.list[i];
		struct buf where = {0};

		if (told & 1u << s->kind)
			continue;
		if (stacks_where(blocks_stacks(v->a->blocks), s->stack, &where))
			buf_addf(t, "%s %s in %s",
				 told ? "," : " The largest part:", words[s->kind].participle,
				 buf_str(&where));
		told |= where.len ? 1u << s->kind : 0;
		buf_release(&where);
	}
	if (told)
		buf_add_char(t, '.');
}

static void say_answer(const struct verdict *v, struct buf *t)
{
	if (!v->npools)
		buf_add_str(t, "Nothing to judge: no memory of PyTorch's or ATB's pool was "
			       "recorded.");
	else if (!v->accesses)
		buf_add_str(t, "It cannot be told whether memory was used well: no access to it is "
			       "in here. Record the job with --analysis=inefficient and name the "
			       "recording, or with --events=alloc,free,launch,access to have the "
			       "accesses in dump files, too.");
	else if (!v->sites.n)
		say_nothing_found(v, t);
	else
		say_findings(v, t);
	if (v->accesses && v->sites.n)
		say_largest(v, t);
}

/* --- pools --- */

static void fill_row(const struct pool_waste *w, struct table *t)
{
	const struct block_pool *pool = w->clock->pool;
	struct buf cell = {0};
	char device[16];

	buf_add_u64(&cell, pool->process->pid);
	table_cell(t, &cell);
	table_text(t, blocks_device_name(pool->device->device, device));
	table_text(t, words_pool(pool->type));
	table_bytes(t, w->clock->peak_bytes);
	table_bytes(t, w->all.at_peak_bytes);
	for (int k = 0; k < KINDS; k++)
		table_bytes(t, w->kinds[k].at_peak_bytes);
	buf_release(&cell);
}

static void print_table(const struct view *g)
{
	static const char *const titles[] = {"Process", "Device",    "Pool",	 "Peak",
					     "Unused",	"Too early", "Too late", "Idle"};
	size_t n = g->v->npools < MAX_POOLS ? g->v->npools : MAX_POOLS;
	struct table t = {.columns = 5 + KINDS, .text_columns = 3};

	t.titles = titles;
	for (size_t i = 0; i < n; i++)
		fill_row(&g->v->pools[i], &t);
	buf_add_char(g->page.out, '\n');
	page_table(&g->page, &t);
	if (g->v->npools > n)
		buf_addf(g->page.out, "and %zu more pools (JSON has all)\n", g->v->npools - n);
}

/* --- places --- */

static void print_waste(const struct view *g, const struct waste *w)
{
	words_held(g->page.out, w->bytes, w->blocks);
	if (w->at_peak_bytes == w->bytes) {
		buf_add_str(g->page.out, ", all of it at the peak");
	} else if (w->at_peak_bytes) {
		buf_add_str(g->page.out, ", ");
		words_bytes(g->page.out, w->at_peak_bytes);
		buf_add_str(g->page.out, " of it at the peak");
	} else {
		buf_add_str(g->page.out, ", not at the peak");
	}
}

static void print_op(const struct view *g, uint32_t name, const char *verb)
{
	const char *text = inefficient_name_text(g->v->a, name);

	buf_addf(g->page.out, " %s ", verb);
	if (text)
		text_add_printable(g->page.out, text, strlen(text));
	else
		buf_add_str(g->page.out, "no known operator");
}

static void print_example(const struct view *g, const struct site *s)
{
	const struct example *e = &s->examples[0];

	buf_add_str(g->page.out, "        ");
	if (e->key >> 63)
		buf_addf(g->page.out, "block at 0x%016llx (", (unsigned long long)e->ptr);
	else
		buf_addf(g->page.out, "block %llu (", (unsigned long long)e->key);
	words_bytes(g->page.out, e->bytes);
	buf_add_str(g->page.out, "):");
	print_op(g, e->wait.before, words[s->kind].before);
	buf_add_char(g->page.out, ',');
	print_op(g, e->wait.after, words[s->kind].after);
	buf_add_char(g->page.out, ' ');
	words_of(g->page.out, e->wait.calls, "call");
	buf_add_str(g->page.out, " later\n");
}

static void print_site(const struct view *g, const struct site *s)
{
	struct stack stack = stacks_get(blocks_stacks(g->v->a->blocks), s->stack);
	struct waste w = {s->blocks, s->bytes, inefficient_site_cost(s)};
	char dev[16];

	buf_add_str(g->page.out, "    ");
	page_ink(&g->page, INK_WARNING);
	print_waste(g, &w);
	page_ink(&g->page, INK_PLAIN);
	if (g->v->npools > 1)
		buf_addf(g->page.out, ", %s of device %s in process %u", words_pool(s->pool->type),
			 blocks_device_name(s->pool->device->device, dev), s->pool->process->pid);
	if (!stack.c && !stack.py)
		buf_add_str(g->page.out, ", no call stack recorded");
	buf_add_char(g->page.out, '\n');
	page_stack(&g->page, 8, stack);
	print_example(g, s);
}

static void print_kind(const struct view *g, int kind)
{
	const struct waste *w = &g->v->kinds[kind];
	struct waste rest = {0};
	size_t shown = 0, more = 0;

	if (!w->blocks)
		return;
	buf_add_char(g->page.out, '\n');
	page_ink(&g->page, INK_HEADING);
	buf_addf(g->page.out, "%s: ", words[kind].heading);
	print_waste(g, w);
	page_ink(&g->page, INK_PLAIN);
	buf_addf(g->page.out, "\n  %s\n", words[kind].advice);
	for (size_t i = 0; i < g->v->sites.n; i++) {
		const struct site *s = &g->v->sites.list[i];

		if (s->kind != (enum inefficient_kind)kind)
			continue;
		if (shown < g->page.style->top) {
			print_site(g, s);
			shown++;
			continue;
		}
		more++;
		rest.blocks += s->blocks;
		rest.bytes += s->bytes;
		rest.at_peak_bytes += inefficient_site_cost(s);
	}
	if (!more || !g->page.style->top)
		return;
	buf_add_str(g->page.out, "    ");
	print_waste(g, &rest);
	buf_add_str(g->page.out, ", from ");
	words_of(g->page.out, more, "more place");
	buf_add_char(g->page.out, '\n');
}

/* --- what is not known --- */

static void say_no_stacks(const struct view *g, struct buf *out)
{
	const struct blocks *b = g->v->a->blocks;
	bool python = false;

	for (size_t i = 0; i < blocks_nprocesses(b); i++)
		python |= words_is_python(blocks_process_at(b, i)->command);
	words_stacks_hint(out, python);
	buf_add_char(out, '\n');
}

static void print_doubts(const struct view *g)
{
	uint64_t blocks = 0, bytes = 0;
	struct buf t = {0};

	for (size_t i = 0; i < g->v->npools; i++) {
		blocks += g->v->pools[i].unseen_blocks;
		bytes += g->v->pools[i].unseen_bytes;
	}
	if (blocks) {
		words_of(&t, blocks, "block");
		buf_add_str(&t, " (");
		words_bytes(&t, bytes);
		buf_addf(&t,
			 ") %s not accessed by any operator that was recorded, so nothing is said "
			 "about %s.\n",
			 words_was(blocks), blocks == 1 ? "it" : "them");
	}
	if (!g->v->a->operators)
		buf_add_str(&t, "No operators were recorded, so each access counts as a call of "
				"its own; --events=launch records them.\n");
	if (g->v->sites.n && blocks_stacks(g->v->a->blocks)->count < 2)
		say_no_stacks(g, &t);
	page_remarks(&g->page, &t);
}

void inefficient_text(struct analysis *base, const struct analysis_style *style, struct buf *out)
{
	struct verdict v;
	struct view g = {page_begin(style, out), &v};
	struct buf answer = {0};

	inefficient_verdict((struct inefficient *)base, &v);
	if (v.sites.n || !style->console) {
		say_answer(&v, &answer);
		page_paragraph(&g.page, 0, &answer);
		if (v.npools > 1 && v.sites.n)
			print_table(&g);
		for (int k = 0; k < KINDS; k++)
			print_kind(&g, k);
		if (v.accesses && !style->console)
			print_doubts(&g);
	}
	inefficient_verdict_release(&v);
}
