/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * A table for people: columns as wide as they need to be, texts from outside made printable. Set
 * the titles, add cells row by row, print, release.
 */
#ifndef SONDE_BASE_TEXT_TABLE_H
#define SONDE_BASE_TEXT_TABLE_H

#include <stddef.h>
#include <stdint.h>

#include "base/containers/buf.h"

#define TABLE_COLUMNS 12

struct table {
	/* Ended by NULL; borrowed. One that begins with '>' is a column of numbers. */
	const char *const *titles;
	unsigned columns; /* 0: as many as there are titles */
	unsigned text_columns; /* not 0: the columns behind these are numbers */
	unsigned indent;
	const char *before_titles, *behind_titles; /* colours; may be NULL */
	/* On a narrow terminal these go, in this order, until the last column, which is the widest,
	 * has `least` columns or all it needs. NULL: none does. */
	const char *const *drop;
	unsigned least;
	unsigned hidden; /* bits of columns; see table_hide() */
	char **cells;
	size_t n, cap;
};

void table_text(struct table *t, const char *text);
__attribute__((format(printf, 2, 3))) void table_textf(struct table *t, const char *fmt, ...);
void table_cell(struct table *t, struct buf *text); /* and clears it */
/* A column is not shown. */
void table_hide(struct table *t, const char *name);

/* Lines are cut at `width` columns; 0: not. */
void table_print(const struct table *t, unsigned width, struct buf *out);
void table_release(struct table *t);

/* Columns and rows of the terminal behind fd; 0 and 0 if it is none. rows may be NULL. */
unsigned terminal_columns(int fd, unsigned *rows);

#endif
