/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Blocks between marks A and B that are not freed by C. */
#include "leak_rows.h"
#include "memory/analysis/leaks/marks.h"

#define LEAK STACK_OF("leak_one_buffer")

static struct job begin(unsigned start)
{
	struct job j = job_of(leaks_marks_new("round", start));

	j.type = TYPE_HAL;
	return j;
}

TEST(leaks_marks, todays_words)
{
	struct job j = begin(0);

	take_at(&j, 0x1000, MIB, LEAK); /* before A */
	mark(&j, "round");
	struct mem freed_before_b = take_at(&j, 0x2000, MIB, LEAK);
	struct mem freed_before_c = take_at(&j, 0x3000, MIB, LEAK);
	struct mem freed_after_c = take_at(&j, 0x12c000004000, 4096, LEAK);
	give_one(&j, freed_before_b);
	mark(&j, "another");
	take_at(&j, 0x5000, 3 * MIB / 2, LEAK);
	mark(&j, "\"round\"");
	take_at(&j, 0x6000, MIB, LEAK); /* after B */
	give_one(&j, freed_before_c);
	mark(&j, "round");
	give_one(&j, freed_after_c);
	const char *text = text_answer(j.a, false);
	CHECK_HAS(text,
		  "\nINFO: Starting to analyze data for device 0...\n"
		  "\nLeak Analysis Results for the Custom Range:\n"
		  "====== ERROR: Detected memory leaks on device 0 ======\n"
		  "Direct Hal memory leak of 0.00390625 Mb(s) at 0x000012c000004000 in Index 5.\n"
		  "Direct Hal memory leak of 1.5 Mb(s) at 0x0000000000005000 in Index 8.\n");
	CHECK(!strncmp(text, "Process 10, device 0: 2 blocks (1.50 MiB) that were allocated", 60));
	CHECK_INT(j.a->ops->findings(j.a), 2);
	CHECK(!leaks_marks_failed(j.a));
	analysis_free(j.a);
}

TEST(leaks_marks, clean)
{
	struct job j = begin(0);

	mark(&j, "round");
	give_one(&j, take_one(&j, MIB, LEAK));
	mark(&j, "round");
	mark(&j, "round");
	const char *text = text_answer(j.a, false);
	CHECK_HAS(text, "\nLeak Analysis Results for the Custom Range:\n"
			"No hal memory leaks detected on device 0.\n");
	CHECK_LACKS(text, "ERROR");
	CHECK_INT(j.a->ops->findings(j.a), 0);
	analysis_free(j.a);
}

TEST(leaks_marks, start_chooses_the_marks)
{
	for (unsigned start = 0; start < 4; start++) {
		struct job j = begin(start);

		for (unsigned i = 0; i < 6; i++) {
			mark(&j, "round");
			take_one(&j, (i + 1) * MIB, LEAK);
		}
		json_t *o = json_answer(j.a);
		CHECK_INT(NUM(o, "devices.0.blocks"), 1);
		CHECK_INT(NUM(o, "devices.0.bytes"), (start + 1) * MIB);
		CHECK_INT(NUM(o, "devices.0.marks"), 6);
		CHECK(json_is_null(at(o, "devices.0.error")));
		json_decref(o);
		analysis_free(j.a);
	}
}

TEST(leaks_marks, too_few)
{
	struct job j = begin(0);

	take_one(&j, MIB, LEAK);
	mark(&j, "round");
	mark(&j, "round");
	mark(&j, "rounds");
	mark(&j, "roun");
	CHECK(leaks_marks_failed(j.a));
	CHECK_HAS(text_answer(j.a, false),
		  "\nERROR: Device 0 has fewer than 3 data points. Please re-collect the data "
		  "points.\n");
	analysis_free(j.a);
	j = begin(0);
	CHECK(leaks_marks_failed(j.a));
	CHECK_HAS(text_answer(j.a, false), "nothing to look at");
	analysis_free(j.a);
}

TEST(leaks_marks, none_of_that_name)
{
	struct job j = begin(0);

	take_one(&j, MIB, LEAK);
	for (unsigned i = 0; i < 6; i++) {
		char name[] = "mark 0";

		name[5] = (char)('0' + i);
		for (unsigned k = 0; k <= i; k++)
			mark(&j, name);
	}
	const char *text = text_answer(j.a, false);
	CHECK_HAS(text, "there are 0 marks \"round\", and three are needed. The marks in this");
	CHECK_HAS(text, "\"mark 5\" (6)");
	CHECK_HAS(text, "\"mark 1\" (2) and 1 other.");
	CHECK_LACKS(text, "mark 0");
	CHECK_LACKS(text, "step()");
	struct row step = {
		.event = ROW_SYSTEM, .type = TYPE_STEP, .pid = 10, .name = "1", .name_len = 1};
	step.time_ns = UINT64_MAX / 2;
	j.a->ops->row(j.a, &step);
	CHECK_HAS(text_answer(j.a, false), "were reported by step()");
	json_t *o = json_answer(j.a);
	CHECK_STR(json_string_value(at(o, "marks.0.name")), "mark 5");
	CHECK_INT(NUM(o, "marks.0.count"), 6);
	CHECK_INT(NUM(o, "steps"), 1);
	json_decref(o);
	analysis_free(j.a);
}

