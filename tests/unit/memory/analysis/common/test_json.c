/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "test.h"

#include "formats/json_value.h"
#include "memory/analysis/common/json.h"
#include "wire/record.h"

static void check(json_t *o, const char *want)
{
	char *text = json_dumps(o, JSON_COMPACT | JSON_ENSURE_ASCII);

	CHECK_STR(text, want);
	free(text);
	json_decref(o);
}

TEST(json, text_of_others_is_always_valid)
{
	json_t *o = json_object();

	put_text(o, "a", "ok \xc3\xa9");
	put_text(o, "b", "\xff(x\xc3");
	put_text(o, "c", NULL);
	put_text(o, "d", "\033[31m");
	json_object_set_new(o, "e", text_value("a\0b", 3));
	json_object_set_new(o, "f", text_value(NULL, 0));
	check(o, "{\"a\":\"ok \\u00E9\",\"b\":\"\\uFFFD(x\\uFFFD\",\"c\":null,"
		 "\"d\":\"\\u001B[31m\",\"e\":\"ab\",\"f\":\"\"}");
}

TEST(json, numbers_stop_at_the_largest)
{
	json_t *o = json_object();

	put_number(o, "a", 0);
	put_number(o, "b", INT64_MAX);
	put_number(o, "c", UINT64_MAX);
	put_known(o, "d", true, 7);
	put_known(o, "e", false, 7);
	put_address(o, "f", 0xabc);
	check(o, "{\"a\":0,\"b\":9223372036854775807,\"c\":9223372036854775807,\"d\":7,"
		 "\"e\":null,\"f\":\"0x0000000000000abc\"}");
}

TEST(json, devices_pools_and_places)
{
	json_t *o = json_object();
	struct stacks s = {0};

	put_device(o, DEV_HOST);
	put_pool(o, TYPE_PTA);
	put_stack(o, &s, 0);
	check(o, "{\"device\":\"cpu\",\"pool\":\"PTA\",\"where\":null,\"c_stack\":[],"
		 "\"python_stack\":[]}");
	stacks_release(&s);
}

TEST(json, lines)
{
	struct buf text = {0};

	check(lines_value(&text), "[]");
	buf_add_str(&text, "one\n\ntwo");
	check(lines_value(&text), "[\"one\",\"\",\"two\"]");
	buf_add_char(&text, '\n');
	check(lines_value(&text), "[\"one\",\"\",\"two\"]");
	buf_release(&text);
}
