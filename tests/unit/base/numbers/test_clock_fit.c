/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Two clocks with a known difference: what is found is right within the bound that it states. */
#include "base/numbers/clock_fit.h"

#include <stdlib.h>

#include "test.h"

#define START INT64_C(1794723775000000000)
#define SECOND INT64_C(1000000000)

/* Theirs minus ours at a time. */
static int64_t truth(int64_t at_ns, int64_t offset_ns, double ppm)
{
	return offset_ns + (int64_t)(ppm * 1e-6 * (double)(at_ns - START));
}

/* A round trip of which one way takes `there`, the other `back`. */
static struct clock_span trip(int64_t at_ns, int64_t difference, int64_t there, int64_t back)
{
	return (struct clock_span){at_ns, difference - back, difference + there};
}

static void check_line(const struct clock_line *l, int64_t offset_ns, double ppm, int64_t at_most)
{
	for (int64_t at = l->from_ns; at <= l->to_ns; at += (l->to_ns - l->from_ns) / 7) {
		int64_t wrong = llabs(clock_line_at(l, at) - truth(at, offset_ns, ppm));

		CHECK(wrong <= l->bound_ns);
	}
	CHECK(l->bound_ns <= at_most);
}

TEST(clock_fit, round_trips_at_the_beginning_and_the_end)
{
	const int64_t offsets[] = {0, 100000, -3 * SECOND, 3 * SECOND};

	for (unsigned i = 0; i < 4; i++) {
		for (int ppm = -50; ppm <= 50; ppm += 25) {
			struct clock_span s[8];
			struct clock_line l;

			for (unsigned k = 0; k < 8; k++) {
				int64_t at = START + (k < 4 ? k : 56 + k) * SECOND;

				s[k] = trip(at, truth(at, offsets[i], ppm), 20000 + k * 7000,
					    90000 - k * 9000);
			}
			CHECK(clock_fit(s, 8, START, START + 60 * SECOND, &l));
			CHECK_INT(l.bent_ns, 0);
			check_line(&l, offsets[i], ppm, 60000);
			CHECK(l.drift * 1e6 > ppm - 3 && l.drift * 1e6 < ppm + 3);
		}
	}
}

TEST(clock_fit, one_moment_leaves_the_drift_open)
{
	struct clock_span s = trip(START, 5000, 1000, 1000);
	struct clock_line l;

	CHECK(clock_fit(&s, 1, START, START + 10 * SECOND, &l));
	check_line(&l, 5000, 199, 2002000);
	check_line(&l, 5000, -199, 2002000);
	CHECK(l.bound_ns > 1990000); /* 200 ppm of 10 s */
}

TEST(clock_fit, limits_of_one_side_each)
{
	struct clock_span s[] = {{START, 900, CLOCK_OPEN_HIGH}, {START, CLOCK_OPEN_LOW, 1100}};
	struct clock_line l;

	CHECK(!clock_fit(s, 1, START, START, &l));
	CHECK(!clock_fit(s + 1, 1, START, START, &l));
	CHECK(!clock_fit(s, 0, START, START, &l));
	CHECK(clock_fit(s, 2, START, START, &l));
	CHECK_INT(l.offset_ns, 1000);
	CHECK(l.bound_ns >= 100 && l.bound_ns <= 102);
}

TEST(clock_fit, a_clock_that_was_set_widens_the_bound)
{
	struct clock_span s[20];
	struct clock_line l;

	for (int k = 0; k < 20; k++)
		s[k] = trip(START + k * SECOND, k < 10 ? 0 : 50000000, 10000, 10000);
	CHECK(clock_fit(s, 20, START, START + 19 * SECOND, &l));
	CHECK(l.bent_ns > 20000000);
	for (int k = 0; k < 20; k++) {
		int64_t wrong = clock_line_at(&l, s[k].at_ns) - (k < 10 ? 0 : 50000000);

		CHECK(llabs(wrong) <= l.bound_ns);
	}
}
