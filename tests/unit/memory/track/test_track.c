/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "memory/track/track.h"

#include "rowtext.h"

#define PLAIN "{\"analysisType\":0}"
#define ACCESS "{\"analysisType\":0,\"dumpEventType\":15}"
#define DEFERRED "{\"analysisType\":0,\"collectMode\":1}"

static struct buf r;

static void feed(void)
{
	rowtext_feed(0, 7, &r);
}

static void done(void)
{
	buf_release(&r);
	rowtext_done();
}

static void end(uint32_t proc, uint64_t ns)
{
	struct frame_proc_end e = {.proc = proc, .time_ns = ns};

	rowtext_frame(FRAME_PROC_END, &e, sizeof(e));
}

static void shadow(size_t at)
{
	((struct rec *)(r.data + at))->flags |= REC_F_SHADOW;
}

static void shadow_alloc(uint64_t ns, uint64_t addr, uint64_t size)
{
	size_t at = r.len;

	add_alloc(&r, ns, addr, size, POOL_PTA);
	shadow(at);
}

static void shadow_free(uint64_t ns, uint64_t addr)
{
	size_t at = r.len;

	add_free(&r, ns, addr, POOL_PTA);
	shadow(at);
}

static void system_event(uint64_t ns, uint8_t kind, uint64_t value)
{
	RECORD(&r, REC_SYSTEM, rec_system, ns, .kind = kind, .value = value, .device = DEV_NONE);
}

static void heap(uint64_t ns, uint8_t pool, uint8_t mode, uint64_t addr, int64_t bytes)
{
	RECORD(&r, REC_HEAP, rec_heap, ns, .pool = pool, .mode = mode, .addr = addr,
	       .bytes = bytes);
}

TEST(track, running_sums)
{
	rowtext_begin(PLAIN, "");
	add_alloc(&r, 1, 0x100, 10, POOL_HAL);
	add_alloc(&r, 2, 0x200, 5, POOL_HAL);
	add_alloc(&r, 3, 0x100, 7, POOL_PTA); /* the same address in another pool: another block */
	add_free(&r, 4, 0x100, POOL_HAL);
	RECORD(&r, REC_ALLOC, rec_alloc, 5, .addr = 0x300, .size_bytes = 3, .pool = POOL_HAL,
	       .device = 1, .kind = ALLOC_CREATE, .page = PAGE_GIANT, .module = MODULE_NONE);
	add_free(&r, 6, 0x200, POOL_HAL);
	add_free(&r, 7, 0x100, POOL_PTA);
	feed();
	ROWS("MALLOC HAL - @1 t7 d0 allocation_id:1,addr:100,size:10,used:10,page_type:normal,"
	     "alloc_type:alloc\n"
	     "MALLOC HAL - @2 t7 d0 allocation_id:2,addr:200,size:5,used:15,page_type:normal,"
	     "alloc_type:alloc\n"
	     "MALLOC PTA - @3 t7 d0 allocation_id:3,addr:100,size:7,used:7,total:0\n"
	     "FREE HAL - @4 t7 d0 allocation_id:1,addr:100,size:10,used:5\n"
	     "MALLOC HAL - @5 t7 d1 allocation_id:4,addr:300,size:3,used:3,page_type:giant,"
	     "alloc_type:create\n"
	     "FREE HAL - @6 t7 d0 allocation_id:2,addr:200,size:5,used:0\n"
	     "FREE PTA - @7 t7 d0 allocation_id:3,addr:100,size:7,used:0,total:0\n");
	done();
}

