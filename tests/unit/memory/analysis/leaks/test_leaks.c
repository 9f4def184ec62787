/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Which places are leaks: each kind of place, alone and together, in jobs of many lengths. */
#include "leak_rows.h"
#include "memory/analysis/gaps/gaps.h"
#include "memory/analysis/leaks/leaks.h"
#include "memory/analysis/leaks/marks.h"
#include "memory/analysis/processes/processes.h"

#define LEAK STACK_OF("leak_one_buffer")
#define OTHER STACK_OF("make_cache")

/* The kind of the only place that is listed, "" if there is none. */
static const char *only_kind(struct analysis *a)
{
	static char kind[20];
	json_t *o = json_answer(a);
	size_t leaks = json_array_size(at(o, "leaks")), kept = json_array_size(at(o, "kept"));

	CHECK_INT(NUM(o, "findings"), leaks);
	CHECK_INT(a->ops->findings(a), leaks);
	CHECK(leaks + kept <= 1);
	snprintf(kind, sizeof(kind), "%s",
		 leaks	? STR(o, "leaks.0.kind")
		 : kept ? STR(o, "kept.0.kind")
			: "");
	json_decref(o);
	return kind;
}

/* A job of `steps` steps in which `does` says what each step does. */
static struct job run(struct analysis *a, unsigned steps, void (*does)(struct job *, unsigned))
{
	struct job j = job_of(a);

	give_one(&j, take_one(&j, 777, OTHER));
	for (unsigned s = 1; s <= steps; s++) {
		begin_step(&j);
		give_one(&j, take_one(&j, 4096, STACK_OF("activation")));
		does(&j, s);
		end_step(&j);
	}
	return j;
}

static unsigned from_step, until_step = 1000000, every_step = 1, per_step = 1;

static void leaks_in_steps(struct job *j, unsigned s)
{
	if (s >= from_step && s <= until_step && (s - from_step) % every_step == 0)
		for (unsigned i = 0; i < per_step; i++)
			take_one(j, MIB, LEAK);
}

TEST(leaks, grow_in_every_step)
{
	struct analysis *a = leaks_new(NULL);

	from_step = 3;
	run(a, 17, leaks_in_steps);
	json_t *o = json_answer(a);
	CHECK_INT(NUM(o, "findings"), 1);
	CHECK_STR(STR(o, "leaks.0.kind"), "growth");
	CHECK_INT(NUM(o, "leaks.0.blocks"), 14); /* the one of step 17 may still be freed */
	CHECK_INT(NUM(o, "leaks.0.bytes"), 14 * MIB);
	CHECK_INT(NUM(o, "leaks.0.steps"), 14);
	CHECK_INT(NUM(o, "leaks.0.first_step"), 3);
	CHECK_INT(NUM(o, "leaks.0.last_step"), 16);
	CHECK_INT(NUM(o, "leaks.0.bytes_per_step"), MIB);
	CHECK_INT(NUM(o, "leaks.0.block_bytes"), MIB);
	CHECK_STR(STR(o, "leaks.0.where"), "leak_one_buffer (train.c:120)");
	CHECK_INT(json_array_size(at(o, "leaks.0.allocations")), 14);
	CHECK_INT(NUM(o, "leaks.0.allocations.0.step"), 3);
	CHECK_INT(json_array_size(at(o, "kept")), 0);
	json_decref(o);
	analysis_free(a);
}

TEST(leaks, todays_words)
{
	struct analysis *a = leaks_new(NULL);
	struct job j = job_of(a);

	for (unsigned s = 1; s <= 4; s++) {
		begin_step(&j);
		for (unsigned k = 0; k < 3; k++)
			put_event(&j, ROW_KERNEL_LAUNCH, TYPE_KERNEL_LAUNCH, "matmul", 0);
		if (s >= 2)
			take_at(&j, 0x12c000000000 + s, 2 * MIB + MIB / 2, LEAK);
		end_step(&j);
	}
	const char *text = text_answer(a, false);
	CHECK(!strncmp(text,
		       "Process 10 loses 2.50 MiB of device 0 in every step: leak_one_buffer "
		       "(train.c:120), 2 blocks (5.00 MiB) since step 2.\n",
		       100));
	CHECK_HAS(text,
		  "\n====== ERROR: Detected memory leaks on device 0 ======\n"
		  "Direct Pytorch Caching memory pool leak of 2.500000 Mb(s) at 0x12c000000002 in "
		  "kernel_6 at step 2.\n"
		  "Direct Pytorch Caching memory pool leak of 2.500000 Mb(s) at 0x12c000000003 in "
		  "kernel_9 at step 3.\n"
		  "====== SUMMARY: 5 Mb(s) leaked in 2 allocation(s) ======\n");
	CHECK_HAS(text,
		  "Call sites that lose memory\n"
		  "  Process 10, device 0, PTA: 5.00 MiB in 2 blocks, 2.50 MiB per step, "
		  "steps 2 to 3\n"
		  "      Alive now: 7.50 MiB in 3 blocks; 1 of them is not counted here (first "
		  "step, or too young)\n"
		  "      leak_one_buffer (train.c:120)\n");
	json_t *o = json_answer(a);
	CHECK_INT(NUM(o, "leaks.0.blocks"), 2);
	CHECK_INT(NUM(o, "leaks.0.left_at_end.blocks"), 3);
	CHECK_INT(NUM(o, "leaks.0.left_at_end.bytes"), 7 * MIB + MIB / 2);
	json_decref(o);
	CHECK_HAS(text_answer(a, true), "Detected memory leaks on device 0");
	analysis_free(a);
}

/* Everything is allocated through a wrapper: that does not name the leak. */
TEST(leaks, wrappers_are_passed_over)
{
	struct analysis *a = leaks_new(NULL);
	struct job j = job_of(a);

	for (unsigned s = 1; s <= 5; s++) {
		begin_step(&j);
		give_one(&j, take_one(&j, MIB, STACK_OF("tensor_new") STACK_OF("attention")));
		give_one(&j, take_one(&j, MIB, STACK_OF("main")));
		take_one(&j, MIB,
			 STACK_OF("tensor_new") STACK_OF("leak_one_buffer") STACK_OF("main"));
		end_step(&j);
	}
	CHECK_HAS(text_answer(a, false), "in every step: leak_one_buffer (train.c:120), 3 blocks");
	json_t *o = json_answer(a);
	CHECK_STR(STR(o, "leaks.0.where"), "leak_one_buffer (train.c:120)");
	json_decref(o);
	analysis_free(a);
}

