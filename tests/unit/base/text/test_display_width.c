/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "base/text/display_width.h"

#include "base/text/table.h"
#include "test.h"

static unsigned columns(const char *text)
{
	unsigned n = 0;

	CHECK_INT(text_fit_columns(text, strlen(text), 0, &n), strlen(text));
	return n;
}

TEST(display_width, columns_of_scripts)
{
	CHECK_INT(columns(""), 0);
	CHECK_INT(columns("abc"), 3);
	CHECK_INT(columns("é"), 1);
	CHECK_INT(columns("e\xcc\x81"), 1); /* an accent by itself */
	CHECK_INT(columns("训练"), 4);
	CHECK_INT(columns("한글"), 4);
	CHECK_INT(columns("\xf0\x9f\x9a\x80"), 2); /* a rocket */
	CHECK_INT(columns("\xff\xfe"), 2); /* no UTF-8 */
	CHECK_INT(columns("a\xe8\xae"), 3); /* cut off */
}

TEST(display_width, cuts_between_characters)
{
	unsigned n;

	CHECK_INT(text_fit_columns("训练", 6, 3, &n), 3);
	CHECK_INT(n, 2);
	CHECK_INT(text_fit_columns("训练", 6, 4, &n), 6);
	CHECK_INT(text_fit_columns("e\xcc\x81x", 4, 1, &n), 3);
	CHECK_INT(n, 1);
}

TEST(display_width, json_that_a_terminal_shows)
{
	static const char json[] = "{\r\n\"a\":\t\"\xc2\x9b\x7f\xe2\x80\xae\\u001b é训\"}";
	struct buf out = {0};

	text_add_terminal_json(&out, json, strlen(json));
	CHECK_STR(buf_str(&out), "{  \"a\": \"\\u009b\\u007f\\u202e\\u001b é训\"}");
	buf_release(&out);
}

TEST(display_width, a_table_with_wide_characters)
{
	static const char *const titles[] = {"A", "B", NULL};
	struct table t = {.titles = titles};
	struct buf out = {0};

	table_textf(&t, "训");
	table_textf(&t, "x");
	table_textf(&t, "abc");
	table_textf(&t, "练练");
	table_print(&t, 8, &out);
	CHECK_STR(buf_str(&out), "A    B\n训   x\nabc  练\n");
	table_release(&t);
	buf_release(&out);
}

/* On a narrow terminal what matters least goes, and what is left stands below its title. */
TEST(display_width, a_table_makes_room_for_its_last_column)
{
	static const char *const titles[] = {">N", "KIND", "HOST", "NAME", NULL};
	static const char *const drop[] = {"KIND", "N", "no such column", NULL};
	struct table t = {.titles = titles, .drop = drop, .least = 6};
	struct buf out = {0};

	table_textf(&t, "12345");
	table_textf(&t, "Kernel");
	table_textf(&t, "n1");
	table_textf(&t, "elementwise");
	table_print(&t, 27, &out);
	CHECK_STR(buf_str(&out), "    N  KIND    HOST  NAME\n12345  Kernel  n1    elemen\n");
	buf_clear(&out);
	table_print(&t, 26, &out);
	CHECK_STR(buf_str(&out), "    N  HOST  NAME\n12345  n1    elementwise\n");
	buf_clear(&out);
	table_print(&t, 10, &out);
	CHECK_STR(buf_str(&out), "HOST  NAME\nn1    elem\n");
	buf_clear(&out);
	table_hide(&t, "HOST");
	table_print(&t, 0, &out);
	CHECK_STR(buf_str(&out), "    N  KIND    NAME\n12345  Kernel  elementwise\n");
	table_release(&t);
	buf_release(&out);
}

static void check_wrapped(const char *text, unsigned width, const char *lines)
{
	struct buf out = {0};

	text_add_wrapped(&out, text, strlen(text), width, "<", ">");
	CHECK_STR(buf_str(&out), lines);
	buf_release(&out);
}

TEST(display_width, sentences_are_broken_between_words)
{
	check_wrapped("", 10, "<>\n");
	check_wrapped("one two", 0, "<one two>\n");
	check_wrapped("one two", 7, "<one two>\n");
	check_wrapped("one two", 6, "<one>\n<two>\n");
	check_wrapped("one  two three", 9, "<one  two>\n<  three>\n");
	check_wrapped("it is 73 % of all", 8, "<it is>\n<  73 %>\n<  of all>\n");
	check_wrapped("abcdefgh ij", 4, "<abcd>\n<efgh>\n<ij>\n");
	check_wrapped("训练", 1, "<训>\n<练>\n");
	check_wrapped("训练 xx", 4, "<训练>\n<xx>\n");
}
