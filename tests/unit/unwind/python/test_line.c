/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "unwind/python/line.h"

#include <errno.h>

#include "test.h"

#define TABLE(...) (const uint8_t[]){__VA_ARGS__}, sizeof((const uint8_t[]){__VA_ARGS__})

static int line_at(enum python_lines format, const uint8_t *table, size_t n, int64_t lasti)
{
	struct python_position at;
	int r = python_position(format, table, n, 10, lasti, &at);

	return r < 0 ? r * 1000 : at.line;
}

TEST(python_line, lnotab_counts_bytes_then_lines)
{
	/* 6 bytes of line 10, 4 of line 11, then 9 */
	CHECK_INT(line_at(PYTHON_LNOTAB, TABLE(6, 1, 4, 0xfe), 0), 10);
	CHECK_INT(line_at(PYTHON_LNOTAB, TABLE(6, 1, 4, 0xfe), 4), 10);
	CHECK_INT(line_at(PYTHON_LNOTAB, TABLE(6, 1, 4, 0xfe), 6), 11);
	CHECK_INT(line_at(PYTHON_LNOTAB, TABLE(6, 1, 4, 0xfe), 8), 11);
	CHECK_INT(line_at(PYTHON_LNOTAB, TABLE(6, 1, 4, 0xfe), 10), 9);
	CHECK_INT(line_at(PYTHON_LNOTAB, TABLE(6, 1, 4, 0xfe), 100000), 9);
	/* far ahead, in pieces; and no table at all */
	CHECK_INT(line_at(PYTHON_LNOTAB, TABLE(2, 127, 0, 127, 0, 46), 2), 310);
	CHECK_INT(line_at(PYTHON_LNOTAB, TABLE(255, 0, 45, 1), 299), 10);
	CHECK_INT(line_at(PYTHON_LNOTAB, TABLE(255, 0, 45, 1), 300), 11);
	CHECK_INT(line_at(PYTHON_LNOTAB, NULL, 0, 2), 10);
	/* half an entry is none */
	CHECK_INT(line_at(PYTHON_LNOTAB, TABLE(2, 1, 2), 8), 11);
}

TEST(python_line, lnotab_ends_with_the_code)
{
	struct python_lines_reader r;
	struct python_lines_run run;
	const uint8_t table[] = {4, 1, 8, 1, 2, 1};

	python_lines_begin(&r, PYTHON_LNOTAB, table, sizeof(table), 1, 10);
	CHECK_INT(python_lines_next(&r, &run), 1);
	CHECK(run.start == 0 && run.end == 4 && run.at.line == 1 && run.at.column == -1);
	CHECK_INT(python_lines_next(&r, &run), 1);
	CHECK(run.start == 4 && run.end == 10 && run.at.line == 2);
	CHECK_INT(python_lines_next(&r, &run), 0);
	CHECK_INT(python_lines_next(&r, &run), 0);

	python_lines_begin(&r, PYTHON_LNOTAB, table, 0, 1, UINT32_MAX);
	CHECK_INT(python_lines_next(&r, &run), 1);
	CHECK(run.start == 0 && run.end == UINT32_MAX);
	CHECK_INT(python_lines_next(&r, &run), 0);
}

TEST(python_line, linetable_has_stretches_without_a_line)
{
	/* 2 bytes of line 11, 4 of none, 6 of line 12 */
	CHECK_INT(line_at(PYTHON_LINETABLE, TABLE(2, 1, 4, 0x80, 6, 1), 0), 11);
	CHECK_INT(line_at(PYTHON_LINETABLE, TABLE(2, 1, 4, 0x80, 6, 1), 2), -1);
	CHECK_INT(line_at(PYTHON_LINETABLE, TABLE(2, 1, 4, 0x80, 6, 1), 4), -1);
	CHECK_INT(line_at(PYTHON_LINETABLE, TABLE(2, 1, 4, 0x80, 6, 1), 6), 12);
	CHECK_INT(line_at(PYTHON_LINETABLE, TABLE(2, 1, 4, 0x80, 6, 1), 10), 12);
	CHECK_INT(line_at(PYTHON_LINETABLE, TABLE(2, 1, 4, 0x80, 6, 1), 12), -ENOENT * 1000);
	CHECK_INT(line_at(PYTHON_LINETABLE, TABLE(0, 127, 2, 0x81), 0), 10);
	CHECK_INT(line_at(PYTHON_LINETABLE, TABLE(2, 1, 2), 4), -EPROTO * 1000);
}

static struct python_position place(const uint8_t *table, size_t n, int64_t lasti)
{
	struct python_position at = {-9, -9, -9, -9};

	CHECK_INT(python_position(PYTHON_LOCATIONS, table, n, 10, lasti, &at), 0);
	return at;
}

