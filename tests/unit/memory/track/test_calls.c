/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Calls of functions: from records to rows, whatever is missing between them. */
#include "memory/dump/calls.h"
#include "memory/track/track.h"

#include "records.h"
#include "test.h"

#include <stdio.h>
#include <stdlib.h>

#define MONO "{\"wallMinusMono\":1000}"
#define DEFERRED "{\"wallMinusMono\":1000,\"collectMode\":1}"
#define STEP_2                                                                                     \
	"{\"wallMinusMono\":1000,\"SelectedStepList\":{\"stepCount\":1,\"stepIdList\":[2,0,0,0,0]" \
	"}}"

static struct track *track;
static struct buf rows, recs;

/* `text start-end t7`, with - for what is not known. */
static void on_call(void *arg, uint32_t proc, const struct trace_row *r)
{
	(void)arg;
	(void)proc;
	if (!r) {
		buf_add_str(&rows, ".\n");
		return;
	}
	buf_addf(&rows, "%s%.*s ", r->prefix, (int)r->text_len, r->text);
	buf_addf(&rows, r->start_ns ? "%llu" : "-", (unsigned long long)r->start_ns);
	buf_addf(&rows, r->end_ns ? "..%llu" : "..-", (unsigned long long)r->end_ns);
	buf_addf(&rows, " t%u p%u\n", r->tid, r->pid);
}

static void frame(uint32_t type, const void *payload, size_t n)
{
	CHECK_INT(stream_frame(&track_stream, track, type, payload, n, NULL), 0);
}

static void begin(const char *config)
{
	struct track_sink sink = {.call = on_call};
	struct frame_proc p = {.pid = 100, .exe = "/bin/python"};

	track_free(track);
	track = track_new(&sink);
	frame(FRAME_SESSION, config, strlen(config));
	frame(FRAME_PROC, &p, sizeof(p));
	buf_clear(&rows);
}

static void feed(uint32_t tid)
{
	struct buf batch = {0};

	add_run(&batch, 0, tid, &recs);
	frame(FRAME_BATCH, batch.data, batch.len);
	buf_release(&batch);
	buf_clear(&recs);
}

static void check_at(int line, const char *want)
{
	if (strcmp(buf_str(&rows), want)) {
		fprintf(stderr, "line %d, got\n%swant\n%s", line, buf_str(&rows), want);
		exit(1);
	}
	buf_clear(&rows);
}
#define ROWS(want) check_at(__LINE__, want)

static void call(uint64_t ns, uint8_t kind, uint64_t name, uint32_t place)
{
	RECORD(&recs, REC_CALL, rec_call, ns, .kind = kind, .name = name, .place = place);
}

static void name(uint64_t hash, const char *text)
{
	size_t len = strlen(text);
	uint16_t size = rec_size(sizeof(struct rec_name), len);
	struct rec_name *r = (struct rec_name *)buf_room(&recs, size);

	memset(r, 0, size);
	r->head = (struct rec){.type = REC_NAME, .size = size, .time_ns = 1};
	r->hash = hash;
	r->len = (uint16_t)len;
	memcpy(r->text, text, len);
	recs.len += size;
}

/* "f.py(<id>): <name>" */
static void place(uint32_t id, const char *function)
{
	size_t n = strlen(function), len = n + 1 + strlen("f.py");
	uint16_t size = rec_size(sizeof(struct rec_python), len);
	struct rec_python *r = (struct rec_python *)buf_room(&recs, size);

	memset(r, 0, size);
	r->head = (struct rec){.type = REC_PYTHON, .size = size, .time_ns = 1};
	r->id = id;
	r->line = id;
	r->len = (uint16_t)len;
	memcpy(r->text, function, n);
	memcpy(r->text + n + 1, "f.py", 4);
	recs.len += size;
}

static void end_proc(uint64_t ns)
{
	struct frame_proc_end e = {.proc = 0, .time_ns = ns};

	frame(FRAME_PROC_END, &e, sizeof(e));
}

static void done(void)
{
	track_free(track);
	track = NULL;
	buf_release(&rows);
	buf_release(&recs);
}

TEST(track_trace, calls)
{
	begin(MONO);
	place(1, "f");
	place(2, "g");
	name(0x77, "<built-in function len>");
	name(0x78, "nn.Module: Linear");
	call(10, CALL_PYTHON, 0, 1);
	call(20, CALL_PYTHON, 0x78, 2);
	call(30, CALL_C, 0x77, 2);
	call(40, CALL_C_RETURN, 0x77, 2);
	call(50, CALL_RETURN, 0, 2);
	feed(7);
	call(25, CALL_PYTHON, 0, 1);
	call(60, CALL_RETURN, 0, 1);
	feed(8);
	call(70, CALL_RETURN, 0, 1);
	feed(7);
	ROWS("<built-in function len> 1030..1040 t7 p100\n"
	     "nn.Module: Linear 1020..1050 t7 p100\n"
	     "f.py(1): f 1025..1060 t8 p100\n"
	     "f.py(1): f 1010..1070 t7 p100\n");
	end_proc(80);
	ROWS(".\n");
	done();
}

