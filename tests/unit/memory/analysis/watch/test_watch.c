/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Who changed watched memory: rows and looks in, an answer out. */
#include "memory/analysis/common/analysis.h"
#include "memory/analysis/watch/watch.h"

#include "base/mem.h"
#include "memory/options/config.h"
#include "memory/outputs/watch_files.h"
#include "test.h"
#include "wire/control_page.h"
#include "wire/record.h"

#include <errno.h>

#define PID 10
#define VICTIM 0x20000u
#define SIZE 8192u

static struct analysis *w;
static uint64_t now_ns;
static uint32_t seq;

static void begin_test(void)
{
	w = watch_new();
	now_ns = 1000;
	seq = 0;
}

static void op_row(enum row_type type, uint32_t tid, const char *name)
{
	bool kernel = type == TYPE_KERNEL_START || type == TYPE_KERNEL_END;
	struct row r = {.event = kernel ? ROW_KERNEL_LAUNCH : ROW_OP_LAUNCH,
			.type = type,
			.name = name,
			.name_len = strlen(name),
			.pid = PID,
			.tid = tid,
			.time_ns = now_ns++};

	w->ops->row(w, &r);
}

static void begins(uint32_t tid, const char *name)
{
	op_row(TYPE_ATEN_START, tid, name);
}

static void ends(uint32_t tid, const char *name)
{
	op_row(TYPE_ATEN_END, tid, name);
}

static void accesses(uint32_t tid, enum row_type type, uint64_t addr, uint64_t size)
{
	struct row r = {.event = ROW_ACCESS,
			.type = type,
			.pid = PID,
			.tid = tid,
			.has_ptr = true,
			.ptr = addr,
			.time_ns = now_ns++};

	row_attr_number(&r, ATTR_SIZE, size);
	w->ops->row(w, &r);
}

static void block_row(enum row_event event, uint64_t addr, uint64_t size, uint64_t id)
{
	struct row r = {.event = event,
			.type = TYPE_PTA,
			.pid = PID,
			.has_ptr = true,
			.ptr = addr,
			.time_ns = now_ns++};

	row_attr_number(&r, ATTR_ALLOCATION_ID, id);
	row_attr_number(&r, ATTR_SIZE, size);
	w->ops->row(w, &r);
}

static struct watch_sample sample(uint32_t tid, const char *op, uint32_t call, bool after,
				  uint64_t checksum)
{
	return (struct watch_sample){
		.time_ns = now_ns++,
		.tid = tid,
		.watch = 1,
		.seq = ++seq,
		.addr = VICTIM,
		.size_bytes = SIZE,
		.checksum = checksum,
		.call = call,
		.after = after,
		.op = op,
		.op_len = strlen(op),
		.watched = "torch._ops.aten.mul_.Scalar",
		.watched_len = strlen("torch._ops.aten.mul_.Scalar"),
		.watched_call = 1,
	};
}

static void looks(uint32_t tid, const char *op, uint32_t call, bool after, uint64_t checksum)
{
	struct watch_sample s = sample(tid, op, call, after, checksum);

	watch_add(w, PID, &s);
}

/* An operator of thread 1 that finds the block as `before` and leaves it as `after`. */
static void calls(const char *op, uint32_t n, uint64_t before, uint64_t writes, uint64_t after)
{
	begins(1, op);
	looks(1, op, n, false, before);
	if (writes)
		accesses(1, TYPE_WRITE, writes, SIZE);
	looks(1, op, n, true, after);
	ends(1, op);
}

static const char *text(void)
{
	static struct buf b;
	struct analysis_style style = {.top = 10};

	buf_clear(&b);
	w->ops->text(w, &style, &b);
	/* Lines are wrapped: the words count. */
	for (size_t i = 0; i < b.len; i++)
		if (b.data[i] == '\n')
			b.data[i] = ' ';
	return buf_str(&b);
}

static json_t *json(void)
{
	json_t *o = w->ops->json(w, 10);

	CHECK(o);
	return o;
}

static long long number(const char *key)
{
	json_t *o = json();
	long long n = json_integer_value(json_object_get(o, key));

	CHECK(json_object_get(o, key));
	json_decref(o);
	return n;
}

