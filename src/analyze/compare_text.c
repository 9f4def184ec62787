/* SPDX-License-Identifier: MulanPSL-2.0 */
/* A comparison for people: the answer, the names that differ most, the largest single ones. */
#include <stdio.h>
#include <stdlib.h>

#include "analyze/compare_impl.h"
#include "analyze/frames.h"
#include "analyze/summary_words.h"
#include "base/args.h"
#include "base/mem.h"

#define WIDTH 96
#define NAME_BYTES 48 /* of a longer name the middle is left out */
#define CELL_BYTES 64
#define MAX_COLUMNS 7

struct page {
	const struct compare *c;
	struct buf *out;
	bool colour;
	unsigned top;
};

/* --- the answer --- */

static void say_calls(const struct page *g, struct buf *t, uint64_t n)
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

static void say_memory(const struct page *g, struct buf *t)
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

static void say_sequences(const struct page *g, struct buf *t)
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

static void print_answer(const struct page *g)
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
	args_wrap(g->out, buf_str(&t), 0, 0, WIDTH);
	buf_release(&t);
}

/* --- tables --- */

struct table {
	int columns;
	unsigned text_columns; /* bit: left-justified */
	size_t rows, cap;
	char (*cells)[MAX_COLUMNS][CELL_BYTES];
};

static char (*new_row(struct table *t))[CELL_BYTES]
{
	t->cells = xgrow(t->cells, &t->cap, t->rows + 1, sizeof(*t->cells));
	return t->cells[t->rows++];
}

static void put_cell(char *cell, struct buf *text)
{
	snprintf(cell, CELL_BYTES, "%s", buf_str(text));
	buf_clear(text);
}

static void print_table(const struct page *g, const char *title, const struct table *t)
{
	size_t width[MAX_COLUMNS] = {0};

	for (size_t r = 0; r < t->rows; r++)
		for (int i = 0; i < t->columns; i++)
			if (strlen(t->cells[r][i]) > width[i])
				width[i] = strlen(t->cells[r][i]);
	buf_addf(g->out, "\n%s%s%s\n", g->colour ? "\033[1m" : "", title,
		 g->colour ? "\033[0m" : "");
	for (size_t r = 0; r < t->rows; r++) {
		for (int i = 0; i < t->columns; i++)
			buf_addf(g->out, t->text_columns >> i & 1 ? "%s%-*s" : "%s%*s",
				 i ? "  " : "", (int)width[i], t->cells[r][i]);
		buf_add_char(g->out, '\n');
	}
}

static void put_titles(struct table *t, const char *const *titles)
{
	char(*row)[CELL_BYTES] = new_row(t);

	for (int i = 0; i < t->columns; i++)
		snprintf(row[i], CELL_BYTES, "%s", titles[i]);
}

static void put_name(const struct page *g, char *cell, uint32_t number)
{
	struct buf t = {0};
	size_t len;
	const char *name = names_get(&g->c->names, number, &len);

	frame_add_printable(&t, name, len);
	if (t.len <= NAME_BYTES)
		snprintf(cell, CELL_BYTES, "%s", buf_str(&t));
	else
		snprintf(cell, CELL_BYTES, "%.*s...%.*s", NAME_BYTES / 2 - 2, t.data,
			 NAME_BYTES / 2 - 1, buf_str(&t) + t.len - NAME_BYTES / 2 + 1);
	buf_release(&t);
}

static void put_count(char *cell, uint64_t n)
{
	struct buf t = {0};

	words_count(&t, n);
	put_cell(cell, &t);
	buf_release(&t);
}

static void put_bytes_cell(char *cell, bool there, uint64_t bytes)
{
	struct buf t = {0};

	if (there)
		words_bytes(&t, bytes);
	else
		buf_add_char(&t, '-');
	put_cell(cell, &t);
	buf_release(&t);
}

