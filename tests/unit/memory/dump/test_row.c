/* SPDX-License-Identifier: MulanPSL-2.0 */
#include <string.h>

#include "base/text/text.h"
#include "memory/dump/cell.h"
#include "memory/dump/row.h"
#include "memory/dump/writer.h"
#include "test.h"

TEST(row, every_word_is_found_again)
{
	for (unsigned i = 0; i < ROW_EVENT_END; i++) {
		const char *s = row_event_text((enum row_event)i);

		CHECK_INT(row_event_find(s, strlen(s)), i);
	}
	for (unsigned i = 0; i < TYPE_END; i++) {
		const char *s = row_type_text((enum row_type)i, ROW_SEED);
		const char *old = row_type_text((enum row_type)i, ROW_26_0);

		CHECK_INT(row_type_find(s, strlen(s)), i);
		CHECK(row_type_find(old, strlen(old)) == i || i == TYPE_PTA_WORKSPACE);
	}
	for (unsigned i = 0; i < ATTR_RAW; i++) {
		const char *s = attr_key_text((enum attr_key)i, ROW_SEED);
		const char *old = attr_key_text((enum attr_key)i, ROW_26_0);

		CHECK_INT(attr_key_find(s, strlen(s)), i);
		CHECK(attr_key_find(old, strlen(old)) == i || i == ATTR_TOTAL_MEM ||
		      i == ATTR_FREE_MEM);
	}
}

TEST(row, both_vocabularies)
{
	CHECK_STR(row_type_text(TYPE_MINDSPORE, ROW_SEED), "MindSpore");
	CHECK_STR(row_type_text(TYPE_MINDSPORE, ROW_26_0), "MINDSPORE");
	CHECK_STR(row_type_text(TYPE_PTA_WORKSPACE, ROW_SEED), "PTA_WORKSPACE");
	CHECK_STR(row_type_text(TYPE_PTA_WORKSPACE, ROW_26_0), "PTA");
	CHECK_STR(attr_key_text(ATTR_INEFFICIENT, ROW_SEED), "inefficient");
	CHECK_STR(attr_key_text(ATTR_INEFFICIENT, ROW_26_0), "inefficient_type");
	CHECK_STR(attr_key_text(ATTR_TOTAL_MEM, ROW_SEED), "total_mem");
	CHECK_STR(attr_key_text(ATTR_TOTAL_MEM, ROW_26_0), "total");
	CHECK_STR(attr_key_text(ATTR_PT_UTILIZATION, ROW_26_0), "reserved_rate");
	CHECK_STR(row_type_text(TYPE_END, ROW_SEED), "N/A");
	CHECK_STR(row_event_text(ROW_EVENT_END), "N/A");
}

TEST(row, find_ignores_case_and_refuses_the_rest)
{
	CHECK_INT(row_event_find("malloc", 6), ROW_MALLOC);
	CHECK_INT(row_event_find("MALLOCX", 7), ROW_EVENT_END);
	CHECK_INT(row_event_find("MALLO", 5), ROW_EVENT_END);
	CHECK_INT(row_event_find("", 0), ROW_EVENT_END);
	CHECK_INT(row_event_find("FREE\0x", 6), ROW_EVENT_END);
	CHECK_INT(row_type_find("mindspore", 9), TYPE_MINDSPORE);
	CHECK_INT(row_type_find("HOST_PINNED", 11), TYPE_HOST);
	CHECK_INT(row_type_find("HOST_PINNE", 10), TYPE_END);
	CHECK_INT(attr_key_find("STREAMID", 8), ATTR_STREAM_ID);
	CHECK_INT(attr_key_find("inefficient_type", 16), ATTR_INEFFICIENT);
	CHECK_INT(attr_key_find("", 0), ATTR_KEY_END);
}

TEST(row, writers_by_name)
{
	CHECK(writer_find("csv") == &csv_writer);
	CHECK(writer_find("db") == &db_writer);
	CHECK(!writer_find("xml"));
	CHECK(!writer_find(""));
}

static void check_u64(uint64_t v)
{
	char got[PUT_U64_MAX + 1], want[PUT_U64_MAX + 1];

	*put_u64(got, v) = '\0';
	snprintf(want, sizeof(want), "%llu", (unsigned long long)v);
	CHECK_STR(got, want);
}