/* In Python the innermost line of the program is the place, as for every other answer: a layer is called
 * from many others. */
TEST(leaks, a_line_of_python_is_one_place_whoever_calls_it)
{
	static const char *const stacks[] = {
		"/job/net.py(48): Attention.forward\n/job/net.py(64): Down.forward\n",
		"/job/net.py(48): Attention.forward\n/job/net.py(82): Up.forward\n",
	};
	struct analysis *a = leaks_new(NULL);
	struct job j = job_of(a);

	j.python = true;
	for (unsigned s = 1; s <= 6; s++) {
		begin_step(&j);
		for (unsigned i = 0; s > 1 && i < 2; i++)
			take_one(&j, MIB, stacks[i]);
		end_step(&j);
	}
	CHECK_HAS(text_answer(a, false),
		  "in every step: Attention.forward (net.py:48) in 2 call stacks, 8 blocks");
	json_t *o = json_answer(a);
	CHECK_INT(json_array_size(at(o, "places")), 1);
	CHECK_STR(STR(o, "leaks.0.where"), "Attention.forward (net.py:48)");
	CHECK_STR(STR(o, "leaks.1.where"), "Attention.forward (net.py:48)");
	json_decref(o);
	analysis_free(a);
}

/* The compiler makes copies of a call: other addresses, but the same place. */
TEST(leaks, copies_of_a_call_are_one_place)
{
	static const char *const copies[] = {
		"/opt/train(leak+0x20) [0x55aa] /opt/train.c:7\n/opt/train(main+0x9) [0x5501]\n",
		"/opt/train(leak+0x48) [0x55cc] /opt/train.c:7\n/opt/train(main+0x9) [0x6602]\n",
	};
	static const char *const others[] = {
		"/opt/train(leak+0x48) [0x55cc] /opt/train.c:7\n/opt/train(main+0x8) [0x6601]\n",
		"/opt/train(leak+0x48) [0x55cc] /opt/train.c:8\n/opt/train(main+0x9) [0x6602]\n",
	};
	struct analysis *a = leaks_new(NULL);
	struct job j = job_of(a);

	for (unsigned s = 1; s <= 9; s++) {
		begin_step(&j);
		take_one(&j, MIB, copies[s % 2]);
		if (s == 3)
			take_one(&j, MIB, others[0]);
		if (s == 4)
			take_one(&j, MIB, others[1]);
		end_step(&j);
	}
	json_t *o = json_answer(a);
	CHECK_INT(NUM(o, "findings"), 1);
	CHECK_INT(NUM(o, "leaks.0.blocks"), 7);
	CHECK_INT(json_array_size(at(o, "kept")), 2);
	json_decref(o);
	analysis_free(a);
}

TEST(leaks, at_most_100_lines)
{
	struct analysis *a = leaks_new(NULL);
	size_t lines = 0;

	from_step = 2;
	run(a, 203, leaks_in_steps); /* 201 blocks */
	for (const char *p = text_answer(a, false); (p = strstr(p, "\nDirect ")); p++)
		lines++;
	CHECK_INT(lines, 100);
	CHECK_HAS(text_answer(a, false), "\n... and 101 more.\n====== SUMMARY: 201 Mb(s) leaked in "
					 "201 allocation(s) ======\n");
	analysis_free(a);
}

/* Lengths, first steps, intervals and blocks per step. */
TEST(leaks, grow_in_jobs_of_any_length)
{
	static const struct {
		unsigned steps, from, every, per, blocks;
	} jobs[] = {
		{3, 2, 1, 1, 1},	   {3, 1, 1, 1, 1},	 {4, 2, 1, 1, 2},
		{4, 3, 1, 1, 1},	   {5, 3, 1, 1, 2},	 {10, 7, 1, 1, 3},
		{10, 1, 1, 2, 16},	   {25, 3, 10, 1, 3},	 {100, 10, 10, 1, 9},
		{99, 10, 10, 1, 9},	   {100, 97, 1, 1, 3},	 {1000, 500, 1, 1, 500},
		{1000, 500, 10, 3, 150},   {1000, 2, 50, 1, 20}, {10000, 2, 1, 1, 9998},
		{10000, 5000, 100, 1, 50},
	};

	for (size_t i = 0; i < sizeof(jobs) / sizeof(jobs[0]); i++) {
		struct analysis *a = leaks_new(NULL);

		from_step = jobs[i].from;
		every_step = jobs[i].every;
		per_step = jobs[i].per;
		run(a, jobs[i].steps, leaks_in_steps);
		json_t *o = json_answer(a);
		if (NUM(o, "findings") != 1)
			fprintf(stderr, "job %zu\n", i);
		CHECK_INT(NUM(o, "findings"), 1);
		CHECK_INT(NUM(o, "leaks.0.blocks"), jobs[i].blocks);
		json_decref(o);
		analysis_free(a);
	}
}

TEST(leaks, two_steps_are_too_few)
{
	struct analysis *a = leaks_new(NULL);

	from_step = 1;
	run(a, 2, leaks_in_steps);
	CHECK_STR(only_kind(a), "");
	CHECK_HAS(text_answer(a, false), "only 2 steps ended");
	CHECK_STR(text_answer(a, true), "");
	analysis_free(a);
}

/* Two steps of blocks are enough only in a short job, for a place that was there early … */
TEST(leaks, a_place_that_began_just_now_is_too_young)
{
	struct analysis *a = leaks_new(NULL);

	from_step = 9;
	run(a, 10, leaks_in_steps);
	CHECK_STR(only_kind(a), "once");
	analysis_free(a);
}

/* The one of the last step may still be freed, so only one is known to stay. */
TEST(leaks, one_block_and_another_in_the_last_step_are_none)
{
	struct analysis *a = leaks_new(NULL);

	from_step = 2;
	every_step = 12;
	run(a, 14, leaks_in_steps);
	CHECK_STR(only_kind(a), "once");
	analysis_free(a);
}

