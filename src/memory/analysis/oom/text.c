/* SPDX-License-Identifier: MulanPSL-2.0 */
/* The answer for people: the verdict first, then what it stands on. */
#include "memory/analysis/oom/oom_impl.h"

#include <stdio.h>
#include <string.h>

#include "base/text/plain_words.h"
#include "base/text/printable.h"
#include "memory/analysis/common/memory_words.h"
#include "memory/analysis/common/report.h"

#define INDENT 2

struct view {
	struct page page;
	const struct oom *o;
};

static void add_times(struct buf *out, uint64_t n)
{
	if (n == 1)
		buf_add_str(out, "once");
	else
		words_of(out, n, "time");
}

/* --- the answer --- */

/* What the first of them was about. */
static void add_first(const struct view *g, struct buf *t)
{
	for (size_t i = 0; i < g->o->nincidents; i++) {
		const struct oom_incident *inc = g->o->incidents[i];
		if (inc->granted)
			continue;
		buf_addf(t, " Process %u asked for ", inc->process->pid);
		words_bytes(t, inc->requested);
		struct buf where = {0};
		if (oom_where(g->o, inc->stack, &where))
			buf_addf(t, " in %s", buf_str(&where));
		buf_release(&where);
		if (inc->step)
			buf_addf(t, ", in step %u", inc->step);
		struct oom_answer a = oom_answer(g->o, inc);
		buf_add_str(t, ": ");
		oom_reason(g->o, inc, &a, t);
		return;
	}
}

static void print_answer(const struct view *g)
{
	uint64_t by_verdict[OOM_EXHAUSTION + 1] = {0}, granted = 0, n = 0;
	struct buf t = {0};

	for (size_t i = 0; i < g->o->nincidents; i++) {
		const struct oom_incident *inc = g->o->incidents[i];
		if (inc->granted)
			granted++;
		else
			by_verdict[oom_answer(g->o, inc).verdict]++, n++;
	}
	if (n) {
		buf_add_str(&t, "Device memory ran out ");
		add_times(&t, n + g->o->dropped);
		buf_add_char(&t, ':');
		for (unsigned v = 0, seen = 0; v <= OOM_EXHAUSTION; v++) {
			if (!by_verdict[v])
				continue;
			buf_addf(&t, "%s %s", seen++ ? "," : "",
				 oom_verdict_name((enum oom_verdict)v));
			if (by_verdict[v] < n) {
				buf_add_char(&t, ' ');
				add_times(&t, by_verdict[v]);
			}
		}
		buf_add_char(&t, '.');
		add_first(g, &t);
	} else {
		buf_add_str(&t, "No request for device memory was refused, as far as this tells");
		if (granted) {
			buf_add_str(&t, ", but came close: ");
			words_of(&t, granted, "request");
			buf_addf(&t, " %s granted only after a pool had given memory back",
				 words_was(granted));
		}
		buf_add_char(&t, '.');
	}
	page_ink(&g->page, n ? INK_BAD : INK_HEADING);
	page_paragraph(&g->page, 0, &t);
	page_ink(&g->page, INK_PLAIN);
}

/* --- one incident --- */

static void print_request(const struct view *g, const struct oom_incident *i, size_t number)
{
	struct buf t = {0};
	char dev[16];

	buf_addf(&t, "%zu. Process %u asked device %s for ", number, i->process->pid,
		 blocks_device_name(i->device, dev));
	words_bytes(&t, i->requested);
	if (i->function[0]) {
		buf_add_str(&t, " (");
		text_add_printable(&t, i->function, strlen(i->function));
		buf_add_char(&t, ')');
	}
	buf_add_char(&t, ' ');
	words_time(&t, oom_less(i->first_ns, blocks_first_ns(g->o->blocks)));
	buf_add_str(&t, " after the start");
	if (i->step)
		buf_addf(&t, ", in step %u", i->step);
	if (i->count > 1) {
		buf_add_str(&t, ", ");
		words_of(&t, i->count, "time");
	}
	buf_add_char(&t, '.');
	if (i->granted) {
		buf_add_str(&t, " It was granted in the end, after ");
		words_bytes(&t, i->given_back);
		buf_add_str(&t, " had been given back: the job did not notice.");
	}
	buf_add_char(g->page.out, '\n');
	page_ink(&g->page, INK_HEADING);
	page_paragraph(&g->page, 0, &t);
	page_ink(&g->page, INK_PLAIN);
}

static void print_stack(const struct view *g, uint32_t stack)
{
	page_stack(&g->page, INDENT + 2, stacks_get(blocks_stacks(g->o->blocks), stack));
}

static void print_verdict(const struct view *g, const struct oom_incident *i,
			  const struct oom_answer *a)
{
	struct buf t = {0};

	buf_addf(&t, "Verdict: %s: ", oom_verdict_name(a->verdict));
	oom_reason(g->o, i, a, &t);
	page_ink(&g->page, INK_WARNING);
	page_paragraph(&g->page, INDENT, &t);
	page_ink(&g->page, INK_PLAIN);
	if (a->verdict == OOM_LEAK)
		print_stack(g, i->leak.stack);
	buf_add_str(&t, "What to do: ");
	oom_advice(g->o, i, a, &t);
	page_paragraph(&g->page, INDENT, &t);
}

