/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Compares our decoder of line tables with what an interpreter says of its own (python_lines.py),
 * for every two bytes of code. usage: python_lines <dump. Prints how many code objects and
 * instructions there were and how many differ; fails if any does.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/* Alone, without the rest of the program: it needs nothing else. */
#include "unwind/python/line.c"

#define NOT_SAID -2
#define TABLE_MAX (64u << 20)

struct code {
	uint32_t format, bytes;
	int32_t first_line;
	uint32_t table_bytes;
};

struct said {
	struct python_position at;
	int32_t by_runs, by_address;
};

static unsigned long codes, units, mismatches;

static void must_read(void *out, size_t n)
{
	if (n && fread(out, n, 1, stdin) != 1) {
		fprintf(stderr, "the dump ends early\n");
		exit(2);
	}
}

static bool same(int32_t want, int32_t got)
{
	return want == NOT_SAID || want == got;
}

static void compare(const char *how, const struct code *c, uint32_t addr, const struct said *want,
		    const struct python_position *got)
{
	if (same(want->at.line, got->line) && same(want->at.end_line, got->end_line) &&
	    same(want->at.column, got->column) && same(want->at.end_column, got->end_column) &&
	    same(want->by_runs, got->line) && same(want->by_address, got->line))
		return;
	if (mismatches++ < 10)
		printf("%s: function at line %d, byte %u of %u: got %d-%d:%d-%d, want %d-%d:%d-%d, "
		       "lines %d %d\n",
		       how, c->first_line, addr, c->bytes, got->line, got->end_line, got->column,
		       got->end_column, want->at.line, want->at.end_line, want->at.column,
		       want->at.end_column, want->by_runs, want->by_address);
}

/* All runs in order; they must cover the code. */
static void compare_runs(const struct code *c, const uint8_t *table, const struct said *want)
{
	struct python_lines_reader r;
	struct python_lines_run run;
	uint32_t end = 0, addr = 0;
	int got;

	python_lines_begin(&r, c->format, table, c->table_bytes, c->first_line, c->bytes);
	while ((got = python_lines_next(&r, &run)) > 0) {
		if (run.start != end || run.end <= end || run.end > c->bytes)
			break;
		end = run.end; /* may be odd where a long one is in pieces */
		for (; addr < end; addr += 2)
			compare("runs", c, addr, &want[addr / 2], &run.at);
	}
	if (got != 0 || end != c->bytes) {
		printf("runs end at %u of %u with %d\n", end, c->bytes, got);
		mismatches++;
	}
}

/* One by one; only some of long code, because each search begins at the beginning. */
static void compare_one_by_one(const struct code *c, const uint8_t *table, const struct said *want)
{
	uint32_t step = c->bytes < 4096 ? 2 : 64;
	struct python_position at;

	for (uint32_t addr = 0; addr < c->bytes; addr += step) {
		if (python_position(c->format, table, c->table_bytes, c->first_line, addr, &at) < 0)
			at = (struct python_position){-3, -3, -3, -3};
		compare("one", c, addr, &want[addr / 2], &at);
	}
	if (python_position(c->format, table, c->table_bytes, c->first_line, -1, &at) < 0 ||
	    at.line != c->first_line)
		mismatches++;
}

int main(void)
{
	struct code c;

	while (fread(&c, sizeof(c), 1, stdin) == 1) {
		if (c.table_bytes > TABLE_MAX || c.bytes > TABLE_MAX)
			return 2;
		uint8_t *table = malloc(c.table_bytes + 1);
		struct said *want = malloc(c.bytes / 2 * sizeof(*want) + 1);
		if (!table || !want)
			return 2;
		must_read(table, c.table_bytes);
		must_read(want, c.bytes / 2 * sizeof(*want));
		compare_runs(&c, table, want);
		compare_one_by_one(&c, table, want);
		codes++;
		units += c.bytes / 2;
		free(table);
		free(want);
	}
	printf("%lu code objects, %lu instructions, %lu mismatches\n", codes, units, mismatches);
	return mismatches != 0;
}
