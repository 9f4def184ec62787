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
