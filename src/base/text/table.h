/* SPDX-License-Identifier: MulanPSL-2.0 */
/* A table for people: columns as wide as they need to be, texts of others made printable. */
#ifndef SONDE_BASE_TEXT_TABLE_H
#define SONDE_BASE_TEXT_TABLE_H

#include <stddef.h>

#include "base/containers/buf.h"

#define CTL_TABLE_COLUMNS 12

/* Set the titles, add cells row by row, print, release. */
struct ctl_table {
	const char *const
		*titles; /* ended by NULL; one that begins with '>' is a column of numbers */
	/* On a narrow terminal these go, in this order, until the last column, which is the widest,
	 * has `least` columns or all it needs. NULL: none does. */
	const char *const *drop;
	unsigned least;
	unsigned hidden; /* bits of columns; see ctl_table_hide() */
	char **cells;
	size_t n, cap;
};

__attribute__((format(printf, 2, 3))) void ctl_table_cell(struct ctl_table *t, const char *fmt,
							  ...);

/* A column is not shown. */
void ctl_table_hide(struct ctl_table *t, const char *name);

/* Columns and rows of the terminal behind fd; 0 and 0 if it is none. rows may be NULL. */
unsigned ctl_terminal(int fd, unsigned *rows);

/* Lines are cut at `width` columns; 0: not. */
void ctl_table_print(const struct ctl_table *t, unsigned width, struct buf *out);
void ctl_table_release(struct ctl_table *t);

#endif