#define CHECK_PLACE(got, line_, end_line_, column_, end_column_)                                   \
	do {                                                                                       \
		struct python_position p_ = (got);                                                 \
		CHECK_INT(p_.line, line_);                                                         \
		CHECK_INT(p_.end_line, end_line_);                                                 \
		CHECK_INT(p_.column, column_);                                                     \
		CHECK_INT(p_.end_column, end_column_);                                             \
	} while (0)

#define HEAD(kind, units) (0x80 | (kind) << 3 | ((units)-1))

TEST(python_line, every_kind_of_location)
{
	/* clang-format off */
	static const uint8_t table[] = {
		HEAD(3, 1), 0x54,			/* column 29 to 33 */
		HEAD(10, 2), 200, 210,			/* same line */
		HEAD(12, 1), 4, 9,			/* two lines on */
		HEAD(13, 8), 3,				/* one line back, no columns */
		HEAD(14, 1), 0x40 | 8, 2, 3, 0x40, 1, 0,	/* 68 lines on, 3 more; column -1 + 64 */
		HEAD(15, 1),				/* nowhere */
		HEAD(0, 1), 0,				/* still the line of the one before */
	};
	/* clang-format on */

	CHECK_PLACE(place(table, sizeof(table), 0), 10, 10, 29, 33);
	CHECK_PLACE(place(table, sizeof(table), 2), 10, 10, 200, 210);
	CHECK_PLACE(place(table, sizeof(table), 4), 10, 10, 200, 210);
	CHECK_PLACE(place(table, sizeof(table), 6), 12, 12, 4, 9);
	CHECK_PLACE(place(table, sizeof(table), 8), 11, 11, -1, -1);
	CHECK_PLACE(place(table, sizeof(table), 22), 11, 11, -1, -1);
	CHECK_PLACE(place(table, sizeof(table), 24), 79, 82, 63, -1);
	CHECK_PLACE(place(table, sizeof(table), 26), -1, -1, -1, -1);
	CHECK_PLACE(place(table, sizeof(table), 28), 79, 79, 0, 0);
	struct python_position at;
	CHECK_INT(python_position(PYTHON_LOCATIONS, table, sizeof(table), 10, 30, &at), -ENOENT);
}

TEST(python_line, a_frame_that_has_not_started_is_at_the_first_line)
{
	for (int format = PYTHON_LNOTAB; format <= PYTHON_LOCATIONS; format++)
		CHECK_INT(line_at(format, TABLE(0, 0), -1), 10);
}

TEST(python_line, broken_locations_are_noticed)
{
	CHECK_INT(line_at(PYTHON_LOCATIONS, TABLE(0x7f), 0), -EPROTO * 1000); /* no head */
	CHECK_INT(line_at(PYTHON_LOCATIONS, TABLE(HEAD(0, 1)), 0), -EPROTO * 1000);
	CHECK_INT(line_at(PYTHON_LOCATIONS, TABLE(HEAD(11, 1), 1), 0), -EPROTO * 1000);
	CHECK_INT(line_at(PYTHON_LOCATIONS, TABLE(HEAD(14, 1), 0, 0, 1), 0), -EPROTO * 1000);
	CHECK_INT(line_at(PYTHON_LOCATIONS, TABLE(HEAD(13, 1), 0x40, 0x40), 0), -EPROTO * 1000);
	/* numbers that do not fit */
	CHECK_INT(line_at(PYTHON_LOCATIONS,
			  TABLE(HEAD(13, 1), 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 1), 0),
		  -EPROTO * 1000);
	CHECK_INT(line_at(PYTHON_LOCATIONS, TABLE(HEAD(13, 1), 0x7e, 0x7f, 0x7f, 0x7f, 0x7f, 3), 0),
		  -EPROTO * 1000);
}

TEST(python_line, any_bytes_give_an_end)
{
	uint8_t table[64];
	uint32_t x = 1;

	for (int round = 0; round < 20000; round++) {
		size_t n = x >> 8 & 63;

		for (size_t i = 0; i < n; i++) {
			x = x * 1103515245 + 12345;
			table[i] = (uint8_t)(x >> 16);
		}
		struct python_lines_reader r;
		struct python_lines_run run = {0};
		uint32_t end = 0;
		int got, runs = 0;

		python_lines_begin(&r, (enum python_lines)(round % 3), table, n, 1, 1000000);
		while ((got = python_lines_next(&r, &run)) > 0 && ++runs < 1000) {
			CHECK(run.start == end && run.end > end);
			end = run.end;
		}
		CHECK(got == 0 || got == -EPROTO);
		x = x * 1103515245 + 12345;
	}
}