/* … and never freed anything. */
TEST(leaks, a_place_that_frees_needs_more_steps)
{
	struct analysis *a = leaks_new(NULL);
	struct job j = job_of(a);

	for (unsigned s = 1; s <= 3; s++) {
		begin_step(&j);
		take_one(&j, MIB, LEAK);
		give_one(&j, take_one(&j, MIB, LEAK));
		end_step(&j);
	}
	CHECK_STR(only_kind(a), "once");
	analysis_free(a);
}

/* --- what is no leak --- */

TEST(leaks, what_was_taken_in_one_step_is_kept)
{
	struct analysis *a = leaks_new(NULL);

	from_step = until_step = 5;
	per_step = 3;
	run(a, 15, leaks_in_steps);
	CHECK_STR(only_kind(a), "once");
	const char *text = text_answer(a, false);
	CHECK_HAS(text, "No leaks: process 10 ended 15 steps");
	CHECK_HAS(text, "3.00 MiB in 3 blocks, allocated in step 5, alive for 10 steps since: a "
			"one-time cache, or a one-time leak");
	CHECK_LACKS(text, "Detected");
	CHECK_HAS(text_answer(a, true), "No leaks: process 10 ended 15 steps");
	analysis_free(a);
}

TEST(leaks, a_cache_that_fills_up_has_stopped)
{
	struct analysis *a = leaks_new(NULL);

	from_step = 2;
	until_step = 6;
	run(a, 20, leaks_in_steps);
	CHECK_STR(only_kind(a), "stopped");
	CHECK_HAS(text_answer(a, false), "allocated in steps 2 to 6, and no more since");
	analysis_free(a);
}

/* The last `depth` blocks are kept, as by a queue. */
static struct mem queue[64];
static unsigned depth;

static void rolls(struct job *j, unsigned s)
{
	struct mem m = take_one(j, MIB, LEAK);

	if (s > depth)
		give_one(j, queue[s % depth]);
	queue[s % depth] = m;
}

TEST(leaks, a_rolling_buffer_is_none)
{
	for (depth = 1; depth <= 40; depth++)
		for (unsigned steps = depth + 2; steps < depth + 60; steps += 7) {
			struct analysis *a = leaks_new(NULL);

			run(a, steps, rolls);
			CHECK_STR(only_kind(a), depth > 1 ? "rolling" : "");
			analysis_free(a);
		}
}

static void rolls_and_leaks(struct job *j, unsigned s)
{
	rolls(j, s);
	if (s >= 3)
		take_one(j, MIB, LEAK);
}

TEST(leaks, growth_shows_through_a_rolling_buffer_of_the_same_place)
{
	struct analysis *a = leaks_new(NULL);

	depth = 4;
	run(a, 30, rolls_and_leaks);
	json_t *o = json_answer(a);
	CHECK_INT(NUM(o, "findings"), 1);
	CHECK_INT(NUM(o, "leaks.0.longest_life_steps"), 4);
	/* Blocks of steps 3 to 25 are older than any that was freed. */
	CHECK_INT(NUM(o, "leaks.0.blocks"), 23);
	CHECK_INT(NUM(o, "leaks.0.bytes_per_step"), MIB);
	json_decref(o);
	analysis_free(a);
}

/* One of 32 entries is replaced in each step, by chance. */
static void replaces_one(struct job *j, unsigned s)
{
	static uint64_t random;
	unsigned i = s - 1;

	if (s == 1)
		random = 1;
	if (s > 32) {
		random = random * 6364136223846793005u + 1442695040888963407u;
		i = random >> 59;
		give_one(j, queue[i]);
	}
	queue[i] = take_one(j, MIB, LEAK);
}

TEST(leaks, random_replacement_is_none)
{
	for (unsigned steps = 80; steps < 2000; steps += 111) {
		struct analysis *a = leaks_new(NULL);

		run(a, steps, replaces_one);
		CHECK_INT(a->ops->findings(a), 0);
		analysis_free(a);
	}
}

/* Everything is freed at the end of each epoch of ten steps. */
static struct mem epoch[16];

static void frees_each_epoch(struct job *j, unsigned s)
{
	epoch[s % 10] = take_one(j, MIB, LEAK);
	if (s % 10 == 9)
		for (unsigned i = s == 9 ? 1 : 0; i < 10; i++)
			give_one(j, epoch[i]);
}

TEST(leaks, what_is_freed_now_and_then_is_none)
{
	for (unsigned steps = 20; steps < 60; steps++) {
		struct analysis *a = leaks_new(NULL);

		run(a, steps, frees_each_epoch);
		CHECK_INT(a->ops->findings(a), 0);
		analysis_free(a);
	}
}

/* A place that held much in its first steps, and leaks little afterwards. */
static void leaks_below_a_spike(struct job *j, unsigned s)
{
	static struct mem spike[50];

	for (unsigned i = 0; i < 50 && s == 3; i++)
		give_one(j, spike[i]);
	for (unsigned i = 0; i < 50 && s == 2; i++)
		spike[i] = take_one(j, MIB, LEAK);
	if (s > 4)
		take_one(j, MIB, LEAK);
}

TEST(leaks, growth_shows_after_a_spike)
{
	struct analysis *a = leaks_new(NULL);

	run(a, 20, leaks_below_a_spike);
	CHECK_STR(only_kind(a), "growth");
	analysis_free(a);
}

TEST(leaks, the_warm_up_and_the_setup_are_none)
{
	struct analysis *a = leaks_new(NULL);
	struct job j = job_of(a);

	for (unsigned i = 0; i < 20; i++)
		take_one(&j, MIB, OTHER);
	for (unsigned s = 1; s <= 10; s++) {
		begin_step(&j);
		for (unsigned i = 0; i < 20 && s == 1; i++)
			take_one(&j, MIB, LEAK);
		end_step(&j);
	}
	CHECK_STR(only_kind(a), "");
	analysis_free(a);
}

/* --- the end --- */