/* What is lost in a full ring leaves a row with what is known. */
TEST(track_trace, lost_records)
{
	begin(MONO);
	place(1, "f");
	place(2, "g");
	place(3, "h");
	name(0x77, "c");
	call(10, CALL_PYTHON, 0, 1);
	call(20, CALL_PYTHON, 0, 2); /* its end is lost … */
	call(30, CALL_C, 0x77, 2); /* … and that one's */
	call(40, CALL_RETURN, 0, 1);
	call(50, CALL_RETURN, 0, 3); /* and here the beginning */
	call(60, CALL_C_RETURN, 0x77, 1);
	call(70, CALL_PYTHON, 0, 9); /* a function that nobody told of */
	call(80, CALL_RETURN, 0, 9);
	call(90, CALL_C, 0x99, 0);
	call(95, CALL_C_RETURN, 0x99, 0);
	feed(7);
	ROWS("c 1030..- t7 p100\n"
	     "f.py(2): g 1020..- t7 p100\n"
	     "f.py(1): f 1010..1040 t7 p100\n"
	     "f.py(3): h -..1050 t7 p100\n"
	     "c -..1060 t7 p100\n"
	     "?(0): ? 1070..1080 t7 p100\n"
	     "? 1090..1095 t7 p100\n");
	done();
}

TEST(track_trace, start_and_stop)
{
	begin(MONO);
	place(1, "main");
	place(2, "f");
	call(10, CALL_OPEN, 0, 1);
	call(11, CALL_OPEN, 9, 1); /* told for another thread … */
	call(20, CALL_PYTHON, 0, 2);
	feed(7);
	RECORD(&recs, REC_THREAD, rec_thread, 30, .tid = 9); /* … which has a ring from now on */
	call(31, CALL_PYTHON, 0, 2);
	call(40, CALL_RETURN, 0, 2);
	call(41, CALL_RETURN, 0, 1);
	feed(9);
	call(50, CALL_STOP, 0, 0);
	call(60, CALL_RETURN, 0, 2);
	feed(7);
	ROWS("f.py(2): f 1031..1040 t9 p100\n"
	     "start: f.py(1): main 1011..1041 t9 p100\n"
	     "start: f.py(1): main 1010..- t7 p100\n"
	     "f.py(2): f 1020..- t7 p100\n"
	     "stop: f.py(1): main -..1050 t7 p100\n"
	     "stop: f.py(2): f -..1050 t7 p100\n"
	     "f.py(2): f -..1060 t7 p100\n");
	done();
}

/* A killed process: what ran has no end, and nobody was asked to stop. */
TEST(track_trace, end_of_a_process)
{
	begin(MONO);
	place(1, "f");
	name(0xf1, "note");
	call(10, CALL_PYTHON, 0, 1);
	call(20, CALL_NOTE, 0xf1, 0);
	feed(7);
	end_proc(100);
	ROWS("f.py(1): f 1010..- t7 p100\n"
	     "note 1020..- t7 p100\n"
	     ".\n");
	done();
}

TEST(track_trace, a_thread_with_the_number_of_a_dead_one)
{
	begin(MONO);
	place(1, "f");
	place(2, "g");
	call(10, CALL_PYTHON, 0, 1);
	feed(7);
	RECORD(&recs, REC_THREAD, rec_thread, 20, .tid = 7, .level = 1); /* its signal handlers */
	call(25, CALL_PYTHON, 0, 2);
	call(26, CALL_RETURN, 0, 2);
	RECORD(&recs, REC_THREAD, rec_thread, 30, .tid = 7);
	call(40, CALL_PYTHON, 0, 1);
	call(50, CALL_RETURN, 0, 1);
	feed(7);
	ROWS("f.py(2): g 1025..1026 t7 p100\n"
	     "f.py(1): f 1010..- t7 p100\n"
	     "f.py(1): f 1040..1050 t7 p100\n");
	done();
}

