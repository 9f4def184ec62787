/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "daemon/metrics/prometheus_text.h"

#include <math.h>

#include "test.h"

static const struct prom_family gauge = {"b", PROM_GAUGE, "Of b."};
static const struct prom_family counter = {"a_total", PROM_COUNTER, "Of a."};

TEST(prom_text, families_stand_together)
{
	struct prom_text e = {0};
	struct buf out = {0};

	prom_add(&e, &gauge, 1.5, &(struct prom_label){"x", "2"}, 1);
	prom_add(&e, &counter, 9007199254740991, NULL, 0);
	prom_add(&e, &gauge, NAN, &(struct prom_label){"x", "1"}, 1);
	prom_add(&e, &gauge, -INFINITY, &(struct prom_label){"x", NULL}, 1);
	prom_add(&e, &gauge, 7, &(struct prom_label){"x", "1"}, 1); /* is there already */
	prom_print(&e, &out);
	CHECK_STR(buf_str(&out), "# HELP a_total Of a.\n# TYPE a_total counter\n"
				 "a_total 9007199254740991\n"
				 "# HELP b Of b.\n# TYPE b gauge\n"
				 "b{x=\"2\"} 1.5\nb{x=\"1\"} NaN\nb -Inf\n");
	buf_release(&out);
	prom_release(&e);
}

TEST(prom_text, texts_cannot_break_the_line)
{
	struct prom_text e = {0};
	struct buf out = {0};
	struct prom_family odd = {"1 näme", PROM_GAUGE, "Odd."};

	prom_add(&e, &odd, 0, &(struct prom_label){"l-1", "a\"b\\c\nd\xff\xc3\xbc"}, 1);
	prom_print(&e, &out);
	CHECK_STR(buf_str(&out), "# HELP __n__me Odd.\n# TYPE __n__me gauge\n"
				 "__n__me{l_1=\"a\\\"b\\\\c\\nd\xef\xbf\xbd\xc3\xbc\"} 0\n");
	buf_release(&out);
	prom_release(&e);
}

TEST(prom_text, names_that_become_one_stand_together_once)
{
	struct prom_family dot = {"a.b", PROM_GAUGE, "One."}, dash = {"a-b", PROM_GAUGE, "Two."};
	struct prom_text e = {0};
	struct buf out = {0};

	size_t none = prom_labels(&e, NULL, 0);
	prom_add_at(&e, &dot, 1, none);
	prom_add_at(&e, &dash, 2, none);
	prom_add(&e, &dash, 3, &(struct prom_label){"", ""}, 1);
	prom_print(&e, &out);
	CHECK_STR(buf_str(&out), "# HELP a_b One.\n# TYPE a_b gauge\na_b 1\na_b{_=\"\"} 3\n");
	buf_release(&out);
	prom_release(&e);
}