TEST(leaks, a_line_in_several_call_stacks_is_one_loss)
{
	static const char *const stacks[] = {
		"./p(lose+0x1) [0x1] job.c:4\n./p(main+0x1) [0x2] job.c:7\n",
		"./p(lose+0x1) [0x1] job.c:4\n./p(main+0x9) [0x3] job.c:8\n"};
	struct analysis *a = leaks_new(NULL);
	struct job j = job_of(a);

	for (unsigned s = 1; s <= 10; s++) {
		begin_step(&j);
		for (unsigned i = 0; i < 2; i++)
			take_one(&j, (i + 1) * MIB, stacks[i]);
		take_one(&j, MIB / 2, "./p(other+0x1) [0x9] job.c:20\n");
		end_step(&j);
	}
	json_t *o = json_answer(a);
	CHECK_INT(NUM(o, "findings"), 3);
	CHECK_INT(json_array_size(at(o, "places")), 2);
	CHECK_INT(NUM(o, "places.0.call_stacks"), 2);
	CHECK_INT(NUM(o, "places.0.bytes_per_step"), 3 * MIB);
	CHECK_INT(NUM(o, "places.0.bytes"), NUM(o, "leaks.0.bytes") + NUM(o, "leaks.1.bytes"));
	CHECK_INT(NUM(o, "places.0.left_at_end.blocks"), 20);
	CHECK_INT(NUM(o, "places.1.call_stacks"), 1);
	json_decref(o);
	CHECK_HAS(text_answer(a, false),
		  "loses about 3.00 MiB of device 0 in every step: lose (job.c:4) "
		  "in 2 call stacks, 16 blocks (24.00 MiB) since step 2, of 20");
	CHECK_HAS(text_answer(a, false),
		  "24.00 MiB in 16 blocks, 3.00 MiB per step, steps 2 to 9, 2 call "
		  "stacks\n");
	CHECK_HAS(text_answer(a, false), "      16.00 MiB in 8 blocks, 2.00 MiB per step\n"
					 "          lose (job.c:4)\n          main (job.c:8)\n");
	analysis_free(a);
}

/* What glibc maps itself is not recorded: nobody knows whether that leaks. */
TEST(leaks, what_is_not_covered_is_not_judged)
{
	struct process_facts facts = {.pid = 10, .samples = 2, .has_step = true};
	struct processes ps = {.list = &facts, .n = 1, .host = true};
	struct analysis *a = leaks_new(NULL);
	struct job j = job_of(a);

	a->processes = &ps;
	for (unsigned s = 1; s <= 5; s++) {
		begin_step(&j);
		give_one(&j, take_one(&j, MIB, LEAK));
		end_step(&j);
	}
	CHECK(a->ops->judged(a));
	facts.first_step.not_covered = MIB;
	facts.highest.not_covered = 7 * MIB;
	CHECK_HAS(text_answer(a, false), "grew by 6.00 MiB since the first step: it may leak");
	CHECK(!a->ops->judged(a) && !a->ops->findings(a));
	facts.first_step.not_covered = facts.highest.not_covered = 40 * MIB; /* of nothing else */
	CHECK(!strstr(text_answer(a, false), "No leaks"));
	CHECK(!a->ops->judged(a));
	analysis_free(a);
}

TEST(leaks, the_teardown_hides_nothing)
{
	struct analysis *a = leaks_new(NULL);
	struct job j = job_of(a);
	struct mem lost[20];

	for (unsigned s = 1; s <= 20; s++) {
		begin_step(&j);
		lost[s - 1] = take_one(&j, MIB, LEAK);
		end_step(&j);
	}
	char *before = strdup(text_answer(a, false));
	for (unsigned i = 0; i < 20; i++)
		give_one(&j, lost[i]);
	CHECK_STR(only_kind(a), "growth");
	const char *since = strstr(before, " since step 2, of 20 that are alive now (the first ");
	CHECK(since && !strncmp(text_answer(a, false), before, (size_t)(since - before)));
	CHECK_HAS(text_answer(a, false), " since step 2, all freed after the last step.");
	CHECK_HAS(before, "Alive now: 20.00 MiB in 20 blocks; 2 of them are not counted here");
	CHECK_HAS(text_answer(a, false),
		  "Left at the end: 0 B in 0 blocks; the others were freed after the last step");
	free(before);
	analysis_free(a);
}

TEST(leaks, the_step_that_did_not_end_does_not_count)
{
	struct analysis *a = leaks_new(NULL);
	struct job j = job_of(a);
	struct mem lost[20];

	for (unsigned s = 1; s <= 20; s++) {
		begin_step(&j);
		lost[s - 1] = take_one(&j, MIB, LEAK);
		if (s < 20)
			end_step(&j);
	}
	for (unsigned i = 0; i < 20; i++)
		leave_one(&j, lost[i]); /* killed */
	json_t *o = json_answer(a);
	CHECK_INT(NUM(o, "leaks.0.blocks"), 17); /* of steps 2 to 18 */
	CHECK_INT(NUM(o, "processes.0.steps_ended"), 19);
	CHECK_INT(NUM(o, "processes.0.left_at_end.blocks"), 20);
	json_decref(o);
	analysis_free(a);
}

TEST(leaks, freed_candidates_are_withdrawn)
{
	struct analysis *a = leaks_new(NULL);
	struct job j = job_of(a);
	struct mem lost[10];

	for (unsigned s = 1; s <= 12; s++) {
		begin_step(&j);
		if (s < 10)
			lost[s] = take_one(&j, MIB, LEAK);
		for (unsigned i = 1; i < 10 && s == 11; i++)
			give_one(&j, lost[i]);
		end_step(&j);
		if (s == 9)
			CHECK_STR(only_kind(a), "growth");
	}
	CHECK_STR(only_kind(a), "");
	analysis_free(a);
}

/* A free that was made up before the last step ended: nobody knows since when, but it is gone. */
TEST(leaks, blocks_that_were_gone_at_the_step_end_do_not_count)
{
	struct analysis *a = leaks_new(NULL);
	struct job j = job_of(a);
	struct mem lost[10];

	for (unsigned s = 1; s <= 10; s++) {
		begin_step(&j);
		if (s < 10)
			lost[s] = take_one(&j, MIB, LEAK);
		for (unsigned i = 1; i < 10 && s == 10; i++)
			leave_one(&j, lost[i]);
		end_step(&j);
	}
	CHECK_STR(only_kind(a), "");
	analysis_free(a);
}