TEST(track, heaps)
{
	rowtext_begin(PLAIN, "");
	heap(1, POOL_PTA, HEAP_SET, 0, 1000);
	add_alloc(&r, 2, 1, 1, POOL_PTA);
	heap(3, POOL_PTA, HEAP_SET, 0, -5);
	add_alloc(&r, 4, 2, 1, POOL_PTA);
	heap(5, POOL_ATB, HEAP_ADD, 0x10, 100);
	heap(5, POOL_ATB, HEAP_ADD, 0x20, 50);
	add_alloc(&r, 6, 3, 1, POOL_ATB);
	heap(7, POOL_ATB, HEAP_DROP, 0x10, 0);
	heap(7, POOL_ATB, HEAP_DROP, 0x10, 0); /* gone already */
	add_alloc(&r, 8, 4, 1, POOL_ATB);
	heap(9, POOL_ATB, HEAP_ADD, 0x20, 60); /* the drop in between was not seen */
	add_alloc(&r, 10, 5, 1, POOL_ATB);
	heap(11, POOL_ATB, 99, 0x20, 60);
	heap(11, 200, HEAP_ADD, 0x20, 60);
	heap(11, POOL_ATB, HEAP_ADD, 0x30, -60);
	heap(11, POOL_ATB, HEAP_DROP, 0x20, 0);
	add_alloc(&r, 12, 6, 1, POOL_ATB);
	feed();
	ROWS("MALLOC PTA - @2 t7 d0 allocation_id:1,addr:1,size:1,used:1,total:1000\n"
	     "MALLOC PTA - @4 t7 d0 allocation_id:2,addr:2,size:1,used:2,total:0\n"
	     "MALLOC ATB - @6 t7 d0 allocation_id:3,addr:3,size:1,used:1,total:150\n"
	     "MALLOC ATB - @8 t7 d0 allocation_id:4,addr:4,size:1,used:2,total:50\n"
	     "MALLOC ATB - @10 t7 d0 allocation_id:5,addr:5,size:1,used:3,total:60\n"
	     "MALLOC ATB - @12 t7 d0 allocation_id:6,addr:6,size:1,used:4,total:0\n");
	done();
}

/* Its free was never seen: it ended when the address was handed out again. */
TEST(track, address_reused_without_free)
{
	rowtext_begin(PLAIN, "");
	add_alloc(&r, 1, 0x10, 100, POOL_PTA);
	add_alloc(&r, 2, 0x10, 30, POOL_PTA);
	add_free(&r, 3, 0x10, POOL_PTA);
	feed();
	ROWS("MALLOC PTA - @1 t7 d0 allocation_id:1,addr:10,size:100,used:100,total:0\n"
	     "FREE PTA - @2 t7 d0 allocation_id:1,addr:10,size:100,shadow:true\n"
	     "MALLOC PTA - @2 t7 d0 allocation_id:2,addr:10,size:30,used:30,total:0\n"
	     "FREE PTA - @3 t7 d0 allocation_id:2,addr:10,size:30,used:0,total:0\n");
	done();
}

TEST(track, ghosts_and_nonsense)
{
	rowtext_begin(PLAIN, "");
	add_free(&r, 1, 0x10, POOL_HAL);
	add_free(&r, 1, 0x10, 0);
	add_free(&r, 1, 0x10, POOL_END);
	add_free(&r, 1, 0x10, 255);
	add_alloc(&r, 1, 0x10, 1, 0);
	add_alloc(&r, 1, 0x10, 1, POOL_END);
	add_alloc(&r, 1, 0x10, 1, 255);
	RECORD(&r, REC_KERNEL, rec_kernel, 1, .kind = 9);
	RECORD(&r, REC_SYSTEM, rec_system, 1, .kind = 99);
	TEXT_RECORD(&r, REC_OP, rec_op, 1, "x", 1, .kind = 99);
	TEXT_RECORD(&r, REC_MARK, rec_mark, 1, "x", 1, .kind = 99);
	TEXT_RECORD(&r, REC_LABEL, rec_label, 1, "x", 1, .kind = 99);
	RECORD(&r, REC_THREAD, rec_thread, 1, .tid = 1);
	feed();
	rowtext_feed(5, 1, &r); /* a process that nobody introduced */
	add_alloc(&r, 1, 0x10, 1, POOL_HAL);
	rowtext_feed(UINT32_MAX, 1, &r);
	end(5, 1);
	end(UINT32_MAX, 1);
	ROWS("");
	/* One with a number that cannot be is not followed, and costs nothing. */
	struct frame_proc p = {.proc = UINT32_MAX};
	rowtext_frame(FRAME_PROC, &p, sizeof(p));
	p.proc = TRACK_MAX_PROCS;
	rowtext_frame(FRAME_PROC, &p, sizeof(p));
	add_alloc(&r, 1, 0x10, 1, POOL_PTA);
	rowtext_feed(TRACK_MAX_PROCS, 1, &r);
	ROWS("");
	done();
}

