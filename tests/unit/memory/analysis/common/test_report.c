/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "test.h"

#include "memory/analysis/common/memory_words.h"
#include "memory/analysis/common/report.h"
#include "wire/record.h"

static const struct analysis_style plain = {.top = 10}, coloured = {.colour = true, .top = 10};

static void check(struct buf *out, const char *want)
{
	CHECK_STR(buf_str(out), want);
	buf_clear(out);
}

TEST(page, headings_stand_apart_from_what_was_before)
{
	struct buf out = {0}, text = {0};
	struct page g = page_begin(&plain, &out);

	page_title(&g, "First");
	page_title(&g, "Second");
	check(&out, "First\n\nSecond\n");
	buf_add_str(&out, "of another\n");
	g = page_begin(&coloured, &out);
	buf_add_str(&text, "Third");
	page_heading(&g, &text);
	CHECK_INT(text.cap, 0);
	check(&out, "of another\n\033[1mThird\033[0m\n");
	buf_release(&out);
}

TEST(page, paragraphs_and_remarks)
{
	struct buf out = {0}, text = {0};
	struct page g = page_begin(&plain, &out);

	for (int i = 0; i < 20; i++)
		buf_addf(&text, "%sword%d", i ? " " : "", i);
	page_paragraph(&g, 2, &text);
	for (const char *line = buf_str(&out); *line; line = strchr(line, '\n') + 1) {
		CHECK(strcspn(line, "\n") <= 96);
		CHECK(!memcmp(line, "  word", 6));
	}
	buf_clear(&out);
	page_remarks(&g, &text);
	check(&out, "");
	buf_add_str(&text, "One.\nTwo.\n");
	page_remarks(&g, &text);
	check(&out, "\nOne.\nTwo.\n");
	buf_release(&out);
}

TEST(page, stacks_have_python_first_and_no_commands_for_the_terminal)
{
	struct buf out = {0};
	char c[] = "libjob.so(make\033[31m+0x10) [0x55ad]\n", py[] = "train.py(7): forward\n";
	struct page g = page_begin(&plain, &out);

	page_stack(&g, 4, (struct stack){.c = c, .py = py});
	check(&out, "    forward (train.py:7)\n    make?[31m (libjob.so)\n");
	g = page_begin(&coloured, &out);
	page_stack(&g, 0, (struct stack){0});
	check(&out, "");
	page_stack(&g, 0, (struct stack){.py = py});
	check(&out, "\033[2mforward (train.py:7)\n\033[0m");
	page_more(&g, 2, 1, "place");
	page_more(&g, 2, 2000, "place");
	check(&out, "  and 1 more place\n  and 2,000 more places\n");
	buf_release(&out);
}

TEST(page, tables_are_as_wide_as_they_must_be)
{
	static const char *const titles[] = {"Name", "Bytes"};
	struct table t = {.columns = 2, .text_columns = 1, .indent = 2};
	struct buf out = {0};
	struct page g = page_begin(&plain, &out);

	t.titles = titles;
	table_text(&t, "a name");
	table_bytes(&t, 1 << 20);
	table_text(&t, "b");
	table_count(&t, 12345);
	page_table(&g, &t);
	check(&out, "  Name       Bytes\n  a name  1.00 MiB\n  b         12,345\n");
	CHECK(!t.cells);
	buf_release(&out);
}

TEST(page, devices_have_one_name)
{
	struct buf out = {0};

	words_device(&out, 3, true);
	words_device(&out, DEV_HOST, false);
	words_device(&out, DEV_NONE, true);
	check(&out, "Device 3host memoryAn unknown device");
	words_held(&out, 1 << 20, 1);
	check(&out, "1.00 MiB in 1 block");
	buf_release(&out);
}
