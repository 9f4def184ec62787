/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * A dump writer: rows in, one file out. One ops table per format (csv_writer, db_writer); the
 * recorder opens one writer per process and device.
 *
 * Rows are buffered; writer_flush() brings them to the file (a process that is killed afterwards
 * has lost nothing). A write error is reported once, by the call that met it, and sticks: later
 * rows are counted in `lost_rows` and dropped, so a full disk never stops the recorder. When
 * space comes back (a later flush succeeds), writing goes on with whole rows: a file never holds
 * half a row in its middle.
 */
#ifndef SONDE_MEMORY_DUMP_WRITER_H
#define SONDE_MEMORY_DUMP_WRITER_H

#include "base/err.h"
#include "memory/dump/row.h"

struct writer;
struct amendment;

/* What may be found about a block after its row. */
enum writer_hold {
	HOLD_NOTHING, /* also: nothing more will be, the file is about to be closed */
	HOLD_FOR_OWNERS, /* within a moment */
	HOLD_FOR_USE, /* as long as it is alive */
};

struct writer_ops {
	const char *name; /* csv, db: value of --data-format */
	const char *suffix; /* of the file name, without the dot */
	/* Creates (mode 0600, O_NOFOLLOW) or opens for appending; gives *out. */
	int (*open)(const char *path, enum row_compat compat, struct writer **out, struct err *err);
	int (*add)(struct writer *w, const struct row *row, struct err *err);
	int (*flush)(struct writer *w, struct err *err);
	/* Flushes, closes and frees; w may be NULL. */
	int (*close)(struct writer *w, struct err *err);
	uint64_t (*lost_rows)(const struct writer *w);

	/*
	 * Findings about rows that are not in the file yet; NULL where that cannot be done. hold():
	 * they may come, so keep the last rows back for a moment. flush_old(): brings those to the
	 * file that were there at the call before. amend(): false: the MALLOC row is not here.
	 */
	void (*hold)(struct writer *w, enum writer_hold what);
	int (*flush_old)(struct writer *w, struct err *err);
	bool (*amend)(struct writer *w, const struct amendment *finding);
};

extern const struct writer_ops csv_writer;
extern const struct writer_ops db_writer;

/* The ops of a format name, NULL for an unknown one. */
const struct writer_ops *writer_find(const char *name);

#endif
