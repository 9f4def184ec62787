/* SPDX-License-Identifier: MulanPSL-2.0 */
/* A comparison for people: the answer, the names that differ most, the largest single ones. */
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/text/plain_words.h"
#include "base/text/printable.h"
#include "memory/analysis/common/blocks.h"
#include "memory/analysis/common/report.h"
#include "memory/analysis/compare/compare_impl.h"

#define NAME_BYTES 48 /* of a longer name the middle is left out */

struct view {
	struct page page;
	const struct compare *c;
};

/* --- the answer --- */

static void say_calls(const struct view *g, struct buf *t, uint64_t n)
{
	words_count(t, n);
	if (g->c->level != (COMPARE_OPERATORS | COMPARE_KERNELS))
		buf_addf(t, " %s", compare_noun(g->c));
	buf_add_str(t, n == 1 ? " call" : " calls");
}

/* "compare has 3.00 MiB more in them" */
static void say_more(struct buf *t, const struct compare_counts *n)
{
	uint64_t base = n->both_base_bytes, compare = n->both_compare_bytes;

	if (base == compare) {
		buf_add_str(t, "the sum is the same");
		return;
	}
	buf_add_str(t, "compare has ");
	words_bytes(t, compare_distance(base, compare));
	buf_addf(t, " %s in them", compare > base ? "more" : "less");
}

static uint64_t names_with_other_memory(const struct compare *c)
{
	uint64_t n = 0;

	for (size_t i = 0; i < c->names.count; i++)
		n += c->by_name[i].changed > 0;
	return n;
}

static void say_memory(const struct view *g, struct buf *t)
{
	const struct compare_counts *n = &g->c->counts;

	if (!n->changed) {
		buf_add_str(t, " Those in both have the same memory.");
		return;
	}
	buf_add_str(t, " Of those in both, ");
	words_count(t, n->changed);
	buf_addf(t, n->changed == 1 ? " has other memory (" : " have other memory (");
	words_of(t, names_with_other_memory(g->c), "name");
	buf_add_str(t, "): ");
	say_more(t, n);
	buf_add_char(t, '.');
}

static void say_sequences(const struct view *g, struct buf *t)
{
	const struct compare_counts *n = &g->c->counts;

	buf_add_str(t, "The sequences differ: ");
	if (n->only_base) {
		say_calls(g, t, n->only_base);
		buf_add_str(t, " only in base, ");
	}
	if (n->only_compare && n->only_base)
		words_count(t, n->only_compare);
	else if (n->only_compare)
		say_calls(g, t, n->only_compare);
	if (n->only_compare)
		buf_add_str(t, " only in compare, ");
	words_count(t, n->both);
	buf_add_str(t, " in both.");
}

static void print_answer(const struct view *g)
{
	const struct compare_counts *n = &g->c->counts;
	struct buf t = {0};

	if (!compare_differences(g->c)) {
		buf_add_str(&t, "Both are the same: ");
		say_calls(g, &t, n->both);
		buf_add_str(&t, " on ");
		words_of(&t, g->c->npairs, "device");
		buf_add_str(&t, ", all with the same memory.");
	} else if (!n->only_base && !n->only_compare) {
		buf_add_str(&t, "The sequences are the same (");
		say_calls(g, &t, n->both);
		buf_add_str(&t, "), the memory is not.");
		say_memory(g, &t);
	} else {
		say_sequences(g, &t);
		if (n->both)
			say_memory(g, &t);
	}
	page_paragraph(&g->page, 0, &t);
}

/* --- tables --- */

static void put_name(const struct view *g, struct table *t, uint32_t number)
{
	struct buf text = {0};
	size_t len;
	const char *name = names_get(&g->c->names, number, &len);

	text_add_printable(&text, name, len);
	if (text.len > NAME_BYTES) {
		table_textf(t, "%.*s...%.*s", NAME_BYTES / 2 - 2, text.data, NAME_BYTES / 2 - 1,
			    buf_str(&text) + text.len - NAME_BYTES / 2 + 1);
	} else {
		table_cell(t, &text);
	}
	buf_release(&text);
}

