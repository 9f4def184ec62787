/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Writes findings into the MALLOC rows of a dump that exists, csv or db, in place. Everything else
 * in the file stays as it is, to the byte: other rows, other cells, rows that make no sense.
 *
 * A database is changed in one transaction. Rows of a CSV file that have room for the finding
 * (memory/dump/cell.h) are written over one by one, at the same length: one that nobody wrote into is
 * as it was. If one has none, the file is written anew beside itself and moved over in one step:
 * whatever goes wrong, it is the old one or the new one, whole.
 */
#ifndef SONDE_MEMORY_DUMP_AMEND_H
#define SONDE_MEMORY_DUMP_AMEND_H

#include "base/containers/buf.h"
#include "base/err.h"
#include "memory/dump/row.h"

#include <sys/types.h>

struct amendment {
	uint32_t pid; /* UINT32_MAX where the dump does not say */
	uint64_t allocation_id;
	const char
		*inefficient; /* "early_allocation,late_deallocation"; NULL leaves what is there */
	const char *owner; /* NULL leaves what is there */
	bool room; /* more may be found later: of rows that are not in the file yet */
};

/* The finding about a block; NULL for rows that stay as they are. */
typedef const struct amendment *(*amend_lookup)(void *arg, uint32_t pid, uint64_t allocation_id);

/*
 * The key of a row that has the attribute already is kept as it is spelt, else the spelling met
 * before in the file, else that of `compat`. *out_rows: rows that were changed; those that said the
 * same before do not count, and a file without a change is not written. -EBUSY: somebody is
 * writing.
 */
int dump_amend(const char *path, enum row_compat compat, amend_lookup find, void *arg,
	       uint64_t *out_rows, struct err *err);

/* The same for a row that is still in memory: the one that begins there, as csv_writer made it. */
void dump_amend_text(struct buf *rows, size_t at, const struct amendment *finding,
		     enum row_compat compat);

/* Where a process writes the new file of a CSV dump; to be freed. */
char *dump_amend_name(const char *path, pid_t pid);

#endif
