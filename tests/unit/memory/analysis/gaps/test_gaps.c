/* SPDX-License-Identifier: MulanPSL-2.0 */
/* The least and the most memory in use within each step. */
#include "leak_rows.h"
#include "memory/analysis/gaps/gaps.h"

/* A step that goes from what is there up to `high` and back. */
static void swing(struct job *j, uint64_t high)
{
	begin_step(j);
	give_one(j, take_one(j, high - j->used, NULL));
	end_step(j);
}

TEST(gaps, todays_table)
{
	struct analysis *a = gap_new(NULL);
	struct job j = job_of(a);

	take_one(&j, 3 * MIB + MIB / 2, NULL);
	swing(&j, 3500 * MIB); /* the warm-up does not count */
	swing(&j, 20 * MIB);
	swing(&j, 14 * MIB);
	swing(&j, 28 * MIB);
	swing(&j, 14 * MIB); /* an equal one does not replace the first */
	CHECK_HAS(text_answer(a, false),
		  "\n======= Pytorch Caching memory pool Gap Analysis of Device 0 =======\n"
		  "\tMinAlloc/MaxAlloc(%)     MinAllocMem(MiB)         StepId\n"
		  "MinGap\t12.5000                  3.5000                   4\n"
		  "MaxGap\t25.0000                  3.5000                   3\n");
	CHECK_HAS(text_answer(a, true), "Gap Analysis of Device 0");
	CHECK_HAS(text_answer(a, true), "MinAllocMem(MB) "); /* as scripts know it */
	CHECK(!strncmp(text_answer(a, false),
		       "Within a step, the PTA memory of process 10 on device 0 falls to 12.5 % of",
		       70));
	json_t *o = json_answer(a);
	CHECK_INT(NUM(o, "pools.0.steps"), 4);
	CHECK_INT(NUM(o, "pools.0.min_gap.step"), 4);
	CHECK_INT(NUM(o, "pools.0.min_gap.max_bytes"), 28 * MIB);
	CHECK(json_real_value(at(o, "pools.0.max_gap.ratio")) == 0.25);
	CHECK(json_is_false(at(o, "pools.0.uneven")));
	CHECK_INT(a->ops->findings(a), 0);
	json_decref(o);
	analysis_free(a);
	a = gap_new(&(struct gap_options){10});
	analysis_free(a);
}

TEST(gaps, uneven_steps_are_found)
{
	struct analysis *a = gap_new(&(struct gap_options){10});
	struct job j = job_of(a);

	take_one(&j, MIB, NULL);
	swing(&j, 2 * MIB);
	swing(&j, 10 * MIB); /* 10 % */
	swing(&j, 5 * MIB); /* 20 % */
	CHECK_INT(a->ops->findings(a), 0);
	swing(&j, 4 * MIB); /* 25 % */
	CHECK_INT(a->ops->findings(a), 1);
	CHECK_HAS(text_answer(a, false), "the steps are not alike");
	analysis_free(a);
}

TEST(gaps, every_pool_has_its_own)
{
	struct analysis *a = gap_new(NULL);
	struct job j = job_of(a);
	static const enum row_type types[] = {TYPE_HAL, TYPE_ATB, TYPE_HOST};

	for (unsigned s = 1; s <= 3; s++) {
		begin_step(&j);
		for (unsigned i = 0; i < 3; i++) {
			j.type = types[i];
			j.device = types[i] == TYPE_HOST ? DEV_HOST : 0;
			j.used = (i + 1) * MIB;
			give_one(&j, take_one(&j, MIB, NULL));
		}
		j.device = 0;
		end_step(&j);
	}
	const char *text = text_answer(a, false);
	CHECK_HAS(text, "======= ATB memory pool Gap Analysis of Device 0 =======");
	CHECK_HAS(text, "======= HAL memory Gap Analysis of Device 0 =======\n"
			"\tMinAlloc/MaxAlloc(%)     MinAllocMem(MiB)         StepId\n"
			"MinGap\t50.0000                  1.0000                   2\n"
			"MaxGap\t50.0000                  1.0000                   2\n");
	CHECK_HAS(text, "======= Host memory Gap Analysis of Device cpu =======\n"
			"\tMinAlloc/MaxAlloc(%)     MinAllocMem(MiB)         StepId\n"
			"MinGap\t75.0000 ");
	analysis_free(a);
}

TEST(gaps, nothing_to_compare)
{
	struct analysis *a = gap_new(NULL);
	struct job j = job_of(a);

	CHECK_HAS(text_answer(a, false), "nothing to compare");
	CHECK_STR(text_answer(a, true), "");
	swing(&j, MIB);
	begin_step(&j); /* a step in which nothing happens */
	end_step(&j);
	begin_step(&j); /* nothing was in use */
	j.used = 0;
	struct mem m = take_one(&j, 0, NULL);
	give_one(&j, m);
	end_step(&j);
	begin_step(&j); /* does not end */
	give_one(&j, take_one(&j, MIB, NULL));
	json_t *o = json_answer(a);
	CHECK_INT(json_array_size(at(o, "pools")), 0);
	json_decref(o);
	analysis_free(a);
}

/* What happens between two steps belongs to the next one; before the second step it is nothing. */
TEST(gaps, between_steps)
{
	struct analysis *a = gap_new(NULL);
	struct job j = job_of(a);

	take_one(&j, MIB, NULL);
	swing(&j, 2 * MIB);
	give_one(&j, take_one(&j, 999 * MIB, NULL));
	swing(&j, 2 * MIB);
	give_one(&j, take_one(&j, 3 * MIB, NULL));
	swing(&j, 2 * MIB);
	json_t *o = json_answer(a);
	CHECK_INT(NUM(o, "pools.0.steps"), 2);
	CHECK(json_real_value(at(o, "pools.0.max_gap.ratio")) == 0.5);
	CHECK(json_real_value(at(o, "pools.0.min_gap.ratio")) == 0.25);
	CHECK_INT(NUM(o, "pools.0.min_gap.step"), 3);
	json_decref(o);
	analysis_free(a);
}

/* A pool that takes one block in a step, and keeps it, has changed. */
TEST(gaps, one_block_is_a_change)
{
	struct analysis *a = gap_new(NULL);
	struct job j = job_of(a);

	j.type = TYPE_HAL;
	take_one(&j, 3 * MIB, NULL);
	for (unsigned s = 1; s <= 3; s++) {
		begin_step(&j);
		if (s == 3)
			take_one(&j, MIB, NULL);
		end_step(&j);
	}
	CHECK_HAS(text_answer(a, false),
		  "falls to 75.0 % of its maximum (3.00 MiB of 4.00 MiB) in step 3.");
	analysis_free(a);
}
