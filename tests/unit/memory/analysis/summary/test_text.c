/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Summaries: what is said. test_summary.c has what is counted. */
#include "summary_rows.h"

TEST(summary_text, of_nothing)
{
	struct summary *s = summary_new();

	CHECK_STR(text_of(s), "There are no events in this recording.\n\nNo events were lost.\n");
	json_t *o = json_of(s, 10);
	CHECK_INT(NUM(o, "rows"), 0);
	CHECK_INT(NUM(o, "first_time_ns"), 0);
	CHECK_INT(NUM(o, "duration_ns"), 0);
	CHECK_INT(json_array_size(at(o, "devices")), 0);
	json_decref(o);
	summary_free(s);
	summary_free(NULL);
}

TEST(summary_text, names_what_was_alive_at_the_end_and_from_where)
{
	struct summary *s = summary_new();

	summary_process(s, 10, "./train --steps 3");
	take(s, 0, hal(1, 8 * MIB));
	take(s, 1, pta(2, 100 * KIB, OTHER_STACK));
	for (uint64_t i = 0; i < 3; i++)
		take(s, 2 + i, pta(3 + i, 256 * KIB, LEAK_STACK));
	take(s, 9, pta(9, MIB, LEAK_STACK));
	give(s, 10, pta(9, MIB, NULL));
	for (uint64_t i = 0; i < 4; i++)
		end(s, 20, pta(2 + i, 0, NULL));
	end(s, 20, hal(1, 0));
	CHECK_STR(
		answer_of(s),
		"1 process made 7 memory events in 20.0 ms. Device 0 peaked at 8.00 MiB (PTA pool "
		"1.85 MiB) at the start. 4 blocks (868.00 KiB) of PTA and 1 block (8.00 MiB) of "
		"HAL were still allocated at the end of process 10, most of the PTA memory from "
		"leak_one_buffer (train.c:120).");
	const char *t = text_of(s);
	CHECK_HAS(t, "Process  Device  Pool  Allocs  Frees      Peak  Peak at  Blocks left  Bytes "
		     "left\n"
		     "10       0       HAL        1      0  8.00 MiB      0 s            1    8.00 "
		     "MiB\n"
		     "10       0       PTA        5      1  1.85 MiB   9.0 ms            4  868.00 "
		     "KiB\n");
	CHECK_HAS(t, "Process 10: ./train --steps 3\n");
	CHECK_HAS(t, "Still allocated at the end\n"
		     "  Process 10, device 0, HAL: 8.00 MiB in 1 block\n"
		     "    8.00 MiB in 1 block, no call stack recorded\n"
		     "  Process 10, device 0, PTA: 868.00 KiB in 4 blocks\n"
		     "    768.00 KiB in 3 blocks\n"
		     "        leak_one_buffer (train.c:120)\n"
		     "        train_step (train)\n"
		     "        main (train)\n"
		     "    100.00 KiB in 1 block\n"
		     "        make_model (train)\n");
	CHECK_HAS(t, "Held at the highest peak\n"
		     "  Process 10, device 0, PTA: 1.85 MiB in 5 blocks, 9.0 ms after the start\n"
		     "    1.75 MiB in 4 blocks\n");
	json_t *o = json_of(s, 1);
	CHECK_INT(NUM(o, "processes.0.pools.1.frees"), 1);
	CHECK_INT(NUM(o, "processes.0.pools.1.synthetic_frees"), 4);
	CHECK_INT(NUM(o, "processes.0.pools.1.alive_at_end.bytes"), 868 * KIB);
	CHECK_INT(NUM(o, "processes.0.pools.1.alive_at_end.places_total"), 2);
	CHECK_INT(json_array_size(at(o, "processes.0.pools.1.alive_at_end.places")), 1);
	CHECK_STR(STR(o, "processes.0.pools.1.alive_at_end.places.0.where"),
		  "leak_one_buffer (train.c:120)");
	CHECK_INT(json_array_size(at(o, "processes.0.pools.1.alive_at_end.places.0.c_stack")), 6);
	CHECK_STR(STR(o, "processes.0.command"), "./train --steps 3");
	CHECK_STR(STR(o, "devices.0.peak_source"), "driver");
	CHECK_INT(NUM(o, "counts.frees"), 1);
	CHECK_INT(NUM(o, "counts.synthetic_frees"), 5);
	json_decref(o);
	summary_free(s);
}

