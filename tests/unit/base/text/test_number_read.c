/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "test.h"

#include "base/text/number_read.h"

#include <string.h>

static bool reads(const char *text, int64_t want)
{
	int64_t n = 0;

	return number_read(text, strlen(text), &n) && n == want;
}

static bool refuses(const char *text)
{
	int64_t n = 77;

	return !number_read(text, strlen(text), &n) && n == 77;
}

TEST(number, reads_what_fits)
{
	CHECK(reads("0", 0) && reads("-0", 0) && reads("+7", 7) && reads("007", 7));
	CHECK(reads("9223372036854775807", INT64_MAX));
	CHECK(reads("-9223372036854775808", INT64_MIN));
}

TEST(number, refuses_the_rest)
{
	CHECK(refuses("") && refuses("-") && refuses("+") && refuses("--1") && refuses("+-1"));
	CHECK(refuses(" 1") && refuses("1 ") && refuses("1x") && refuses("0x1") && refuses("1.0"));
	CHECK(refuses("9223372036854775808") && refuses("-9223372036854775809"));
	CHECK(refuses("99999999999999999999999999"));
}

TEST(number, looks_at_no_byte_behind_the_text)
{
	int64_t n;

	CHECK(number_read("123", 2, &n) && n == 12);
}
