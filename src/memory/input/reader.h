/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Reads a memory dump, CSV or SQLite (by its content), row by row in constant memory. Both
 * vocabularies and any case of the column names are understood, columns may come in any order.
 *
 *	r = dump_open(path, 0, &d, err);
 *	while (r >= 0 && (r = dump_next(d, &row, err)) > 0)
 *		…
 *	dump_close(d);
 *
 * Every byte is taken for foreign. A CSV file that is still being written, or whose writer was
 * killed, may end in half a row: that is its end and not an error, see dump_torn().
 *
 * Dumps of the 26.0 program are not in order of time. DUMP_SORTED reads the whole file at the first
 * dump_next(), remembers 32 bytes a row, and goes through it again. Without DUMP_SKIP_BAD the bad
 * rows come before the first good one.
 *
 * In a row: attributes with unknown keys come as ATTR_RAW (neighbours together); `text` of an
 * attribute is set whatever its kind. Unknown words give ROW_EVENT_END and TYPE_END. A process or
 * thread id that is not known is UINT32_MAX. 26.0 has one word for PTA_WORKSPACE and PTA.
 */
#ifndef SONDE_MEMORY_INPUT_READER_H
#define SONDE_MEMORY_INPUT_READER_H

#include "base/err.h"
#include "memory/dump/row.h"

struct dump;

enum dump_flags {
	DUMP_SKIP_BAD = 1 << 0, /* bad rows are passed over and counted */
	DUMP_SORTED = 1 << 1, /* rows come by time, then ID, then place in the file */
};

int dump_open(const char *path, unsigned flags, struct dump **out, struct err *err);

/*
 * 1: a row, whose texts are good until the next call; 0: the end. -EBADMSG: a bad row, named by
 * its line; the next call goes on behind it. Any other error is final.
 */
int dump_next(struct dump *d, struct row *out, struct err *err);

/* The same where the caller has no room for a row: *out is good until the next call. */
int dump_take(struct dump *d, const struct row **out, struct err *err);

/*
 * Only these attributes of a row are of interest (a bit per enum attr_key, ATTR_RAW for unknown
 * keys): the others need not be read. They need not make sense then, either.
 */
void dump_want(struct dump *d, uint64_t attrs);

/*
 * Up to that many more threads help from now on, where that can be (CSV, not sorted, before the
 * first row), with pieces of so many bytes, 0: what is best. dump_take() gives the rows then, and
 * nothing else may be asked for before it gave the end; attributes that are numbers have no text.
 * Needs DUMP_SKIP_BAD. It is worth it for a large file on more than one processor.
 */
void dump_read_ahead(struct dump *d, unsigned threads, size_t piece);

uint64_t dump_bad_rows(const struct dump *d);
/* What was wrong with the first of them, and in which line; NULL when all were good. */
const char *dump_first_bad(const struct dump *d);
/* The file ended in half a row; known once dump_next() has given 0. */
bool dump_torn(const struct dump *d);
void dump_close(struct dump *d); /* d may be NULL */

#endif
