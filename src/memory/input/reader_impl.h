/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Where memory/input/reader.c gets its cells from: one ops table per file format. */
#ifndef SONDE_MEMORY_INPUT_READER_IMPL_H
#define SONDE_MEMORY_INPUT_READER_IMPL_H

#include "base/err.h"
#include "memory/dump/cell.h"

/*
 * A cell that may be a number or a word, being no longer than this, has its CELL_SLACK; so has Attr
 * unless it is JSON.
 */
#define DUMP_WORD_MAX 64

/* Where a row lies in the file. */
struct dump_place {
	uint64_t offset;
	uint64_t line : 40;
	uint64_t len : 24;
};

#define DUMP_TIME_IN_US "Timestamp(us)" /* the column of dumps of early 2025 */

struct dump_source {
	const struct dump_source_ops *ops;
	const char *path; /* for messages, borrowed */
	const struct cell *columns[COL_END]; /* of the row read last; set once, never NULL */
	uint64_t line; /* of that row */
	struct dump_place place; /* of that row, where ops->again is set … */
	size_t attr_field; /* … and which of its fields is Attr */
	struct {
		uint64_t offset, line;
	} next; /* where the row behind it begins; of CSV */
	bool torn;
	bool in_us; /* times are in microseconds, as in dumps of early 2025 */
	bool plain_attrs; /* of a database: they may be text, as in a csv; of 2025, too */
};

struct dump_source_ops {
	bool is_db; /* Attr is JSON, and names and stacks carry their quotes */
	/* 1, 0 at the end, -EBADMSG for a row that is none (goes on behind it), else final. */
	int (*next)(struct dump_source *src, struct err *err);
	/* The row at that place once more, 1 or final; next() is over then. Optional. */
	int (*again)(struct dump_source *src, struct dump_place place, struct err *err);
	void (*free)(struct dump_source *src);
};

/* Takes fd, also on failure. */
int dump_csv_open(int fd, const char *path, struct dump_source **out, struct err *err);
/*
 * For threads that share the reading of a CSV file (memory/input/read_ahead.c). A twin reads the
 * same file for itself, without its bad rows, and must not outlive the other.
 */
struct dump;
struct dump *dump_twin(const struct dump *d);
struct dump_source *dump_csv_twin(const struct dump_source *src);
/*
 * Reads from the offset on: `text` is emptied and filled with `n` bytes of the file. Rows point
 * into it. More is added while it has room, then next() gives -EAGAIN. Lines are counted from 0.
 */
int dump_csv_begin(struct dump_source *src, struct buf *text, size_t n, uint64_t offset,
		   struct err *err);
/* Moves behind the next line end that looks as if a row began there; false: there is none. */
bool dump_csv_guess(struct dump_source *src);
/* Rows up to there, with that many lines, were read by a twin. */
void dump_csv_skip(struct dump_source *src, uint64_t offset, uint64_t lines);

/* The rows in order of time and ID if `sorted`, else as they lie. */
int dump_db_open(const char *path, bool sorted, struct dump_source **out, struct err *err);

/* For those that write a dump back. Takes fd, also on failure; the path is for messages. */
int dump_open_csv(int fd, const char *path, unsigned flags, struct dump **out, struct err *err);
struct dump_source *dump_source(const struct dump *d);

/*
 * Makes a database that was just opened harmless, whoever wrote it, and looks whether it has a
 * dump: a plain table. A view, a virtual table or a trigger would run what its author wrote.
 */
struct sqlite3;
/* out_old: the table is called leaks_dump, as msLeaks did. */
int dump_db_check(struct sqlite3 *db, const char *path, bool *out_old, struct err *err);

/* Is it the column of times in microseconds? */
bool dump_time_is_us(const char *name, size_t len);

/* Missing columns are empty; -EINVAL when one is missing that every dump has. */
int dump_check_columns(struct dump_source *src, struct err *err);

#endif
