/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Inefficient memory: which blocks are marked, what is told of them, and what they cost. */
#include "inefficient_rows.h"

TEST(inefficient, early)
{
	struct job j = job_new();

	pass(&j, 3);
	alloc(&j, 1, MIB);
	alloc(&j, 2, 10);
	drop(&j, 2);
	pass(&j, 10);
	use(&j, 1);
	drop(&j, 1);
	MARK(&j, 1, EARLY);
	MARK(&j, 2, "");
	FINDINGS(&j, 1);
	json_t *o = answer(&j);
	CHECK_INT(NUM(o, K EARLY ".blocks"), 1);
	CHECK_INT(NUM(o, K EARLY ".bytes"), MIB);
	CHECK_INT(NUM(o, K EARLY ".at_peak_bytes"), MIB);
	CHECK_INT(NUM(o, "pools.0.unused_at_peak_bytes"), MIB);
	CHECK_INT(NUM(o, "pools.0.peak_bytes"), MIB + 10);
	CHECK_INT(NUM(o, "pools.0.never_accessed.blocks"), 1);
	CHECK_STR(STR(o, "places.0.kind"), EARLY);
	CHECK_STR(STR(o, "places.0.c_stack.0"), "f");
	CHECK_INT(NUM(o, "places.0.examples.0.allocation_id"), 1);
	CHECK_INT(NUM(o, "places.0.examples.0.calls"), 13);
	CHECK_STR(STR(o, "places.0.examples.0.after"), "aten.mm.default");
	CHECK_HAS(said(&j, false),
		  "1.00 MiB of the 1.00 MiB (100.0 %) that the PTA pool of device 0 "
		  "held at its peak was");
	CHECK_HAS(said(&j, true),
		  "Allocated too early: 1.00 MiB in 1 block, all of it at the peak");
	analysis_free(j.a);
}

/* A free of another one in between is what makes it early: that memory could have served. */
/* A program that becomes another one (exec) keeps its number, and counts blocks anew. */
TEST(inefficient, findings_are_those_of_the_newest_process)
{
	struct job j = job_new();

	j.a->ops->process(j.a, 10, "one");
	pass(&j, 3);
	alloc(&j, 1, MIB);
	alloc(&j, 2, 10);
	drop(&j, 2);
	pass(&j, 10);
	use(&j, 1);
	MARK(&j, 1, EARLY);
	j.a->ops->process(j.a, 10, "two");
	alloc(&j, 1, MIB);
	MARK(&j, 1, "");
	analysis_free(j.a);
}

TEST(inefficient, early_needs_a_free_in_between)
{
	struct job j = job_new();

	alloc(&j, 2, 10);
	drop(&j, 2);
	alloc(&j, 1, MIB);
	pass(&j, 20);
	use(&j, 1);
	MARK(&j, 1, "");
	churn(&j); /* too late: its first use is over */
	use(&j, 1);
	MARK(&j, 1, "");
	drop(&j, 1);
	FINDINGS(&j, 0);
	CHECK_HAS(said(&j, false), "No inefficient memory: of 3 blocks none was allocated long "
				   "before its first use, freed");
	CHECK_STR(said(&j, true), "");
	analysis_free(j.a);
}

TEST(inefficient, late)
{
	struct job j = job_new();

	alloc(&j, 1, MIB);
	use(&j, 1);
	alloc(&j, 2, 10);
	pass(&j, 9);
	drop(&j, 1);
	MARK(&j, 1, LATE);
	FINDINGS(&j, 1);
	json_t *o = answer(&j);
	CHECK_INT(NUM(o, K LATE ".at_peak_bytes"), MIB);
	CHECK_STR(STR(o, "places.0.examples.0.before"), "aten.mm.default");
	CHECK_STR(STR(o, "places.0.examples.0.after"), "aten.other.default");
	alloc(&j, 3, MIB);
	use(&j, 3);
	pass(&j, 20); /* nobody else needed memory */
	drop(&j, 3);
	MARK(&j, 3, "");
	alloc(&j, 4, MIB);
	alloc(&j, 5, MIB);
	drop(&j, 4); /* never used: no rule is for that */
	MARK(&j, 4, "");
	analysis_free(j.a);
}