TEST(track, host_memory)
{
	rowtext_begin("{\"analysisType\":0,\"collectCpu\":true}", "");
	add_alloc(&r, 1, 0x10, 4, POOL_HOST);
	RECORD(&r, REC_ALLOC, rec_alloc, 2, .addr = 0x10, .size_bytes = 4, .pool = POOL_HOST,
	       .kind = ALLOC_PINNED, .device = DEV_HOST);
	RECORD(&r, REC_FREE, rec_free, 3, .addr = 0x10, .pool = POOL_HOST, .kind = ALLOC_PINNED);
	add_free(&r, 4, 0x10, POOL_HAL); /* the driver does not say that it was host memory */
	feed();
	ROWS("MALLOC HOST - @1 t7 d10000 allocation_id:1,addr:10,size:4,total:4\n"
	     "MALLOC HOST - @2 t7 d10000 allocation_id:2,addr:10,size:4,pinned:true,used:4\n"
	     "FREE HOST - @3 t7 d10000 allocation_id:2,addr:10,size:4,pinned:true,used:0\n"
	     "FREE HOST - @4 t7 d10000 allocation_id:1,addr:10,size:4,total:0\n");
	rowtext_begin(PLAIN, "");
	add_alloc(&r, 1, 0x10, 4, POOL_HOST);
	feed();
	ROWS("");
	done();
}

/* Whatever is alive ends with its process. */
TEST(track, end_of_process)
{
	rowtext_begin(PLAIN, "");
	add_alloc(&r, 5, 0x20, 2, POOL_PTA);
	add_alloc(&r, 6, 0x10, 1, POOL_HAL);
	rowtext_feed(0, 8, &r);
	buf_clear(&rowtext);
	end(0, 3); /* the end is not before the last event, whatever it says */
	ROWS("FREE PTA - @7 t8 d0 allocation_id:1,addr:20,size:2,shadow:true\n"
	     "FREE HAL - @7 t8 d0 allocation_id:2,addr:10,size:1,shadow:true\n"
	     "end 0\n");
	add_alloc(&r, 9, 0x20, 2, POOL_PTA);
	feed();
	end(0, 10);
	ROWS("");
	rowtext_begin(PLAIN, "");
	add_alloc(&r, 5, 0x20, 2, POOL_PTA);
	feed();
	buf_clear(&rowtext);
	end(0, 1000);
	ROWS("FREE PTA - @1000 t7 d0 allocation_id:1,addr:20,size:2,shadow:true\nend 0\n");
	done();
}

TEST(track, two_processes_with_one_pid)
{
	struct frame_proc p = {.proc = 1, .pid = 100, .image_ns = 1};

	rowtext_begin(PLAIN, "");
	rowtext_frame(FRAME_PROC, &p, sizeof(p));
	add_alloc(&r, 1, 0x10, 1, POOL_PTA);
	rowtext_feed(0, 100, &r);
	add_alloc(&r, 2, 0x10, 2, POOL_PTA);
	rowtext_feed(1, 100, &r);
	ROWS("MALLOC PTA - @1 t100 d0 allocation_id:1,addr:10,size:1,used:1,total:0\n"
	     "p1 MALLOC PTA - @2 t100 d0 allocation_id:1,addr:10,size:2,used:2,total:0\n");
	end(0, 3);
	ROWS("FREE PTA - @3 t100 d0 allocation_id:1,addr:10,size:1,shadow:true\nend 0\n");
	add_free(&r, 4, 0x10, POOL_PTA);
	rowtext_feed(1, 100, &r);
	ROWS("p1 FREE PTA - @4 t100 d0 allocation_id:1,addr:10,size:2,used:0,total:0\n");
	done();
}

/* --- windows --- */

/* A place in Python code is younger than the event that it belongs to, which follows: what has a coarse
 * time meanwhile does not get that of the place. */
TEST(track, rows_of_coarse_times_stay_in_order)
{
	rowtext_begin(DEFERRED, "");
	system_event(10, SYSTEM_START_TRACE, 0);
	RECORD(&r, REC_PYTHON, rec_python, 50, .id = 1);
	shadow_alloc(5, 0x10, 1);
	shadow_free(5, 0x10);
	add_alloc(&r, 20, 0x20, 2, POOL_PTA);
	feed();
	ROWS("SYSTEM START_TRACE - @10 t7 d9999 \n"
	     "MALLOC PTA - @10 t7 d0 allocation_id:1,addr:10,size:1,shadow:true\n"
	     "FREE PTA - @10 t7 d0 allocation_id:1,addr:10,size:1,used:0,total:0\n"
	     "MALLOC PTA - @20 t7 d0 allocation_id:2,addr:20,size:2,used:2,total:0\n");
	done();
}

