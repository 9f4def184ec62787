/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Three formats, all of which walk the code from its beginning and say per step how far to go on
 * and by how much the line changes:
 *
 *	lnotab		(bytes u8, line i8): go on, then change the line
 *	linetable	(bytes u8, line i8): the line changes for the bytes that follow; -128 is a
 *			stretch without a line
 *	locations	1 kkkk nnn, then what the kind k says, for n + 1 instructions of two bytes
 *
 * The kinds of the last one (Objects/locations.md of CPython):
 *
 *	 0 …  9	one byte: the same line; column and width in kind and byte (short form)
 *	10 … 12	two bytes: the line is 0, 1 or 2 on; column, end column (one-line form)
 *	13	a signed varint: the line alone
 *	14	signed varint for the line, varints for end line, column, end column (long form)
 *	15	nothing is known
 *
 * A line may go back, and a table may describe more code than there is (what the optimizer removed
 * is still in an lnotab). Every addition is checked for overflow: the bytes are foreign.
 */
#include "unwind/python/line.h"

#include <errno.h>

#define NOWHERE -1

void python_lines_begin(struct python_lines_reader *r, enum python_lines format, const void *table,
			size_t n, int32_t first_line, uint32_t code_bytes)
{
	*r = (struct python_lines_reader){
		.at = table,
		.end = n ? (const uint8_t *)table + n : table,
		.format = (uint8_t)format,
		.code_bytes = code_bytes,
		.line = first_line,
	};
}

static int move_line(struct python_lines_reader *r, int32_t by)
{
	return __builtin_add_overflow(r->line, by, &r->line) ? -EPROTO : 0;
}

/* The run of `bytes` from here on, with only a line known. */
static int run_of(struct python_lines_reader *r, uint32_t bytes, int32_t line,
		  struct python_lines_run *out)
{
	out->start = r->addr;
	if (__builtin_add_overflow(r->addr, bytes, &r->addr))
		return -EPROTO;
	out->end = r->addr;
	out->at = (struct python_position){line, NOWHERE, NOWHERE, NOWHERE};
	return 1;
}

/* A step of more than 255 bytes or 127 lines is several pairs, some with 0 bytes: those only
 * move the line. The table has no entry for the last stretch, so the size of the code ends it. */
static int next_lnotab(struct python_lines_reader *r, struct python_lines_run *out)
{
	while (r->end - r->at >= 2) {
		uint32_t bytes = r->at[0];
		int32_t line = r->line;

		if (move_line(r, (int8_t)r->at[1]) < 0)
			return -EPROTO;
		r->at += 2;
		if (r->addr >= r->code_bytes)
			return 0; /* of instructions that were optimised away */
		if (bytes > r->code_bytes - r->addr)
			bytes = r->code_bytes - r->addr;
		if (bytes)
			return run_of(r, bytes, line, out);
	}
	/* The table ends where the last line begins. */
	return r->addr < r->code_bytes ? run_of(r, r->code_bytes - r->addr, r->line, out) : 0;
}

/* Each pair covers the bytes that follow, so the table covers the code to its end. A pair with 0
 * bytes moves the line on; -128 leaves it and says that the stretch has none. */
static int next_linetable(struct python_lines_reader *r, struct python_lines_run *out)
{
	while (r->end - r->at >= 2) {
		uint32_t bytes = r->at[0];
		int8_t by = (int8_t)r->at[1];

		r->at += 2;
		if (by != INT8_MIN && move_line(r, by) < 0)
			return -EPROTO;
		if (bytes)
			return run_of(r, bytes, by == INT8_MIN ? NOWHERE : r->line, out);
	}
	return r->at == r->end ? 0 : -EPROTO;
}

static int byte_of(struct python_lines_reader *r, int32_t *out)
{
	if (r->at == r->end)
		return -EPROTO;
	*out = *r->at++;
	return 0;
}