TEST(inefficient, idle_is_more_than_the_threshold_and_once)
{
	struct inefficient_options o = {.idle_calls = 20};
	struct job j = job_with(&o);

	alloc(&j, 1, MIB);
	use(&j, 1);
	pass(&j, 19);
	use(&j, 1); /* 20 calls after */
	MARK(&j, 1, "");
	pass(&j, 20);
	use(&j, 1);
	MARK(&j, 1, IDLE);
	pass(&j, 30);
	use(&j, 1);
	json_t *v = answer(&j);
	CHECK_INT(NUM(v, K IDLE ".marked_blocks"), 1);
	CHECK_INT(NUM(v, "idle_calls"), 20);
	drop(&j, 1);
	FINDINGS(&j, 0); /* 21 of 74 calls */
	alloc(&j, 2, MIB);
	pass(&j, 40); /* waiting for the first use is not idleness */
	use(&j, 2);
	MARK(&j, 2, "");
	drop(&j, 2);
	analysis_free(j.a);
}

TEST(inefficient, idle_at_3000_calls)
{
	struct job j = job_new();

	for (unsigned n = 2999; n <= 3000; n++) {
		alloc(&j, n, MIB);
		use(&j, n);
		pass(&j, n);
		use(&j, n);
		drop(&j, n);
	}
	MARK(&j, 2999, "");
	MARK(&j, 3000, IDLE);
	FINDINGS(&j, 1);
	analysis_free(j.a);
}

TEST(inefficient, tags_are_in_the_order_of_detection)
{
	struct inefficient_options o = {.idle_calls = 15};
	struct job j = job_with(&o);

	alloc(&j, 1, MIB);
	churn(&j);
	pass(&j, 10);
	use(&j, 1);
	pass(&j, 20);
	use(&j, 1);
	churn(&j);
	drop(&j, 1);
	MARK(&j, 1, EARLY "," IDLE "," LATE);
	CHECK_INT(inefficient_marked(j.a), 1);
	CHECK(!inefficient_of(j.a, PID + 1, 1));
	CHECK(!inefficient_of(j.a, PID, 99));
	analysis_free(j.a);
}

TEST(inefficient, filters)
{
	struct inefficient_options o = {.min_bytes = 100, .kinds = 1u << INEFFICIENT_LATE};
	struct job j = job_with(&o);

	for (uint64_t id = 1; id <= 2; id++) {
		alloc(&j, id, 98 + id);
		churn(&j);
		pass(&j, 10);
		use(&j, id);
		churn(&j);
		pass(&j, 20);
		drop(&j, id);
	}
	MARK(&j, 1, ""); /* 99 bytes */
	MARK(&j, 2, LATE);
	json_t *v = answer(&j);
	CHECK_INT(NUM(v, "min_bytes"), 100);
	CHECK_STR(STR(v, "types.0"), LATE);
	CHECK_INT(json_array_size(at(v, "types")), 1);
	CHECK_INT(NUM(v, K EARLY ".marked_blocks"), 0);
	CHECK_INT(NUM(v, K LATE ".marked_blocks"), 1);
	analysis_free(j.a);
}

/* A block is early and late, but that was not asked for. */
TEST(inefficient, what_was_not_looked_for_is_not_denied)
{
	static const struct {
		struct inefficient_options o;
		const char *want;
	} asked[] = {
		{{.kinds = 1u << INEFFICIENT_IDLE}, "none was left idle for most of its life."},
		{{.min_bytes = 2 * MIB, .kinds = 1u << INEFFICIENT_EARLY | 1u << INEFFICIENT_LATE},
		 "none of 2.00 MiB or more was allocated long before its first use, or freed long "
		 "after its last use."},
	};

	for (size_t i = 0; i < sizeof(asked) / sizeof(asked[0]); i++) {
		struct job j = job_with(&asked[i].o);

		alloc(&j, 1, MIB);
		churn(&j);
		pass(&j, 30);
		use(&j, 1);
		churn(&j);
		pass(&j, 30);
		drop(&j, 1);
		FINDINGS(&j, 0);
		const char *text = said(&j, false);
		char line[512];
		size_t n = 0;
		for (; text[n] && n < sizeof(line) - 1; n++) /* it is wrapped */
			line[n] = text[n] == '\n' ? ' ' : text[n];
		line[n] = '\0';
		CHECK_HAS(line, asked[i].want);
		analysis_free(j.a);
	}
}