/* Blocks from before the start get their row at the start, those that are gone do not. */
TEST(track, start_and_stop)
{
	rowtext_begin(DEFERRED, "");
	shadow_alloc(1, 0x10, 1);
	shadow_alloc(2, 0x20, 2);
	shadow_free(3, 0x10);
	shadow_alloc(4, 0x30, 3);
	MARK_RECORD(&r, 4, MARK_INSTANT, 0, "not now");
	feed();
	ROWS("");
	system_event(100000005, SYSTEM_START_TRACE, 0);
	feed();
	ROWS("MALLOC PTA - @100000005 t7 d0 allocation_id:2,addr:20,size:2,shadow:true\n"
	     "MALLOC PTA - @100000005 t7 d0 allocation_id:3,addr:30,size:3,shadow:true\n"
	     "SYSTEM START_TRACE - @100000005 t7 d9999 \n");
	add_free(&r, 100000006, 0x20, POOL_PTA);
	add_alloc(&r, 100000007, 0x40, 4, POOL_PTA);
	system_event(100000008, SYSTEM_STOP_TRACE, 0);
	feed();
	ROWS("FREE PTA - @100000006 t7 d0 allocation_id:2,addr:20,size:2,used:3,total:0\n"
	     "MALLOC PTA - @100000007 t7 d0 allocation_id:4,addr:40,size:4,used:7,total:0\n"
	     "SYSTEM STOP_TRACE - @100000008 t7 d9999 \n");
	/* Not tracing again: frees of what has been written still are. */
	shadow_alloc(200000000, 0x50, 5);
	shadow_free(300000000, 0x40);
	shadow_free(400000000, 0x50);
	feed();
	ROWS("FREE PTA - @300000000 t7 d0 allocation_id:4,addr:40,size:4\n");
	/* A second start promotes only what has no row yet. */
	shadow_alloc(500000000, 0x60, 6);
	system_event(600000000, SYSTEM_START_TRACE, 0);
	feed();
	ROWS("MALLOC PTA - @600000000 t7 d0 allocation_id:6,addr:60,size:6,shadow:true\n"
	     "SYSTEM START_TRACE - @600000000 t7 d9999 \n");
	end(0, 700000000);
	ROWS("FREE PTA - @700000000 t7 d0 allocation_id:3,addr:30,size:3,shadow:true\n"
	     "FREE PTA - @700000000 t7 d0 allocation_id:6,addr:60,size:6,shadow:true\n"
	     "end 0\n");
	done();
}

static void promoted(const char *want)
{
	system_event(9000000000, SYSTEM_START_TRACE, 0);
	feed();
	char *first = strstr((char *)(uintptr_t)buf_str(&rowtext), "SYSTEM");
	CHECK(first);
	*first = '\0';
	CHECK_STR(rowtext.data, want);
	buf_clear(&rowtext);
	rowtext_begin(DEFERRED, "");
}

#define ONE(size)                                                                                  \
	"MALLOC PTA - @9000000000 t7 d0 allocation_id:1,addr:10,size:" #size ",shadow:true\n"

/* Coarse times do not tell which of two threads came first; that they take turns does. */
TEST(track, coarse_times)
{
	rowtext_begin(DEFERRED, "");
	shadow_free(1000, 0x10); /* thread 8, of what thread 7 allocated in the same tick */
	rowtext_feed(0, 8, &r);
	shadow_alloc(1000, 0x10, 1);
	feed();
	promoted("");
	/* alloc, free, alloc told as alloc, alloc, free: alive. */
	shadow_alloc(1000, 0x10, 1);
	shadow_alloc(1000, 0x10, 2);
	feed();
	shadow_free(1000, 0x10);
	rowtext_feed(0, 8, &r);
	promoted("MALLOC PTA - @9000000000 t7 d0 allocation_id:2,addr:10,size:2,shadow:true\n");
	/* A later free of it counts. */
	shadow_alloc(1000, 0x10, 1);
	feed();
	shadow_free(90000000, 0x10);
	rowtext_feed(0, 8, &r);
	promoted("");
	done();
}

/* A block from before us is freed and its address used again by the same thread: alive. */
TEST(track, coarse_times_of_one_thread)
{
	rowtext_begin(DEFERRED, "");
	shadow_free(1000, 0x10);
	shadow_alloc(1000, 0x10, 1);
	feed();
	promoted(ONE(1));
	done();
}

