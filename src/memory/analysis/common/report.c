/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "memory/analysis/common/report.h"

#include <stdio.h>
#include <stdlib.h>
#include <xxhash.h>

#include "base/mem.h"
#include "base/text/args.h"
#include "base/text/plain_words.h"
#include "memory/analysis/common/frames.h"

#define WIDTH 96
#define MAX_FRAMES 5

struct page page_begin(const struct analysis_style *style, struct buf *out)
{
	return (struct page){.style = style, .out = out, .start = out->len};
}

void page_ink(const struct page *g, enum ink ink)
{
	if (g->style->colour)
		buf_addf(g->out, "\033[%dm", (int)ink);
}

void page_inked(const struct page *g, enum ink ink, const char *text)
{
	page_ink(g, ink);
	buf_add_str(g->out, text);
	page_ink(g, INK_PLAIN);
}

void page_title(const struct page *g, const char *text)
{
	if (g->out->len > g->start)
		buf_add_char(g->out, '\n');
	page_inked(g, INK_HEADING, text);
	buf_add_char(g->out, '\n');
}

void page_heading(const struct page *g, struct buf *text)
{
	page_title(g, buf_str(text));
	buf_release(text);
}

static void add_spaces(const struct page *g, unsigned n)
{
	buf_addf(g->out, "%*s", (int)n, "");
}

void page_paragraph(const struct page *g, unsigned indent, struct buf *text)
{
	add_spaces(g, indent);
	args_wrap(g->out, buf_str(text), indent, indent, WIDTH);
	buf_release(text);
}

void page_remarks(const struct page *g, struct buf *text)
{
	if (text->len) {
		buf_add_char(g->out, '\n');
		text->len--;
		page_paragraph(g, 0, text);
	}
	buf_release(text);
}

/* --- call stacks --- */

static void add_frames(const struct page *g, unsigned indent, const char *text, bool python)
{
	struct frame_line lines[MAX_FRAMES];
	size_t n = text ? frames_pick(text, python, lines, MAX_FRAMES) : 0;

	for (size_t i = 0; i < n; i++) {
		add_spaces(g, indent);
		frame_describe(&lines[i], python, g->out);
		buf_add_char(g->out, '\n');
	}
}

void page_stack(const struct page *g, unsigned indent, struct stack stack)
{
	if (!stack.py && !stack.c)
		return;
	page_ink(g, INK_DIM);
	add_frames(g, indent, stack.py, true);
	add_frames(g, indent, stack.c, false);
	page_ink(g, INK_PLAIN);
}

static uint64_t hash_frames(const char *text, bool python, uint64_t h)
{
	struct frame_line lines[MAX_FRAMES];
	size_t n = text ? frames_pick(text, python, lines, MAX_FRAMES) : 0;
	struct buf words = {0};

	for (size_t i = 0; i < n; i++) {
		frame_describe(&lines[i], python, &words);
		buf_add_char(&words, '\n');
	}
	h = XXH3_64bits_withSeed(words.data, words.len, h);
	buf_release(&words);
	return h;
}

uint64_t page_stack_hash(struct stack stack)
{
	return hash_frames(stack.c, false, hash_frames(stack.py, true, 1));
}

void page_more(const struct page *g, unsigned indent, size_t n, const char *noun)
{
	add_spaces(g, indent);
	buf_add_str(g->out, "and ");
	words_count(g->out, n);
	buf_addf(g->out, " more %s%s\n", noun, n == 1 ? "" : "s");
}

void page_table(const struct page *g, struct table *t)
{
	char heading[16], plain[16];

	snprintf(heading, sizeof(heading), "\033[%dm", (int)INK_HEADING);
	snprintf(plain, sizeof(plain), "\033[%dm", (int)INK_PLAIN);
	if (g->style->colour) {
		t->before_titles = heading;
		t->behind_titles = plain;
	}
	table_print(t, 0, g->out);
	table_release(t);
}
