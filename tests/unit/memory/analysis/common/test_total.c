/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "memory/analysis/common/total.h"

#include "test.h"

TEST(total, changes_of_two_processes_in_any_order)
{
	struct total t = {0};

	/* The second process was seen late: its first block comes after a younger one. */
	total_add(&t, 10, 100);
	total_add(&t, 30, 100);
	total_take(&t, 40, 100);
	total_add(&t, 20, 50);
	total_take(&t, 25, 50);
	struct total_peak p = total_peak(&t);
	CHECK_INT(p.bytes, 200);
	CHECK_INT(p.time_ns, 30);
	CHECK_INT(p.live_bytes, 100);
	CHECK(!p.late);
	total_add(&t, 50, 150); /* more may come afterwards */
	CHECK_INT(total_peak(&t).bytes, 250);
	total_release(&t);
}

TEST(total, course_is_the_highest_of_each_part)
{
	struct total t = {0};
	uint64_t most = 0;

	total_keep_course(&t);
	CHECK_INT(timed_course_count(&(struct timed_course){0}), 0);
	/* a mountain of 400,000 changes, more than wait: up to the middle, and down again */
	for (uint64_t i = 0; i < 400000; i++)
		total_add(&t, 5000 + i * 100, i < 200000 ? 3 : (uint64_t)-3);
	struct timed_course c = total_course(&t);
	size_t n = timed_course_count(&c);
	CHECK(n > COURSE_BINS / 2 && n <= COURSE_BINS);
	CHECK_INT(c.first_ns, 5000);
	CHECK(c.bin_ns * n > 399999 * 100u && c.bin_ns * (n - 1) <= 399999 * 100u);
	for (size_t i = 0; i < n; i++) {
		/* the newest change in the part, or the highest before */
		uint64_t to = (i + 1) * c.bin_ns / 100, from = i * c.bin_ns / 100;
		uint64_t high = to < 200000	 ? 3 * to
				: from >= 200000 ? 3 * (400000 - from)
						 : 600000;

		CHECK(c.course.bins[i] <= high + 3 && c.course.bins[i] + 6 >= high);
		most = c.course.bins[i] > most ? c.course.bins[i] : most;
	}
	CHECK_INT(most, 600000);
	CHECK_INT(total_peak(&t).bytes, 600000);
	total_release(&t);
}

TEST(total, course_of_any_times)
{
	struct total t = {0};

	total_keep_course(&t);
	total_add(&t, UINT64_MAX, 8);
	total_add(&t, 0, 7);
	total_take(&t, UINT64_MAX / 2, 9); /* below nothing: nothing */
	struct timed_course c = total_course(&t);
	CHECK_INT(c.course.bins[0], 7);
	CHECK(timed_course_count(&c) <= COURSE_BINS);
	total_release(&t);
}

TEST(total, too_late)
{
	struct total t = {0};

	for (uint64_t i = 0; i < 2 * TOTAL_WINDOW; i++)
		total_add(&t, 1000 + i, 1);
	CHECK(!total_peak(&t).late);
	CHECK_INT(total_peak(&t).bytes, 2 * TOTAL_WINDOW);
	total_take(&t, 5, 1);
	CHECK(total_peak(&t).late);
	CHECK(t.cap <= 2 * TOTAL_WINDOW);
	total_release(&t);
}