TEST(track, steps_by_ranges)
{
	rowtext_begin("{\"analysisType\":0,\"SelectedStepList\":{\"stepCount\":2,"
		      "\"stepIdList\":[2,3,0,0,0]}}",
		      "");
	add_alloc(&r, 1, 0x10, 1, POOL_PTA);
	MARK_RECORD(&r, 2, MARK_RANGE_START, 1, "step start");
	add_alloc(&r, 3, 0x20, 2, POOL_PTA);
	MARK_RECORD(&r, 4, MARK_RANGE_END, 1, "");
	feed();
	ROWS("");
	MARK_RECORD(&r, 5, MARK_RANGE_START, 2, "step start");
	MARK_RECORD(&r, 6, MARK_RANGE_START, 3, "forward");
	add_free(&r, 7, 0x10, POOL_PTA);
	MARK_RECORD(&r, 8, MARK_RANGE_END, 3, "");
	MARK_RECORD(&r, 9, MARK_RANGE_END, 2, "");
	MARK_RECORD(&r, 10, MARK_INSTANT, 0, "outside");
	add_alloc(&r, 11, 0x30, 3, POOL_PTA);
	add_free(&r, 12, 0x20, POOL_PTA);
	feed();
	ROWS("MALLOC PTA - @5 t7 d0 allocation_id:1,addr:10,size:1,shadow:true\n"
	     "MALLOC PTA - @5 t7 d0 allocation_id:2,addr:20,size:2,shadow:true\n"
	     "MSTX Range_start step start @5 t7 d0 \n"
	     "MSTX Range_start forward @6 t7 d0 \n"
	     "FREE PTA - @7 t7 d0 allocation_id:1,addr:10,size:1,used:2,total:0\n"
	     "MSTX Range_end Range end from id 3 @8 t7 d0 \n"
	     "MSTX Range_end Range end from id 2 @9 t7 d0 \n"
	     "FREE PTA - @12 t7 d0 allocation_id:2,addr:20,size:2\n");
	/* Almost the message is not the message; the step call comes too late. */
	MARK_RECORD(&r, 13, MARK_RANGE_START, 4, "step start ");
	MARK_RECORD(&r, 13, MARK_RANGE_START, 4, "step star");
	MARK_RECORD(&r, 13, MARK_INSTANT, 0, "step start");
	system_event(14, SYSTEM_STEP, 2);
	add_alloc(&r, 15, 0x40, 4, POOL_PTA);
	feed();
	ROWS("");
	done();
}

static void detected_step(uint64_t ns, uint64_t number)
{
	RECORD(&r, REC_SYSTEM, rec_system, ns, .kind = SYSTEM_DETECTED_STEP, .value = number,
	       .source = STEP_OPTIMIZER, .device = 0);
}

TEST(track, detected_steps_are_in_no_dump)
{
	rowtext_begin("", "");
	TEXT_RECORD(&r, REC_NAME, rec_name, 1, "Adam", 4, .hash = 77);
	RECORD(&r, REC_SYSTEM, rec_system, 1, .kind = SYSTEM_STEP_NAME, .value = 77);
	detected_step(2, 1);
	detected_step(3, 2);
	RECORD(&r, REC_SYSTEM, rec_system, 4, .kind = SYSTEM_DETECTED_STEP, .value = 3,
	       .source = STEP_SOURCE_END);
	system_event(5, SYSTEM_DETECTED_STEP, 4); /* without a source */
	system_event(6, 99, 4);
	feed();
	ROWS("hidden SYSTEM STEP 1 Adam @2 t7 d9999 \n"
	     "hidden SYSTEM STEP 2 Adam @3 t7 d9999 \n");
	/* The program's own count, from now on. */
	system_event(7, SYSTEM_STEP, 1);
	detected_step(8, 3);
	feed();
	ROWS("SYSTEM STEP 1 @7 t7 d9999 \n");
	done();
}

/* --steps names steps of the program. */
TEST(track, detected_steps_are_not_listed_ones)
{
	rowtext_begin("{\"analysisType\":0,\"SelectedStepList\":{\"stepCount\":1,"
		      "\"stepIdList\":[2,0,0,0,0]}}",
		      "");
	detected_step(1, 1);
	add_alloc(&r, 2, 0x10, 1, POOL_PTA);
	feed();
	ROWS("");
	system_event(3, SYSTEM_STEP, 1);
	feed();
	ROWS("MALLOC PTA - @3 t7 d0 allocation_id:1,addr:10,size:1,shadow:true\n");
	done();
}