#define CHECK_HAS(part)                                                                            \
	do {                                                                                       \
		if (!strstr(text(), part)) {                                                       \
			fprintf(stderr, "%s:%d: no \"%s\" in: %s\n", __FILE__, __LINE__, part,     \
				text());                                                           \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)

#define MUL "torch._ops.aten.mul_.Scalar"

TEST(watch, looks_that_are_used_up)
{
	begin_test();
	calls("aten.add.Tensor", 1, 7, 0, 7);
	CHECK_HAS("No corruption of what was watched. ");
	struct watch_sample s = sample(1, "aten.add.Tensor", 2, true, 7);
	s.last = true;
	watch_add(w, PID, &s);
	begins(1, "aten.mul.Tensor");
	ends(1, "aten.mul.Tensor");
	CHECK_HAS("No corruption of what was watched, as long as it was watched. ");
	CHECK_HAS("ended after operator aten.add.Tensor #2: it was for 3 looks only "
		  "(dump_nums). Changes after that were not looked at.");
	json_t *o = w->ops->json(w, 10);
	CHECK_INT((long long)json_integer_value(json_object_get(o, "ended_early")), 1);
	json_t *e = json_array_get(json_object_get(o, "ended"), 0);
	CHECK_INT((long long)json_integer_value(json_object_get(e, "looks")), 3);
	json_decref(o);
	analysis_free(w);
}

TEST(watch, nothing_watched)
{
	begin_test();
	CHECK_HAS("No memory was watched.");
	CHECK_INT(w->ops->findings(w), 0);
	analysis_free(w);
}

TEST(watch, during_an_operator)
{
	begin_test();
	block_row(ROW_MALLOC, VICTIM, SIZE, 77);
	begins(1, MUL);
	accesses(1, TYPE_WRITE, VICTIM, SIZE);
	looks(1, MUL, 1, true, 5);
	ends(1, MUL);
	calls(MUL, 2, 5, VICTIM - SIZE, 6);
	CHECK_INT(w->ops->findings(w), 1);
	CHECK_HAS("1 block watched, looked at 3 times; 0 changes by operators that announce it.");
	CHECK_HAS("1 corruption of memory found. Block 0x20000 (8192 bytes, output 0 of "
		  "aten.mul_.Scalar #1) changed during "
		  "operator aten.mul_.Scalar #2, which should not write it. It writes the 8192 "
		  "bytes right before it: an overrun is likely.");
	CHECK_HAS("allocation 77 of PTA");
	json_t *o = json();
	json_t *f = json_array_get(json_object_get(o, "corruption"), 0);
	CHECK_STR(json_string_value(json_object_get(f, "kind")), "during_operator");
	CHECK_STR(json_string_value(json_object_get(f, "before")), "0000000000000005");
	CHECK_STR(json_string_value(json_object_get(json_object_get(f, "written_beside"), "side")),
		  "before");
	CHECK_INT(json_integer_value(json_object_get(json_object_get(f, "to"), "call")), 2);
	json_decref(o);
	analysis_free(w);
}

/* A row of a thread of Python, with its call stack. */
static void stacked_row(enum row_event event, enum row_type type, const char *name,
			const char *py_stack)
{
	struct row r = {.event = event,
			.type = type,
			.name = name,
			.name_len = strlen(name),
			.pid = PID,
			.tid = 1,
			.has_ptr = event == ROW_MALLOC,
			.ptr = VICTIM,
			.py_stack = py_stack,
			.py_stack_len = strlen(py_stack),
			.time_ns = now_ns++};

	row_attr_number(&r, ATTR_SIZE, SIZE);
	w->ops->row(w, &r);
}

#define TORCH_FRAME                                                                                \
	"/usr/lib/python3/dist-packages/torch/nn/modules/linear.py(114): Linear.forward\n"

TEST(watch, names_the_users_lines)
{
	begin_test();
	stacked_row(ROW_MALLOC, TYPE_PTA, "", "/job/model.py(3): make\n/job/train.py(9): <module>");
	looks(1, MUL, 1, true, 5);
	stacked_row(ROW_OP_LAUNCH, TYPE_ATEN_START, "aten.addmm",
		    TORCH_FRAME "/job/train.py(18): train_step\n/job/train.py(30): <module>");
	looks(1, "aten.addmm", 1, false, 5);
	accesses(1, TYPE_WRITE, 0x1000, SIZE);
	looks(1, "aten.addmm", 1, true, 6);
	ends(1, "aten.addmm");
	CHECK_INT(w->ops->findings(w), 1);
	CHECK_HAS("operator called by train_step (train.py:18) via Linear.forward; block "
		  "allocated by make   (model.py:3) ");
	json_t *o = json();
	json_t *f = json_array_get(json_object_get(o, "corruption"), 0);
	json_t *to = json_object_get(f, "to");
	CHECK_STR(json_string_value(json_object_get(f, "where")), "make (model.py:3)");
	CHECK_STR(json_string_value(json_object_get(to, "where")), "train_step (train.py:18)");
	CHECK_STR(json_string_value(json_object_get(to, "via")), "Linear.forward");
	json_decref(o);
	/* Between two: the line of the one before, not that of an operator whose call is not known. */
	calls("aten.b", 1, 7, 0x1000, 7);
	CHECK_HAS("  after train_step (train.py:18) via Linear.forward; block allocated by");
	analysis_free(w);
}

TEST(watch, underrun)
{
	begin_test();
	looks(1, MUL, 1, true, 5);
	calls("aten.add", 1, 5, VICTIM + SIZE + 64, 6);
	CHECK_HAS("It writes the 8192 bytes that begin 64 bytes behind it: an underrun is likely.");
	analysis_free(w);
}

/* What the operator writes is far away: it is named, and nothing is guessed. */
TEST(watch, far_away)
{
	begin_test();
	looks(1, MUL, 1, true, 5);
	calls("aten.add", 1, 5, VICTIM + (1u << 30), 6);
	CHECK_HAS("during operator aten.add #1, which should not write it.");
	CHECK(!strstr(text(), "likely"));
	analysis_free(w);
}

TEST(watch, announced_changes_are_counted)
{
	begin_test();
	looks(1, MUL, 1, true, 5);
	calls("aten.add_", 1, 5, VICTIM, 6);
	calls("aten.copy_", 1, 6, VICTIM + SIZE - 1, 7); /* one byte of it */
	begins(1, "atb"); /* ATB does not say whether it reads or writes */
	looks(1, "atb", 1, false, 7);
	accesses(1, TYPE_UNKNOWN, VICTIM, 1);
	looks(1, "atb", 1, true, 8);
	ends(1, "atb");
	CHECK_INT(w->ops->findings(w), 0);
	CHECK_INT(number("announced"), 3);
	CHECK_HAS("No corruption of what was watched.  1 block watched, looked at 7 times; 3 "
		  "changes by operators that "
		  "announce it.");
	/* Reading it is no excuse. */
	begins(1, "aten.read");
	looks(1, "aten.read", 1, false, 8);
	accesses(1, TYPE_READ, VICTIM, SIZE);
	looks(1, "aten.read", 1, true, 9);
	ends(1, "aten.read");
	CHECK_INT(w->ops->findings(w), 1);
	analysis_free(w);
}

TEST(watch, between_operators)
{
	begin_test();
	looks(1, MUL, 1, true, 5);
	calls("aten.a", 1, 5, 0x1000, 5);
	calls("aten.b", 3, 6, 0x1000, 6);
	CHECK_INT(w->ops->findings(w), 1);
	CHECK_HAS("changed between operator aten.a #1 and operator aten.b #3, while no operator "
		  "that may write it ran.");
	analysis_free(w);
}

TEST(watch, inside_of_another)
{
	begin_test();
	looks(1, MUL, 1, true, 5);
	begins(1, "outer");
	looks(1, "outer", 1, false, 5);
	calls("inner", 1, 5, VICTIM - SIZE, 6);
	looks(1, "outer", 1, true, 6);
	ends(1, "outer");
	CHECK_INT(w->ops->findings(w), 1);
	CHECK_HAS("during operator inner #1 (inside operator outer), which should not write it.");
	analysis_free(w);
}

/* The outer operator announces its output when the kernels inside have long run. */
TEST(watch, announced_late)
{
	begin_test();
	accesses(1, TYPE_READ, 0x1000, 1);
	looks(1, MUL, 1, true, 5);
	begins(1, "outer");
	looks(1, "outer", 1, false, 5);
	looks(1, "Kernel", 1, false, 5);
	looks(1, "Kernel", 1, true, 6);
	CHECK_INT(w->ops->findings(w), 1); /* asked in the middle: as things stand */
	CHECK_INT(number("announced"), 0);
	accesses(1, TYPE_WRITE, VICTIM, SIZE);
	looks(1, "outer", 1, true, 6);
	ends(1, "outer");
	CHECK_INT(w->ops->findings(w), 0);
	CHECK_INT(number("announced"), 1);
	analysis_free(w);
}

/* Another thread is in the middle of an operator that writes the block. */
TEST(watch, another_thread)
{
	begin_test();
	looks(1, MUL, 1, true, 5);
	begins(2, "writer");
	looks(2, "writer", 1, false, 5);
	calls("bystander", 1, 6, 0x1000, 6);
	accesses(2, TYPE_WRITE, VICTIM, SIZE);
	looks(2, "writer", 1, true, 6);
	ends(2, "writer");
	CHECK_INT(w->ops->findings(w), 0);
	CHECK_INT(number("announced"), 1);
	/* The same, and it never says so. */
	begins(2, "thief");
	looks(2, "thief", 1, false, 6);
	calls("bystander", 2, 7, 0x1000, 7);
	looks(2, "thief", 1, true, 7);
	ends(2, "thief");
	CHECK_INT(w->ops->findings(w), 1);
	CHECK_HAS("changed between the beginning of operator thief #1 and the beginning of "
		  "operator bystander #2");
	analysis_free(w);
}

TEST(watch, unknown_tensors)
{
	begin_test();
	looks(1, MUL, 1, true, 5);
	begins(1, "aten.a");
	looks(1, "aten.a", 1, false, 5);
	looks(1, "aten.a", 1, true, 6);
	ends(1, "aten.a");
	CHECK_INT(w->ops->findings(w), 0);
	CHECK_HAS("1 change of watched memory found.");
	CHECK_HAS("add --events=access");
	analysis_free(w);
	/* A kernel outside of any operator, in a job whose operators do speak. */
	begin_test();
	accesses(1, TYPE_WRITE, 0x1000, 1);
	looks(1, MUL, 1, true, 5);
	looks(1, "Kernel", 1, false, 5);
	looks(1, "Kernel", 1, true, 6);
	CHECK_INT(w->ops->findings(w), 0);
	CHECK_INT(number("unjudged"), 1);
	analysis_free(w);
}

TEST(watch, atb_names)
{
	begin_test();
	looks(1, MUL, 1, true, 5);
	op_row(TYPE_ATB_START, 1, "LinearOperation");
	accesses(1, TYPE_WRITE, VICTIM - SIZE, SIZE);
	looks(1, "1_Layer/3_LinearOperation", 1, false, 5);
	looks(1, "1_Layer/3_LinearOperation", 1, true, 6);
	op_row(TYPE_ATB_END, 1, "LinearOperation");
	CHECK_HAS("during operator 1_Layer/3_LinearOperation #1, which should not write it. It "
		  "writes the 8192 bytes right before it");
	CHECK(!strstr(text(), "inside"));
	analysis_free(w);
}

/* A new watch of the same output has nothing to do with the former one. */
TEST(watch, rounds)
{
	begin_test();
	accesses(1, TYPE_WRITE, 0x1000, 1);
	for (uint32_t i = 1; i <= 3; i++) {
		struct watch_sample s = sample(1, MUL, i, true, 100 + i);
		s.watch = i;
		s.seq = 1;
		watch_add(w, PID, &s);
	}
	CHECK_INT(w->ops->findings(w), 0);
	CHECK_INT(number("blocks"), 3);
	analysis_free(w);
}

/* Memory that was freed is somebody else's: what is written there says nothing. */
TEST(watch, freed)
{
	begin_test();
	block_row(ROW_MALLOC, VICTIM, SIZE, 1);
	accesses(1, TYPE_WRITE, 0x1000, 1);
	looks(1, MUL, 1, true, 5);
	block_row(ROW_FREE, VICTIM, SIZE, 1);
	seq = 0;
	looks(1, "aten.a", 1, false, 6);
	CHECK_INT(w->ops->findings(w), 0);
	analysis_free(w);
}

TEST(watch, losses_are_told)
{
	struct watch_sample s;

	begin_test();
	accesses(1, TYPE_WRITE, 0x1000, 1);
	looks(1, MUL, 1, true, 5);
	seq += 2;
	calls("aten.a", 1, 6, 0x1000, 6);
	s = sample(1, "aten.b", 1, false, 0);
	s.error = 507899;
	watch_add(w, PID, &s);
	s = sample(1, "aten.b", 1, true, 6);
	s.content_errno = ENOSPC;
	watch_add(w, PID, &s);
	CHECK_INT(number("missed"), 2);
	CHECK_INT(number("failed"), 1);
	CHECK_INT(number("unwritten"), 1);
	CHECK_HAS("2 looks in between are");
	CHECK_HAS("1 look failed (first with error 507899)");
	CHECK_HAS("1 content could not be written to a file: No space left on device.");
	analysis_free(w);
}

TEST(watch, named_blocks_and_odd_names)
{
	struct watch_sample s;

	begin_test();
	accesses(1, TYPE_WRITE, 0x1000, 1);
	for (int i = 0; i < 2; i++) {
		s = sample(1, "a\033[31m\nb", 1, i, 1u + (unsigned)i);
		s.output = WATCH_NO_OUTPUT;
		s.watched = "kv\x7f";
		s.watched_len = 3;
		if (!i)
			begins(1, "a\033[31m\nb");
		watch_add(w, PID, &s);
	}
	ends(1, "a\033[31m\nb");
	CHECK_HAS("(8192 bytes, named 'kv?') changed during operator a?[31m?b #1");
	analysis_free(w);
}

/* Many rounds take no more memory, and no more time for each access, than one. */
TEST(watch, long_runs)
{
	begin_test();
	for (uint32_t i = 1; i <= 20000; i++) {
		struct watch_sample s = sample(1, MUL, i, true, i);
		s.watch = i;
		s.seq = 1;
		watch_add(w, PID, &s);
		begins(1, "aten.a");
		for (int k = 0; k < 10; k++)
			accesses(1, TYPE_WRITE, 0x1000, 64);
		ends(1, "aten.a");
	}
	CHECK_INT(number("blocks"), 20000);
	for (uint32_t i = 0; i < 12000; i++)
		looks(1, "aten.a", i + 2, i & 1, i);
	CHECK_INT(number("corruptions") + number("unjudged"), 10000);
	CHECK_HAS("more changes are counted only");
	analysis_free(w);
}

/* --- the file of checksums --- */

static int read_csv(const char *s)
{
	struct err err = {0};

	begin_test();
	int r = watch_read_csv(w, s, strlen(s), &err);
	if (r < 0)
		CHECK(strstr(err.text, "line 1"));
	return r;
}

#define HEAD WATCH_CSV_HEADER "\n"

TEST(watch_csv, changes)
{
	CHECK_INT(read_csv(HEAD
			   "0_7/aten.mul_.Scalar_1-aten.mul_.Scalar_0_after.bin,"
			   "0000000000000001\n"
			   "0_7/aten.a_1-aten.mul_.Scalar_0_before.bin,0000000000000001\n"
			   "0_7/aten.a_1-aten.mul_.Scalar_0_after.bin,0000000000000002\r\n"
			   "0_7/aten.b_4-aten.mul_.Scalar_0_before.bin,0000000000000003\n"
			   "\"0_7/aten.\"\"b_4-aten.mul_.Scalar_0_after.bin\",0000000000000003"),
		  0);
	CHECK_INT(number("samples"), 5);
	CHECK_INT(number("unjudged"), 2);
	CHECK_INT(number("bad_lines"), 0);
	CHECK_INT(w->ops->findings(w), 0);
	CHECK_HAS("1 block watched, looked at 5 times.");
	CHECK_HAS("2 changes of watched memory found. A block (output 0 of aten.mul_.Scalar) "
		  "changed during operator aten.a #1.");
	CHECK_HAS("changed between operator aten.a #1 and operator aten.b #4.");
	analysis_free(w);
}

TEST(watch_csv, new_round)
{
	CHECK_INT(read_csv(HEAD "0_7/mm_1-mm_0_after.bin,0000000000000001\n"
				"0_7/last_1-mm_0_before.bin,0000000000000001\n"
				"0_7/last_1-mm_0_after.bin,0000000000000001\n"
				"0_7/mm_2-mm_0_after.bin,0000000000000009\n"),
		  0);
	CHECK_INT(number("unjudged"), 0);
	CHECK_INT(number("blocks"), 2);
	analysis_free(w);
	/* The operator itself, seen from its beginning, is no new round. */
	CHECK_INT(read_csv(HEAD "0_7/mm_1-mm_0_after.bin,0000000000000001\n"
				"0_7/mm_2-mm_0_before.bin,0000000000000001\n"
				"0_7/mm_2-mm_0_after.bin,0000000000000002\n"),
		  0);
	CHECK_INT(number("unjudged"), 1);
	analysis_free(w);
}

TEST(watch_csv, odd_lines)
{
	CHECK_INT(read_csv(""), -EINVAL);
	analysis_free(w);
	CHECK_INT(read_csv("ID,Event\n"), -EINVAL);
	analysis_free(w);
	CHECK_INT(read_csv(WATCH_CSV_HEADER), 0);
	analysis_free(w);
	CHECK_INT(read_csv(HEAD "0_7/a_1-b_0_after.bin,0000000000000001\n"
				"x\n"
				"\n"
				",\n"
				"0_7/a_1-b_0_after.bin,xyz\n"
				"0_7/a_1-b_0_after.bin,00000000000000001\n"
				"0_7/a_1-b_0_during.bin,0000000000000001\n"
				"0_7/a_1-b_after.bin,0000000000000001\n"
				"0_7/a-b_0_after.bin,0000000000000001\n"
				"0_7/a_99999999999-b_0_after.bin,0000000000000001\n"
				"_1-_0_after.bin,0000000000000001\n"
				"0_7/a_2-b_0_before.bin,0000000000000001\n"),
		  0);
	CHECK_INT(number("samples"), 2);
	CHECK_INT(number("bad_lines"), 9);
	CHECK_HAS("9 lines are not understood and were passed over, the first is line 3.");
	analysis_free(w);
}

/* What the recorder writes is what the reader takes apart. */
TEST(watch_csv, names_come_back)
{
	struct buf file = {0};
	struct watch_sample s;

	begin_test();
	buf_add_str(&file, HEAD);
	for (unsigned i = 0; i < 2; i++) {
		s = sample(4711, "1_A/3_Op-2", 5, i, i);
		s.watched = "my name_4-x";
		s.watched_len = strlen(s.watched);
		s.output = WATCH_NO_OUTPUT;
		watch_files_name(&s, &file);
		buf_addf(&file, ",%016x\n", i);
	}
	CHECK(strstr(buf_str(&file),
		     "\n0_4711/1_A/3_Op-2_5-my name_4-x_0_before.bin,0000000000000000\n"));
	CHECK_INT(watch_read_csv(w, buf_str(&file), file.len, NULL), 0);
	CHECK_HAS("changed during operator 1_A/3_Op-2 #5.");
	CHECK_HAS("output 0 of my name_4-x");
	buf_release(&file);
	analysis_free(w);
}

/* --- the configuration --- */

TEST(watch_config, reaches_the_job)
{
	static struct control_page page;
	struct mem_config c;

	CHECK_INT(mem_config_init(&c, NULL), 0);
	CHECK(!(mem_config_want(&c) & WANT_WATCH));
	c.watch.on = c.watch.full_content = true;
	c.watch.output_id = 3;
	snprintf(c.watch.start, sizeof(c.watch.start), "aten.mm");
	snprintf(c.watch.end, sizeof(c.watch.end), "aten.last");
	uint32_t dumped = c.dump_events;
	mem_config_link(&c);
	CHECK_INT(c.dump_events, dumped); /* what is written does not change … */
	CHECK_INT(c.events, MEM_EVENTS_ALL); /* … what is collected does */
	mem_config_publish(&c, &page);
	uint32_t want = atomic_load(&page.want);
	CHECK((want & WANT_WATCH) && (want & WANT_ACCESS) && (want & WANT_OP));
	CHECK_STR(page.watch_start, "aten.mm");
	CHECK_STR(page.watch_end, "aten.last");
	CHECK_INT(page.watch_output, 3);
	CHECK(page.watch_content);
}