TEST(leaks_marks, start_out_of_bounds)
{
	struct job j = begin(2);

	for (unsigned i = 0; i < 4; i++)
		mark(&j, "round");
	CHECK(leaks_marks_failed(j.a));
	CHECK_HAS(text_answer(j.a, false), "\nINFO: Start index 2 is out of bounds. Device 0 has a "
					   "total of 4 MSTX events.\n");
	CHECK_HAS(text_answer(j.a, false), "--start can be 0 to 1.");
	analysis_free(j.a);
}

TEST(leaks_marks, every_pool_and_every_device)
{
	struct job j = begin(0);

	for (unsigned i = 0; i < 3; i++) {
		j.device = 1;
		mark(&j, "round");
		j.type = TYPE_PTA;
		take_one(&j, MIB, LEAK);
		j.type = TYPE_HAL;
		take_one(&j, 2 * MIB, LEAK);
		j.device = DEV_HOST;
		j.type = TYPE_HOST;
		take_one(&j, 1000, LEAK);
	}
	json_t *o = json_answer(j.a);
	CHECK_STR(STR(o, "devices.0.device"), "1");
	CHECK(json_is_false(at(o, "devices.0.marks_of_process")));
	CHECK_INT(NUM(o, "devices.0.blocks"), 2);
	CHECK_STR(STR(o, "devices.1.device"), "cpu");
	CHECK(json_is_true(at(o, "devices.1.marks_of_process")));
	CHECK_INT(NUM(o, "devices.1.bytes"), 1000);
	CHECK_STR(STR(o, "devices.0.places.0.pool"), "HAL");
	CHECK_STR(STR(o, "devices.0.places.0.where"), "leak_one_buffer (train.c:120)");
	const char *text = text_answer(j.a, false);
	CHECK_HAS(text, "Direct Hal memory leak of 2.0 Mb(s)");
	CHECK_HAS(text, "Direct Pytorch Caching memory pool leak of 1.0 Mb(s)");
	CHECK_HAS(text, "No hal memory leaks detected on device cpu.\n"
			"====== ERROR: Detected memory leaks on device cpu ======\n"
			"Direct Host memory leak of 0.00095367431640625 Mb(s)");
	json_decref(o);
	analysis_free(j.a);
}

/* Two devices with marks: a third one cannot know whose to take. */
TEST(leaks_marks, marks_of_two_devices_are_not_mixed)
{
	struct job j = begin(0);

	for (unsigned i = 0; i < 3; i++)
		for (j.device = 0; j.device < 3; j.device++) {
			if (j.device < 2)
				mark(&j, "round");
			if (i == 0)
				take_one(&j, MIB, LEAK);
		}
	json_t *o = json_answer(j.a);
	CHECK_INT(NUM(o, "devices.0.blocks"), 1);
	CHECK_INT(NUM(o, "devices.1.blocks"), 1);
	CHECK_STR(STR(o, "devices.2.error"), "fewer than 3 marks");
	CHECK(leaks_marks_failed(j.a));
	json_decref(o);
	analysis_free(j.a);
}

/* Without ids a free ends everything that was allocated at its address. */
TEST(leaks_marks, dumps_without_allocation_ids)
{
	struct job j = begin(0);

	j.no_ids = true;
	mark(&j, "round");
	take_at(&j, 0x1000, MIB, LEAK);
	struct mem again = take_at(&j, 0x1000, MIB, LEAK);
	take_at(&j, 0x2000, MIB, LEAK);
	take_at(&j, 0x3000, MIB, LEAK);
	mark(&j, "round");
	give_one(&j, again);
	struct mem later = take_at(&j, 0x2000, MIB, LEAK);
	give_one(&j, later);
	mark(&j, "round");
	json_t *o = json_answer(j.a);
	CHECK_INT(NUM(o, "devices.0.blocks"), 1);
	CHECK_STR(STR(o, "devices.0.allocations.0.address"), "0x0000000000003000");
	json_decref(o);
	analysis_free(j.a);
}

TEST(leaks_marks, memory_is_reused)
{
	struct job j = begin(0);

	mark(&j, "round");
	struct mem kept[100];
	for (unsigned n = 0; n < 50; n++) {
		for (unsigned i = 0; i < 100; i++)
			kept[i] = take_one(&j, i + 1, LEAK);
		for (unsigned i = 0; i < 100; i++)
			if (i != n)
				give_one(&j, kept[i]);
	}
	mark(&j, "round");
	mark(&j, "round");
	json_t *o = json_answer(j.a);
	CHECK_INT(NUM(o, "devices.0.blocks"), 50);
	CHECK_INT(NUM(o, "devices.0.bytes"), 50 * 51 / 2);
	json_decref(o);
	analysis_free(j.a);
}

/* A block that was there when recording began was not allocated between marks. */
TEST(leaks_marks, what_was_there_before_is_none)
{
	struct job j = begin(0);
	struct mem m = {++j.ids, 0x1000, MIB, 0, TYPE_HAL};
	struct row r = {.event = ROW_MALLOC};

	mark(&j, "round");
	put_mem(&j, &r, &m, true);
	feed(&j, &r);
	mark(&j, "round");
	mark(&j, "round");
	CHECK_INT(j.a->ops->findings(j.a), 0);
	CHECK(!leaks_marks_failed(j.a));
	analysis_free(j.a);
}
