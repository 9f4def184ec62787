/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "base/text/table.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/text/display_width.h"
#include "base/text/printable.h"

#define GAP 2 /* between columns */

void table_text(struct table *t, const char *text)
{
	struct buf clean = {0};

	text_add_printable(&clean, text, strlen(text));
	t->cells = xgrow(t->cells, &t->cap, t->n + 1, sizeof(*t->cells));
	t->cells[t->n++] = xstrdup(buf_str(&clean));
	buf_release(&clean);
}

void table_textf(struct table *t, const char *fmt, ...)
{
	char text[2048];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	table_text(t, text);
}

void table_cell(struct table *t, struct buf *text)
{
	table_text(t, buf_str(text));
	buf_clear(text);
}

void table_release(struct table *t)
{
	for (size_t i = 0; i < t->n; i++)
		free(t->cells[i]);
	free(t->cells);
	*t = (struct table){0};
}

unsigned terminal_columns(int fd, unsigned *rows)
{
	struct winsize ws = {0};
	bool is = isatty(fd);

	if (is && (ioctl(fd, TIOCGWINSZ, &ws) < 0 || !ws.ws_col || !ws.ws_row))
		ws = (struct winsize){.ws_col = 80, .ws_row = 24};
	if (rows)
		*rows = ws.ws_row;
	return ws.ws_col;
}

static size_t length(const char *text)
{
	unsigned columns;

	text_fit_columns(text, strlen(text), 0, &columns);
	return columns;
}

/* Moves a line over, cut after `width` columns and without the blanks at its end. */
static void add_cut(struct buf *out, struct buf *line, unsigned width)
{
	unsigned columns;
	size_t start = out->len;

	buf_add(out, line->data, text_fit_columns(line->data, line->len, width, &columns));
	while (out->len > start && out->data[out->len - 1] == ' ')
		out->len--;
	buf_clear(line);
}

static void add_padding(struct buf *out, size_t n)
{
	while (n--)
		buf_add_char(out, ' ');
}

static bool is_number(const struct table *t, size_t column)
{
	return t->text_columns ? column >= t->text_columns : t->titles[column][0] == '>';
}

static const char *title_of(const struct table *t, size_t column)
{
	return t->titles[column] + (t->titles[column][0] == '>');
}

/* How wide a line is if the last column has no more than `least`. */
static size_t line_width(const size_t *wide, size_t columns, unsigned hidden, unsigned least)
{
	size_t last = wide[columns - 1], sum = last < least ? last : least;

	for (size_t i = 0; i + 1 < columns; i++)
		sum += hidden >> i & 1 ? 0 : wide[i] + GAP;
	return sum;
}

static unsigned column_bit(const struct table *t, const char *name)
{
	for (size_t i = 0; t->titles[i]; i++)
		if (!strcmp(title_of(t, i), name))
			return 1u << i;
	return 0;
}

void table_hide(struct table *t, const char *name)
{
	t->hidden |= column_bit(t, name);
}

/* The columns that are not shown. */
static unsigned make_room(const struct table *t, const size_t *wide, size_t columns, unsigned width)
{
	unsigned hidden = t->hidden;

	for (size_t i = 0; width && t->drop && t->drop[i]; i++)
		if (line_width(wide, columns, hidden, t->least) > width)
			hidden |= column_bit(t, t->drop[i]);
	return hidden;
}

static void add_cell(const struct table *t, size_t column, const char *text, size_t wide,
		     struct buf *line)
{
	size_t blanks = wide - length(text);

	add_padding(line, is_number(t, column) ? blanks : 0);
	buf_add_str(line, text);
	add_padding(line, (is_number(t, column) ? 0 : blanks) + GAP);
}

void table_print(const struct table *t, unsigned width, struct buf *out)
{
	size_t wide[TABLE_COLUMNS] = {0}, columns = t->columns;
	struct buf line = {0};

	while (!t->columns && t->titles[columns])
		columns++;
	for (size_t i = 0; i < t->n + columns; i++) {
		size_t len = length(i < columns ? title_of(t, i) : t->cells[i - columns]);

		wide[i % columns] = len > wide[i % columns] ? len : wide[i % columns];
	}
	unsigned hidden = make_room(t, wide, columns, width);
	for (size_t i = 0; i < t->n + columns; i++) {
		size_t column = i % columns;
		const char *text = i < columns ? title_of(t, column) : t->cells[i - columns];

		if (!column)
			add_padding(&line, t->indent);
		if (!(hidden >> column & 1))
			add_cell(t, column, text, wide[column], &line);
		if (column + 1 < columns && i + 1 < t->n + columns)
			continue;
		if (i < columns && t->before_titles)
			buf_add_str(out, t->before_titles);
		add_cut(out, &line, width);
		if (i < columns && t->behind_titles)
			buf_add_str(out, t->behind_titles);
		buf_add_char(out, '\n');
	}
	buf_release(&line);
}
