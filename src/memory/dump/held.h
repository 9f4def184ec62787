/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Rows of a CSV dump that are kept back for a moment, because findings about them may come: the MALLOC
 * rows among them, and what was found. A finding is put into its row when that leaves the buffer, so
 * it costs the same wherever the row is:
 *
 *	buffer:  row MALLOC row MALLOC row row MALLOC
 *	             mark       mark           mark, with a finding
 *
 * What is found about the use of a block may come as long as it is alive. So the row of one that is
 * alive leaves the buffer with room for that (memory/dump/cell.h).
 */
#ifndef SONDE_MEMORY_DUMP_HELD_H
#define SONDE_MEMORY_DUMP_HELD_H

#include "base/containers/buf.h"
#include "base/containers/names.h"
#include "memory/dump/amend.h"
#include "memory/dump/writer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The rows before a place in the buffer. */
struct front {
	size_t bytes;
	uint64_t rows;
};

/* A MALLOC row in the buffer. */
struct mark {
	uint64_t allocation_id;
	size_t at;
	uint32_t owner, inefficient; /* numbers of their texts + 1; 0: none */
	bool room; /* wants some */
};

/* Zero-initialise. */
struct held {
	enum writer_hold wants;
	bool unsorted; /* the ids of the marks do not rise */
	bool found; /* there is a finding that is not in its row, or a row that wants room */
	struct front half; /* what goes out when the buffer is full */
	struct front old; /* what was there when the old were flushed last */
	struct mark *marks;
	size_t nmarks, cap_marks;
	struct names texts;
};

/* As much of the buffer is kept back; at twice as much, `half` has to go. */
#define HELD_BYTES (2u << 20) /* some thousand blocks of a training */

void held_release(struct held *h);

/* This row comes next, at the end of the buffer. */
void held_mark(struct held *h, struct front end, const struct row *row);
/* False: the row is not here. */
bool held_find(struct held *h, const struct amendment *finding);

/* Adds the first rows of the buffer to out, with what was found. */
void held_copy(const struct held *h, const struct buf *rows, size_t bytes, enum row_compat compat,
	       struct buf *out);
/* The first rows are gone, or all. */
void held_cut(struct held *h, struct front by);
void held_forget(struct held *h);

#endif
