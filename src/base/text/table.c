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

void ctl_table_cell(struct ctl_table *t, const char *fmt, ...)
{
	struct buf clean = {0};
	char text[2048];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	text_add_printable(&clean, text, strlen(text));
	t->cells = xgrow(t->cells, &t->cap, t->n + 1, sizeof(*t->cells));
	t->cells[t->n++] = xstrdup(buf_str(&clean));
	buf_release(&clean);
}

void ctl_table_release(struct ctl_table *t)
{
	for (size_t i = 0; i < t->n; i++)
		free(t->cells[i]);
	free(t->cells);
	*t = (struct ctl_table){0};
}

unsigned ctl_terminal(int fd, unsigned *rows)
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

	ctl_text_fit(text, strlen(text), 0, &columns);
	return columns;
}

/* Adds a line cut after `width` columns. */
static void add_cut(struct buf *out, const char *line, unsigned width)
{
	unsigned columns;

	buf_add(out, line, ctl_text_fit(line, strlen(line), width, &columns));
	while (out->len && out->data[out->len - 1] == ' ')
		out->len--;
	buf_add_char(out, '\n');
}

static void pad(struct buf *out, size_t n)
{
	while (n--)
		buf_add_char(out, ' ');
}

static const char *title(const struct ctl_table *t, size_t column)
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

static unsigned column_bit(const struct ctl_table *t, const char *name)
{
	for (size_t i = 0; t->titles[i]; i++)
		if (!strcmp(title(t, i), name))
			return 1u << i;
	return 0;
}

void ctl_table_hide(struct ctl_table *t, const char *name)
{
	t->hidden |= column_bit(t, name);
}

/* The columns that are not shown. */
static unsigned make_room(const struct ctl_table *t, const size_t *wide, size_t columns,
			  unsigned width)
{
	unsigned hidden = t->hidden;

	for (size_t i = 0; width && t->drop && t->drop[i]; i++)
		if (line_width(wide, columns, hidden, t->least) > width)
			hidden |= column_bit(t, t->drop[i]);
	return hidden;
}

void ctl_table_print(const struct ctl_table *t, unsigned width, struct buf *out)
{
	size_t wide[CTL_TABLE_COLUMNS] = {0}, columns = 0;
	struct buf line = {0};

	for (; t->titles[columns]; columns++)
		wide[columns] = length(title(t, columns));
	for (size_t i = 0; i < t->n; i++)
		if (length(t->cells[i]) > wide[i % columns])
			wide[i % columns] = length(t->cells[i]);
	unsigned hidden = make_room(t, wide, columns, width);
	for (size_t i = 0; i < t->n + columns; i++) {
		size_t column = i % columns;
		const char *text = i < columns ? title(t, column) : t->cells[i - columns];
		size_t blanks = wide[column] - length(text);
		bool number = t->titles[column][0] == '>';

		if (!(hidden >> column & 1)) {
			pad(&line, number ? blanks : 0);
			buf_add_str(&line, text);
			pad(&line, (number ? 0 : blanks) + GAP);
		}
		if (column + 1 == columns) {
			add_cut(out, buf_str(&line), width);
			buf_clear(&line);
		}
	}
	buf_release(&line);
}
