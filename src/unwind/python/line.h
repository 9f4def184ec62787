/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * From an instruction to its place in the source, exactly as co_positions() says. The tables are
 * bytes of another process: any content gives an answer or -EPROTO. Works in both worlds.
 */
#ifndef SONDE_UNWIND_PYTHON_LINE_H
#define SONDE_UNWIND_PYTHON_LINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "unwind/python/layout.h"

/* -1 where CPython says None. Columns count bytes of UTF-8, from 0. */
struct python_position {
	int32_t line, end_line, column, end_column;
};

/* One run of instructions with the same position: [start, end) in bytes of code. */
struct python_lines_run {
	uint32_t start, end;
	struct python_position at;
};

/* The state of a walk over one table. The table stays the caller's and must not move. */
struct python_lines_reader {
	const uint8_t *at, *end;
	uint8_t format; /* enum python_lines */
	uint32_t code_bytes; /* size of the code where it is known, else UINT32_MAX */
	uint32_t addr;
	int32_t line;
};

void python_lines_begin(struct python_lines_reader *r, enum python_lines format, const void *table,
			size_t n, int32_t first_line, uint32_t code_bytes);
/* The next run, in order of address: 1; 0 at the end; -EPROTO if the table makes no sense. */
int python_lines_next(struct python_lines_reader *r, struct python_lines_run *out);

/*
 * The position of the instruction at byte `lasti` of the code. A frame that has not started
 * (lasti < 0) is at first_line. -ENOENT where the table has nothing about it.
 */
int python_position(enum python_lines format, const void *table, size_t n, int32_t first_line,
		    int64_t lasti, struct python_position *out);

#endif
