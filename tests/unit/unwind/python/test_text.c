/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "unwind/python/text.h"

#include <errno.h>

#include "test.h"

/* Memory of a make-believe interpreter: exactly these bytes at BASE, nothing around them. */
#define BASE 0x10000u
static unsigned char memory[4096];
static size_t used;

static int read_memory(const struct python_reader *r, uint64_t addr, void *out, size_t n)
{
	(void)r;
	if (addr < BASE || addr > BASE + used || n > BASE + used - addr)
		return -EFAULT;
	memcpy(out, memory + (addr - BASE), n);
	return 0;
}
static const struct python_reader reader = {read_memory};

static void put(size_t at, const void *bytes, size_t n)
{
	CHECK(at + n <= sizeof(memory));
	memcpy(memory + at, bytes, n);
	if (used < at + n)
		used = at + n;
}

static struct python_layout layout_of(uint32_t minor)
{
	struct python_layout l;

	CHECK_INT(python_layout_table(0x030001f0 | minor << 16, PYTHON_X86_64, &l), 0);
	return l;
}

struct made {
	unsigned kind;
	bool compact, ascii;
	int64_t length;
};

/* A str at BASE, without its characters; where those have to be put. */
static size_t make(const struct python_layout *l, struct made m)
{
	uint32_t state = m.kind << l->text.kind_shift | (uint32_t)m.compact << l->text.compact_bit |
			 (uint32_t)m.ascii << l->text.ascii_bit | 1;
	uint64_t elsewhere = BASE + 512;

	memset(memory, 0xee, sizeof(memory));
	used = l->text.ascii_data;
	put(l->text.length, &m.length, 8);
	put(l->text.state, &state, 4);
	if (!m.compact) {
		put(l->text.data, &elsewhere, 8);
		return 512;
	}
	return m.ascii ? l->text.ascii_data : l->text.compact_data;
}

static const char *text(const struct python_layout *l, size_t cap)
{
	static char out[8192];

	memset(out, 'X', sizeof(out));
	ssize_t n = python_text(&reader, l, BASE, out, cap);
	if (n < 0) {
		snprintf(out, sizeof(out), "%d", (int)n);
		return out;
	}
	CHECK_INT(n, strlen(out));
	CHECK((size_t)n < cap);
	return out;
}

TEST(python_text, ascii_of_every_version)
{
	for (uint32_t minor = 7; minor <= 12; minor++) {
		struct python_layout l = layout_of(minor);

		put(make(&l, (struct made){1, true, true, 5}), "hello", 5);
		CHECK_STR(text(&l, 100), "hello");
		CHECK_STR(text(&l, 6), "hello");
		CHECK_STR(text(&l, 5), "hell");
		CHECK_STR(text(&l, 1), "");
		make(&l, (struct made){1, true, true, 0});
		CHECK_STR(text(&l, 100), "");
	}
}

TEST(python_text, latin_1_and_wider)
{
	static const uint16_t cjk[] = {0x540d, 'x', 0xd800, 0, 0xe9};
	static const uint32_t emoji[] = {0x1f600, 0x10ffff, 0xdfff, 'a'};

	for (uint32_t minor = 7; minor <= 12; minor++) {
		struct python_layout l = layout_of(minor);

		for (int compact = 0; compact <= 1; compact++) {
			put(make(&l, (struct made){1, compact, false, 4}), "caf\xe9", 4);
			CHECK_STR(text(&l, 100), "caf\u00e9");
			CHECK_STR(text(&l, 5), "caf"); /* no half characters */
			put(make(&l, (struct made){2, compact, false, 5}), cjk, sizeof(cjk));
			CHECK_STR(text(&l, 100), "\u540dx\ufffd\ufffd\u00e9");
			put(make(&l, (struct made){4, compact, false, 4}), emoji, sizeof(emoji));
			CHECK_STR(text(&l, 100), "\U0001f600\U0010ffff\ufffda");
			CHECK_STR(text(&l, 5), "\U0001f600");
			CHECK_STR(text(&l, 4), "");
		}
		put(make(&l, (struct made){1, false, true, 2}), "ab", 2);
		CHECK_STR(text(&l, 100), "ab");
	}
}

