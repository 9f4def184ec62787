/* SPDX-License-Identifier: MulanPSL-2.0 */
/* The answer for people: the verdict first, then what it stands on. */
#include "analyze/oom_impl.h"

#include <stdio.h>
#include <string.h>

#include "analyze/frames.h"
#include "analyze/summary_words.h"
#include "base/args.h"
#include "wire/record.h"

#define WIDTH 96
#define INDENT 2
#define MAX_FRAMES 6

enum ink { INK_HEADING = 1, INK_DIM = 2, INK_BAD = 31, INK_WARNING = 33 };

struct page {
	const struct oom *o;
	const struct analysis_style *style;
	struct buf *out;
};

static void ink(const struct page *g, enum ink code)
{
	if (g->style->colour)
		buf_addf(g->out, "\033[%dm", (int)code);
}

static void plain(const struct page *g)
{
	if (g->style->colour)
		buf_add_str(g->out, "\033[0m");
}

/* Adds text as a paragraph and releases it. */
static void paragraph(const struct page *g, unsigned indent, struct buf *text)
{
	buf_addf(g->out, "%*s", (int)indent, "");
	args_wrap(g->out, buf_str(text), indent, indent, WIDTH);
	buf_release(text);
}

static void add_times(struct buf *out, uint64_t n)
{
	if (n == 1)
		buf_add_str(out, "once");
	else
		words_of(out, n, "time");
}

/* --- the answer --- */

static void print_answer(const struct page *g)
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
	} else {
		buf_add_str(&t, "The job never ran out of device memory");
		if (granted) {
			buf_add_str(&t, ", but came close: ");
			words_of(&t, granted, "request");
			buf_addf(&t, " %s granted only after a pool had given memory back",
				 granted == 1 ? "was" : "were");
		}
		buf_add_char(&t, '.');
	}
	ink(g, n ? INK_BAD : INK_HEADING);
	paragraph(g, 0, &t);
	plain(g);
}

/* --- one incident --- */

