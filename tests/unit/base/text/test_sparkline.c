/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "base/text/sparkline.h"

#include <stdlib.h>

#include "test.h"

static const char *locale_was;

static void use_locale(const char *name)
{
	locale_was = getenv("LC_ALL");
	setenv("LC_ALL", name, 1);
}

static void restore_locale(void)
{
	if (locale_was)
		setenv("LC_ALL", locale_was, 1);
	else
		unsetenv("LC_ALL");
}

static const char *line_of(const uint64_t *v, size_t n, unsigned columns, uint64_t most)
{
	static struct buf out;

	buf_clear(&out);
	text_add_sparkline(&out, v, n, columns, most);
	return buf_str(&out);
}

TEST(sparkline, shows_the_highest_of_each_part)
{
	const uint64_t v[] = {0, 1, 8, 4, 4, 8};

	use_locale("C.UTF-8");
	CHECK_STR(line_of(v, 6, 6, 0), " ▁█▄▄█");
	CHECK_STR(line_of(v, 6, 3, 0), "▁██");
	CHECK_STR(line_of(v, 6, 80, 0), " ▁█▄▄█");
	CHECK_STR(line_of(v, 6, 3, 16), "▁▄▄"); /* another one's scale; a little is not nothing */
	CHECK_STR(line_of(v, 0, 10, 0), "");
	CHECK_STR(line_of(v, 1, 10, 0), " ");
	restore_locale();
}

TEST(sparkline, is_of_ascii_elsewhere)
{
	const uint64_t v[] = {0, 1, 8};
	struct buf out = {0};

	use_locale("C");
	CHECK(!text_is_utf8_locale());
	CHECK_STR(line_of(v, 3, 3, 0), " .@");
	text_add_bar(&out, 1, 2, 4);
	text_add_ascii(&out, "a…é中\xff", sizeof("a…é中\xff") - 1);
	CHECK_STR(buf_str(&out), "##  a.???");
	buf_release(&out);
	restore_locale();
}

TEST(sparkline, a_bar_has_its_width)
{
	struct buf out = {0};

	use_locale("de_DE.utf8");
	text_add_bar(&out, 1, 3, 4);
	buf_add_char(&out, '|');
	text_add_bar(&out, 9, 3, 2);
	buf_add_char(&out, '|');
	text_add_bar(&out, 0, 0, 2);
	buf_add_char(&out, '|');
	CHECK_STR(buf_str(&out), "█▍  |██|  |");
	buf_release(&out);
	restore_locale();
}
