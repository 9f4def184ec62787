/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "client/clocks.h"

#include "test.h"

TEST(clocks, only_what_is_sure)
{
	struct clock_span spans[] = {
		{0, -10, 0}, {0, -8, 2}, {0, -5, 5}, {0, 500, 600}, {0, -900, -800}};

	CHECK_INT(clocks_middle(spans, 0), 0);
	CHECK_INT(clocks_middle(spans, 5), -3);
	CHECK_INT(clocks_apart(spans[0], -3), 0);
	CHECK_INT(clocks_apart(spans[3], -3), 503);
	CHECK_INT(clocks_apart(spans[4], -3), -797);
}