TEST(summary_text, host_memory_and_pools_without_a_driver)
{
	struct summary *s = summary_new();
	struct blk host = {10, DEV_HOST, TYPE_HOST, 1, 4096, NULL, PY_STACK};

	take(s, 0, host);
	take(s, 0, (struct blk){10, 1, TYPE_MINDSPORE, 2, 100, NULL, NULL});
	take(s, 1, (struct blk){10, 1, TYPE_ATB, 3, 50, NULL, NULL});
	end(s, 2, host);
	json_t *o = json_of(s, 10);
	CHECK_STR(STR(o, "devices.0.device"), "1");
	CHECK_STR(STR(o, "devices.0.peak_source"), "pools");
	CHECK_INT(NUM(o, "devices.0.peak_bytes"), 150);
	CHECK_STR(STR(o, "devices.1.device"), "cpu");
	CHECK_STR(STR(o, "processes.0.pools.2.alive_at_end.places.0.where"),
		  "forward (train.py:17)");
	json_decref(o);
	const char *t = text_of(s);
	CHECK_HAS(t, "Host memory peaked at 4.00 KiB at the start.");
	CHECK_HAS(t, "        forward (train.py:17)\n        main (train.py:90)\n");
	CHECK_LACKS(t, "module.py");
	summary_free(s);
}

TEST(summary_text, stacks_of_a_database_and_odd_lines)
{
	struct summary *s = summary_new();
	struct blk b = pta(1, 100, "\"/opt/job/train(+0x44) [0x55ad]\n\"");

	b.py_stack = "\"NA\"";
	take(s, 0, b);
	b = pta(2, 90, "who \033knows\n\nwhat");
	take(s, 1, b);
	b = pta(3, 80, "libc.so.6(malloc+0x1) [0x1]");
	take(s, 2, b);
	b = pta(4, 70, "\xff\xfe(x");
	take(s, 3, b);
	const char *t = text_of(s);
	CHECK_HAS(t, "        train(+0x44)\n");
	CHECK_HAS(t, "        who ?knows\n        what\n");
	CHECK_HAS(t, "        malloc (libc.so.6)\n");
	json_t *o = json_of(s, 10);
	CHECK_INT(json_array_size(at(o, POOL "alive_at_end.places.0.python_stack")), 0);
	CHECK_STR(STR(o, POOL "alive_at_end.places.3.c_stack.0"), "\xef\xbf\xbd\xef\xbf\xbd(x");
	json_decref(o);
	summary_free(s);
}

TEST(summary_text, counts_the_other_events)
{
	struct summary *s = summary_new();

	event(s, ROW_ACCESS, TYPE_READ, "aten.add");
	event(s, ROW_OP_LAUNCH, TYPE_ATEN_START, "aten.add");
	event(s, ROW_OP_LAUNCH, TYPE_ATEN_END, "aten.add");
	event(s, ROW_KERNEL_LAUNCH, TYPE_KERNEL_LAUNCH, "k");
	event(s, ROW_KERNEL_LAUNCH, TYPE_KERNEL_EXECUTE_START, "k");
	event(s, ROW_KERNEL_LAUNCH, TYPE_KERNEL_EXECUTE_END, "k");
	event(s, ROW_MSTX, TYPE_MARK, "m");
	event(s, ROW_MSTX, TYPE_RANGE_START, "step start");
	event(s, ROW_MSTX, TYPE_RANGE_START, "\"step start\"");
	event(s, ROW_MSTX, TYPE_RANGE_START, "step starter");
	event(s, ROW_MSTX, TYPE_RANGE_END, NULL);
	event(s, ROW_SYSTEM, TYPE_STEP, "3");
	event(s, ROW_SNAPSHOT, TYPE_SNAPSHOT, "x");
	event(s, ROW_EVENT_END, TYPE_END, NULL);
	struct row nobody = base_row(ROW_KERNEL_LAUNCH, TYPE_KERNEL_LAUNCH, UINT32_MAX, 6);
	summary_add(s, &nobody);
	json_t *o = json_of(s, 10);
	CHECK_INT(NUM(o, "rows"), 15);
	CHECK_INT(json_array_size(at(o, "processes")), 1);
	CHECK_INT(NUM(o, "processes.0.counts.kernel_launches"), 1);
	json_decref(o);
	const char *t = text_of(s);
	CHECK_HAS(t, "1 process made no memory events in 1.0 ms.\n");
	CHECK_HAS(t, "Also recorded: 1 operator launch, 2 kernel launches, 1 access, 3 steps, 1 ");
	CHECK_HAS(t, "3 ranges, 1");
	summary_free(s);
}

