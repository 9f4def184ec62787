/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "base/text/table.h"

#include <string.h>

#include "test.h"

TEST(table, columns)
{
	static const char *const titles[] = {"A", ">N", "TEXT", NULL};
	struct table t = {.titles = titles};
	struct buf b = {0};

	table_textf(&t, "long name");
	table_textf(&t, "%d", 7);
	table_textf(&t, "x\033[2Jy");
	table_textf(&t, "b");
	table_textf(&t, "100");
	table_textf(&t, "%s", "");
	table_print(&t, 0, &b);
	CHECK(!memchr(b.data, '\033', b.len));
	CHECK_INT(strncmp(buf_str(&b), "A            N  TEXT\nlong name    7  x", 37), 0);
	CHECK(strstr(buf_str(&b), "\nb          100\n"));
	buf_clear(&b);
	table_print(&t, 5, &b);
	CHECK(strstr(buf_str(&b), "\nlong\n"));
	buf_release(&b);
	table_release(&t);
}