TEST(inefficient, kinds_have_names)
{
	for (int k = 0; k < INEFFICIENT_KINDS; k++) {
		const char *name = inefficient_kind_name((enum inefficient_kind)k);
		CHECK_INT(inefficient_kind_find(name, strlen(name)), k);
	}
	CHECK_INT(inefficient_kind_find("late", 4), INEFFICIENT_LATE);
	CHECK_INT(inefficient_kind_find("idle", 4), INEFFICIENT_IDLE);
	CHECK_INT(inefficient_kind_find("lat", 3), INEFFICIENT_KINDS);
	CHECK_INT(inefficient_kind_find("", 0), INEFFICIENT_KINDS);
}

/* --- calls --- */

/* All that happens in an operator is one call, whatever operators run inside it. */
TEST(inefficient, an_inner_end_does_not_close_the_outer_operator)
{
	struct job j = job_new();

	begin(&j, "outer");
	alloc(&j, 1, MIB);
	begin(&j, "inner");
	churn(&j);
	done(&j, "inner");
	use(&j, 1); /* the same call as its MALLOC */
	alloc(&j, 2, MIB);
	drop(&j, 1);
	drop(&j, 2);
	done(&j, "outer");
	MARK(&j, 1, "");
	MARK(&j, 2, "");
	json_t *v = answer(&j);
	CHECK_INT(NUM(v, "operators"), 1 + 1);
	analysis_free(j.a);
}

/* An operator counts when it has ended: a free in a call that is still open has not happened. */
TEST(inefficient, an_open_call_does_not_count_yet)
{
	struct job j = job_new();

	alloc(&j, 9, 1);
	alloc(&j, 1, MIB);
	j.tid = 2;
	begin(&j, "frees");
	drop(&j, 9);
	j.tid = 1;
	use(&j, 1);
	MARK(&j, 1, "");
	j.tid = 2;
	done(&j, "frees");
	j.tid = 1;
	use(&j, 1);
	MARK(&j, 1, "");
	analysis_free(j.a);
}

TEST(inefficient, operators_nest_for_each_thread)
{
	struct job j = job_new();

	begin(&j, "op");
	alloc(&j, 1, MIB);
	j.tid = 2; /* not inside it */
	churn(&j);
	use(&j, 1);
	MARK(&j, 1, EARLY);
	j.tid = 1;
	done(&j, "op");
	analysis_free(j.a);
}

TEST(inefficient, ends_that_nobody_started)
{
	struct job j = job_new();

	done(&j, "never");
	begin(&j, "op");
	done(&j, "never");
	alloc(&j, 1, MIB);
	churn(&j);
	use(&j, 1); /* still in op */
	MARK(&j, 1, "");
	done(&j, "op");
	done(&j, "op");
	alloc(&j, 2, MIB);
	churn(&j);
	use(&j, 2);
	MARK(&j, 2, EARLY);
	analysis_free(j.a);
}

/* Is the clock of the thread free again? */
static void check_not_stuck(struct job *j, uint64_t id)
{
	alloc(j, id, MIB);
	churn(j);
	use(j, id);
	MARK(j, id, EARLY);
}

TEST(inefficient, a_lost_end_does_not_stop_the_clock)
{
	struct job j = job_new();

	begin(&j, "outer");
	begin(&j, "lost");
	done(&j, "outer"); /* takes the inner one along */
	check_not_stuck(&j, 1);
	step(&j, 1);
	begin(&j, "lost");
	step(&j, 2);
	check_not_stuck(&j, 2);
	for (int i = 0; i < 65; i++)
		begin(&j, "deep");
	done(&j, "deep");
	check_not_stuck(&j, 3);
	begin(&j, "lost");
	for (int i = 0; i < 65538; i++) {
		begin(&j, "inner");
		done(&j, "inner");
	}
	check_not_stuck(&j, 4);
	analysis_free(j.a);
}

TEST(inefficient, devices_have_clocks_of_their_own)
{
	struct job j = job_new();

	alloc(&j, 1, MIB);
	j.device = 1;
	j.tid = 2;
	churn(&j);
	pass(&j, 4000);
	j.device = 0;
	j.tid = 1;
	use(&j, 1); /* the free was of another device */
	MARK(&j, 1, "");
	pass(&j, 1);
	use(&j, 1);
	MARK(&j, 1, "");
	json_t *v = answer(&j);
	CHECK_INT(json_array_size(at(v, "pools")), 2);
	analysis_free(j.a);
}

