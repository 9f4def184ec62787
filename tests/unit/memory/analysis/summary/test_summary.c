/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Summaries: what is counted. test_summary_text.c has what is said about it. */
#include "summary_rows.h"

TEST(summary, counts_and_peak_of_a_pool)
{
	struct summary *s = summary_new();

	take(s, 0, hal(1, MIB));
	take(s, 10, hal(2, 2 * MIB));
	give(s, 20, hal(1, MIB));
	take(s, 30, hal(3, MIB)); /* as high as before: the peak is the first time */
	give(s, 40, hal(2, 0));
	give(s, 3200, hal(3, 0));
	json_t *o = json_of(s, 10);
	CHECK_INT(NUM(o, POOL "mallocs"), 3);
	CHECK_INT(NUM(o, POOL "frees"), 3);
	CHECK_INT(NUM(o, POOL "events"), 6);
	CHECK_INT(NUM(o, POOL "peak_bytes"), 3 * MIB);
	CHECK_INT(NUM(o, POOL "peak_blocks"), 2);
	CHECK_INT(NUM(o, POOL "peak_time_ns"), T0 + 10 * MS);
	CHECK_INT(NUM(o, POOL "peak_after_ns"), 10 * MS);
	CHECK_INT(NUM(o, POOL "alive_at_end.blocks"), 0);
	CHECK_INT(NUM(o, "duration_ns"), 3200 * (long long)MS);
	CHECK_STR(STR(o, POOL "pool"), "HAL");
	CHECK_STR(STR(o, POOL "device"), "0");
	CHECK(json_is_true(at(o, "time_ordered")));
	json_decref(o);
	CHECK_STR(answer_of(s), "1 process made 6 memory events in 3.2 s. Device 0 peaked at 3.00 "
				"MiB 10.0 ms after the start. Everything that was allocated was "
				"freed again.");
	const char *t = text_of(s);
	CHECK_HAS(t, "No events were lost.\n");
	CHECK_LACKS(t, "Still allocated");
	CHECK_LACKS(t, "\033");
	summary_free(s);
}

TEST(summary, blocks_without_any_free_are_alive)
{
	struct summary *s = summary_new();

	take(s, 0, pta(1, 100, OTHER_STACK));
	take(s, 1, pta(2, 200, OTHER_STACK));
	give(s, 2, pta(1, 100, NULL));
	CHECK_HAS(answer_of(s), "1 block (200 B) of PTA was still allocated at the end of process "
				"10, all of it from make_model (train).");
	summary_free(s);
}

/* Whatever the order of growth and shrinking, alive_at_peak is the state of the highest moment. */
TEST(summary, what_was_held_at_the_peak)
{
	static const char *const stacks[] = {"a", "b", "c"};
	uint64_t now[3] = {0}, best[3] = {0}, sum = 0, top = 0, id = 0, seed = 12345;
	uint64_t ids[600], sizes[600], owner[600];
	size_t n = 0;
	struct summary *s = summary_new();

	for (int i = 0; i < 20000; i++) {
		seed = seed * 6364136223846793005u + 1442695040888963407u;
		uint64_t r = seed >> 33;
		if (n < 600 && (r & 1 || !n)) {
			ids[n] = ++id;
			sizes[n] = 1 + r % 1000;
			owner[n] = r / 1000 % 3;
			take(s, (uint64_t)i, pta(id, sizes[n], stacks[owner[n]]));
			now[owner[n]] += sizes[n];
			sum += sizes[n++];
		} else {
			size_t k = r % n--;
			give(s, (uint64_t)i, pta(ids[k], 0, NULL));
			now[owner[k]] -= sizes[k];
			sum -= sizes[k];
			ids[k] = ids[n];
			sizes[k] = sizes[n];
			owner[k] = owner[n];
		}
		if (sum > top) {
			top = sum;
			memcpy(best, now, sizeof(best));
		}
	}
	json_t *o = json_of(s, 10), *places = at(o, POOL "alive_at_peak.places");
	CHECK_INT(NUM(o, POOL "peak_bytes"), top);
	CHECK_INT(NUM(o, POOL "alive_at_peak.bytes"), top);
	CHECK_INT(NUM(o, POOL "alive_at_end.bytes"), sum);
	CHECK_INT(json_array_size(places), 3);
	for (size_t i = 0; i < 3; i++) {
		json_t *p = json_array_get(places, i);
		CHECK_INT(NUM(p, "bytes"), best[STR(p, "c_stack.0")[0] - 'a']);
	}
	json_decref(o);
	summary_free(s);
}

TEST(summary, a_made_up_free_in_the_middle_is_told_apart)
{
	struct summary *s = summary_new();

	take(s, 0, pta(1, 100, NULL));
	end(s, 10, pta(1, 100, NULL)); /* the address was handed out anew */
	take(s, 10, pta(2, 100, NULL));
	give(s, 20, pta(2, 100, NULL));
	json_t *o = json_of(s, 10);
	CHECK_INT(NUM(o, POOL "frees"), 1);
	CHECK_INT(NUM(o, POOL "synthetic_frees"), 1);
	CHECK_INT(NUM(o, POOL "alive_at_end.blocks"), 0);
	CHECK_INT(NUM(o, POOL "peak_bytes"), 100);
	json_decref(o);
	CHECK_HAS(text_of(s),
		  "1 block was freed unseen, for example while nothing was recorded; it is "
		  "not among the frees.");
	summary_free(s);
}