TEST(track, steps_by_call)
{
	rowtext_begin("{\"analysisType\":0,\"SelectedStepList\":{\"stepCount\":1,"
		      "\"stepIdList\":[2,0,0,0,0]}}",
		      "");
	add_alloc(&r, 1, 0x10, 1, POOL_PTA);
	system_event(2, SYSTEM_STEP, 1); /* ends step 1 */
	feed();
	ROWS("MALLOC PTA - @2 t7 d0 allocation_id:1,addr:10,size:1,shadow:true\n");
	add_alloc(&r, 3, 0x20, 2, POOL_PTA);
	system_event(4, SYSTEM_STEP, 2);
	add_alloc(&r, 5, 0x30, 3, POOL_PTA);
	MARK_RECORD(&r, 6, MARK_RANGE_START, 1, "step start"); /* too late */
	add_alloc(&r, 7, 0x40, 4, POOL_PTA);
	feed();
	ROWS("MALLOC PTA - @3 t7 d0 allocation_id:2,addr:20,size:2,used:3,total:0\n"
	     "SYSTEM STEP 2 @4 t7 d9999 \n");
	done();
}

/* --- whose it is --- */

static void label(uint64_t ns, uint8_t kind, uint8_t level, const char *text, uint64_t addr)
{
	TEXT_RECORD(&r, REC_LABEL, rec_label, ns, text, strlen(text), .kind = kind, .level = level,
		    .addr = addr);
}

/* The owner of the next allocation of that thread, as its row has it. */
static void owner(uint32_t tid, const char *want)
{
	static uint64_t addr = 0x1000;

	rowtext_feed(0, tid, &r);
	buf_clear(&rowtext);
	add_alloc(&r, 5, addr += 16, 1, POOL_PTA);
	rowtext_feed(0, tid, &r);
	const char *at = strstr(buf_str(&rowtext), "owner:");
	char got[512] = "";
	if (at)
		snprintf(got, sizeof(got), "%.*s", (int)strcspn(at + 6, ",\n"), at + 6);
	CHECK_STR(got, want);
	buf_clear(&rowtext);
}

TEST(track, labels)
{
	rowtext_begin(PLAIN, "");
	owner(7, "");
	label(1, LABEL_PUSH, 5, "outer", 0);
	owner(7, "PTA@outer");
	owner(8, ""); /* another thread */
	label(1, LABEL_PUSH, 3, "detail", 0);
	label(1, LABEL_PUSH, 5, "outer", 0);
	owner(7, "PTA@detail@outer"); /* open twice, it counts once */
	label(2, LABEL_POP, 5, "detail", 0);
	label(2, LABEL_POP, 5, "never pushed", 0);
	owner(7, "PTA@outer");
	label(2, LABEL_POP, 5, "outer", 0);
	label(2, LABEL_POP, 5, "outer", 0);
	label(2, LABEL_POP, 5, "outer", 0);
	owner(7, "");
	label(3, LABEL_PUSH, 200, "of no level", 0);
	label(3, LABEL_PUSH, 0, "", 0);
	owner(7, "");
	label(4, LABEL_POP, 0, "", 0);
	label(4, LABEL_POP, 0, "of no level", 0);
	for (int i = 0; i < 1000; i++)
		label(5, LABEL_PUSH, 5, "deep", 0);
	for (int i = 0; i < 64; i++)
		label(5, LABEL_POP, 5, "deep", 0);
	owner(7, "");
	done();
}

TEST(track, label_of_an_address)
{
	rowtext_begin(PLAIN, "");
	add_alloc(&r, 1, 0x100, 0x100, POOL_HAL);
	add_alloc(&r, 1, 0x140, 0x10, POOL_PTA);
	label(2, LABEL_ADDR, 5, "weight", 0x148);
	label(2, LABEL_ADDR, 5, "nowhere", 0x5000);
	label(2, LABEL_ADDR, 5, "past the end", 0x200);
	add_free(&r, 3, 0x140, POOL_PTA);
	feed();
	const char *at = strstr(buf_str(&rowtext), "FREE");
	CHECK(at);
	CHECK_STR(at, "FREE PTA - @3 t7 d0 allocation_id:2,addr:140,size:16,used:0,total:0,"
		      "owner:PTA@weight\n");
	done();
}

/* --- devices --- */

static void device_of_region(const char *visible, uint16_t device, uint32_t want)
{
	rowtext_begin(PLAIN, visible);
	RECORD(&r, REC_ALLOC, rec_alloc, 1, .addr = 1, .size_bytes = 1, .pool = POOL_PTA,
	       .kind = ALLOC_REGION, .device = device);
	feed();
	char text[32];
	snprintf(text, sizeof(text), " d%u ", want);
	if (!strstr(buf_str(&rowtext), text)) {
		fprintf(stderr, "'%s' %u: %s", visible, device, rowtext.data);
		CHECK(0);
	}
	buf_clear(&rowtext);
}