TEST(text, numbers)
{
	char got[32];

	for (uint64_t v = 0; v < 2000; v++)
		check_u64(v);
	for (uint64_t v = 1; v <= UINT64_MAX / 10; v *= 10) {
		check_u64(v - 1);
		check_u64(v);
		check_u64(v * 9);
	}
	for (int i = 0; i < 64; i++)
		check_u64((uint64_t)1 << i);
	check_u64(10000000000000000000u);
	check_u64(9999999999999999999u);
	check_u64(UINT64_MAX);
	*put_addr(got, 0x0123456789abcdef) = '\0';
	CHECK_STR(got, "0x0123456789abcdef");
	*put_addr(got, 0xfa00000000000009) = '\0';
	CHECK_STR(got, "0xfa00000000000009");
}

static void check_clean(const char *s, size_t n, const char *want)
{
	struct buf scratch = {0};
	size_t len = n;
	const char *got = text_clean(s, &len, &scratch);

	CHECK_INT(len, strlen(want));
	CHECK(!memcmp(got, want, len));
	CHECK(len <= TEXT_CLEAN_GROWTH * n);
	buf_release(&scratch);
}

TEST(text, clean)
{
	check_clean("plain", 5, "plain");
	check_clean("gr\xc3\xbc\xc3\x9f \xe7\xba\xbf \xf0\x9f\x98\x80", 15,
		    "gr\xc3\xbc\xc3\x9f \xe7\xba\xbf \xf0\x9f\x98\x80");
	check_clean("a\0b\0", 4, "ab");
	check_clean("\0", 1, "");
	check_clean("12345678\xff", 9, "12345678\xef\xbf\xbd");
	check_clean("\xc3", 1, "\xef\xbf\xbd"); /* cut short */
	check_clean("\xc0\x80", 2, "\xef\xbf\xbd\xef\xbf\xbd"); /* overlong */
	check_clean("\xed\xa0\x80", 3, "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"); /* surrogate */
	check_clean("\xf4\x90\x80\x80z", 5,
		    "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbdz"); /* too large */
}

static void check_pair(const char **at, const char *end, const char *key, const char *value)
{
	struct pair p;
	char got[64];

	CHECK(cell_next_pair(at, end, &p));
	snprintf(got, sizeof(got), "%.*s", (int)p.key_len, p.key);
	CHECK_STR(got, key);
	snprintf(got, sizeof(got), "%.*s", (int)p.value_len, p.value);
	CHECK_STR(got, value);
}

TEST(cell, pairs)
{
	const char *s =
		"dtype:torch.float16,shape:torch.Size([1,5]),owner:a::b,c@d:e,workspace ptr:0x1,"
		"x:,y:1,2";
	const char *end = s + strlen(s);
	struct pair p;

	check_pair(&s, end, "dtype", "torch.float16");
	check_pair(&s, end, "shape", "torch.Size([1,5])");
	check_pair(&s, end, "owner", "a::b,c@d:e");
	check_pair(&s, end, "workspace ptr", "0x1");
	check_pair(&s, end, "x", "");
	check_pair(&s, end, "y", "1,2");
	CHECK(!cell_next_pair(&s, end, &p));
	s = "no key,a:1,";
	end = s + strlen(s);
	check_pair(&s, end, "", "no key");
	check_pair(&s, end, "a", "1,");
	CHECK(!cell_next_pair(&s, end, &p));
}

TEST(cell, numbers)
{
	uint64_t v;

	CHECK(cell_read_u64("18446744073709551615", 20, &v) && v == UINT64_MAX);
	CHECK(!cell_read_u64("18446744073709551616", 20, &v));
	CHECK(!cell_read_u64("", 0, &v));
	CHECK(!cell_read_u64("-1", 2, &v));
	CHECK(!cell_read_u64("1 ", 2, &v));
	CHECK(cell_read_hex("0xFFFFffffFFFFffff", 18, &v) && v == UINT64_MAX);
	CHECK(cell_read_hex("0x1", 3, &v) && v == 1);
	CHECK(!cell_read_hex("0x", 2, &v));
	CHECK(!cell_read_hex("0x10000000000000000", 19, &v));
	CHECK(!cell_read_hex("0x1g", 4, &v));
	CHECK(!cell_read_hex("0x1\x11", 4, &v));
}