TEST(leaks, what_was_there_before_the_recording_is_none)
{
	struct analysis *a = leaks_new(NULL);
	struct job j = job_of(a);

	for (unsigned s = 1; s <= 10; s++) {
		struct mem m = {++j.ids, 0x1000 * s, MIB, 0, TYPE_PTA};
		struct row r = {.event = ROW_MALLOC};

		begin_step(&j);
		put_mem(&j, &r, &m, true);
		feed(&j, &r);
		end_step(&j);
	}
	CHECK_STR(only_kind(a), "");
	analysis_free(a);
}

TEST(leaks, without_steps_growth_cannot_be_told)
{
	struct analysis *a = leaks_new(NULL);
	struct job j = job_of(a);

	struct mem left[10];
	for (unsigned i = 0; i < 10; i++)
		left[i] = take_one(&j, MIB, LEAK);
	for (unsigned i = 0; i < 10; i++)
		leave_one(&j, left[i]);
	CHECK_STR(only_kind(a), "");
	const char *text = text_answer(a, false);
	CHECK_HAS(text, "No step ended in this recording, so growth cannot be distinguished");
	CHECK_HAS(text, "Growth over time is judged");
	CHECK_HAS(text, "msmemscope.step()");
	CHECK_HAS(text, "sonde_step()");
	CHECK_HAS(text, "Left at the end\n  Process 10, device 0, PTA: 10.00 MiB in 10 blocks\n"
			"      leak_one_buffer (train.c:120)\n");
	json_t *o = json_answer(a);
	CHECK_INT(NUM(o, "processes.0.left_places.0.blocks"), 10);
	json_decref(o);
	analysis_free(a);
	a = leaks_new(NULL);
	CHECK_HAS(text_answer(a, false), "no allocation was recorded");
	analysis_free(a);
}

TEST(leaks, processes_without_steps_beside_one_with)
{
	struct analysis *a = leaks_new(NULL);

	run(a, 5, leaks_in_steps);
	for (unsigned pid = 20; pid < 35; pid++) {
		struct job j = job_of(a);

		j.pid = pid;
		leave_one(&j, take_one(&j, MIB, OTHER));
	}
	const char *text = text_answer(a, false);
	CHECK_HAS(text, "\nLeft at the end by processes without steps\n  Process 20: 1.00 MiB in 1 "
			"block\n");
	CHECK_HAS(text, "  Process 29: ");
	CHECK_LACKS(text, "  Process 30: ");
	CHECK_HAS(text, "\n  and 5 more processes\n");
	analysis_free(a);
}

TEST(leaks, steps_by_calls)
{
	struct analysis *a = leaks_new(NULL);
	struct job j = job_of(a);
	char number[12];

	for (unsigned s = 1; s <= 10; s++) {
		take_one(&j, MIB, LEAK);
		snprintf(number, sizeof(number), "%u", s);
		put_event(&j, ROW_SYSTEM, TYPE_STEP, number, 0);
	}
	json_t *o = json_answer(a);
	CHECK_INT(NUM(o, "leaks.0.blocks"), 8); /* 2 to 9 */
	CHECK_INT(NUM(o, "leaks.0.first_step"), 2);
	CHECK_INT(NUM(o, "processes.0.last_step"), 10);
	json_decref(o);
	analysis_free(a);
}

/* --- pools and the driver --- */

static void pool_grows(struct job *j, unsigned s)
{
	uint64_t segment = 0x12c000000000 + s * 0x2000000ull;

	/* A segment per step, cut by a block that stays, and one that is empty at the end. */
	j->type = TYPE_HAL;
	take_at(j, segment, 20 * MIB, STACK_OF("new_segment"));
	take_at(j, segment + 0x1000000000, 20 * MIB, STACK_OF("new_segment"));
	j->type = TYPE_PTA;
	take_at(j, segment + MIB, MIB, LEAK);
	give_one(j, take_at(j, segment + 0x1000000000 + 19 * MIB, MIB, STACK_OF("activation")));
}

TEST(leaks, segments_are_the_pools)
{
	struct analysis *a = leaks_new(NULL);

	run(a, 10, pool_grows);
	json_t *o = json_answer(a);
	CHECK_INT(NUM(o, "findings"), 1);
	CHECK_STR(STR(o, "leaks.0.pool"), "PTA");
	CHECK_STR(STR(o, "kept.0.kind"), "held_by_pool");
	CHECK_INT(NUM(o, "kept.0.blocks"), 16);
	CHECK_HAS(text_answer(a, false), "held by the pools");
	json_decref(o);
	analysis_free(a);
}

static void driver_grows(struct job *j, unsigned s)
{
	j->type = TYPE_HAL;
	if (s >= 2)
		take_at(j, 0x12c000000000 + s * 0x2000000ull, MIB, NULL);
	j->type = TYPE_PTA;
	give_one(j, take_at(j, 0x12c100000000, MIB, NULL));
}

TEST(leaks, the_drivers_own_memory_leaks_too)
{
	struct analysis *a = leaks_new(NULL);

	run(a, 10, driver_grows);
	json_t *o = json_answer(a);
	CHECK_INT(NUM(o, "findings"), 1);
	CHECK_STR(STR(o, "leaks.0.pool"), "HAL");
	CHECK_INT(NUM(o, "leaks.0.blocks"), 8);
	CHECK(json_is_null(at(o, "leaks.0.where")));
	CHECK_INT(NUM(o, "leaks.0.block_bytes"), MIB);
	const char *text = text_answer(a, false);
	CHECK_HAS(text, "blocks of 1.00 MiB without a call stack, 8 blocks");
	CHECK_HAS(text, "Direct HAL memory leak of 1.000000 Mb(s)");
	CHECK_HAS(text, "--call-stack=c ");
	json_decref(o);
	analysis_free(a);
}

/* Physical memory behind handles: the pool's as long as it has taken as much. */
static uint64_t pool_total;

