/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "daemon/metrics/prometheus_text.h"

#include <math.h>

#include "test.h"

static const struct expo_family gauge = {"b", EXPO_GAUGE, "Of b."};
static const struct expo_family counter = {"a_total", EXPO_COUNTER, "Of a."};

TEST(expo, families_stand_together)
{
	struct expo e = {0};
	struct buf out = {0};

	expo_add(&e, &gauge, 1.5, &(struct expo_label){"x", "2"}, 1);
	expo_add(&e, &counter, 9007199254740991, NULL, 0);
	expo_add(&e, &gauge, NAN, &(struct expo_label){"x", "1"}, 1);
	expo_add(&e, &gauge, -INFINITY, &(struct expo_label){"x", NULL}, 1);
	expo_add(&e, &gauge, 7, &(struct expo_label){"x", "1"}, 1); /* is there already */
	expo_print(&e, &out);
	CHECK_STR(buf_str(&out), "# HELP a_total Of a.\n# TYPE a_total counter\n"
				 "a_total 9007199254740991\n"
				 "# HELP b Of b.\n# TYPE b gauge\n"
				 "b{x=\"2\"} 1.5\nb{x=\"1\"} NaN\nb -Inf\n");
	buf_release(&out);
	expo_release(&e);
}

TEST(expo, texts_cannot_break_the_line)
{
	struct expo e = {0};
	struct buf out = {0};
	struct expo_family odd = {"1 näme", EXPO_GAUGE, "Odd."};

	expo_add(&e, &odd, 0, &(struct expo_label){"l-1", "a\"b\\c\nd\xff\xc3\xbc"}, 1);
	expo_print(&e, &out);
	CHECK_STR(buf_str(&out), "# HELP __n__me Odd.\n# TYPE __n__me gauge\n"
				 "__n__me{l_1=\"a\\\"b\\\\c\\nd\xef\xbf\xbd\xc3\xbc\"} 0\n");
	buf_release(&out);
	expo_release(&e);
}

TEST(expo, names_that_become_one_stand_together_once)
{
	struct expo_family dot = {"a.b", EXPO_GAUGE, "One."}, dash = {"a-b", EXPO_GAUGE, "Two."};
	struct expo e = {0};
	struct buf out = {0};

	size_t none = expo_labels(&e, NULL, 0);
	expo_add_at(&e, &dot, 1, none);
	expo_add_at(&e, &dash, 2, none);
	expo_add(&e, &dash, 3, &(struct expo_label){"", ""}, 1);
	expo_print(&e, &out);
	CHECK_STR(buf_str(&out), "# HELP a_b One.\n# TYPE a_b gauge\na_b 1\na_b{_=\"\"} 3\n");
	buf_release(&out);
	expo_release(&e);
}