/* Six bits a byte, lowest first; another follows where bit 6 is set. */
static int read_varint(struct python_lines_reader *r, uint32_t *out)
{
	uint32_t value = 0;

	for (unsigned shift = 0; shift <= 30; shift += 6) {
		int32_t b;

		if (byte_of(r, &b) < 0 || (shift == 30 && (b & 63) > 3))
			return -EPROTO;
		value |= (uint32_t)(b & 63) << shift;
		if (!(b & 64)) {
			*out = value;
			return 0;
		}
	}
	return -EPROTO;
}

/* The lowest bit is the sign. */
static int move_line_by_varint(struct python_lines_reader *r)
{
	uint32_t v;

	if (read_varint(r, &v) < 0)
		return -EPROTO;
	return move_line(r, v & 1 ? -(int32_t)(v >> 1) : (int32_t)(v >> 1));
}

/* A column is stored one higher, 0 for none. */
static int column_varint(struct python_lines_reader *r, int32_t *out)
{
	uint32_t v;

	if (read_varint(r, &v) < 0 || v > INT32_MAX)
		return -EPROTO;
	*out = (int32_t)v - 1;
	return 0;
}

static int long_location(struct python_lines_reader *r, struct python_position *at)
{
	uint32_t lines;

	if (move_line_by_varint(r) < 0 || read_varint(r, &lines) < 0 || lines > INT32_MAX)
		return -EPROTO;
	at->line = r->line;
	if (__builtin_add_overflow(r->line, (int32_t)lines, &at->end_line))
		return -EPROTO;
	return column_varint(r, &at->column) < 0 ? -EPROTO : column_varint(r, &at->end_column);
}

/* Short forms hold the line and pack columns; only the long form has an end line. Every form
 * that has a line moves the running one, which the next entry counts from. */
static int read_location(struct python_lines_reader *r, unsigned kind, struct python_position *at)
{
	*at = (struct python_position){NOWHERE, NOWHERE, NOWHERE, NOWHERE};
	switch (kind) {
	case 15:
		return 0;
	case 14:
		return long_location(r, at);
	case 13:
		if (move_line_by_varint(r) < 0)
			return -EPROTO;
		break;
	case 12:
	case 11:
	case 10:
		if (move_line(r, (int32_t)kind - 10) < 0 || byte_of(r, &at->column) < 0 ||
		    byte_of(r, &at->end_column) < 0)
			return -EPROTO;
		break;
	default: {
		int32_t b;

		if (byte_of(r, &b) < 0)
			return -EPROTO;
		at->column = (int32_t)(kind << 3) | b >> 4;
		at->end_column = at->column + (b & 15);
	}
	}
	at->line = at->end_line = r->line;
	return 0;
}

static int next_location(struct python_lines_reader *r, struct python_lines_run *out)
{
	int32_t head;

	if (r->at == r->end)
		return 0;
	if (byte_of(r, &head) < 0 || !(head & 0x80))
		return -EPROTO;
	if (run_of(r, 2 * ((uint32_t)(head & 7) + 1), NOWHERE, out) < 0 ||
	    read_location(r, head >> 3 & 15, &out->at) < 0)
		return -EPROTO;
	return 1;
}

int python_lines_next(struct python_lines_reader *r, struct python_lines_run *out)
{
	switch (r->format) {
	case PYTHON_LNOTAB:
		return next_lnotab(r, out);
	case PYTHON_LINETABLE:
		return next_linetable(r, out);
	default:
		return next_location(r, out);
	}
}

/* From the beginning each time: right for one question. Who asks often decodes the whole table
 * once (unwind/remote/code.c). */
int python_position(enum python_lines format, const void *table, size_t n, int32_t first_line,
		    int64_t lasti, struct python_position *out)
{
	struct python_lines_reader r;
	struct python_lines_run run;
	int got;

	if (lasti < 0) {
		*out = (struct python_position){first_line, NOWHERE, NOWHERE, NOWHERE};
		return 0;
	}
	python_lines_begin(&r, format, table, n, first_line, UINT32_MAX);
	while ((got = python_lines_next(&r, &run)) > 0)
		if (lasti < run.end) {
			*out = run.at;
			return 0;
		}
	return got < 0 ? got : -ENOENT;
}
