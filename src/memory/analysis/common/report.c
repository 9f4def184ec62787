/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "memory/analysis/common/report.h"

#include <stdio.h>
#include <stdlib.h>
#include <xxhash.h>

#include "base/mem.h"
#include "base/text/args.h"
#include "memory/analysis/common/frames.h"

#define WIDTH 96
#define MAX_FRAMES 5

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

/* The lines that are shown of one half of a call stack. */
static void add_frames(struct buf *out, unsigned indent, const char *text, bool python)
{
	struct frame_line lines[MAX_FRAMES];
	size_t n = text ? frames_pick(text, python, lines, MAX_FRAMES) : 0;

	for (size_t i = 0; i < n; i++) {
		buf_addf(out, "%*s", (int)indent, "");
		frame_describe(&lines[i], python, out);
		buf_add_char(out, '\n');
	}
}

void report_stack(const struct report *r, unsigned indent, struct stack stack)
{
	if (!stack.py && !stack.c)
		return;
	report_ink(r, INK_DIM);
	add_frames(r->out, indent, stack.py, true);
	add_frames(r->out, indent, stack.c, false);
	report_ink(r, INK_PLAIN);
}

uint64_t report_stack_hash(struct stack stack)
{
	struct buf lines = {0};

	add_frames(&lines, 0, stack.py, true);
	uint64_t h = XXH3_64bits_withSeed(lines.data, lines.len, 1);
	buf_clear(&lines);
	add_frames(&lines, 0, stack.c, false);
	h = XXH3_64bits_withSeed(lines.data, lines.len, h);
	buf_release(&lines);
	return h;
}

void report_call_site(const struct report *r, unsigned indent, enum ink ink,
		      const struct stacks *stacks, const struct call_site *site)
{
	add_spaces(r, indent);
	report_inked(r, ink, "{}", HELD(site->bytes, site->blocks));
	report_say(r, site->stack    ? "\n"
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

size_t call_sites_merge(struct call_site *list, size_t n, const struct stacks *stacks)
{
	struct hmap seen = {0};
	size_t kept = 0;

	for (size_t i = 0; i < n; i++) {
		uint64_t looks =
			report_stack_hash(stacks_get(stacks, list[i].stack)) + list[i].before;
		uint64_t at = hmap_get(&seen, looks);

		if (at == HMAP_NONE) {
			hmap_put(&seen, looks, kept);
			list[kept++] = list[i];
		} else {
			list[at].blocks += list[i].blocks;
			list[at].bytes += list[i].bytes;
		}
	}
	call_sites_sort(list, kept);
	hmap_release(&seen);
	return kept;
}

void report_more(const struct report *r, unsigned indent, size_t n, const char *noun)
{
	add_spaces(r, indent);
	report_say(r, "and {} more {}{}\n", COUNT(n), TEXT(noun), TEXT(n == 1 ? "" : "s"));
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