static void print_device(const struct view *g, const struct oom_incident *i,
			 const struct oom_answer *a)
{
	char dev[16];

	if (!i->has_blocks && !a->has_total)
		return;
	buf_addf(g->page.out, "%*sDevice %s:", INDENT, "", blocks_device_name(i->device, dev));
	const struct {
		bool known;
		uint64_t bytes;
		const char *what;
	} parts[] = {
		{a->has_total, a->total_bytes, a->limited ? "allowed" : "in all"},
		{i->has_blocks, i->own_bytes, "held by this process"},
		{i->has_outside, i->outside_bytes, "by its context and libraries"},
		{i->has_others, i->others_bytes, "by others and the driver"},
		{a->has_free, a->free_bytes, "free"},
	};
	bool any = false;
	for (size_t k = 0; k < sizeof(parts) / sizeof(parts[0]); k++) {
		if (!parts[k].known)
			continue;
		buf_add_str(g->page.out, any ? ", " : " ");
		any = true;
		words_bytes(g->page.out, parts[k].bytes);
		buf_addf(g->page.out, " %s", parts[k].what);
	}
	buf_add_char(g->page.out, '\n');
}

static void print_pools(const struct view *g, const struct oom_incident *i)
{
	static const char *const titles[] = {"Pool",	    "Reserved", "Allocated",
					     "Free inside", "Pieces",	"Largest free"};
	struct table t = {.columns = 6, .text_columns = 1, .indent = INDENT};

	if (!i->npools)
		return;
	t.titles = titles;
	for (unsigned k = 0; k < i->npools; k++) {
		const struct oom_pool *p = &i->pools[k];

		table_text(&t, words_pool(p->type));
		table_bytes(&t, p->reserved);
		table_bytes(&t, p->allocated);
		if (p->mapped) {
			table_bytes(&t, p->free_bytes);
			table_count(&t, p->pieces);
			table_bytes(&t, p->largest_free);
		} else {
			for (int unknown = 0; unknown < 3; unknown++)
				table_text(&t, "?");
		}
	}
	page_table(&g->page, &t);
}

static void print_leak(const struct view *g, const struct oom_incident *i,
		       const struct oom_answer *a)
{
	struct buf t = {0};

	if (a->verdict == OOM_LEAK || !i->leak.bytes)
		return;
	buf_add_str(&t, "It also looks as if ");
	words_bytes(&t, i->leak.bytes);
	buf_addf(&t, " of steps %u to %u had leaked", i->leak.first_step, i->leak.last_step);
	buf_add_str(&t, ", too little to explain this.");
	page_paragraph(&g->page, INDENT, &t);
}

static void print_block(const struct view *g, const struct oom_incident *i,
			const struct oom_block *b)
{
	struct buf t = {0};

	words_bytes(&t, b->bytes);
	buf_addf(g->page.out, "%*s%12s  %-13s ", INDENT + 2, "", buf_str(&t), words_pool(b->type));
	buf_clear(&t);
	words_time(&t, oom_less(i->last_ns, b->time_ns));
	buf_addf(g->page.out, "%12s before", buf_str(&t));
	buf_clear(&t);
	if (b->step)
		buf_addf(g->page.out, ", step %u", b->step);
	if (b->owner)
		buf_addf(&t, ", %s", blocks_owner(g->o->blocks, b->owner));
	text_add_printable(g->page.out, buf_str(&t), t.len);
	buf_clear(&t);
	if (oom_where(g->o, b->stack, &t))
		buf_addf(g->page.out, ", %s", buf_str(&t));
	buf_add_char(g->page.out, '\n');
	buf_release(&t);
}

static void print_blocks(const struct view *g, const struct oom_incident *i, const char *title,
			 const struct oom_list *l)
{
	if (!l->n || !g->page.style->top)
		return;
	buf_addf(g->page.out, "%*s%s\n", INDENT, "", title);
	for (size_t k = 0; k < l->n && k < g->page.style->top; k++)
		print_block(g, i, &l->list[k]);
}

static void print_incident(const struct view *g, const struct oom_incident *i, size_t number)
{
	struct oom_answer a = oom_answer(g->o, i);

	print_request(g, i, number);
	print_stack(g, i->stack);
	if (!i->granted)
		print_verdict(g, i, &a);
	print_device(g, i, &a);
	print_pools(g, i);
	if (i->granted)
		return;
	print_leak(g, i, &a);
	print_blocks(g, i, "Largest blocks:", &i->largest);
	print_blocks(g, i, "Most recent blocks:", &i->recent);
}

void oom_text(struct analysis *a, const struct analysis_style *style, struct buf *out)
{
	struct view g = {page_begin(style, out), (struct oom *)a};
	size_t limit = style->top ? style->top : 1, shown = 0, left = 0;

	if (style->console && !a->ops->findings(a))
		return;
	print_answer(&g);
	if (!g.o->requests && !style->console)
		buf_add_str(out, "In a dump file this is known only if it was recorded with "
				 "--analysis=oom.\n");
	for (size_t i = 0; i < g.o->nincidents; i++) {
		if (shown < limit && (!style->console || !g.o->incidents[i]->granted))
			print_incident(&g, g.o->incidents[i], ++shown);
		else
			left++;
	}
	left += g.o->dropped;
	if (left && !style->console)
		buf_addf(out, "\nand %zu more (JSON has %s)\n", left,
			 g.o->dropped ? "most of them" : "all of them");
}