static void creates(struct job *j, unsigned s)
{
	struct row r = {.event = ROW_MALLOC};
	struct mem m = {++j->ids, s, 20 * MIB, 0, TYPE_HAL};

	put_mem(j, &r, &m, false);
	row_attr_text(&r, ATTR_ALLOC_TYPE, "create", 6);
	feed(j, &r);
	r = (struct row){.event = ROW_MALLOC};
	m = (struct mem){++j->ids, 0x500000000000 + s, MIB, 0, TYPE_PTA};
	put_mem(j, &r, &m, false);
	row_attr_number(&r, ATTR_TOTAL, pool_total * s);
	feed(j, &r);
	give_one(j, m);
}

TEST(leaks, created_memory_is_the_pools)
{
	struct analysis *a = leaks_new(NULL);

	pool_total = 20 * MIB;
	run(a, 10, creates);
	CHECK_STR(only_kind(a), "held_by_pool");
	analysis_free(a);
	a = leaks_new(NULL);
	pool_total = 10 * MIB;
	run(a, 10, creates);
	CHECK_STR(only_kind(a), "growth");
	analysis_free(a);
}

TEST(leaks, what_the_driver_did_not_get_back)
{
	struct analysis *a = leaks_new(NULL);
	struct job j = job_of(a);

	j.type = TYPE_HAL;
	struct mem segment = take_at(&j, 0x12c000000000, 20 * MIB, STACK_OF("new_segment"));
	struct mem context = take_at(&j, 0x12d000000000, 3 * MIB, STACK_OF("open_device"));
	j.type = TYPE_PTA;
	struct mem block = take_at(&j, 0x12c000000000, MIB, LEAK);
	for (unsigned s = 1; s <= 5; s++) {
		begin_step(&j);
		end_step(&j);
	}
	give_one(&j, block);
	leave_one(&j, segment);
	leave_one(&j, context);
	CHECK_INT(a->ops->findings(a), 0);
	const char *want =
		"\nNot given back to the driver at exit:\n"
		"  Process 10 kept 3.00 MiB in 1 block, and 20.00 MiB in 1 block that pools "
		"have cut their blocks from.\n"
		"  Process 10, device 0, HAL: 3.00 MiB in 1 block\n"
		"      open_device (train.c:120)\n";
	CHECK_HAS(text_answer(a, false), want);
	const char *text = text_answer(a, true);
	CHECK_HAS(text, "No leaks: ");
	CHECK_HAS(text, "\n\nNot given back to the driver at exit:\n");
	json_t *o = json_answer(a);
	CHECK_INT(NUM(o, "processes.0.driver_left.blocks"), 1);
	CHECK_INT(NUM(o, "processes.0.driver_left.pool_bytes"), 20 * MIB);
	CHECK_STR(STR(o, "processes.0.driver_left.places.0.where"), "open_device (train.c:120)");
	json_decref(o);
	analysis_free(a);
}

/* --- limits --- */

static unsigned host_bytes;

static void host_grows(struct job *j, unsigned s)
{
	(void)s;
	j->type = TYPE_HOST;
	j->device = DEV_HOST;
	take_one(j, host_bytes, LEAK);
	j->type = TYPE_PTA;
	j->device = 0;
}

static size_t host_findings(unsigned bytes, uint64_t min_bytes)
{
	struct analysis *a = leaks_new(&(struct leaks_options){.min_bytes = min_bytes});

	host_bytes = bytes;
	run(a, 12, host_grows);
	size_t n = a->ops->findings(a);
	json_t *o = json_answer(a);
	CHECK_INT(NUM(o, "ignored_places"), 1 - n);
	json_decref(o);
	if (n)
		CHECK_HAS(text_answer(a, false), "of host memory in every step");
	else
		CHECK_HAS(text_answer(a, false), min_bytes == UINT64_MAX
							 ? "No leaks above the limit of 1.00 KiB "
							   "per step: process 10 ended 12 steps"
							 : "No leaks above the limit of 101 B: ");
	if (!n) {
		CHECK_HAS(text_answer(a, false), "1 place loses less than the limit "
						 "(--min-bytes=1 shows it).");
		CHECK_LACKS(text_answer(a, false), "no place kept more memory");
	}
	analysis_free(a);
	return n;
}

TEST(leaks, small_ones_are_left_out)
{
	CHECK_INT(host_findings(1023, UINT64_MAX), 0);
	CHECK_INT(host_findings(1024, UINT64_MAX), 1);
	CHECK_INT(host_findings(10, 0), 1);
	CHECK_INT(host_findings(10, 100), 1); /* ten blocks */
	CHECK_INT(host_findings(10, 101), 0);
}

/* Sizes without end: what is kept of them has an end. */
TEST(leaks, many_sizes)
{
	struct analysis *a = leaks_new(NULL);
	struct job j = job_of(a);
	uint64_t size = 0;

	for (unsigned s = 1; s <= 20; s++) {
		begin_step(&j);
		for (unsigned i = 0; i < 1000; i++)
			give_one(&j, take_one(&j, 1 + size++, NULL));
		if (s > 14)
			take_one(&j, 100 * MIB, NULL);
		end_step(&j);
	}
	json_t *o = json_answer(a);
	CHECK_INT(NUM(o, "findings"), 1);
	CHECK_INT(NUM(o, "leaks.0.blocks"), 5);
	json_decref(o);
	CHECK_HAS(text_answer(a, false), "blocks of 100.00 MiB without a call stack");
	analysis_free(a);
}

/* A leak whose blocks all differ in size, beside one whose blocks do not. */
TEST(leaks, sizes_that_differ)
{
	struct analysis *a = leaks_new(NULL);
	struct job j = job_of(a);

	for (unsigned s = 1; s <= 12; s++) {
		begin_step(&j);
		give_one(&j, take_one(&j, MIB + 512 * s, NULL));
		take_one(&j, MIB + 512 * (100 + s), NULL);
		take_one(&j, MIB + 512 * 99, NULL);
		end_step(&j);
	}
	json_t *o = json_answer(a);
	CHECK_INT(NUM(o, "findings"), 2);
	CHECK_INT(NUM(o, "leaks.0.blocks"), 10);
	CHECK(json_is_null(at(o, "leaks.0.block_bytes")));
	CHECK_INT(NUM(o, "leaks.1.block_bytes"), MIB + 512 * 99);
	CHECK_INT(NUM(o, "leaks.1.blocks"), 10);
	CHECK_INT(json_array_size(at(o, "kept")), 0);
	json_decref(o);
	CHECK_HAS(text_answer(a, false), "blocks of up to 2.00 MiB without a call stack");
	analysis_free(a);
}