TEST(summary, frees_between_two_windows_are_told_apart)
{
	struct summary *s = summary_new();

	take(s, 0, hal(1, 100));
	take(s, 1, hal(2, 100));
	end(s, 10, hal(1, 0)); /* freed while nobody recorded, told when recording began again */
	struct row r = base_row(ROW_SYSTEM, TYPE_START_TRACE, 10, 10);
	r.device = DEV_NONE;
	summary_add(s, &r);
	end(s, 50, hal(2, 0));
	event(s, ROW_SYSTEM, TYPE_ACL_FINI, NULL);
	json_t *o = json_of(s, 10);
	CHECK_INT(NUM(o, POOL "frees"), 0);
	CHECK_INT(NUM(o, POOL "synthetic_frees"), 2);
	CHECK_INT(NUM(o, POOL "alive_at_end.blocks"), 1);
	json_decref(o);
	summary_free(s);
}

TEST(summary, a_real_free_beats_a_made_up_one)
{
	struct summary *s = summary_new();

	take(s, 0, hal(1, 100));
	take(s, 0, hal(2, 100));
	end(s, 10, hal(1, 0));
	end(s, 10, hal(1, 0));
	end(s, 10, hal(2, 0));
	give(s, 10, hal(1, 0));
	end(s, 10, hal(7, 0)); /* of a block nobody knows: nothing to say */
	json_t *o = json_of(s, 10);
	CHECK_INT(NUM(o, POOL "frees"), 1);
	CHECK_INT(NUM(o, POOL "synthetic_frees"), 1);
	CHECK_INT(NUM(o, POOL "alive_at_end.blocks"), 1);
	json_decref(o);
	take(s, 20, hal(8, 100)); /* and the pool goes on */
	o = json_of(s, 10);
	CHECK_INT(NUM(o, POOL "frees"), 1);
	CHECK_INT(NUM(o, POOL "synthetic_frees"), 1);
	CHECK_INT(NUM(o, POOL "alive_at_end.blocks"), 1);
	json_decref(o);
	summary_free(s);
}

TEST(summary, frees_of_blocks_from_before_are_told)
{
	struct summary *s = summary_new();

	give(s, 0, hal(5, 100));
	give(s, 1, hal(6, 100));
	json_t *o = json_of(s, 10);
	CHECK_INT(NUM(o, POOL "unmatched_frees"), 2);
	CHECK_INT(NUM(o, POOL "peak_bytes"), 0);
	json_decref(o);
	CHECK_HAS(text_of(s), "2 frees were of blocks whose allocation was not recorded.\n");
	summary_free(s);
}

TEST(summary, frees_that_were_not_recorded_are_told)
{
	struct summary *s = summary_new();

	take(s, 0, hal(1, 100));
	CHECK_HAS(text_of(s), "Not one free was recorded");
	json_t *o = json_of(s, 10);
	CHECK(json_is_false(at(o, "processes.0.frees_recorded")));
	json_decref(o);
	end(s, 1, hal(1, 100));
	CHECK_LACKS(text_of(s), "Not one free was recorded");
	summary_free(s);
}

TEST(summary, the_same_pid_twice_is_two_processes)
{
	struct summary *s = summary_new();

	summary_process(s, 10, "first");
	take(s, 0, hal(1, 100));
	end(s, 1, hal(1, 100));
	summary_process(s, 10, "second");
	take(s, 2, hal(1, 300));
	give(s, 3, hal(1, 300));
	json_t *o = json_of(s, 10);
	CHECK_INT(json_array_size(at(o, "processes")), 2);
	CHECK_STR(STR(o, "processes.0.command"), "first");
	CHECK_INT(NUM(o, "processes.0.pools.0.alive_at_end.bytes"), 100);
	CHECK_STR(STR(o, "processes.1.command"), "second");
	CHECK_INT(NUM(o, "processes.1.pools.0.alive_at_end.bytes"), 0);
	CHECK_INT(NUM(o, "devices.0.peak_bytes"), 300);
	json_decref(o);
	summary_free(s);
}

/* A dump does not announce processes: an id that is handed out again gives it away. */
TEST(summary, the_same_pid_twice_in_a_dump)
{
	struct summary *s = summary_new();

	take(s, 0, hal(1, 100));
	end(s, 1, hal(1, 100));
	take(s, 2, hal(1, 300));
	json_t *o = json_of(s, 10);
	CHECK_INT(json_array_size(at(o, "processes")), 2);
	CHECK_INT(NUM(o, "processes.0.rows"), 2);
	CHECK_INT(NUM(o, "processes.0.pools.0.alive_at_end.bytes"), 100);
	CHECK_INT(NUM(o, "processes.1.rows"), 1);
	CHECK_INT(NUM(o, "processes.1.pools.0.alive_at_end.bytes"), 300);
	json_decref(o);
	summary_free(s);
}

