/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Which collectives of two hosts belong together, and what they say about their clocks. */
#include "timeline/collectives.h"

#include <stdlib.h>
#include <string.h>

#include "base/containers/intern.h"
#include "test.h"

#define START UINT64_C(1794723775000000000)
#define US UINT64_C(1000)
#define MS UINT64_C(1000000)
#define OFFSET (INT64_C(1234567) * 1000) /* by which the clock of host 1 is ahead */

struct job {
	unsigned steps, first_of_1; /* host 1 has only steps from this one on */
	uint64_t jitter_ns; /* of the time between collectives */
	unsigned lose_each; /* host 1 loses one of so many; 0: none */
	bool with_steps;
};

static uint64_t noise(uint64_t i)
{
	return i * 6364136223846793005u % 1000003u;
}

/* Eight all-reduces a step. One host begins each of them early, now this one, now the other. */
static void add_rank(struct collectives *c, const struct job *j, unsigned host)
{
	const char *group = intern("world", 5), *name = intern("hcom_allReduce_", 15);
	uint64_t at = START, step_start = START, n = 0;

	collectives_begin_rank(c, host);
	for (unsigned step = 0; step < j->steps; step++) {
		bool there = !host || step >= j->first_of_1;

		for (unsigned k = 0; k < 8; k++, n++) {
			uint64_t late = (n & 1) == host ? 0 : 300 * US;
			uint64_t ahead = host ? (uint64_t)OFFSET : 0;

			at += 2 * MS + (j->jitter_ns ? noise(n) % j->jitter_ns : 0);
			if (there && !(host && j->lose_each && n % j->lose_each == 5))
				collectives_add(c,
						&(struct collective){
							group, name, 1000, at + late + ahead,
							at + 340 * US + noise(n * 2 + host) % 2000 +
								ahead});
		}
		if (there && j->with_steps)
			collectives_add_step(c, step, step_start + (host ? OFFSET : 0),
					     at + (host ? OFFSET : 0));
		step_start = at;
	}
}

/* Whether all pairs are true; the corridor that is left for the difference. */
static bool match(const struct job *j, int64_t *out_low, int64_t *out_high, uint64_t *out_unclear)
{
	struct collectives *c = collectives_new();
	struct collective_pairs pairs = {0};

	*out_low = INT64_MIN;
	*out_high = INT64_MAX;
	add_rank(c, j, 0);
	add_rank(c, j, 1);
	collectives_match(c, NULL, NULL, &pairs);
	for (size_t i = 0; i < pairs.n; i++) { /* a is 0: its clock minus that of 1 */
		if (pairs.list[i].low_ns > *out_low)
			*out_low = pairs.list[i].low_ns;
		if (pairs.list[i].high_ns < *out_high)
			*out_high = pairs.list[i].high_ns;
	}
	*out_unclear = pairs.unclear;
	bool any = pairs.n > 0;
	free(pairs.list);
	collectives_free(c);
	return any;
}

static void check_found(const struct job *j)
{
	int64_t low, high;
	uint64_t unclear;

	CHECK(match(j, &low, &high, &unclear));
	CHECK_INT(unclear, 0);
	CHECK(low <= -OFFSET && high >= -OFFSET);
	CHECK(high - low < (int64_t)(90 * US)); /* it takes 40 µs from the last start on */
}

static void check_unclear(const struct job *j)
{
	int64_t low, high;
	uint64_t unclear;

	CHECK(!match(j, &low, &high, &unclear));
	CHECK_INT(unclear, 1);
}

TEST(collectives, those_that_belong_together)
{
	check_found(&(struct job){.steps = 40, .jitter_ns = 100 * US});
}

TEST(collectives, one_host_begins_to_record_later)
{
	check_found(&(struct job){.steps = 60, .first_of_1 = 20, .jitter_ns = 100 * US});
}

TEST(collectives, some_are_lost)
{
	check_found(&(struct job){.steps = 60, .jitter_ns = 100 * US, .lose_each = 40});
}

TEST(collectives, where_each_step_is_like_the_other_nothing_is_said)
{
	check_unclear(&(struct job){.steps = 40});
}

TEST(collectives, too_few_to_be_sure)
{
	check_unclear(&(struct job){.steps = 1, .jitter_ns = 100 * US});
}

TEST(collectives, numbers_of_steps_make_a_few_enough)
{
	check_found(&(struct job){.steps = 2, .jitter_ns = 100 * US, .with_steps = true});
}

TEST(collectives, only_where_nobody_ends_before_all_have_begun)
{
	CHECK(collectives_is_one("ncclDevKernel_AllReduce_Sum_f32_RING_LL"));
	CHECK(collectives_is_one("hcom_reduceScatter_"));
	CHECK(collectives_is_one("_allgather_base"));
	CHECK(collectives_is_one("barrier"));
	CHECK(!collectives_is_one("ncclDevKernel_Reduce_Sum_f32_RING_LL"));
	CHECK(!collectives_is_one("hcom_broadcast_"));
	CHECK(!collectives_is_one("ncclDevKernel_SendRecv"));
	CHECK(!collectives_is_one(""));
}