/* Sizes differ and each lives some steps: together they roll. */
TEST(leaks, sizes_that_differ_and_roll)
{
	struct analysis *a = leaks_new(NULL);
	struct job j = job_of(a);

	for (unsigned s = 1; s <= 40; s++) {
		begin_step(&j);
		struct mem m = take_one(&j, MIB + 512 * s, NULL);
		if (s > 5)
			give_one(&j, queue[s % 5]);
		queue[s % 5] = m;
		end_step(&j);
	}
	CHECK_STR(only_kind(a), "rolling");
	analysis_free(a);
}

/* Without call stacks nothing but the size tells them apart: no two read the same. */
TEST(leaks, sizes_that_are_rounded_alike)
{
	struct analysis *a = leaks_new(NULL);
	struct job j = job_of(a);

	take_one(&j, MIB + 512, NULL);
	take_one(&j, MIB + 1024, NULL);
	take_one(&j, 2 * MIB, NULL);
	const char *text = text_answer(a, false);
	CHECK_HAS(text, "blocks of 1.00 MiB (1,049,088 bytes) without a call stack");
	CHECK_HAS(text, "blocks of 1.00 MiB (1,049,600 bytes) without a call stack");
	CHECK_HAS(text, "blocks of 2.00 MiB without a call stack");
	analysis_free(a);
}

TEST(leaks, places_are_told_apart)
{
	struct analysis *a = leaks_new(NULL);
	struct job j = job_of(a);

	for (unsigned s = 1; s <= 10; s++) {
		begin_step(&j);
		for (j.device = 0; j.device < 2; j.device++) {
			take_one(&j, MIB, LEAK);
			take_one(&j, 2 * MIB, OTHER);
			take_one(&j, 512, NULL);
			take_one(&j, 1024, NULL);
		}
		j.device = 0;
		end_step(&j);
	}
	json_t *o = json_answer(a);
	CHECK_INT(NUM(o, "findings"), 8);
	CHECK_INT(NUM(o, "leaks.0.bytes"), 16 * MIB);
	CHECK_STR(STR(o, "leaks.0.device"), "0");
	CHECK_STR(STR(o, "leaks.1.device"), "1");
	const char *text = text_answer(a, false);
	CHECK_HAS(text, "5 more places lose memory, too");
	CHECK(strstr(text, "leaks on device 0 ==") < strstr(text, "leaks on device 1 =="));
	json_decref(o);
	analysis_free(a);
}

TEST(leaks, dumps_without_allocation_ids)
{
	struct analysis *a = leaks_new(NULL);
	struct job j = job_of(a);

	j.no_ids = true;
	for (unsigned s = 1; s <= 10; s++) {
		begin_step(&j);
		take_at(&j, 0x1000 * s, MIB, LEAK);
		take_at(&j, 0x999000, MIB, OTHER); /* again and again: its free is missing */
		end_step(&j);
	}
	CHECK_STR(only_kind(a), "growth");
	json_t *o = json_answer(a);
	CHECK_STR(STR(o, "leaks.0.where"), "leak_one_buffer (train.c:120)");
	json_decref(o);
	analysis_free(a);
}

/* --- rows that nobody would write --- */

static uint64_t random_state;

static uint64_t any(uint64_t below)
{
	random_state = random_state * 6364136223846793005u + 1442695040888963407u;
	return (random_state >> 33) % below;
}

static void feed_any(struct job *j)
{
	static const char *const names[] = {"step start", "7", "round", "", "99999999999999999999"};
	static const uint64_t sizes[] = {0, 1, 4096, 1 << 20, 1ull << 63, UINT64_MAX};
	struct row r = {.event = (enum row_event)any(ROW_EVENT_END + 1),
			.type = (enum row_type)any(any(3) ? TYPE_PTA + 2 : TYPE_END + 1),
			.range = any(5)};

	if (any(4))
		r.event = any(2) ? ROW_MALLOC : ROW_FREE;
	r.device = any(3) ? 0 : any(2) ? DEV_HOST : DEV_NONE;
	r.name = names[any(5)];
	r.name_len = strlen(r.name);
	r.has_ptr = any(2);
	r.ptr = any(8) ? 0x1000 * any(40) : UINT64_MAX - any(3);
	if (any(3))
		row_attr_number(&r, ATTR_ALLOCATION_ID, any(60));
	if (any(5))
		row_attr_number(&r, ATTR_SIZE, sizes[any(6)]);
	if (!any(6))
		row_attr_text(&r, ATTR_SHADOW, "true", 4);
	if (!any(4))
		row_attr_text(&r, ATTR_ALLOC_TYPE, "create", 6);
	if (any(2))
		row_attr_number(&r, any(2) ? ATTR_USED : ATTR_TOTAL, sizes[any(6)]);
	if (any(2)) {
		r.c_stack = any(2) ? LEAK : "\n[0x\n] : +(\n";
		r.c_stack_len = strlen(r.c_stack);
	}
	j->pid = 10 + (uint32_t)any(2);
	if (!any(10))
		j->time_ns -= any(3000);
	feed(j, &r);
}

TEST(leaks, any_rows_do_no_harm)
{
	for (unsigned n = 0; n < 300; n++) {
		struct analysis *all[] = {leaks_new(NULL), leaks_marks_new("round", n % 3),
					  gap_new(NULL)};

		for (unsigned i = 0; i < 3; i++) {
			struct job j = job_of(all[i]);

			random_state = n;
			for (unsigned k = 0; k < 20 * (n % 50); k++) {
				feed_any(&j);
				if (any(100) == 0)
					text_answer(all[i], false);
			}
			json_decref(json_answer(all[i]));
			all[i]->ops->findings(all[i]);
			CHECK(strlen(text_answer(all[i], false)) > 10);
			analysis_free(all[i]);
		}
	}
}

static void leaks_in_layers(struct job *j, unsigned s)
{
	static const char *const layers[] = {"N:h.0.attn:Attn", "N:h.1.attn:Attn"};

	for (unsigned i = 0; s > 1 && i < 2; i++) {
		j->layer = layers[i];
		take_one(j, MIB, LEAK);
	}
	j->layer = NULL;
}