TEST(summary_text, says_when_memory_ran_out)
{
	struct summary *s = summary_new();
	struct row r = base_row(ROW_OOM_DETAIL, TYPE_OOM_TRIGGER, 10, 1200);

	take(s, 0, hal(1, MIB));
	row_attr_text(&r, ATTR_FUNC, "halMemAlloc", 11);
	row_attr_number(&r, ATTR_REQ_SIZE, 64ull << 30);
	summary_add(s, &r);
	event(s, ROW_OOM_DETAIL, TYPE_OOM_TOP_ALLOC, NULL);
	CHECK_HAS(answer_of(s),
		  "Memory was refused once, 1.2 s after the start, when 64.00 GiB were "
		  "asked of device 0.");
	const char *t = text_of(s);
	CHECK_HAS(t, "Out of memory\n  1.2 s after the start: process 10 asked device 0 for 64.00 "
		     "GiB (halMemAlloc)\n");
	json_t *o = json_of(s, 10);
	CHECK_INT(NUM(o, "counts.ooms"), 1);
	CHECK_INT(NUM(o, "ooms.0.requested_bytes"), 64ll << 30);
	CHECK_STR(STR(o, "ooms.0.function"), "halMemAlloc");
	json_decref(o);
	for (int i = 0; i < 100; i++)
		summary_add(s, &r);
	o = json_of(s, 10);
	CHECK_INT(NUM(o, "counts.ooms"), 101);
	CHECK_INT(json_array_size(at(o, "ooms")), 16);
	json_decref(o);
	summary_free(s);
}

TEST(summary_text, always_says_what_was_lost)
{
	struct summary *s = summary_new();

	take(s, 0, hal(1, 100));
	summary_lost(s, 10, 0, 0, 0);
	CHECK_HAS(text_of(s), "\nNo events were lost.\n");
	summary_lost(s, 10, 0, 2, 0);
	CHECK_HAS(text_of(s), "\nNo events were lost. 2 call stacks were lost.\n");
	summary_lost(s, 10, 12345, 0, 0);
	summary_lost(s, 11, 1, 0, 2048);
	summary_note(s, "The recording was cut off.");
	CHECK_HAS(answer_of(s),
		  "Incomplete: 12,346 events were lost; 2.00 KiB of buffers were damaged. What "
		  "follows is from the rest.");
	const char *t = text_of(s);
	CHECK_HAS(t, "The recording was cut off.\n");
	CHECK_HAS(t, "\n12,346 events were lost. 2 call stacks were lost.\n"
		     "  process 10: 12,345 events, 2 call stacks\n"
		     "  process 11: 1 event, 2.00 KiB of damaged records\n");
	json_t *o = json_of(s, 10);
	CHECK_INT(NUM(o, "lost.events"), 12346);
	CHECK_INT(NUM(o, "processes.1.lost.damaged_bytes"), 2048);
	CHECK_STR(STR(o, "notes.0"), "The recording was cut off.");
	json_decref(o);
	summary_free(s);
}

TEST(summary_text, colour_only_adds_colour)
{
	struct summary *s = summary_new();
	struct buf plain = {0}, colour = {0}, stripped = {0};

	take(s, 0, pta(1, 100, LEAK_STACK));
	end(s, 1, pta(1, 100, NULL));
	summary_text(s, 10, false, &plain);
	summary_text(s, 10, true, &colour);
	const char *p = buf_str(&colour);
	CHECK(strchr(p, '\033'));
	while (*p) {
		if (*p == '\033')
			p = strchr(p, 'm') + 1;
		else
			buf_add_char(&stripped, *p++);
	}
	CHECK_STR(buf_str(&stripped), buf_str(&plain));
	buf_release(&plain);
	buf_release(&colour);
	buf_release(&stripped);
	summary_free(s);
}

TEST(summary_text, top_limits_the_places)
{
	struct summary *s = summary_new();
	struct buf b = {0};
	char stack[32];

	for (uint64_t i = 1; i <= 20; i++) {
		snprintf(stack, sizeof(stack), "app(f%d+0x1) [0x1]", (int)i);
		take(s, i, pta(i, i * KIB, stack));
	}
	summary_text(s, 2, false, &b);
	const char *t = buf_str(&b);
	CHECK_HAS(t, "    20.00 KiB in 1 block\n        f20 (app)\n"
		     "    19.00 KiB in 1 block\n        f19 (app)\n"
		     "    171.00 KiB in 18 blocks from 18 more places\n");
	buf_clear(&b);
	summary_text(s, 0, false, &b);
	CHECK_LACKS(buf_str(&b), "Still allocated at the end\n");
	buf_release(&b);
	summary_free(s);
}

