/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "test.h"

#include "formats/json_value.h"
#include "memory/analysis/common/fields.h"
#include "memory/analysis/common/frames.h"
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

TEST(json, devices_pools_and_stacks)
{
	json_t *o = json_object();
	struct stacks s = {0};

	put_device(o, DEV_HOST);
	put_pool(o, TYPE_PTA);
	put_stack(o, &s, 0);
	check(o, "{\"device\":\"cpu\",\"pool\":\"PTA\",\"where\":null,\"via\":null,\"stack\":[],"
		 "\"c_stack\":[],"
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

struct sample {
	uint64_t bytes, before, after;
	uint32_t step, stack, device;
	enum row_type type;
	bool known;
	const char *word;
	struct frame_line name;
	struct {
		uint64_t blocks;
		double ratio;
	} in;
};

static const struct field in_fields[] = {
	FIELD("blocks", struct sample, in.blocks), FIELD("ratio", struct sample, in.ratio), {0}};

static const struct field sample_fields[] = {
	COLUMN("name", "Name", FIELD_NAME, struct sample, name),
	COLUMN("bytes", "Bytes", FIELD_BYTES, struct sample, bytes),
	FIELDS(struct sample, step, known, word),
	KNOWN("maybe", "Maybe", FIELD_U64, struct sample, bytes, known),
	COLUMN("change", "Change", FIELD_DIFFERENCE, struct sample, before),
	COLUMN(NULL, "Pair", FIELD_PAIR, struct sample, before),
	COLUMN("device", "Device", FIELD_DEVICE, struct sample, device),
	FIELD_AS("pool", FIELD_POOL, struct sample, type),
	FIELD_AS("address", FIELD_ADDRESS, struct sample, bytes),
	FIELD_AS("where", FIELD_WHERE, struct sample, stack),
	{.key = "in", .kind = FIELD_OBJECT, .of = in_fields},
	{0},
};

static const struct sample samples[] = {
	{.bytes = 2048,
	 .before = 5,
	 .after = 3,
	 .step = 7,
	 .device = DEV_HOST,
	 .type = TYPE_HAL,
	 .known = true,
	 .word = "w",
	 .name = {"a,b", 1},
	 .in = {4, 0.5}},
	{.name = {"xyz", 3}, .after = 1 << 20, .type = TYPE_PTA},
};

TEST(fields, one_table_makes_the_members)
{
	struct stacks s = {0};

	check(fields_list(sample_fields, samples, 2, sizeof(samples[0]), &s),
	      "[{\"name\":\"a\",\"bytes\":2048,\"step\":7,\"known\":true,\"word\":\"w\","
	      "\"maybe\":2048,\"change\":-2,\"device\":\"cpu\",\"pool\":\"HAL\","
	      "\"address\":\"0x0000000000000800\",\"where\":null,\"via\":null,"
	      "\"in\":{\"blocks\":4,\"ratio\":0.5}},"
	      "{\"name\":\"xyz\",\"bytes\":0,\"step\":0,\"known\":false,\"word\":null,"
	      "\"maybe\":null,\"change\":1048576,\"device\":\"0\",\"pool\":\"PTA\","
	      "\"address\":\"0x0000000000000000\",\"where\":null,\"via\":null,"
	      "\"in\":{\"blocks\":0,\"ratio\":0.0}}]");
}

TEST(fields, and_the_columns)
{
	struct analysis_style plain = {.top = 10};
	static const struct field_table table = {sample_fields, 1, 0, "?"};
	struct buf out = {0};
	struct report r = report_begin(&plain, &out);

	report_fields(&r, &table, samples, 2, sizeof(samples[0]));
	CHECK_STR(buf_str(&out), "Name     Bytes  Maybe     Change         Pair  Device\n"
				 "a     2.00 KiB  2,048       -2 B          5/3     cpu\n"
				 "xyz        0 B      ?  +1.00 MiB  0/1,048,576       0\n");
	buf_release(&out);
}
