/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Where the rows of a dump lie, in order of time. Programs before this one wrote the rows of a
 * block together when it died, so that a file had to be read as a whole before its story could be
 * told. The index takes 32 bytes a row, whatever the row's length.
 */
#ifndef SONDE_MEMORY_INPUT_SORTED_INDEX_H
#define SONDE_MEMORY_INPUT_SORTED_INDEX_H

#include "memory/input/reader_impl.h"

struct dump_entry {
	uint64_t time_ns;
	uint64_t id;
	struct dump_place place;
};

struct dump_index { /* zero-initialise */
	struct dump_entry *entries;
	size_t count;
	size_t capacity;
	size_t at;
	bool mixed; /* the order of the file is not the order of time */
};

void dump_index_add(struct dump_index *index, uint64_t time_ns, uint64_t id,
		    struct dump_place place);
/* All are in. By time, then id, then place in the file. */
void dump_index_sort(struct dump_index *index);
/* The next place, NULL behind the last. */
const struct dump_place *dump_index_next(struct dump_index *index);
void dump_index_release(struct dump_index *index);

#endif