TEST(inefficient, atb_counts_its_own_operators)
{
	struct inefficient_options o = {.idle_calls = 20};
	struct job j = job_with(&o);

	j.pool = TYPE_ATB;
	alloc(&j, 1, MIB);
	use(&j, 1);
	j.pool = TYPE_PTA;
	alloc(&j, 2, MIB);
	pass(&j, 30); /* of ATen */
	j.pool = TYPE_ATB;
	use(&j, 1);
	MARK(&j, 1, "");
	pass(&j, 30);
	use_as(&j, 1, "x", "PTA"); /* ATen's word for it does not count */
	MARK(&j, 1, "");
	use(&j, 1);
	MARK(&j, 1, IDLE);
	analysis_free(j.a);
}

TEST(inefficient, other_pools_are_not_judged)
{
	struct job j = job_new();

	j.pool = TYPE_HAL;
	alloc(&j, 1, MIB);
	churn(&j);
	use(&j, 1);
	drop(&j, 1);
	MARK(&j, 1, "");
	CHECK_HAS(said(&j, false), "Nothing to judge: no memory of PyTorch's or ATB's pool");
	CHECK(json_is_false(at(answer(&j), "judged")));
	analysis_free(j.a);
}

TEST(inefficient, without_accesses_nothing_can_be_told)
{
	struct job j = job_new();

	alloc(&j, 1, MIB);
	churn(&j);
	drop(&j, 1);
	CHECK_HAS(said(&j, false), "Whether memory was used well is unknown: no operator reported");
	CHECK_HAS(said(&j, false), "--analysis=inefficient");
	CHECK_STR(said(&j, true), "");
	CHECK(json_is_false(at(answer(&j), "judged")));
	FINDINGS(&j, 0);
	analysis_free(j.a);
	j = job_new();
	CHECK_HAS(said(&j, false), "Nothing to judge");
	analysis_free(j.a);
}

/* --- what is told --- */

TEST(inefficient, short_waits_are_marked_but_not_told)
{
	struct job j = job_new();

	alloc(&j, 1, MIB);
	churn(&j);
	pass(&j, 6);
	use(&j, 1); /* 9 calls */
	drop(&j, 1);
	alloc(&j, 2, MIB);
	churn(&j);
	pass(&j, 20);
	use(&j, 2);
	pass(&j, 30); /* more than half of its life is good */
	use(&j, 2);
	drop(&j, 2);
	MARK(&j, 1, EARLY);
	MARK(&j, 2, EARLY);
	FINDINGS(&j, 0);
	CHECK_HAS(said(&j, false), "2 blocks match one of the plain rules and are marked");
	analysis_free(j.a);
}

TEST(inefficient, the_model_waits_for_the_first_step)
{
	struct job j = job_new();

	alloc(&j, 1, MIB);
	churn(&j);
	pass(&j, 30);
	step(&j, 1);
	use(&j, 1);
	MARK(&j, 1, EARLY);
	FINDINGS(&j, 0);
	alloc(&j, 2, MIB);
	churn(&j);
	pass(&j, 30);
	use(&j, 2);
	FINDINGS(&j, 1); /* in a step */
	analysis_free(j.a);
}

/* Without steps, and where the steps are announced by the thread of another device. */
TEST(inefficient, the_model_waits_for_the_first_operator)
{
	struct job j = job_new();

	for (uint64_t id = 1; id <= 2; id++) {
		j.device = 1;
		alloc(&j, id, MIB);
		churn(&j);
		for (int i = 0; i < 30; i++)
			churn(&j);
		pass(&j, 1);
		use(&j, id);
		drop(&j, id);
		MARK(&j, id, EARLY);
		FINDINGS(&j, id - 1);
	}
	analysis_free(j.a);
}

