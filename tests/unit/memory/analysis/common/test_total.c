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