static void print_table(const struct view *g, const char *title, struct table *t, size_t n)
{
	if (n) {
		page_title(&g->page, title);
		page_table(&g->page, t);
	}
	table_release(t);
}

static void put_difference(struct table *table, uint64_t base, uint64_t compare)
{
	struct buf t = {0};

	if (compare != base)
		buf_add_char(&t, compare > base ? '+' : '-');
	words_bytes(&t, compare_distance(base, compare));
	table_cell(table, &t);
	buf_release(&t);
}

/* "12/15": of base and of compare. */
static void put_counts(struct table *table, uint64_t base, uint64_t compare)
{
	struct buf t = {0};

	words_count(&t, base);
	buf_add_char(&t, '/');
	words_count(&t, compare);
	table_cell(table, &t);
	buf_release(&t);
}

static void put_call(struct table *t, bool there, uint64_t number)
{
	if (there)
		table_count(t, number);
	else
		table_text(t, "-");
}

static void put_memory(struct table *t, bool there, uint64_t bytes)
{
	if (there)
		table_bytes(t, bytes);
	else
		table_text(t, "-");
}

static void print_names(const struct view *g)
{
	static const char *const titles[] = {"Name", "Calls", "Unpaired", "Other memory",
					     "Difference"};
	struct table t = {.columns = 5, .text_columns = 1};
	size_t n, total;
	uint32_t *list = compare_top_names(g->c, g->page.style->top, &n, &total);
	char title[96];

	t.titles = titles;
	for (size_t i = 0; i < n; i++) {
		const struct compare_counts *s = &g->c->by_name[list[i]];

		put_name(g, &t, list[i]);
		put_counts(&t, s->base, s->compare);
		put_counts(&t, s->only_base, s->only_compare);
		table_count(&t, s->changed);
		put_difference(&t, s->base_bytes, s->compare_bytes);
	}
	snprintf(title, sizeof(title), "Names that differ, base/compare (%zu of %zu):", n, total);
	print_table(g, title, &t, n);
	free(list);
}

static void print_lines(const struct view *g)
{
	static const char *const titles[] = {"Name", "Device",	"Base call", "Compare call",
					     "Base", "Compare", "Difference"};
	struct table t = {.columns = 7, .text_columns = 1};
	size_t n;
	struct compare_line *list = compare_top_lines(g->c, g->page.style->top, &n);
	char title[96], device[16];

	t.titles = titles;
	for (size_t i = 0; i < n; i++) {
		const struct compare_line *l = &list[i];
		bool base = l->kind != ALIGN_COMPARE, compare = l->kind != ALIGN_BASE;

		put_name(g, &t, l->name);
		table_text(&t, blocks_device_name(l->pair->device, device));
		put_call(&t, base, l->call[COMPARE_BASE] + 1);
		put_call(&t, compare, l->call[COMPARE_OTHER] + 1);
		put_memory(&t, base, l->size[COMPARE_BASE]);
		put_memory(&t, compare, l->size[COMPARE_OTHER]);
		put_difference(&t, l->size[COMPARE_BASE], l->size[COMPARE_OTHER]);
	}
	snprintf(title, sizeof(title), "Largest differences (%zu of %llu):", n,
		 (unsigned long long)compare_differences(g->c));
	print_table(g, title, &t, n);
	free(list);
}

static void print_notes(const struct view *g)
{
	for (size_t at = 0; at < g->c->notes.len;) {
		const char *line = g->c->notes.data + at;
		size_t len = (size_t)((char *)memchr(line, '\n', g->c->notes.len - at) - line);
		struct buf t = {0};

		buf_addf(&t, "Note: %.*s", (int)len, line);
		buf_addf(g->page.out, "%s", at ? "" : "\n");
		page_paragraph(&g->page, 0, &t);
		at += len + 1;
	}
}

void compare_text(const struct compare *c, unsigned top, bool colour, struct buf *out)
{
	struct analysis_style style = {.colour = colour, .top = top};
	struct view g = {page_begin(&style, out), c};

	print_answer(&g);
	print_names(&g);
	print_lines(&g);
	print_notes(&g);
}
