/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "daemon/metrics/course.h"

#include <math.h>

#include "test.h"

#define AT(bin) ((int64_t)(bin)*COURSE_BIN_NS + 5)

static double value_at(const struct course *c, int64_t bin, int64_t now_bin)
{
	json_t *list = course_json(c, bin, AT(now_bin));
	json_t *first = json_array_get(list, 0);
	double v = json_is_real(first) ? json_real_value(first) : NAN;

	CHECK_INT(json_array_size(list), now_bin - bin + 1);
	json_decref(list);
	return v;
}

TEST(course, has_the_mean_of_each_part)
{
	struct course c = {0};

	course_add(&c, AT(1000), 1);
	course_add(&c, AT(1000), 3);
	course_add(&c, AT(1002), 10);
	CHECK(value_at(&c, 1000, 1003) == 2);
	CHECK(isnan(value_at(&c, 1001, 1003)));
	CHECK(value_at(&c, 1002, 1003) == 10);
	CHECK(isnan(value_at(&c, 1003, 1003)));
	CHECK(isnan(value_at(&c, 999, 1003)));
	course_add(&c, AT(1001), 7); /* late, or a clock that was set back */
	course_add(&c, AT(1002), NAN);
	course_add(&c, -5, 7);
	CHECK(isnan(value_at(&c, 1001, 1003)));
	CHECK(value_at(&c, 1002, 1003) == 10);
}

TEST(course, forgets_what_is_older_than_an_hour)
{
	struct course c = {0};

	for (int64_t bin = 500; bin < 500 + 3 * COURSE_BINS; bin++)
		course_add(&c, AT(bin), (double)bin);
	int64_t last = 500 + 3 * COURSE_BINS - 1;
	CHECK(value_at(&c, last, last) == (double)last);
	CHECK(value_at(&c, last - COURSE_BINS + 1, last) == (double)(last - COURSE_BINS + 1));
	CHECK(isnan(value_at(&c, last - COURSE_BINS, last)));
	/* after a long silence nothing of before is there */
	course_add(&c, AT(last + 10 * COURSE_BINS), 4);
	CHECK(isnan(value_at(&c, last + 10 * COURSE_BINS - 1, last + 10 * COURSE_BINS)));
	CHECK(isnan(value_at(&c, last, last + 1)));
}

TEST(course, gives_what_a_reader_lacks)
{
	CHECK_INT(course_first_bin(0, AT(1000)), 1000 - COURSE_BINS + 1);
	CHECK_INT(course_first_bin(-1, AT(1000)), 1000 - COURSE_BINS + 1);
	CHECK_INT(course_first_bin(AT(998), AT(1000)), 998);
	CHECK_INT(course_first_bin(INT64_MAX, AT(1000)), 1000);
}
