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

/* --- tables --- */

void table_text(struct table *t, const char *text)
{
	t->cells = xgrow(t->cells, &t->cap, t->n + 1, sizeof(*t->cells));
	snprintf(t->cells[t->n++], TABLE_CELL_BYTES, "%s", text);
}

void table_titles(struct table *t, const char *const *titles)
{
	for (unsigned i = 0; i < t->columns; i++)
		table_text(t, titles[i]);
}

void table_cell(struct table *t, struct buf *text)
{
	table_text(t, buf_str(text));
	buf_clear(text);
}

void table_count(struct table *t, uint64_t n)
{
	struct buf text = {0};

	words_count(&text, n);
	table_cell(t, &text);
	buf_release(&text);
}

void table_bytes(struct table *t, uint64_t bytes)
{
	struct buf text = {0};

	words_bytes(&text, bytes);
	table_cell(t, &text);
	buf_release(&text);
}

static void add_row(const struct page *g, const struct table *t, size_t first, const int *width)
{
	add_spaces(g, t->indent);
	for (unsigned i = 0; i < t->columns && first + i < t->n; i++)
		buf_addf(g->out, i < t->text_columns ? "%s%-*s" : "%s%*s", i ? "  " : "", width[i],
			 t->cells[first + i]);
}

void page_table(const struct page *g, struct table *t)
{
	int width[TABLE_COLUMNS] = {0};

	for (size_t i = 0; i < t->n; i++) {
		int len = (int)strlen(t->cells[i]), *most = &width[i % t->columns];

		if (len > *most)
			*most = len;
	}
	for (size_t i = 0; i < t->n; i += t->columns) {
		if (!i)
			page_ink(g, INK_HEADING);
		add_row(g, t, i, width);
		if (!i)
			page_ink(g, INK_PLAIN);
		buf_add_char(g->out, '\n');
	}
	free(t->cells);
	*t = (struct table){0};
}
