/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Reads a CSV dump with several threads. The file is cut into pieces of equal length; whoever has
 * nothing better to do takes the next one and turns the rows that begin in it into a batch, the
 * caller too while the batch that it needs is not ready.
 *
 * Nobody can know where the first row of a piece begins before the pieces in front of it have been
 * read (a line end may be inside quotes), so that is guessed. A batch is good if it begins where
 * the one before has ended, and all its rows are good. Otherwise the caller reads the piece once
 * more, as it would without threads: everything that is unusual happens in one place and in order.
 *
 * Threads that share memory are only fast if they touch little of it together. A piece is read and
 * taken apart by one thread, and what it hands over are small rows, written once.
 */
#ifndef SONDE_MEMORY_INPUT_READ_AHEAD_H
#define SONDE_MEMORY_INPUT_READ_AHEAD_H

#include "base/err.h"
#include "memory/dump/row.h"

struct dump;
struct dump_ahead;

/* Up to that many more threads; NULL: there can be none. As dump_read_ahead(). */
struct dump_ahead *dump_ahead_new(struct dump *d, unsigned threads, size_t piece);
/* As dump_take(). */
int dump_ahead_next(struct dump_ahead *a, const struct row **out, struct err *err);
/* Ends the threads, wherever they are. a may be NULL. */
void dump_ahead_free(struct dump_ahead *a);

#endif