/* PyTorch allocates a result inside the operator that computes it. */
TEST(inefficient, a_computed_block_is_not_early)
{
	static const char *const names[] = {"torch._ops.aten.mm.default",
					    "torch._ops.aten.empty.memory_format",
					    "torch._ops.aten.new_zeros.default"};
	struct job j = job_new();

	for (uint64_t i = 0; i < 3; i++) {
		begin(&j, names[i]);
		alloc(&j, i + 1, MIB << i);
		use_as(&j, i + 1, names[i], "PTA");
		done(&j, names[i]);
		churn(&j);
		pass(&j, 20);
		use(&j, i + 1);
		drop(&j, i + 1);
		MARK(&j, i + 1, EARLY);
		FINDINGS(&j, i ? 1 : 0);
	}
	json_t *v = answer(&j);
	CHECK_INT(NUM(v, K EARLY ".blocks"), 2);
	CHECK_INT(NUM(v, K EARLY ".at_peak_bytes"), 4 * MIB); /* its MALLOC was the peak */
	CHECK_STR(STR(v, "places.0.examples.0.before"), names[1]);
	analysis_free(j.a);
}

TEST(inefficient, a_block_from_before_the_recording_is_not_told)
{
	struct job j = job_new();
	struct row r = memory_row(ROW_MALLOC, TYPE_PTA, 1, MIB);

	row_attr_text(&r, ATTR_SHADOW, "true", 4);
	row_of(&j, r);
	churn(&j);
	pass(&j, 30);
	use(&j, 1);
	drop(&j, 1);
	FINDINGS(&j, 0);
	analysis_free(j.a);
}

TEST(inefficient, blocks_that_are_never_freed)
{
	struct job j = job_new();

	for (uint64_t id = 1; id <= 2; id++) {
		alloc(&j, id, MIB);
		churn(&j);
		pass(&j, 90 / (unsigned)id);
		use(&j, id);
	}
	FINDINGS(&j, 1);
	CHECK_INT(NUM(answer(&j), K EARLY ".blocks"), 2);
	CHECK_INT(NUM(answer(&j), K EARLY ".blocks"), 2); /* asking changes nothing */
	left(&j, 1);
	CHECK_INT(NUM(answer(&j), K EARLY ".blocks"), 2);
	use(&j, 1); /* of nobody any more */
	left(&j, 1);
	left(&j, 2);
	alloc(&j, 3, 1); /* the job goes on */
	CHECK_INT(NUM(answer(&j), K EARLY ".blocks"), 2);
	CHECK_INT(NUM(answer(&j), K LATE ".marked_blocks"), 0);
	analysis_free(j.a);
}

TEST(inefficient, rows_that_do_not_fit_together)
{
	struct job j = job_new();

	drop(&j, 77);
	use(&j, 77);
	alloc(&j, 1, MIB);
	alloc(&j, 1, MIB); /* its free was lost */
	churn(&j);
	pass(&j, 20);
	use(&j, 1);
	alloc(&j, 1, MIB);
	drop(&j, 1);
	drop(&j, 1);
	begin(&j, "");
	done(&j, "");
	for (uint32_t tid = 0; tid < 70000; tid++) {
		j.tid = tid;
		begin(&j, "op");
	}
	FINDINGS(&j, 0);
	analysis_free(j.a);
}

TEST(inefficient, many_names)
{
	struct job j = job_new();
	char name[32];

	alloc(&j, 1, 1);
	for (int i = 0; i < 100010; i++) {
		snprintf(name, sizeof(name), "op%d", i);
		begin(&j, name);
		done(&j, name);
	}
	use_as(&j, 1, "the last one", "PTA");
	CHECK_INT(NUM(answer(&j), "operators"), 1 + 100010);
	analysis_free(j.a);
}

/* The peak counts where the pool last stood at it; a higher one starts anew. */
TEST(inefficient, only_the_last_peak_counts)
{
	struct job j = job_new();

	alloc(&j, 1, MIB);
	churn(&j);
	pass(&j, 10);
	use(&j, 1);
	drop(&j, 1);
	CHECK_INT(NUM(answer(&j), K EARLY ".at_peak_bytes"), MIB);
	alloc(&j, 2, 4 * MIB);
	json_t *v = answer(&j);
	CHECK_INT(NUM(v, K EARLY ".at_peak_bytes"), 0);
	CHECK_INT(NUM(v, K EARLY ".bytes"), MIB);
	CHECK_HAS(said(&j, false), "but not while a pool was at its peak");
	analysis_free(j.a);
}