TEST(track, visible_devices)
{
	char many[256] = "";

	device_of_region("", 3, 3);
	device_of_region("4,5,6", 0, 4);
	device_of_region("4,5,6", 2, 6);
	device_of_region("4,5,6", 3, 3); /* not one of them */
	device_of_region(" 4 , 5 ", 1, 5);
	device_of_region("7", 0, 7);
	device_of_region("4,5,6", DEV_NONE, DEV_NONE);
	device_of_region("4,x", 1, 1); /* not a list: no mapping at all */
	device_of_region("0-3", 1, 1);
	device_of_region("-1", 0, 0);
	device_of_region("99999999999999999999", 0, 0);
	device_of_region(",,,", 1, 1);
	for (int i = 0; i < 120; i++)
		strcat(many, "8,");
	device_of_region(many, 63, 8);
	device_of_region(many, 64, 64);
	/* The driver's own numbers are physical already. */
	rowtext_begin(PLAIN, "4,5");
	add_alloc(&r, 1, 1, 1, POOL_HAL);
	feed();
	CHECK(strstr(buf_str(&rowtext), " d0 "));
	done();
}

TEST(track, device_filter)
{
	rowtext_begin("{\"analysisType\":0,\"collectAllNpu\":false,\"npuSlots\":2}", "");
	for (uint16_t d = 0; d < 40; d++)
		RECORD(&r, REC_ALLOC, rec_alloc, 1, .addr = d + 1, .size_bytes = 1,
		       .pool = POOL_PTA, .kind = ALLOC_REGION, .device = d);
	feed();
	ROWS("MALLOC PTA - @1 t7 d1 allocation_id:2,addr:2,size:1,used:1,total:0\n");
	done();
}

/* --- text from Python --- */

#define ATEN "memscope-aten-"

static void aten(const char *text, const char *want)
{
	MARK_RECORD(&r, 9, MARK_INSTANT, 0, text);
	feed();
	rowtext_check_at(__LINE__, want);
}

TEST(track, aten_marks)
{
	rowtext_begin(ACCESS, "");
	add_alloc(&r, 1, 4096, 64, POOL_PTA);
	feed();
	buf_clear(&rowtext);
	aten(ATEN "b: name=aten.add", "OP_LAUNCH ATEN_START aten.add @9 t7 d0 \n");
	aten(ATEN "e: name=aten.add", "OP_LAUNCH ATEN_END aten.add @9 t7 d0 \n");
	aten(ATEN "ac:ptr=4100;is_write=True;is_read=False;is_output=True;name=aten.add;"
		  "shape=torch.Size([2, 3]);dtype=torch.float16;tensor_size=12;device=npu:0",
	     "ACCESS WRITE aten.add @9 t7 d0 allocation_id:1,addr:1004,size:12,type:PTA,"
	     "dtype:torch.float16,shape:torch.Size([2, 3])\n");
	aten(ATEN "ac:ptr=4160;is_write=False;is_read=True;name=x;tensor_size=1",
	     "ACCESS READ x @9 t7 d0 addr:1040,size:1,type:PTA,dtype:,shape:\n");
	aten(ATEN "ac:ptr=1;name=x", "ACCESS UNKNOWN x @9 t7 d0 addr:1,size:0,type:PTA,dtype:,"
				     "shape:\n");
	done();
}

TEST(track, aten_marks_nasty)
{
	rowtext_begin(ACCESS, "");
	aten(ATEN "ac:", "");
	aten(ATEN "ac:ptr=", "");
	aten(ATEN "ac:ptr=x;name=y", "");
	aten(ATEN "ac:ptr=0;name=y", "");
	aten(ATEN "zz", "");
	aten(ATEN "b:", "OP_LAUNCH ATEN_START  @9 t7 d0 \n");
	aten(ATEN "ac:ptr=99999999999999999999999;name=;shape=;dtype=", "");
	aten(ATEN "ac:ptr=18446744073709551615;name=;tensor_size=18446744073709551616",
	     "ACCESS UNKNOWN  @9 t7 d0 addr:ffffffffffffffff,size:0,type:PTA,dtype:,shape:\n");
	/* Too short to be one, and one in the middle: marks like any other. */
	aten(ATEN "b", "MSTX Mark " ATEN "b @9 t7 d0 \n");
	aten("x" ATEN "b:", "MSTX Mark x" ATEN "b: @9 t7 d0 \n");
	/* NULs and bytes that are no text. */
	static const char odd[] = ATEN "ac:ptr=16;name=a\0b;dtype=\xff\xfe;shape=}";
	TEXT_RECORD(&r, REC_MARK, rec_mark, 9, odd, sizeof(odd) - 1, .kind = MARK_INSTANT);
	feed();
	CHECK(strstr(buf_str(&rowtext), "addr:10,size:0,type:PTA,dtype:\xff\xfe,shape:\n"));
	done();
}

