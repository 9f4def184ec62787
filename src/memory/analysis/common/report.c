/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "memory/analysis/common/report.h"

#include <stdio.h>
#include <stdlib.h>
#include <xxhash.h>

#include "base/mem.h"
#include "base/text/args.h"
#include "memory/analysis/common/frames.h"

#define WIDTH 96

struct report report_begin(const struct analysis_style *style, struct buf *out)
{
	return (struct report){.style = style, .out = out, .start = out->len};
}

void report_ink(const struct report *r, enum ink ink)
{
	if (r->style->colour)
		buf_addf(r->out, "\033[%dm", (int)ink);
}

void report_title(const struct report *r, const char *text)
{
	if (r->out->len > r->start)
		buf_add_char(r->out, '\n');
	report_inked(r, INK_HEADING, "{}", TEXT(text));
	buf_add_char(r->out, '\n');
}

void report_heading(const struct report *r, struct buf *text)
{
	report_title(r, buf_str(text));
	buf_release(text);
}

static void add_spaces(const struct report *r, unsigned n)
{
	buf_addf(r->out, "%*s", (int)n, "");
}

void report_paragraph(const struct report *r, unsigned indent, struct buf *text)
{
	add_spaces(r, indent);
	args_wrap(r->out, buf_str(text), indent, indent, WIDTH);
	buf_release(text);
}

void report_remarks(const struct report *r, struct buf *text)
{
	if (text->len) {
		buf_add_char(r->out, '\n');
		text->len--;
		report_paragraph(r, 0, text);
	}
	buf_release(text);
}

/* --- call stacks --- */

/* What the first of the frames that are shown called: those inside are left out. */
static void add_via(struct buf *out, struct stack stack, const struct shown_frame *first)
{
	const char *text = first->python ? stack.py : stack.c;
	struct frame_line via;

	if (frame_origin(&first->line, first->python) != FRAME_USER ||
	    !frames_via(text, &first->line, first->python, &via))
		return;
	buf_add_str(out, " via ");
	frame_describe_call(&via, first->python, out);
}

/* The lines that are shown of a call stack. */
static void add_frames(struct buf *out, unsigned indent, struct stack stack,
		       const struct frame_choice *choice)
{
	struct frame_list frames = {0};

	frames_join(stack.py, stack.c, choice->which, &frames);
	frames_shorten(&frames, choice);
	for (size_t i = 0; i < frames.n; i++) {
		buf_addf(out, "%*s", (int)indent, "");
		if (frames.list[i].cut)
			buf_add_str(out, "…");
		else
			frame_describe(&frames.list[i].line, frames.list[i].python, out);
		if (!i)
			add_via(out, stack, frames.list);
		buf_add_char(out, '\n');
	}
	frame_list_release(&frames);
}

void report_stack(const struct report *r, unsigned indent, struct stack stack)
{
	if (!stack.py && !stack.c)
		return;
	report_ink(r, INK_DIM);
	add_frames(r->out, indent, stack, &r->style->frames);
	report_ink(r, INK_PLAIN);
}

uint64_t report_stack_hash(struct stack stack)
{
	struct buf lines = {0};

	add_frames(&lines, 0, stack, &(struct frame_choice){0});
	uint64_t h = XXH3_64bits_withSeed(lines.data, lines.len, 1);
	buf_release(&lines);
	return h;
}

void report_call_site(const struct report *r, unsigned indent, enum ink ink,
		      const struct stacks *stacks, const struct call_site *site)
{
	add_spaces(r, indent);
	report_inked(r, ink, "{}", HELD(site->bytes, site->blocks));
	if (site->paths > 1)
		report_add(r, ", {}, the largest:", COUNT_OF(site->paths, "call stack"));
	report_add(r, site->stack    ? "\n"
		      : site->before ? ", allocated before recording began\n"
				     : ", no call stack recorded\n");
	report_stack(r, indent + 4, stacks_get(stacks, site->stack));
}

static int larger_first(const void *pa, const void *pb)
{
	const struct call_site *a = pa, *b = pb;

	return ORDER(b->bytes, a->bytes) ?: ORDER(b->blocks, a->blocks) ?: ORDER(a->stack, b->stack);
}

void call_sites_sort(struct call_site *list, size_t n)
{
	SORT(list, n, larger_first);
}

/* Equal for call stacks that called the same thing of a framework. */
static uint64_t hash_via(const struct stacks *stacks, uint32_t stack)
{
	struct buf via = {0};
	uint64_t h = stacks_via(stacks, stack, &via) ? XXH3_64bits(via.data, via.len) : 0;

	buf_release(&via);
	return h;
}

/* Equal for call stacks from the same place. */
static uint64_t hash_place(const struct stacks *stacks, const struct call_site *site)
{
	struct buf where = {0};
	uint64_t h = site->before ? 1 : 0;

	if (stacks_place(stacks, site->stack, &where))
		h = XXH3_64bits_withSeed(where.data, where.len, 2);
	buf_release(&where);
	return h;
}

size_t call_sites_merge(struct call_site *list, size_t n, const struct stacks *stacks)
{
	struct hmap seen = {0}, looks = {0};
	size_t kept = 0;

	call_sites_sort(list, n);
	for (size_t i = 0; i < n; i++) {
		struct call_site site = list[i];
		uint64_t place = hash_place(stacks, &site), at = hmap_get(&seen, place);
		uint64_t look = report_stack_hash(stacks_get(stacks, site.stack)) ^ place;
		bool is_new = hmap_put(&looks, look, 0) == HMAP_NONE;

		if (at == HMAP_NONE) {
			hmap_put(&seen, place, kept);
			list[kept] = site;
			list[kept++].paths = 1;
			continue;
		}
		list[at].paths += is_new;
		list[at].mixed |=
			is_new && hash_via(stacks, site.stack) != hash_via(stacks, list[at].stack);
		list[at].blocks += site.blocks;
		list[at].bytes += site.bytes;
	}
	call_sites_sort(list, kept);
	hmap_release(&seen);
	hmap_release(&looks);
	return kept;
}

void report_more(const struct report *r, unsigned indent, size_t n, const char *noun)
{
	add_spaces(r, indent);
	report_add(r, "and {} more {}{}\n", COUNT(n), TEXT(noun), TEXT(n == 1 ? "" : "s"));
}

void report_table(const struct report *r, struct table *t)
{
	char heading[16], plain[16];

	snprintf(heading, sizeof(heading), "\033[%dm", (int)INK_HEADING);
	snprintf(plain, sizeof(plain), "\033[%dm", (int)INK_PLAIN);
	if (r->style->colour) {
		t->before_titles = heading;
		t->behind_titles = plain;
	}
	table_print(t, 0, r->out);
	table_release(t);
}
