/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "cli/ctl/values.h"

#include <errno.h>

#include "client/profiler_config.h"
#include "test.h"

struct values {
	uint64_t u64;
	int64_t i64;
	float seconds;
	const char *text;
	char list[CONFIG_TEXT_MAX + 1];
	char number[16];
};

static int set(int (*parse)(struct args *, const struct opt *, const char *, struct err *),
	       size_t offset, const char *value, struct values *v)
{
	struct args a = {.target = v};
	struct opt opt = {.name = "x", .offset = offset};
	struct err err = {0};
	int r = parse(&a, &opt, value, &err);

	CHECK((r < 0) == (err.code < 0));
	CHECK(r == 0 || err.text[0]);
	return r;
}

#define SET(parse, member, value) set(parse, offsetof(struct values, member), value, &v)

TEST(ctl_values, numbers)
{
	struct values v = {0};

	CHECK_INT(SET(ctl_value_u64, u64, "9223372036854775807"), 0);
	CHECK(v.u64 == INT64_MAX);
	CHECK(SET(ctl_value_u64, u64, "9223372036854775808") < 0);
	CHECK(SET(ctl_value_u64, u64, "-1") < 0);
	CHECK(SET(ctl_value_u64, u64, "") < 0);
	CHECK(SET(ctl_value_u64, u64, "1x") < 0);
	CHECK_INT(SET(ctl_value_step, i64, " -1 "), 0);
	CHECK_INT(v.i64, -1);
	CHECK(SET(ctl_value_step, i64, "-2") < 0);
	CHECK(SET(ctl_value_positive, i64, "0") < 0);
	CHECK_INT(SET(ctl_value_positive, i64, "+3"), 0);
	CHECK_INT(v.i64, 3);
	CHECK_INT(SET(ctl_value_seconds, seconds, "1.5"), 0);
	CHECK(v.seconds == 1.5f);
	CHECK(SET(ctl_value_seconds, seconds, "-1") < 0);
	CHECK(SET(ctl_value_seconds, seconds, "inf") < 0);
	CHECK(SET(ctl_value_seconds, seconds, "nan") < 0);
	CHECK(SET(ctl_value_seconds, seconds, "1e99") < 0);
	CHECK(SET(ctl_value_seconds, seconds, "0x10") < 0);
}

TEST(ctl_values, texts_that_would_be_lost)
{
	struct values v = {0};
	char long_text[CONFIG_TEXT_MAX + 2];

	CHECK_INT(SET(ctl_value_text, text, "a \"b\" \\c"), 0);
	CHECK_INT(SET(ctl_value_text, text, ""), 0);
	CHECK(SET(ctl_value_text, text, "a=b") < 0);
	CHECK(SET(ctl_value_text, text, "a\nb") < 0);
	CHECK(SET(ctl_value_text, text, "a#b") < 0);
	CHECK(SET(ctl_value_text, text, "a ") < 0);
	CHECK(SET(ctl_value_text, text, "\xff") < 0);
	memset(long_text, 'x', sizeof(long_text) - 1);
	long_text[sizeof(long_text) - 1] = '\0';
	CHECK(SET(ctl_value_text, text, long_text) < 0);
	CHECK_INT(SET(ctl_value_text, text, long_text + 1), 0);
	CHECK_INT(SET(ctl_value_path, text, long_text), 0);
}

TEST(ctl_values, lists)
{
	struct values v = {0};

	CHECK_INT(SET(ctl_value_kinds, list, "Kernel, API"), 0);
	CHECK_STR(v.list, "Kernel,API");
	CHECK(SET(ctl_value_kinds, list, "kernel") < 0);
	CHECK(SET(ctl_value_kinds, list, "Kernel,") < 0);
	CHECK_INT(SET(ctl_value_host_systems, list, "cpu,osrt"), 0);
	CHECK_STR(v.list, "cpu,osrt");
	CHECK_INT(SET(ctl_value_host_systems, list, "None"), 0);
	CHECK_STR(v.list, "");
	CHECK(SET(ctl_value_host_systems, list, "gpu") < 0);
	CHECK_INT(SET(ctl_value_ranks, list, "0, 8,-1"), 0);
	CHECK_STR(v.list, "0,8,-1");
	CHECK(SET(ctl_value_ranks, list, "1,,2") < 0);
	CHECK(SET(ctl_value_ranks, list, "one") < 0);
}

TEST(ctl_values, process_ids)
{
	struct values v = {0};

	CHECK_INT(SET(ctl_value_pids, text, "1, 2,3"), 0);
	json_t *list = ctl_pids(v.text);
	CHECK_INT(json_array_size(list), 3);
	CHECK_INT(json_integer_value(json_array_get(list, 1)), 2);
	json_decref(list);
	CHECK_INT(SET(ctl_value_pids, text, ""), 0);
	list = ctl_pids("");
	CHECK_INT(json_array_size(list), 0);
	json_decref(list);
	CHECK(SET(ctl_value_pids, text, "1,") < 0);
	CHECK(SET(ctl_value_pids, text, "1],\"x\":[2") < 0);
	CHECK(SET(ctl_value_pids, text, "-4") < 0);
}

TEST(ctl_values, rotation)
{
	struct values v = {0};

	CHECK_INT(SET(ctl_value_rotate_lines, number, "100"), 0);
	CHECK_STR(v.number, "100");
	CHECK_INT(SET(ctl_value_rotate_lines, number, ""), 0);
	CHECK_STR(v.number, "");
	CHECK(SET(ctl_value_rotate_lines, number, "99") < 0);
	CHECK(SET(ctl_value_rotate_lines, number, "500001") < 0);
	CHECK_INT(SET(ctl_value_rotate_files, number, "-1"), 0);
	CHECK_STR(v.number, "-1");
	CHECK_INT(SET(ctl_value_rotate_files, number, "2"), 0);
	CHECK(SET(ctl_value_rotate_files, number, "1") < 0);
	CHECK(SET(ctl_value_rotate_files, number, "0") < 0);
}