TEST(summary_text, many_processes_make_a_short_text)
{
	struct summary *s = summary_new();

	for (uint32_t i = 1; i <= 300; i++) {
		struct blk b = {i, i % 8, TYPE_HAL, 1, i * KIB, NULL, NULL};
		summary_process(s, i, "worker");
		take(s, i, b);
	}
	CHECK_HAS(answer_of(s), "Another 299 processes left blocks behind, too.");
	CHECK_HAS(answer_of(s), "5 more devices are in the table below.");
	const char *t = text_of(s);
	size_t lines = 0;
	for (const char *p = t; *p; p++)
		lines += *p == '\n';
	CHECK(lines < 200);
	CHECK_HAS(t, "and 280 more processes, with lower peaks\n");
	CHECK_HAS(t, "These are the 40 pools with the highest peaks, of 300 (JSON has all).\n");
	json_t *o = json_of(s, 10);
	CHECK_INT(json_array_size(at(o, "processes")), 300);
	json_decref(o);
	summary_free(s);
}

/* Forms of the symboliser that have no function, or one without a place of its own. */
TEST(summary_text, frames_that_are_inlined_or_unknown)
{
	struct summary *s = summary_new();

	take(s, 0,
	     pta(1, 100,
		 "[0x7f2ac485a050]\n/opt/train(scale [inlined]) [0x55d0] math.h:12\n"
		 "/opt/train(train_step+0x4f) [0x55d0] src/train.c:120\n"));
	take(s, 1, pta(2, 50, "[0x7f2ac485a050]\n"));
	const char *t = text_of(s);
	CHECK_HAS(t, "    100 B in 1 block\n        scale [inlined] (math.h:12)\n"
		     "        train_step (train.c:120)\n");
	CHECK_HAS(t, "    50 B in 1 block\n        [0x7f2ac485a050]\n");
	summary_free(s);
}

TEST(summary_text, calls_alone)
{
	struct summary *s = summary_new();

	summary_calls(s, 1234567, 3, false);
	summary_asked(s, &(struct mem_asked){.known = true});
	CHECK_HAS(text_of(s), "1,234,567 calls of Python functions were traced, of 3 threads: see "
			      "the files\npython_trace_<thread>_<time>.csv in ");
	CHECK_HAS(text_of(s), "were not asked for (--events).\n");
	CHECK_LACKS(text_of(s), "no events");
	summary_calls(s, 1, 1, true);
	CHECK_HAS(text_of(s), "1 call of Python functions was traced, of 1 thread: see the table "
			      "python_trace_<pid>");
	json_t *o = json_of(s, 10);
	CHECK_INT(NUM(o, "python_calls"), 1);
	json_decref(o);
	add(s, ROW_MALLOC, 0, (struct blk){10, 0, TYPE_PTA, 1, MIB, NULL, NULL}, false);
	CHECK_HAS(text_of(s), "1 process made 1 memory event");
	CHECK_HAS(text_of(s), "\n1 call of Python functions was traced");
	summary_free(s);
}

TEST(summary_text, why_there_is_no_memory)
{
	struct summary *s = summary_new();
	struct row row = base_row(ROW_SYSTEM, TYPE_STEP, 10, 0);

	summary_add(s, &row);
	summary_asked(s, &(struct mem_asked){.known = true, .memory = true});
	CHECK_HAS(text_of(s), "--device=npu,cpu");
	summary_asked(s, &(struct mem_asked){.known = true, .memory = true, .host = true});
	CHECK_LACKS(text_of(s), "--device=");
	/* it has begun */
	struct mem_asked asked = {.known = true, .memory = true, .host = true, .deferred = true};
	summary_asked(s, &asked);
	CHECK_LACKS(text_of(s), "sonde_start()");
	summary_free(s);
	s = summary_new();
	summary_asked(s, &asked);
	CHECK_HAS(text_of(s), "begins when it calls\nsonde_start()");
	summary_free(s);
}

TEST(summary_text, places_that_read_the_same)
{
	struct summary *s = summary_new();
	struct blk b = {10, 0, TYPE_PTA, 1, MIB, "/opt/job/train(f+0x10) [0x55ad]\n", NULL};

	add(s, ROW_MALLOC, 0, b, false);
	b.id = 2;
	b.c_stack = "/opt/job/train(f+0x20) [0x55bd]\n";
	add(s, ROW_MALLOC, 1, b, false);
	b.id = 3;
	b.c_stack = NULL;
	add(s, ROW_MALLOC, 2, b, true);
	CHECK_HAS(text_of(s), "    2.00 MiB in 2 blocks\n        f (train)\n");
	CHECK_HAS(text_of(s), "    1.00 MiB in 1 block, allocated before recording began\n");
	summary_free(s);
}

TEST(summary_text, call_stacks_of_python)
{
	struct summary *s = summary_new();

	summary_process(s, 10, "/opt/bin/python3.11 train.py");
	add(s, ROW_MALLOC, 0, (struct blk){10, 0, TYPE_PTA, 1, MIB, NULL, NULL}, false);
	CHECK_HAS(text_of(s), "--call-stack=python");
	summary_free(s);
}
