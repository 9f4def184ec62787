/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "wire/proc_stat.h"

#include <stdio.h>

#include "test.h"

TEST(proc_stat, any_name)
{
	static const char *const names[] = {"python", "a) R 1 (b", "x\ny", "", "((("};
	struct proc_stat s;
	char text[256];

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		int n = snprintf(text, sizeof(text),
				 "12 (%s) S 7 1 1 0 -1 4194560 5 6 7 8 100 200 0 0 20 0 1 0 4711 "
				 "1000 50 18446744073709551615",
				 names[i]);
		CHECK(proc_stat_parse(text, (size_t)n, &s));
		CHECK_STR(s.name, names[i]);
		CHECK_INT(s.state, 'S');
		CHECK_INT(s.parent, 7);
		CHECK_INT(s.user_ticks, 100);
		CHECK_INT(s.system_ticks, 200);
		CHECK_INT(s.start_ticks, 4711);
	}
	CHECK(!proc_stat_parse("", 0, &s));
	CHECK(!proc_stat_parse("12 (x", 5, &s));
	CHECK(!proc_stat_parse("12 (x) S 7", 10, &s));
}

TEST(proc_stat, all_fields)
{
	static const char line[] =
		"12 (x) Z 7 1 1 0 -1 4194560 5 6 7 8 100 200 0 0 20 0 1 0 4711 1000 50 "
		"18446744073709551615 94000 95000 140000 0 0 0\n";
	struct proc_stat s;

	CHECK(proc_stat_parse(line, sizeof(line) - 1, &s));
	CHECK(proc_stat_ended(&s));
	CHECK_INT(s.flags, 4194560);
	CHECK_INT(s.start_code, 94000);
	CHECK_INT(s.start_stack, 140000);
	/* cut behind the last field that every kernel has: the others are unknown */
	size_t len = (size_t)(strstr(line, " 1000 50") - line);
	CHECK(proc_stat_parse(line, len, &s));
	CHECK_INT(s.start_ticks, 4711);
	CHECK_INT(s.start_code, 0);
}

static uint32_t filters_of(const char *text)
{
	return proc_status_filters(text, strlen(text));
}

TEST(proc_stat, peak)
{
	static const char text[] = "Name:\tx\nVmHWM:\t  198012 kB\nVmRSS:\t 5 kB\n";

	CHECK_INT(proc_status_peak_kib(text, sizeof(text) - 1), 198012);
	CHECK_INT(proc_status_peak_kib(text, 12), 0);
	CHECK_INT(proc_status_peak_kib("", 0), 0);
	CHECK_INT(proc_status_peak_kib("x\nVmHWM: 99999999999 kB", 24), UINT32_MAX);
}

TEST(proc_stat, filters)
{
	static const char cut[] = "Name:\tx\nSeccomp:\t2";

	CHECK_INT(filters_of("Name:\tx\nSeccomp:\t0\nSeccomp_filters:\t0\n"), 0);
	CHECK_INT(filters_of("Name:\tx\nSeccomp:\t2\nSeccomp_filters:\t3\n"), 3);
	CHECK_INT(filters_of("Name:\tx\nSeccomp:\t2\nSpeculation:\tx\n"), 1);
	CHECK_INT(filters_of("Name:\tx\nSeccomp:\t1\nSeccomp_filters:\t0\n"), 1);
	CHECK_INT(filters_of(""), 0);
	CHECK_INT(filters_of("Name:\tSeccomp: 2\n"), 0);
	CHECK_INT(filters_of("x\nSeccomp:\t99999999999999999999\nSeccomp_filters:\t7777777777"),
		  UINT32_MAX);
	for (size_t n = 0; n < sizeof(cut); n++)
		CHECK(proc_status_filters(cut, n) <= 1);
}