TEST(leaks, name_the_module_that_grows)
{
	struct leaks_options by_module = LEAKS_OPTIONS_DEFAULT;
	struct analysis *a = leaks_new(NULL);

	run(a, 6, leaks_in_layers);
	CHECK_HAS(text_answer(a, false),
		  "in every step: leak_one_buffer (train.c:120), module h.*.attn, 8 blocks");
	json_t *o = json_answer(a);
	CHECK_STR(STR(o, "leaks.0.module"), "h.*.attn");
	CHECK_STR(STR(o, "by"), "site");
	CHECK(!json_object_get(o, "growth"));
	json_decref(o);
	analysis_free(a);

	by_module.by = LEAKS_BY_MODULE;
	a = leaks_new(&by_module);
	run(a, 6, leaks_in_layers);
	CHECK_HAS(
		text_answer(a, false),
		"h.*.attn holds 8.00 MiB of device 0 more than before step 2, 2.00 MiB per step on "
		"average, 2 x 4.00 MiB, from leak_one_buffer (train.c:120) (process 10).");
	o = json_answer(a);
	CHECK_INT(NUM(o, "growth.0.bytes"), 8 * MIB);
	CHECK_INT(NUM(o, "growth.0.bytes_per_step"), 2 * MIB);
	CHECK_STR(STR(o, "growth.0.groups.0.name"), "h.*.attn");
	CHECK_STR(STR(o, "growth.0.groups.0.lines.0.where"), "leak_one_buffer (train.c:120)");
	json_decref(o);
	analysis_free(a);
}

TEST(leaks, by_line_add_up_what_several_ways_lead_to)
{
	struct leaks_options by_line = {.min_bytes = UINT64_MAX, .by = LEAKS_BY_LINE};
	struct analysis *a = leaks_new(&by_line);

	from_step = 3;
	run(a, 17, leaks_in_steps);
	CHECK_HAS(text_answer(a, false), "leak_one_buffer (train.c:120) holds ");
	json_t *o = json_answer(a);
	CHECK_STR(STR(o, "growth.0.by"), "line");
	CHECK_INT(NUM(o, "growth.0.groups.0.bytes"), NUM(o, "leaks.0.bytes"));
	json_decref(o);
	analysis_free(a);
}

TEST(leaks, without_modules_describe_how_to_have_them)
{
	struct leaks_options by_module = {.min_bytes = UINT64_MAX, .by = LEAKS_BY_MODULE};
	struct analysis *a = leaks_new(&by_module);

	from_step = 3;
	run(a, 17, leaks_in_steps);
	CHECK_HAS(text_answer(a, false), "in every step: leak_one_buffer (train.c:120)");
	CHECK_HAS(text_answer(a, false), "No module is known of it");
	analysis_free(a);
}

static void leaks_beside_layers(struct job *j, unsigned s)
{
	j->layer = "N:h.0:Block";
	if (s > 1)
		take_one(j, 64, LEAK);
	j->layer = NULL;
	if (s > 1)
		take_one(j, MIB, LEAK);
}

/* The largest module is no answer where modules have next to nothing of it. */
TEST(leaks, outside_of_modules_are_said_to_be_so)
{
	struct leaks_options by_module = {.min_bytes = UINT64_MAX, .by = LEAKS_BY_MODULE};
	struct analysis *a = leaks_new(&by_module);

	run(a, 6, leaks_beside_layers);
	CHECK_HAS(text_answer(a, false), "in every step: leak_one_buffer (train.c:120)");
	CHECK_HAS(text_answer(a, false), "Nearly all of it belongs to no module.");
	CHECK_HAS(text_answer(a, false), "(no module)");
	analysis_free(a);
}

static unsigned lines_that_lose;

static void leaks_of_activations(struct job *j, unsigned s)
{
	static const char *const stacks[] = {STACK_OF("embed"), STACK_OF("attend"),
					     STACK_OF("loss")};

	j->owner = "PTA@activation";
	for (unsigned i = 0; s > 1 && i < lines_that_lose; i++)
		take_one(j, MIB, stacks[i]);
	j->owner = NULL;
}

/* A loss that is added up without .item() keeps what all layers have saved for it. */
TEST(leaks, of_many_activations_are_explained)
{
	for (lines_that_lose = 2; lines_that_lose <= 3; lines_that_lose++) {
		struct analysis *a = leaks_new(NULL);
		bool many = lines_that_lose == 3;

		run(a, 6, leaks_of_activations);
		CHECK_INT(strstr(text_answer(a, false), "is activations: so it is if results") !=
				  NULL,
			  many);
		json_t *o = json_answer(a);
		CHECK_INT(json_is_true(json_object_get(o, "activations_kept")), many);
		json_decref(o);
		analysis_free(a);
	}
}

static void leaks_beside_a_queue(struct job *j, unsigned s)
{
	static struct mem kept[3];

	if (s > 3)
		give_one(j, kept[s % 3]);
	kept[s % 3] = take_one(j, MIB, LEAK);
	take_one(j, 2 * MIB, LEAK);
	take_one(j, MIB, OTHER);
}

/* Some blocks of a line live for three steps, so that the last three steps say nothing about it. */
TEST(leaks, by_line_lose_as_much_in_a_step_as_by_call_site)
{
	struct leaks_options by_line = {.min_bytes = UINT64_MAX, .by = LEAKS_BY_LINE};
	struct analysis *a = leaks_new(&by_line);

	run(a, 12, leaks_beside_a_queue);
	json_t *o = json_answer(a);
	CHECK_INT(NUM(o, "leaks.0.bytes_per_step"), 2 * MIB);
	CHECK_INT(NUM(o, "leaks.1.bytes_per_step"), MIB);
	CHECK(NUM(o, "leaks.0.last_step") < NUM(o, "leaks.1.last_step"));
	CHECK_INT(NUM(o, "growth.0.bytes_per_step"), 3 * MIB);
	json_decref(o);
	CHECK_HAS(text_answer(a, false), "more than before step 2, 2.00 MiB per step on average");
	analysis_free(a);
}