TEST(track, operators_and_kernels)
{
	rowtext_begin(ACCESS, "");
	TEXT_RECORD(&r, REC_OP, rec_op, 1, "op\0path:1_2,x:y", 15, .kind = OP_ATB_START);
	RECORD(&r, REC_KERNEL, rec_kernel, 2, .name_hash = 0xabc, .stream = 3, .task = 4);
	TEXT_RECORD(&r, REC_NAME, rec_name, 3, "matmul", 6, .hash = 0xabc);
	TEXT_RECORD(&r, REC_NAME, rec_name, 3, "other", 5, .hash = 0xabc);
	RECORD(&r, REC_KERNEL, rec_kernel, 4, .name_hash = 0xabc, .kind = KERNEL_EXECUTE_END);
	TEXT_RECORD(&r, REC_ACCESS, rec_access, 5, "op\0dtype:f", 10, .pool = POOL_ATB, .kind = 9,
		    .addr = 1);
	feed();
	ROWS("OP_LAUNCH ATB_START op @1 t7 d0 path:1_2,x:y\n"
	     "KERNEL_LAUNCH KERNEL_LAUNCH 0x0000000000000abc @2 t7 d0 streamId:3,taskId:4\n"
	     "KERNEL_LAUNCH KERNEL_EXECUTE_END matmul @4 t7 d0 streamId:0,taskId:0\n"
	     "ACCESS UNKNOWN op @5 t7 d0 addr:1,size:0,type:ATB,dtype:f\n");
	done();
}

TEST(track, oom_only_if_asked_for)
{
	rowtext_begin(PLAIN, "");
	RECORD(&r, REC_OOM, rec_oom, 1, .size_bytes = 5, .flag = 6, .device = 1);
	feed();
	ROWS("hidden OOM_DETAIL OOM_TRIGGER OOM_Trigger @1 t7 d1 "
	     "func:halMemAlloc,req_size:5,flag:6\n");
	rowtext_begin("{\"analysisType\":8}", "");
	RECORD(&r, REC_OOM, rec_oom, 1, .size_bytes = 5, .flag = 6, .device = 1);
	feed();
	ROWS("OOM_DETAIL OOM_TRIGGER OOM_Trigger @1 t7 d1 func:halMemAlloc,req_size:5,flag:6\n");
	done();
}

TEST(track, stacks)
{
	static const uint64_t pcs[] = {0x10, 0x20};
	struct buf batch = {0};

	rowtext_begin(PLAIN, "");
	add_stack(&batch, 0, 5, pcs, 2);
	add_stack(&batch, 0, 6, NULL, 0);
	add_stack(&batch, 9, 5, pcs, 2); /* of nobody */
	RECORD(&r, REC_ALLOC, rec_alloc, 1, .head.stack = 5, .addr = 1, .pool = POOL_PTA);
	RECORD(&r, REC_ALLOC, rec_alloc, 2, .head.stack = 6, .addr = 2, .pool = POOL_PTA);
	RECORD(&r, REC_ALLOC, rec_alloc, 3, .head.stack = 7, .addr = 3, .pool = POOL_PTA);
	((struct rec *)r.data)->stack = 5;
	add_run(&batch, 0, 7, &r);
	rowtext_frame(FRAME_BATCH, batch.data, batch.len);
	CHECK(strchr(buf_str(&rowtext), '|'));
	buf_release(&batch);
	done();
}

/* What the session says that is not understood changes nothing. */
TEST(track, broken_session)
{
	static const char *const bad[] = {"", "{", "[]", "{\"eventType\":\"x\"}", "\xff"};

	rowtext_begin("{\"analysisType\":0,\"wallMinusMono\":1000}", "");
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		rowtext_frame(FRAME_SESSION, bad[i], strlen(bad[i]));
	CHECK_INT(track_config(rowtext_track)->analysis, 0);
	CHECK_INT(track_wall_minus_mono(rowtext_track), 1000);
	add_alloc(&r, 1, 1, 1, POOL_PTA);
	feed();
	ROWS("MALLOC PTA - @1001 t7 d0 allocation_id:1,addr:1,size:1,used:1,total:0\n");
	done();
}