static void put_difference(char *cell, uint64_t base, uint64_t compare)
{
	struct buf t = {0};

	if (compare != base)
		buf_add_char(&t, compare > base ? '+' : '-');
	words_bytes(&t, compare_distance(base, compare));
	put_cell(cell, &t);
	buf_release(&t);
}

/* "12/15": of base and of compare. */
static void put_counts(char *cell, uint64_t base, uint64_t compare)
{
	struct buf t = {0};

	words_count(&t, base);
	buf_add_char(&t, '/');
	words_count(&t, compare);
	put_cell(cell, &t);
	buf_release(&t);
}

static void print_names(const struct page *g)
{
	static const char *const titles[] = {"Name", "Calls", "Unpaired", "Other memory",
					     "Difference"};
	struct table t = {.columns = 5, .text_columns = 1};
	size_t n, total;
	uint32_t *list = compare_top_names(g->c, g->top, &n, &total);
	char title[96];

	put_titles(&t, titles);
	for (size_t i = 0; i < n; i++) {
		const struct compare_counts *s = &g->c->by_name[list[i]];
		char(*row)[CELL_BYTES] = new_row(&t);

		put_name(g, row[0], list[i]);
		put_counts(row[1], s->base, s->compare);
		put_counts(row[2], s->only_base, s->only_compare);
		put_count(row[3], s->changed);
		put_difference(row[4], s->base_bytes, s->compare_bytes);
	}
	snprintf(title, sizeof(title), "Names that differ, base/compare (%zu of %zu):", n, total);
	if (n)
		print_table(g, title, &t);
	free(t.cells);
	free(list);
}

static void print_lines(const struct page *g)
{
	static const char *const titles[] = {"Name", "Device",	"Base call", "Compare call",
					     "Base", "Compare", "Difference"};
	struct table t = {.columns = 7, .text_columns = 1};
	size_t n;
	struct compare_line *list = compare_top_lines(g->c, g->top, &n);
	char title[96];

	put_titles(&t, titles);
	for (size_t i = 0; i < n; i++) {
		const struct compare_line *l = &list[i];
		bool base = l->kind != ALIGN_COMPARE, compare = l->kind != ALIGN_BASE;
		char(*row)[CELL_BYTES] = new_row(&t);

		put_name(g, row[0], l->name);
		put_count(row[1], l->pair->device);
		snprintf(row[2], CELL_BYTES, "-");
		snprintf(row[3], CELL_BYTES, "-");
		if (base)
			put_count(row[2], l->call[COMPARE_BASE] + 1);
		if (compare)
			put_count(row[3], l->call[COMPARE_OTHER] + 1);
		put_bytes_cell(row[4], base, l->size[COMPARE_BASE]);
		put_bytes_cell(row[5], compare, l->size[COMPARE_OTHER]);
		put_difference(row[6], l->size[COMPARE_BASE], l->size[COMPARE_OTHER]);
	}
	snprintf(title, sizeof(title), "Largest differences (%zu of %llu):", n,
		 (unsigned long long)compare_differences(g->c));
	if (n)
		print_table(g, title, &t);
	free(t.cells);
	free(list);
}

static void print_notes(const struct page *g)
{
	for (size_t at = 0; at < g->c->notes.len;) {
		const char *line = g->c->notes.data + at;
		size_t len = (size_t)((char *)memchr(line, '\n', g->c->notes.len - at) - line);
		struct buf t = {0};

		buf_addf(&t, "Note: %.*s", (int)len, line);
		buf_addf(g->out, "%s", at ? "" : "\n");
		args_wrap(g->out, buf_str(&t), 0, 0, WIDTH);
		buf_release(&t);
		at += len + 1;
	}
}

void compare_text(const struct compare *c, unsigned top, bool colour, struct buf *out)
{
	struct page g = {.c = c, .out = out, .colour = colour, .top = top};

	print_answer(&g);
	print_names(&g);
	print_lines(&g);
	print_notes(&g);
}
