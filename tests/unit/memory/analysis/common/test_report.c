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

TEST(report, headings_stand_apart_from_what_was_before)
{
	struct buf out = {0}, text = {0};
	struct report g = report_begin(&plain, &out);

	report_title(&g, "First");
	report_title(&g, "Second");
	check(&out, "First\n\nSecond\n");
	buf_add_str(&out, "of another\n");
	g = report_begin(&coloured, &out);
	buf_add_str(&text, "Third");
	report_heading(&g, &text);
	CHECK_INT(text.cap, 0);
	check(&out, "of another\n\033[1mThird\033[0m\n");
	buf_release(&out);
}

TEST(report, paragraphs_and_remarks)
{
	struct buf out = {0}, text = {0};
	struct report g = report_begin(&plain, &out);

	for (int i = 0; i < 20; i++)
		buf_addf(&text, "%sword%d", i ? " " : "", i);
	report_paragraph(&g, 2, &text);
	for (const char *line = buf_str(&out); *line; line = strchr(line, '\n') + 1) {
		CHECK(strcspn(line, "\n") <= 96);
		CHECK(!memcmp(line, "  word", 6));
	}
	buf_clear(&out);
	report_remarks(&g, &text);
	check(&out, "");
	buf_add_str(&text, "One.\nTwo.\n");
	report_remarks(&g, &text);
	check(&out, "\nOne.\nTwo.\n");
	buf_release(&out);
}

TEST(report, stacks_are_in_call_order_and_have_no_commands_for_the_terminal)
{
	struct buf out = {0};
	char c[] = "libjob.so(make\033[31m+0x10) [0x55ad]\n", py[] = "train.py(7): forward\n";
	struct report g = report_begin(&plain, &out);

	report_stack(&g, 4, (struct stack){.c = c, .py = py});
	check(&out, "    make?[31m (libjob.so)\n    forward (train.py:7)\n");
	g = report_begin(&coloured, &out);
	report_stack(&g, 0, (struct stack){0});
	check(&out, "");
	report_stack(&g, 0, (struct stack){.py = py});
	check(&out, "\033[2mforward (train.py:7)\n\033[0m");
	report_more(&g, 2, 1, "place");
	report_more(&g, 2, 2000, "place");
	check(&out, "  and 1 more place\n  and 2,000 more places\n");
	buf_release(&out);
}

TEST(report, tables_are_as_wide_as_they_must_be)
{
	static const char *const titles[] = {"Name", "Bytes", NULL};
	struct table t = {.titles = titles, .text_columns = 1, .indent = 2};
	struct buf out = {0};
	struct report g = report_begin(&plain, &out);

	table_text(&t, "a name");
	table_text(&t, "1.00 MiB");
	table_text(&t, "b");
	table_text(&t, "12,345");
	report_table(&g, &t);
	check(&out, "  Name       Bytes\n  a name  1.00 MiB\n  b         12,345\n");
	CHECK(!t.cells);
	buf_release(&out);
}

static uint32_t add_stack(struct stacks *s, const char *python)
{
	struct row row = {.py_stack = python, .py_stack_len = (uint32_t)strlen(python)};

	return stacks_of(s, &row);
}

TEST(report, call_sites_that_read_the_same_are_one)
{
	struct buf out = {0};
	struct stacks stacks = {0};
	uint32_t near_main = add_stack(&stacks, "train.py(7): forward\n");
	uint32_t other = add_stack(&stacks, "train.py(9): backward\n");
	struct call_site sites[] = {{0, true, 1, 10, 0, false},
				    {near_main, false, 1, 20, 0, false},
				    {other, false, 1, 30, 0, false},
				    {near_main, false, 2, 15, 0, false},
				    {0, false, 1, 5, 0, false}};
	struct report r = report_begin(&plain, &out);

	CHECK_INT(call_sites_merge(sites, 5, &stacks), 4);
	for (size_t i = 0; i < 4; i++)
		report_call_site(&r, 2, INK_BAD, &stacks, &sites[i]);
	check(&out, "  35 B in 3 blocks\n      forward (train.py:7)\n"
		    "  30 B in 1 block\n      backward (train.py:9)\n"
		    "  10 B in 1 block, allocated before recording began\n"
		    "  5 B in 1 block, no call stack recorded\n");
	stacks_release(&stacks);
	buf_release(&out);
}

TEST(report, a_place_has_one_number_whoever_called_it)
{
	struct buf out = {0};
	struct stacks stacks = {0};
	uint32_t a = add_stack(&stacks, "train.py(7): forward\ntrain.py(20): step\n");
	uint32_t b = add_stack(&stacks, "train.py(7): forward\ntrain.py(30): step\n");
	struct call_site sites[] = {{a, false, 8, 80, 0, false}, {b, false, 13, 130, 0, false}};
	struct report r = report_begin(&plain, &out);

	CHECK_INT(call_sites_merge(sites, 2, &stacks), 1);
	report_call_site(&r, 0, INK_BAD, &stacks, &sites[0]);
	check(&out, "210 B in 21 blocks, 2 call stacks, the largest:\n"
		    "    forward (train.py:7)\n    step (train.py:30)\n");
	stacks_release(&stacks);
	buf_release(&out);
}

/* A million of them are kept; their texts are put together when they are asked for. */
TEST(report, stacks_come_out_as_they_went_in)
{
	struct stacks stacks = {0};
	uint32_t numbers[100];
	char text[2000];

	for (int pass = 0; pass < 2; pass++) {
		for (int i = 0; i < 100; i++) {
			int n = snprintf(text, sizeof(text), "a.py(%d): f\n", i);
			for (int k = 0; k < 30; k++)
				n += snprintf(text + n, sizeof(text) - (size_t)n, "b.py(%d): g\n",
					      k);
			uint32_t number = add_stack(&stacks, text);
			CHECK(number && (!pass || number == numbers[i]));
			numbers[i] = number;
			text[n - 1] = '\0';
			struct stack s = stacks_get(&stacks, number);
			CHECK(!s.c);
			CHECK_STR(s.py, text);
		}
	}
	/* Those that were asked for last are good, whatever was learned of all of them meanwhile. */
	struct stack last = stacks_get(&stacks, numbers[5]);
	struct buf where = {0};
	CHECK(stacks_where(&stacks, numbers[7], &where));
	CHECK(!strncmp(last.py, "a.py(5): f\nb.py(0)", 18));
	CHECK(!stacks_get(&stacks, 0).py && !stacks_get(&stacks, 101).py);
	buf_release(&where);
	stacks_release(&stacks);
}

TEST(report, devices_have_one_name)
{
	struct buf out = {0};

	words_device(&out, 3, true);
	words_device(&out, DEV_HOST, false);
	words_device(&out, DEV_NONE, true);
	check(&out, "Device 3host memoryAn unknown device");
	add_text(&out, "{}, {}, {}, {}, {}, {}", HELD(1 << 20, 1), COUNT(12345), NUMBER(12345),
		 COUNT_OF(2, "step"), DURATION(12500000), POOL(TYPE_PTA));
	check(&out, "1.00 MiB in 1 block, 12,345, 12345, 2 steps, 12.5 ms, PTA");
	add_text(&out, "{}{} on {}", TEXT("\033"), PRINTABLE("\033"), DEVICE(DEV_HOST));
	check(&out, "\033? on cpu");
	buf_release(&out);
}
