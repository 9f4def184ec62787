/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Where dump_reader.c gets its cells from: one ops table per file format. */
#ifndef SONDE_EXPORT_DUMP_SOURCE_H
#define SONDE_EXPORT_DUMP_SOURCE_H

#include "base/err.h"
#include "export/cell.h"

struct cell {
	const char *text; /* NULL where the file has no such column */
	size_t len;
};

struct dump_source {
	const struct dump_source_ops *ops;
	const char *path; /* for messages, borrowed */
	uint64_t line; /* of the row read last */
	bool torn;
};

struct dump_source_ops {
	bool is_db; /* Attr is JSON, and names and stacks carry their quotes */
	/* 1, 0 at the end, -EBADMSG for a row that is none (goes on behind it), else final. */
	int (*next)(struct dump_source *src, struct cell *cells, struct err *err);
	void (*free)(struct dump_source *src);
};

/* Takes fd, also on failure; fd -1 reads the bytes at `data` instead, which it borrows. */
int dump_csv_open(int fd, const void *data, size_t len, const char *path, struct dump_source **out,
		  struct err *err);
int dump_db_open(const char *path, struct dump_source **out, struct err *err);

/* Are all columns there that every dump has? `have` is a bit per column. */
int dump_check_columns(const char *path, unsigned have, struct err *err);

#endif
