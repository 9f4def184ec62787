/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Line tables. Input: 1 byte of format, 4 bytes of first line, 1 byte of code size, then the table.
 * Runs must follow each other, and asking for one instruction must give what its run says.
 */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "unwind/python/line.h"

#define HEAD 6
#define RUNS_MAX 200 /* looking one up begins at the beginning every time */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int ok)
{
	if (!ok)
		abort();
}

static void look_up(enum python_lines format, const uint8_t *table, size_t n, int32_t first,
		    uint32_t addr, const struct python_position *want)
{
	struct python_position at;

	must(python_position(format, table, n, first, addr, &at) == 0);
	must(!memcmp(&at, want, sizeof(at)));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct python_lines_reader r;
	struct python_lines_run run;
	int32_t first;
	uint32_t end = 0;
	unsigned runs = 0;
	int got;

	if (size < HEAD)
		return 0;
	enum python_lines format = data[0] % 3;
	uint32_t code_bytes = data[5] == 255 ? UINT32_MAX : data[5] * 64u;
	memcpy(&first, data + 1, 4);
	size -= HEAD;
	/* A copy of exactly this size: a sanitizer sees every step outside. */
	uint8_t *table = malloc(size ? size : 1);
	if (!table)
		return 0;
	memcpy(table, data + HEAD, size);

	python_lines_begin(&r, format, table, size, first, code_bytes);
	while ((got = python_lines_next(&r, &run)) > 0) {
		must(run.start == end && run.end > run.start);
		end = run.end;
		if (runs++ < RUNS_MAX) {
			look_up(format, table, size, first, run.start, &run.at);
			look_up(format, table, size, first, run.end - 1, &run.at);
		}
	}
	must(got == 0 || got == -EPROTO);
	free(table);
	return 0;
}