/* Spans end in any order, and in any thread; a name is used once. */
TEST(track_trace, notes)
{
	begin(MONO);
	name(0xf1, "a");
	name(0xf2, "b");
	call(10, CALL_NOTE, 0xf1, 0);
	call(20, CALL_NOTE, 0xf2, 0);
	call(30, CALL_NOTE_END, 0xf1, 0);
	call(31, CALL_NOTE_END, 0xf1, 0); /* once more: nothing */
	feed(7);
	call(40, CALL_NOTE_END, 0xf2, 0);
	feed(8);
	call(50, CALL_NOTE, 0xf1, 0); /* without a text of its own */
	call(60, CALL_NOTE_END, 0xf1, 0);
	feed(8);
	ROWS("a 1010..1030 t7 p100\n"
	     "b 1020..1040 t7 p100\n"
	     "? 1050..1060 t8 p100\n");
	done();
}

/* Only what lies in a window, or reaches into one, has a row. */
TEST(track_trace, windows)
{
	begin(DEFERRED);
	place(1, "f");
	call(10, CALL_PYTHON, 0, 1);
	call(20, CALL_RETURN, 0, 1);
	feed(7);
	ROWS("");
	RECORD(&recs, REC_SYSTEM, rec_system, 30, .kind = SYSTEM_START_TRACE, .device = DEV_NONE);
	call(40, CALL_PYTHON, 0, 1);
	RECORD(&recs, REC_SYSTEM, rec_system, 50, .kind = SYSTEM_STOP_TRACE, .device = DEV_NONE);
	call(60, CALL_RETURN, 0, 1);
	feed(7);
	ROWS("f.py(1): f 1040..- t7 p100\n"
	     "stop: f.py(1): f -..1050 t7 p100\n"
	     ".\n");
	begin(STEP_2);
	place(1, "f");
	call(10, CALL_PYTHON, 0, 1);
	call(11, CALL_PYTHON, 0, 1);
	call(12, CALL_RETURN, 0, 1);
	RECORD(&recs, REC_SYSTEM, rec_system, 20, .kind = SYSTEM_STEP, .value = 1,
	       .device = DEV_NONE);
	call(30, CALL_RETURN, 0, 1); /* reaches into step 2 */
	call(40, CALL_PYTHON, 0, 1);
	RECORD(&recs, REC_SYSTEM, rec_system, 50, .kind = SYSTEM_STEP, .value = 2,
	       .device = DEV_NONE);
	call(60, CALL_RETURN, 0, 1); /* and out of it */
	call(70, CALL_PYTHON, 0, 1);
	call(80, CALL_RETURN, 0, 1);
	feed(7);
	ROWS("f.py(1): f 1010..1030 t7 p100\n"
	     "f.py(1): f 1040..1060 t7 p100\n");
	done();
}

/* Any bytes that pass as records, and recursion without an end: no harm, and bounded. */
TEST(track_trace, hostile)
{
	begin(MONO);
	srand(1);
	for (unsigned i = 0; i < 20000; i++) {
		call((uint64_t)rand(), (uint8_t)rand(), (uint64_t)(rand() % 4),
		     (uint32_t)(rand() % 4));
		if (recs.len > 10000)
			feed((uint32_t)(rand() % 3));
	}
	feed(1);
	buf_clear(&rows);
	begin(MONO);
	place(1, "f");
	for (unsigned i = 0; i < 600000; i++) {
		call(i, CALL_PYTHON, 0, 1);
		if (recs.len > 100000)
			feed(7);
	}
	for (unsigned i = 0; i < 600000; i++) {
		call(600000 + i, CALL_RETURN, 0, 1);
		if (recs.len > 100000)
			feed(7);
	}
	feed(7);
	CHECK(!memmem(rows.data, rows.len, "..-", 3));
	end_proc(2000000);
	done();
}

static void line_is(const struct trace_row *row, const char *want)
{
	struct buf out = {0}, scratch = {0};

	trace_csv_add(&out, row, &scratch);
	CHECK_STR(buf_str(&out), want);
	buf_release(&out);
	buf_release(&scratch);
}

TEST(track_trace, csv_lines)
{
	line_is(&(struct trace_row){"", "f", 1, 1, UINT64_MAX, 2, 3},
		"f,1,18446744073709551615,2,3\n");
	line_is(&(struct trace_row){"stop: ", "a,\"b\"\n", 6, 0, 5, 2, 3},
		"\"stop: a,\"\"b\"\"\n\",N/A,5,2,3\n");
	line_is(&(struct trace_row){"", "", 0, 4, 0, UINT32_MAX, 1}, ",4,N/A,4294967295,1\n");
	line_is(&(struct trace_row){"", "\xff\0x", 3, 1, 1, 1, 1}, "\xef\xbf\xbdx,1,1,1,1\n");
}