TEST(summary, a_device_is_the_sum_of_its_processes)
{
	struct summary *s = summary_new();
	struct blk a = hal(1, 100), b = hal(1, 50);

	b.pid = 11;
	take(s, 0, a);
	take(s, 1, b);
	give(s, 2, a);
	give(s, 3, b);
	json_t *o = json_of(s, 10);
	CHECK_INT(NUM(o, "devices.0.peak_bytes"), 150);
	CHECK_INT(NUM(o, "devices.0.peak_after_ns"), MS);
	CHECK(json_is_false(at(o, "devices.0.peak_is_lower_bound")));
	json_decref(o);
	CHECK_HAS(answer_of(s), "2 processes made 4 memory events");
	summary_free(s);
}

/* Rows of a process that has just appeared come later than those of the others. */
TEST(summary, rows_of_processes_are_added_up_in_order_of_time)
{
	struct summary *s = summary_new();
	struct blk a = hal(1, 100), b = hal(1, 150);

	b.pid = 11;
	take(s, 0, a);
	give(s, 2, a);
	take(s, 3, b);
	take(s, 1, (struct blk){12, 0, TYPE_HAL, 1, 70, NULL, NULL});
	json_t *o = json_of(s, 10);
	CHECK(json_is_true(at(o, "time_ordered")));
	CHECK_INT(NUM(o, "devices.0.peak_bytes"), 220);
	CHECK_INT(NUM(o, "devices.0.peak_after_ns"), 3 * MS);
	CHECK(json_is_false(at(o, "devices.0.peak_is_lower_bound")));
	json_decref(o);
	CHECK_HAS(answer_of(s), "Device 0 peaked at 220 B");
	summary_free(s);
}

/* The end of a process is noticed a little late: that does not put its rows out of order. */
TEST(summary, a_made_up_free_is_as_late_as_it_was_noticed)
{
	struct summary *s = summary_new();
	struct blk b = hal(1, 50);

	b.pid = 11;
	take(s, 0, hal(1, 100));
	end(s, 9, hal(1, 0));
	take(s, 10, b);
	json_t *o = json_of(s, 10);
	CHECK_INT(NUM(o, "devices.0.peak_bytes"), 100);
	CHECK(json_is_false(at(o, "devices.0.peak_is_lower_bound")));
	CHECK(json_is_true(at(o, "time_ordered")));
	json_decref(o);
	summary_free(s);
}

TEST(summary, a_process_that_goes_back_in_time_is_told)
{
	struct summary *s = summary_new();

	take(s, 10, hal(1, 100));
	take(s, 5, hal(2, 100));
	json_t *o = json_of(s, 10);
	CHECK(json_is_false(at(o, "time_ordered")));
	CHECK_INT(NUM(o, "first_time_ns"), T0 + 5 * MS);
	json_decref(o);
	CHECK_HAS(text_of(s), "not in the order of time");
	summary_free(s);
}

/* More than an entry of the block map can hold. */
TEST(summary, enormous_blocks)
{
	struct summary *s = summary_new();

	take(s, 0, hal(1, 1ull << 45));
	take(s, 1, hal(2, 1ull << 44));
	give(s, 2, hal(1, 0));
	take(s, 3, hal(3, (1ull << 40) - 1));
	end(s, 4, hal(2, 0));
	end(s, 4, hal(3, 0));
	json_t *o = json_of(s, 10);
	CHECK_INT(NUM(o, POOL "peak_bytes"), (1ll << 45) + (1ll << 44));
	CHECK_INT(NUM(o, POOL "alive_at_end.bytes"), (1ll << 44) + (1ll << 40) - 1);
	json_decref(o);
	CHECK_HAS(answer_of(s), "Device 0 peaked at 48.00 TiB");
	summary_free(s);
}

/* Rows with missing attributes, ids that return, and extreme numbers only have to be survived. */
TEST(summary, survives_nonsense)
{
	struct summary *s = summary_new();
	uint64_t seed = 99;

	for (int i = 0; i < 200000; i++) {
		seed = seed * 6364136223846793005u + 1442695040888963407u;
		struct row r = base_row((enum row_event)(seed >> 60),
					(enum row_type)(seed >> 50 & 63), seed >> 40 & 3, 0);
		r.time_ns = seed >> 20 & 0xff ? (uint64_t)i : seed;
		r.device = seed >> 30 & 1 ? UINT32_MAX : 0;
		if (seed >> 33 & 7)
			row_attr_number(&r, ATTR_ALLOCATION_ID, seed >> 22 & 63);
		row_attr_number(&r, ATTR_SIZE, seed >> 35 & 1 ? UINT64_MAX : seed & 0xfff);
		if (!(seed >> 36 & 3))
			row_attr_text(&r, ATTR_SHADOW, "true", 4);
		if (!(i % 1000))
			summary_process(s, r.pid, NULL);
		summary_add(s, &r);
	}
	CHECK(strlen(text_of(s)) > 100);
	json_decref(json_of(s, 1000));
	summary_free(s);
}