static void print_request(const struct page *g, const struct oom_incident *i, size_t number)
{
	struct buf t = {0};
	char dev[16];

	buf_addf(&t, "%zu. Process %u asked device %s for ", number, i->process->pid,
		 blocks_device_name(i->device, dev));
	words_bytes(&t, i->requested);
	if (i->function[0]) {
		buf_add_str(&t, " (");
		frame_add_printable(&t, i->function, strlen(i->function));
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
	buf_add_char(g->out, '\n');
	ink(g, INK_HEADING);
	paragraph(g, 0, &t);
	plain(g);
}

static void print_frames(const struct page *g, const char *text, bool python)
{
	struct frame_line lines[MAX_FRAMES];
	size_t n = text ? frames_pick(text, python, lines, MAX_FRAMES) : 0;

	for (size_t i = 0; i < n; i++) {
		buf_addf(g->out, "%*s", INDENT + 2, "");
		frame_describe(&lines[i], python, g->out);
		buf_add_char(g->out, '\n');
	}
}

static void print_stack(const struct page *g, uint32_t stack)
{
	struct stack s = stacks_get(blocks_stacks(g->o->blocks), stack);

	if (!stack)
		return;
	ink(g, INK_DIM);
	print_frames(g, s.py, true);
	print_frames(g, s.c, false);
	plain(g);
}

static void print_verdict(const struct page *g, const struct oom_incident *i,
			  const struct oom_answer *a)
{
	struct buf t = {0};

	buf_addf(&t, "Verdict: %s: ", oom_verdict_name(a->verdict));
	oom_reason(g->o, i, a, &t);
	ink(g, INK_WARNING);
	paragraph(g, INDENT, &t);
	plain(g);
	if (a->verdict == OOM_LEAK)
		print_stack(g, i->leak.stack);
	buf_add_str(&t, "What to do: ");
	oom_advice(g->o, i, a, &t);
	paragraph(g, INDENT, &t);
}

static void print_device(const struct page *g, const struct oom_incident *i,
			 const struct oom_answer *a)
{
	char dev[16];

	if (!i->has_blocks && !a->has_total)
		return;
	buf_addf(g->out, "%*sDevice %s:", INDENT, "", blocks_device_name(i->device, dev));
	const struct {
		bool known;
		uint64_t bytes;
		const char *what;
	} parts[] = {
		{a->has_total, a->total_bytes, "in all"},
		{i->has_blocks, i->own_bytes, "held by this process"},
		{i->has_others, i->others_bytes, "by others and the driver"},
		{a->has_free, a->free_bytes, "free"},
	};
	bool any = false;
	for (size_t k = 0; k < sizeof(parts) / sizeof(parts[0]); k++) {
		if (!parts[k].known)
			continue;
		buf_add_str(g->out, any ? ", " : " ");
		any = true;
		words_bytes(g->out, parts[k].bytes);
		buf_addf(g->out, " %s", parts[k].what);
	}
	buf_add_char(g->out, '\n');
}

static void add_right(struct buf *out, unsigned width, struct buf *cell)
{
	buf_addf(out, "%*s", (int)width, buf_str(cell));
	buf_clear(cell);
}

static void print_pools(const struct page *g, const struct oom_incident *i)
{
	struct buf cell = {0};

	if (!i->npools)
		return;
	buf_addf(g->out, "%*s%-14s%13s%13s%13s%9s%15s\n", INDENT, "", "Pool", "Reserved",
		 "Allocated", "Free inside", "Pieces", "Largest free");
	for (unsigned k = 0; k < i->npools; k++) {
		const struct oom_pool *p = &i->pools[k];
		buf_addf(g->out, "%*s%-14s", INDENT, "", row_type_text(p->type, ROW_SEED));
		words_bytes(&cell, p->reserved);
		add_right(g->out, 13, &cell);
		words_bytes(&cell, p->allocated);
		add_right(g->out, 13, &cell);
		if (p->mapped) {
			words_bytes(&cell, p->free_bytes);
			add_right(g->out, 13, &cell);
			words_count(&cell, p->pieces);
			add_right(g->out, 9, &cell);
			words_bytes(&cell, p->largest_free);
			add_right(g->out, 15, &cell);
		} else {
			buf_addf(g->out, "%13s%9s%15s", "?", "?", "?");
		}
		buf_add_char(g->out, '\n');
	}
	buf_release(&cell);
}

static void print_leak(const struct page *g, const struct oom_incident *i,
		       const struct oom_answer *a)
{
	struct buf t = {0};

	if (a->verdict == OOM_LEAK || !i->leak.bytes)
		return;
	buf_add_str(&t, "It also looks as if ");
	words_bytes(&t, i->leak.bytes);
	buf_addf(&t, " of steps %u to %u had leaked", i->leak.first_step, i->leak.last_step);
	buf_add_str(&t, ", too little to explain this.");
	paragraph(g, INDENT, &t);
}

static void print_block(const struct page *g, const struct oom_incident *i,
			const struct oom_block *b)
{
	struct buf t = {0};

	words_bytes(&t, b->bytes);
	buf_addf(g->out, "%*s%12s  %-13s ", INDENT + 2, "", buf_str(&t),
		 row_type_text(b->type, ROW_SEED));
	buf_clear(&t);
	words_time(&t, oom_less(i->last_ns, b->time_ns));
	buf_addf(g->out, "%12s before", buf_str(&t));
	buf_clear(&t);
	if (b->step)
		buf_addf(g->out, ", step %u", b->step);
	if (b->owner)
		buf_addf(&t, ", %s", blocks_owner(g->o->blocks, b->owner));
	frame_add_printable(g->out, buf_str(&t), t.len);
	buf_clear(&t);
	if (oom_where(g->o, b->stack, &t))
		buf_addf(g->out, ", %s", buf_str(&t));
	buf_add_char(g->out, '\n');
	buf_release(&t);
}

static void print_blocks(const struct page *g, const struct oom_incident *i, const char *title,
			 const struct oom_list *l)
{
	if (!l->n || !g->style->top)
		return;
	buf_addf(g->out, "%*s%s\n", INDENT, "", title);
	for (size_t k = 0; k < l->n && k < g->style->top; k++)
		print_block(g, i, &l->list[k]);
}

static void print_incident(const struct page *g, const struct oom_incident *i, size_t number)
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
	struct page g = {(struct oom *)a, style, out};
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