TEST(python_text, state_of_free_threaded_builds)
{
	struct python_layout l = layout_of(12);

	l.text.length = 32;
	l.text.state = 48;
	l.text.ascii_data = 56;
	l.text.compact_data = l.text.data = 72;
	l.text.kind_shift = 8;
	l.text.compact_bit = 11;
	l.text.ascii_bit = 12;
	put(make(&l, (struct made){1, true, true, 5}), "hello", 5);
	CHECK_STR(text(&l, 100), "hello");
	put(make(&l, (struct made){2, true, false, 1}), &(uint16_t){0x20ac}, 2);
	CHECK_STR(text(&l, 100), "\u20ac");
}

TEST(python_text, longer_than_a_piece)
{
	struct python_layout l = layout_of(12);
	size_t at = make(&l, (struct made){2, true, false, 1000});
	char want[3001] = "";

	for (unsigned i = 0; i < 1000; i++) {
		put(at + 2 * i, &(uint16_t){0x4e2d}, 2);
		memcpy(want + 3 * i, "\u4e2d", 4);
	}
	CHECK_STR(text(&l, 8192), want);
	want[3 * 333] = '\0';
	CHECK_STR(text(&l, 1001), want);
}

static void check_error(const struct python_layout *l, int want)
{
	char out[64];

	CHECK_INT(python_text(&reader, l, BASE, out, sizeof(out)), want);
}

TEST(python_text, what_is_no_str)
{
	struct python_layout l = layout_of(11);
	char none;

	static const unsigned no_kind[] = {0, 3, 5, 6, 7};
	for (unsigned i = 0; i < 5; i++) {
		make(&l, (struct made){no_kind[i], true, false, 4});
		check_error(&l, -EPROTO);
	}
	make(&l, (struct made){2, true, true, 4}); /* ASCII has one byte each */
	check_error(&l, -EPROTO);
	make(&l, (struct made){1, true, true, -1});
	check_error(&l, -EPROTO);
	make(&l, (struct made){1, true, true, INT64_MAX});
	check_error(&l, -EPROTO);
	put(make(&l, (struct made){1, true, true, 3}), "a\x80z", 3);
	check_error(&l, -EPROTO);
	put(make(&l, (struct made){4, true, false, 1}), &(uint32_t){0x110000}, 4);
	check_error(&l, -EPROTO);
	put(make(&l, (struct made){1, true, true, 5}), "hell", 4); /* memory ends */
	check_error(&l, -EFAULT);
	used = 20;
	check_error(&l, -EFAULT);
	CHECK_INT(python_text(&reader, &l, BASE, &none, 0), -EINVAL);
}

TEST(python_text, bytes)
{
	struct python_layout l = layout_of(8);
	char out[8] = "";

	used = 0;
	put(l.object.var_size, &(uint64_t){5}, 8);
	put(l.object.bytes_data, "ab\0cd", 5);
	CHECK_INT(python_bytes(&reader, &l, BASE, out, sizeof(out)), 5);
	CHECK(!memcmp(out, "ab\0cd", 6));
	memset(out, 0, sizeof(out));
	CHECK_INT(python_bytes(&reader, &l, BASE, out, 2), 5);
	CHECK(!memcmp(out, "ab\0", 3));
	CHECK_INT(python_bytes(&reader, &l, BASE, NULL, 0), 5);
	put(l.object.var_size, &(uint64_t){6}, 8);
	CHECK_INT(python_bytes(&reader, &l, BASE, out, sizeof(out)), -EFAULT);
	put(l.object.var_size, &(int64_t){-1}, 8);
	CHECK_INT(python_bytes(&reader, &l, BASE, out, sizeof(out)), -EPROTO);
}
