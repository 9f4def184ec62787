/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Watching memory inside the job: what is looked at when, on a device made of host memory. */
#include "guest/collect/checksum.h"
#include "guest/watch/watch.h"

#include "guest/runtime/guest.h"
#include "jobs.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

static uint64_t sum_of(const void *data, size_t n)
{
	return checksum_end(checksum_add(CHECKSUM_BEGIN, data, n));
}

TEST(checksum, known_values)
{
	unsigned char all[256];

	for (int i = 0; i < 256; i++)
		all[i] = (unsigned char)i;
	CHECK(sum_of("", 0) == 0);
	CHECK(sum_of("123456789", 9) == 0xb86883e6fa710a9full);
	CHECK(sum_of("", 1) == 0xeb16d7a787b7faa0ull);
	CHECK(sum_of(all, 256) == 0xc48455633bde63a5ull);
}

/* However it is cut, wherever it lies. */
TEST(checksum, pieces)
{
	unsigned char data[300];

	for (int i = 0; i < 300; i++)
		data[i] = (unsigned char)(i * 7 + i / 13);
	for (size_t from = 0; from < 9; from++)
		for (size_t n = 0; n < 40; n++) {
			uint64_t whole = sum_of(data + from, n);
			for (size_t cut = 0; cut <= n; cut++) {
				uint64_t c = checksum_add(CHECKSUM_BEGIN, data + from, cut);
				c = checksum_add(c, data + from + cut, n - cut);
				CHECK(checksum_end(c) == whole);
			}
		}
}

static bool matches(const char *wanted, const char *name)
{
	return watch_name_matches(wanted, SESSION_NAME_BYTES, name);
}

TEST(watch_names, same_operator)
{
	CHECK(matches("aten.mul_.Scalar", "torch._ops.aten.mul_.Scalar"));
	CHECK(matches("torch._ops.aten.mul_.Scalar", "torch._ops.aten.mul_.Scalar"));
	CHECK(matches("torch._ops.aten.mul_.Scalar", "aten.mul_.Scalar"));
	CHECK(matches("mul_.Scalar", "torch._ops.aten.mul_.Scalar"));
	CHECK(matches("aten::mul_.Scalar", "torch._ops.aten.mul_.Scalar"));
	CHECK(matches("aten.mul_.Scalar", "0_4711/aten.mul_.Scalar"));
	CHECK(matches("LinearOperation", "0_4711/3_LinearOperation"));
	CHECK(matches("3_LinearOperation", "0_4711/3_LinearOperation"));
	CHECK(matches("0_4711/3_LinearOperation", "0_4711/3_LinearOperation"));
	CHECK(matches("1_Layer/3_LinearOperation", "0_4711/1_Layer/3_LinearOperation"));
	CHECK(matches("LinearOperation", "0_4711/1_Layer/3_LinearOperation"));
}

TEST(watch_names, other_operators)
{
	char full[SESSION_NAME_BYTES];

	CHECK(!matches("", ""));
	CHECK(!matches("default", "torch._ops.aten.mm.default"));
	CHECK(!matches("aten.mul.Scalar", "torch._ops.aten.mul_.Scalar"));
	CHECK(!matches("ul_.Scalar", "torch._ops.aten.mul_.Scalar"));
	CHECK(!matches("aten.mm.default.x", "aten.mm.default"));
	CHECK(!matches("Operation", "0_4711/3_LinearOperation"));
	CHECK(!matches("4711/3_LinearOperation", "0_4711/3_LinearOperation"));
	memset(full, 'x', sizeof(full)); /* a page without a NUL is not read past its end */
	CHECK(!matches(full, "x"));
	CHECK_STR(watch_name_plain("0_1/op"), "op");
	CHECK_STR(watch_name_plain("_1/op"), "_1/op");
	CHECK_STR(watch_name_plain("0_/op"), "0_/op");
	CHECK_STR(watch_name_plain("a/b"), "a/b");
}

/* --- the device --- */

#define BYTES 5000
static char memory[3][BYTES];
static uint16_t device = 2;
static _Atomic unsigned waits, reads;
static int read_error;

static uint16_t current(void)
{
	return device;
}

static int wait_device(void)
{
	waits++;
	return 0;
}

static int read_device(void *out, uint64_t addr, size_t bytes)
{
	/* What the runtime does for us is not the job's. */
	struct collect_block b = {.addr = 0x777, .size_bytes = 1, .pool = POOL_HAL};

	collect_alloc(&b, NULL);
	collect_free(&b, NULL);
	reads++;
	errno = ERANGE;
	if (read_error)
		return read_error;
	memcpy(out, (const void *)addr, bytes);
	return 0;
}

static const struct watch_device fake = {current, wait_device, read_device};

#define MARK(...)                                                                                  \
	do {                                                                                       \
		char text_[600];                                                                   \
		snprintf(text_, sizeof(text_), "memscope-aten-" __VA_ARGS__);                      \
		collect_mark(MARK_INSTANT, 0, text_, NULL);                                        \
	} while (0)

static void begin(const char *op)
{
	MARK("b: name=%s", op);
}

static void end(const char *op)
{
	MARK("e: name=%s", op);
}

static void output(const char *op, int block)
{
	MARK("ac:ptr=%llu;is_write=True;is_read=False;is_output=True;name=%s;shape=torch.Size([1, "
	     "2]);dtype=torch.float16;tensor_size=%d;device=npu:0",
	     (unsigned long long)(uintptr_t)memory[block], op, BYTES);
}

static void call(const char *op, int block)
{
	begin(op);
	if (block >= 0)
		output(op, block);
	end(op);
}

static void session(const char *start, const char *last, uint32_t which)
{
	job_session(WANT_WATCH | WANT_ALLOC | WANT_OP | WANT_ACCESS, 64, 0);
	snprintf(job_page->watch_start, sizeof(job_page->watch_start), "%s", start);
	snprintf(job_page->watch_end, sizeof(job_page->watch_end), "%s", last);
	job_page->watch_output = which;
	watch_device = &fake;
}

static void run(void (*fn)(void))
{
	job_wait(job_start(fn));
	while (job_look())
		;
	CHECK_INT(job_ends[0].lost_events, 0);
}

/* The looks that the job left, as "op#call watched#call:output before|after" lines. */
static const char *looks(void)
{
	static struct buf text;

	buf_clear(&text);
	for (size_t i = 0; i < job_nevents; i++) {
		const struct rec_watch *r = (const struct rec_watch *)job_record(i);
		size_t len;
		if (r->head.type != REC_WATCH)
			continue;
		CHECK(rec_check(&r->head, r->head.size));
		const char *op = rec_text(&r->head, &len);
		buf_addf(&text, "%u.%u %s#%u %s#%u:%d %s%s\n", r->watch, r->seq, op, r->call,
			 op + strlen(op) + 1, r->watched_call, (int)r->output,
			 r->after ? "after" : "before", r->error ? " failed" : "");
	}
	return buf_str(&text);
}

static const struct rec_watch *look(size_t n)
{
	for (size_t i = 0; i < job_nevents; i++)
		if (job_record(i)->type == REC_WATCH && n-- == 0)
			return (const struct rec_watch *)job_record(i);
	CHECK(0);
	return NULL;
}

static size_t count_type(uint8_t type)
{
	size_t n = 0;

	for (size_t i = 0; i < job_nevents; i++)
		n += job_record(i)->type == type;
	return n;
}

/* --- the window --- */

static void window_job(void)
{
	call("torch._ops.aten.add", -1);
	CHECK_INT(waits, 0); /* nothing is watched yet */
	begin("torch._ops.aten.mm.default");
	output("torch._ops.aten.mm.default", 0);
	output("torch._ops.aten.mm.default", 1);
	errno = 5;
	end("torch._ops.aten.mm.default");
	CHECK_INT(errno, 5);
	call("torch._ops.aten.add", -1);
	call("torch._ops.aten.mm.default", 2); /* not again before the end */
	call("torch._ops.aten.last", -1);
	unsigned was = reads;
	call("torch._ops.aten.add", -1);
	CHECK_INT(reads, was);
	call("torch._ops.aten.mm.default", 2);
}

TEST(watch_blocks, window)
{
	session("aten.mm.default", "aten.last", UINT32_MAX);
	run(window_job);
	CHECK_STR(looks(),
		  "1.1 torch._ops.aten.mm.default#1 torch._ops.aten.mm.default#1:0 after\n"
		  "2.1 torch._ops.aten.mm.default#1 torch._ops.aten.mm.default#1:1 after\n"
		  "1.2 torch._ops.aten.add#2 torch._ops.aten.mm.default#1:0 before\n"
		  "2.2 torch._ops.aten.add#2 torch._ops.aten.mm.default#1:1 before\n"
		  "1.3 torch._ops.aten.add#2 torch._ops.aten.mm.default#1:0 after\n"
		  "2.3 torch._ops.aten.add#2 torch._ops.aten.mm.default#1:1 after\n"
		  "1.4 torch._ops.aten.mm.default#2 torch._ops.aten.mm.default#1:0 before\n"
		  "2.4 torch._ops.aten.mm.default#2 torch._ops.aten.mm.default#1:1 before\n"
		  "1.5 torch._ops.aten.mm.default#2 torch._ops.aten.mm.default#1:0 after\n"
		  "2.5 torch._ops.aten.mm.default#2 torch._ops.aten.mm.default#1:1 after\n"
		  "1.6 torch._ops.aten.last#1 torch._ops.aten.mm.default#1:0 before\n"
		  "2.6 torch._ops.aten.last#1 torch._ops.aten.mm.default#1:1 before\n"
		  "1.7 torch._ops.aten.last#1 torch._ops.aten.mm.default#1:0 after\n"
		  "2.7 torch._ops.aten.last#1 torch._ops.aten.mm.default#1:1 after\n"
		  "3.1 torch._ops.aten.mm.default#3 torch._ops.aten.mm.default#3:0 after\n");
	const struct rec_watch *r = look(0);
	CHECK_INT(r->addr, (uintptr_t)memory[0]);
	CHECK_INT(r->size_bytes, BYTES);
	CHECK_INT(r->device, 2);
	CHECK(r->checksum == sum_of(memory[0], BYTES));
	CHECK_INT(count_type(REC_ALLOC), 0); /* those of the fake runtime */
	CHECK_INT(count_type(REC_FREE), 0);
}

static void one_output_job(void)
{
	begin("op");
	output("op", 0);
	output("op", 1);
	output("op", 2);
	end("op");
}

TEST(watch_blocks, one_output)
{
	session("op", "last", 1);
	run(one_output_job);
	CHECK_STR(looks(), "1.1 op#1 op#1:1 after\n");
	CHECK_INT(look(0)->addr, (uintptr_t)memory[1]);
}

static void nested_job(void)
{
	begin("outer");
	begin("inner");
	output("inner", 2);
	end("inner");
	output("outer", 0);
	end("outer");
	begin("outer");
	call("inner", -1);
	end("outer");
	end("never begun");
}

TEST(watch_blocks, nested)
{
	session("outer", "last", UINT32_MAX);
	run(nested_job);
	CHECK_STR(looks(), "1.1 outer#1 outer#1:0 after\n"
			   "1.2 outer#2 outer#1:0 before\n"
			   "1.3 inner#2 outer#1:0 before\n"
			   "1.4 inner#2 outer#1:0 after\n"
			   "1.5 outer#2 outer#1:0 after\n"
			   "1.6 never begun#0 outer#1:0 after\n");
	CHECK_INT(look(0)->addr, (uintptr_t)memory[0]);
}

/* Begun and never ended, as an exception leaves it. */
static void unended_job(void)
{
	begin("start");
	output("start", 0);
	for (int i = 0; i < 100; i++)
		begin("other");
	call("start", 1);
	CHECK_INT(reads, 1);
}

TEST(watch_blocks, unended_operators)
{
	session("start", "last", UINT32_MAX);
	run(unended_job);
	CHECK_STR(looks(), "1.1 start#2 start#2:0 after\n");
	CHECK_INT(look(0)->addr, (uintptr_t)memory[1]);
}

static void same_job(void)
{
	call("op", 0);
	call("op", 1);
	call("op", 2);
}

TEST(watch_blocks, start_is_end)
{
	session("op", "op", UINT32_MAX);
	run(same_job);
	CHECK_STR(looks(), "1.1 op#1 op#1:0 after\n"
			   "1.2 op#2 op#1:0 before\n"
			   "1.3 op#2 op#1:0 after\n"
			   "2.1 op#3 op#3:0 after\n");
}

/* --- memory comes and goes --- */

static void freed_job(void)
{
	struct collect_block whole = {.addr = (uintptr_t)memory[0] - 64,
				      .size_bytes = BYTES + 64,
				      .device = 2,
				      .pool = POOL_PTA,
				      .kind = ALLOC_REGION};
	struct collect_block other = whole, unknown = {.addr = (uintptr_t)memory[1],
						       .device = DEV_NONE,
						       .pool = POOL_HAL};

	other.addr = 0x1000;
	collect_alloc(&whole, NULL);
	collect_alloc(&other, NULL);
	begin("op");
	output("op", 0);
	output("op", 1);
	end("op");
	collect_free(&other, NULL);
	call("x", -1);
	collect_free(&whole, NULL); /* the tensor lies inside of it */
	call("x", -1);
	struct collect_pending p = collect_free_begin(&unknown);
	collect_free_end(p, &unknown, false, NULL); /* also where that fails */
	call("x", -1);
}

TEST(watch_blocks, freed_memory_is_left_alone)
{
	session("op", "last", UINT32_MAX);
	run(freed_job);
	CHECK_STR(looks(), "1.1 op#1 op#1:0 after\n2.1 op#1 op#1:1 after\n"
			   "1.2 x#1 op#1:0 before\n2.2 x#1 op#1:1 before\n"
			   "1.3 x#1 op#1:0 after\n2.3 x#1 op#1:1 after\n"
			   "2.4 x#2 op#1:1 before\n2.5 x#2 op#1:1 after\n");
}

/* One thread frees what another one is reading. */
#define LARGE_BYTES (3u << 20)
static _Atomic bool is_reading, is_gone;
static struct collect_block large_block;

static int read_slowly(void *out, uint64_t addr, size_t bytes)
{
	const struct timespec a_while = {0, 50000000};

	(void)addr;
	reads++;
	is_reading = true;
	nanosleep(&a_while, NULL);
	CHECK(!is_gone);
	memset(out, 0, bytes);
	return 0;
}

static void *freer(void *arg)
{
	while (!is_reading)
		sched_yield();
	struct collect_pending p = collect_free_begin(&large_block);
	is_gone = true;
	collect_free_end(p, &large_block, true, NULL);
	return arg;
}

static void freed_while_read_job(void)
{
	static const struct watch_device slow = {current, wait_device, read_slowly};
	char *large = malloc(LARGE_BYTES);
	pthread_t t;

	CHECK(large);
	large_block = (struct collect_block){
		.addr = (uintptr_t)large, .size_bytes = LARGE_BYTES, .pool = POOL_HAL};
	collect_alloc(&large_block, NULL);
	watch_device = &slow;
	CHECK_INT(pthread_create(&t, NULL, freer, NULL), 0);
	CHECK(watch_named((uintptr_t)large, LARGE_BYTES, "large", -1));
	call("x", -1);
	pthread_join(t, NULL);
	CHECK(is_gone);
	CHECK_INT(reads, 1); /* the first piece */
	free(large);
}

TEST(watch_blocks, a_free_waits_for_who_reads)
{
	char path[600];

	session("op", "last", UINT32_MAX);
	job_page->watch_content = 1;
	run(freed_while_read_job);
	CHECK_INT(count_type(REC_WATCH), 0);
	CHECK_INT(count_type(REC_FREE), 1);
	snprintf(path, sizeof(path), "%s/watch", tmpdir());
	CHECK_INT(rmdir(path), 0); /* what was read so far is gone, too */
}

/* A fault inside the runtime that the job survives by longjmp(). */
static jmp_buf back;

static int jump_away(void *out, uint64_t addr, size_t bytes)
{
	(void)out;
	(void)addr;
	(void)bytes;
	longjmp(back, 1);
}

/* A reader that never came back keeps nobody for ever, and nobody twice. */
static struct collect_block lost_block;

static void jump_out_of_a_look(void)
{
	static const struct watch_device jumps = {current, wait_device, jump_away};

	watch_device = &jumps;
	if (!setjmp(back))
		call("x", -1);
	watch_device = &fake;
}

/* How often the free sleeps, which it does while it waits for a reader. */
static long free_lost_block(void)
{
	struct rusage before, after;

	CHECK_INT(getrusage(RUSAGE_THREAD, &before), 0);
	struct collect_pending p = collect_free_begin(&lost_block);

	collect_free_end(p, &lost_block, true, NULL);
	CHECK_INT(getrusage(RUSAGE_THREAD, &after), 0);
	return after.ru_nvcsw - before.ru_nvcsw;
}

static void watch_lost_block(void)
{
	lost_block = (struct collect_block){
		.addr = (uintptr_t)memory[0], .size_bytes = BYTES, .pool = POOL_HAL};
	collect_alloc(&lost_block, NULL);
	CHECK(watch_named((uintptr_t)memory[0], BYTES, "mine", -1));
}

static void lost_reader_job(void)
{
	watch_lost_block();
	jump_out_of_a_look();
	CHECK(free_lost_block() > 20);
	watch_lost_block();
	CHECK(free_lost_block() < 10);
}

TEST(watch_blocks, a_reader_that_never_leaves)
{
	session("op", "last", UINT32_MAX);
	run(lost_reader_job);
	CHECK_INT(count_type(REC_FREE), 2);
}

static void devices_job(void)
{
	call("op", 0);
	device = 5;
	call("x", -1);
	CHECK_INT(reads, 1);
	call("op", 1);
	call("last", -1); /* of device 5 */
	device = 2;
	call("x", -1);
	device = DEV_NONE;
	unsigned was = waits;
	call("x", -1);
	call("op", 2);
	CHECK_INT(waits, was); /* no device: the runtime is not called */
}

TEST(watch_blocks, devices_apart)
{
	session("op", "last", UINT32_MAX);
	run(devices_job);
	CHECK_STR(looks(), "1.1 op#1 op#1:0 after\n"
			   "2.1 op#1 op#1:0 after\n"
			   "2.2 last#1 op#1:0 before\n"
			   "2.3 last#1 op#1:0 after\n"
			   "1.2 x#1 op#1:0 before\n"
			   "1.3 x#1 op#1:0 after\n");
}

static void failing_job(void)
{
	call("op", 0);
	read_error = 507899;
	call("x", -1);
	CHECK_INT(reads, 2);
	read_error = 0;
	call("x", -1);
	CHECK_INT(reads, 2); /* not watched any longer */
}

TEST(watch_blocks, failed_read)
{
	session("op", "last", UINT32_MAX);
	run(failing_job);
	CHECK_STR(looks(), "1.1 op#1 op#1:0 after\n1.2 x#1 op#1:0 before failed\n");
	CHECK_INT(look(1)->error, 507899);
}

static void jump_job(void)
{
	static const struct watch_device jumps = {current, wait_device, jump_away};
	struct collect_block b = {.addr = 0x9000, .size_bytes = 8, .pool = POOL_PTA};

	watch_device = &jumps;
	if (!setjmp(back))
		call("op", 0);
	watch_device = &fake;
	collect_alloc(&b, NULL); /* is the job's again */
	call("x", -1);
}

TEST(watch_blocks, left_by_longjmp)
{
	session("op", "last", UINT32_MAX);
	run(jump_job);
	CHECK_INT(count_type(REC_ALLOC), 1);
	CHECK_STR(looks(), "1.1 x#1 op#1:0 before\n1.2 x#1 op#1:0 after\n");
}

/* --- the program's own blocks --- */

static void named_job(void)
{
	CHECK(!watch_named(0, 10, "x", -1));
	CHECK(!watch_named((uintptr_t)memory[0], 0, "x", -1));
	CHECK(!watch_named(UINT64_MAX - 1, 10, "x", -1));
	CHECK(watch_named((uintptr_t)memory[0], 100, "mine", -1));
	CHECK(watch_named((uintptr_t)memory[1], 100, "three", 3));
	call("a", -1);
	call("b", -1);
	watch_unnamed((uintptr_t)memory[0]);
	call("c", -1);
	CHECK(watch_named((uintptr_t)memory[2], 100, "again", -1));
	call("last", -1);
	call("d", -1); /* the end was reached */
}

static const char named_looks[] = "1.1 a#1 mine#0:-1 before\n2.1 a#1 three#0:-1 before\n"
				  "1.2 a#1 mine#0:-1 after\n2.2 a#1 three#0:-1 after\n"
				  "1.3 b#1 mine#0:-1 before\n2.3 b#1 three#0:-1 before\n"
				  "1.4 b#1 mine#0:-1 after\n"
				  "3.1 last#1 again#0:-1 before\n3.2 last#1 again#0:-1 after\n";

TEST(watch_blocks, named_until_the_end)
{
	session("", "last", UINT32_MAX);
	run(named_job);
	CHECK_STR(looks(), named_looks);
}

static void named_only_job(void)
{
	CHECK(!collect_wants(WANT_WATCH));
	call("op", 0);
	CHECK(watch_named((uintptr_t)memory[0], 100, "mine", -1));
	call("op", 0);
}

TEST(watch_blocks, named_without_the_option)
{
	session("", "", UINT32_MAX);
	atomic_store(&job_page->want, WANT_ALLOC);
	run(named_only_job);
	CHECK_STR(looks(), "1.1 op#1 mine#0:-1 before\n1.2 op#1 mine#0:-1 after\n");
}

/* --- memory of the host, which no device is asked for --- */

static void host_job(void)
{
	char *page = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	device = DEV_NONE; /* nor has the thread one */
	CHECK(collect_watch_named(DEV_HOST, (uintptr_t)memory[0], BYTES, "mine", -1));
	CHECK(collect_watch_any() && collect_watch_host());
	CHECK(collect_watch_named(DEV_HOST, (uintptr_t)page, 8192, "page", -1));
	call("a", -1);
	munmap(page + 4096, 4096);
	errno = 7;
	call("b", -1); /* half of it is gone: no fault, and not again */
	CHECK_INT(errno, 7);
	call("c", -1);
	collect_watch_unnamed((uintptr_t)memory[0]);
	CHECK(!collect_watch_any() && !collect_watch_host());
	call("d", -1);
	CHECK_INT(reads, 0);
	CHECK_INT(waits, 0);
}

TEST(watch_blocks, host_memory)
{
	session("", "", UINT32_MAX);
	atomic_store(&job_page->want, WANT_ALLOC);
	run(host_job);
	CHECK_STR(looks(), "1.1 a#1 mine#0:-1 before\n2.1 a#1 page#0:-1 before\n"
			   "1.2 a#1 mine#0:-1 after\n2.2 a#1 page#0:-1 after\n"
			   "1.3 b#1 mine#0:-1 before\n2.3 b#1 page#0:-1 before failed\n"
			   "1.4 b#1 mine#0:-1 after\n1.5 c#1 mine#0:-1 before\n"
			   "1.6 c#1 mine#0:-1 after\n");
	CHECK_INT(look(0)->device, DEV_HOST);
	CHECK(look(0)->checksum == sum_of(memory[0], BYTES));
	CHECK_INT(count_type(REC_CONFIG), 1); /* the recorder is told, once */
}

static void configured_job(void)
{
	device = DEV_NONE;
	collect_watch_configure("aten.mine", 1, "aten.last", false);
	begin("op"); /* what the page names does not count any more */
	collect_watch_output_on("op", DEV_HOST, (uintptr_t)memory[0], BYTES, 1);
	end("op");
	begin("aten.mine");
	collect_watch_output_on("aten.mine", DEV_HOST, (uintptr_t)memory[0], BYTES, 0);
	collect_watch_output_on("aten.mine", DEV_HOST, (uintptr_t)memory[1], BYTES, 1);
	end("aten.mine");
	call("x", -1);
	call("aten.last", -1);
	call("x", -1);
}

TEST(watch_blocks, configured_by_the_program)
{
	session("op", "x", 0);
	run(configured_job);
	CHECK_STR(looks(), "1.1 aten.mine#1 aten.mine#1:1 after\n"
			   "1.2 x#1 aten.mine#1:1 before\n1.3 x#1 aten.mine#1:1 after\n"
			   "1.4 aten.last#1 aten.mine#1:1 before\n"
			   "1.5 aten.last#1 aten.mine#1:1 after\n");
}

static void many_job(void)
{
	unsigned n = 0;

	while (n < 1000 && watch_named((uintptr_t)memory[0] + n, 1, "many", -1))
		n++;
	CHECK_INT(n, 256);
	watch_unnamed((uintptr_t)memory[0]);
	CHECK(watch_named((uintptr_t)memory[0], 1, "one more", -1));
	call("op", -1);
}

TEST(watch_blocks, table_is_bounded)
{
	session("", "last", UINT32_MAX);
	run(many_job);
	CHECK_INT(count_type(REC_WATCH), 512);
}

static void off_job(void)
{
	call("op", 0);
	call("x", -1);
	CHECK_INT(reads, 0);
	CHECK_INT(waits, 0);
}

TEST(watch_blocks, off)
{
	session("op", "last", UINT32_MAX);
	atomic_store(&job_page->want, WANT_ALLOC | WANT_OP | WANT_ACCESS);
	run(off_job);
	CHECK_INT(count_type(REC_WATCH), 0);
}

static void odd_marks_job(void)
{
	static const char *const odd[] = {
		"memscope-aten-",
		"memscope-aten-b",
		"memscope-aten-b:",
		"memscope-aten-b: name=",
		"memscope-aten-e: name=nobody",
		"memscope-aten-ac:",
		"memscope-aten-ac:is_output=True;name=op",
		"memscope-aten-ac:ptr=1;is_output=True;name=op;tensor_size=18446744073709551615",
		"memscope-aten-ac:ptr=99999999999999999999999999;is_output=True;name=op",
		"memscope-aten-ac:ptr=-1;is_output=True;name=op;tensor_size=1",
		"memscope-aten-ac:ptr=4096;is_output=True;name=op;tensor_size=0",
		"memscope-aten-ac:ptr=4096;is_output=Truely;name=op;tensor_size=8",
		"memscope-aten-x: name=op",
	};
	static char huge[20000];

	for (size_t i = 0; i < sizeof(odd) / sizeof(odd[0]); i++) {
		begin("op");
		collect_mark(MARK_INSTANT, 0, odd[i], NULL);
		end("op");
	}
	memset(huge, 'x', sizeof(huge) - 1);
	memcpy(huge, "memscope-aten-b: name=", 22);
	collect_mark(MARK_INSTANT, 0, huge, NULL);
	huge[300] = '\0';
	collect_mark(MARK_INSTANT, 0, huge, NULL);
	collect_mark(MARK_INSTANT, 0, NULL, NULL);
	CHECK_INT(reads, 0);
}

TEST(watch_blocks, odd_marks)
{
	session("op", "last", UINT32_MAX);
	run(odd_marks_job);
	CHECK_INT(count_type(REC_WATCH), 0);
}

/* --- contents --- */

static void content_job(void)
{
	memset(memory[0], 7, BYTES);
	call("op", 0);
	struct rlimit small = {BYTES - 1, RLIM_INFINITY};
	CHECK_INT(setrlimit(RLIMIT_FSIZE, &small), 0);
	call("x", -1); /* a larger file would end the job */
}

TEST(watch_blocks, content)
{
	char path[600], got[BYTES + 1];

	memset(memory[0], 7, BYTES);
	session("op", "last", UINT32_MAX);
	job_page->watch_content = 1;
	run(content_job);
	CHECK_INT(count_type(REC_WATCH), 3);
	const struct rec_watch *r = look(0);
	CHECK(r->content);
	CHECK(r->checksum == sum_of(memory[0], BYTES));
	snprintf(path, sizeof(path), "%s/watch/%u-%llu", tmpdir(), job_procs[0].pid,
		 (unsigned long long)r->content);
	FILE *f = fopen(path, "rb");
	CHECK(f);
	CHECK_INT(fread(got, 1, sizeof(got), f), BYTES);
	CHECK(!memcmp(got, memory[0], BYTES));
	fclose(f);
	r = look(1);
	CHECK_INT(r->content, 0);
	CHECK_INT(r->content_errno, EFBIG);
	CHECK_INT(r->error, 0);
	CHECK(r->checksum == sum_of(memory[0], BYTES));
}

/* --- launches of kernels --- */

static void launch_job(void)
{
	collect_name(0xabc, "Muls", 4);
	call("op", 0);
	collect_watch_launch();
	collect_kernel(KERNEL_LAUNCH, 0, 0xabc, 0, 1, 1);
	memory[0][5]++;
	collect_watch_launched();
	collect_watch_launch();
	collect_watch_launched(); /* nobody said what it was */
}

TEST(watch_blocks, kernels)
{
	session("op", "last", UINT32_MAX);
	atomic_fetch_or(&job_page->want, WANT_KERNEL);
	run(launch_job);
	CHECK_STR(looks(), "1.1 op#1 op#1:0 after\n1.2 Muls#1 op#1:0 before\n"
			   "1.3 Muls#1 op#1:0 after\n1.4 kernel#1 op#1:0 before\n"
			   "1.5 kernel#1 op#1:0 after\n");
	CHECK(look(0)->checksum == look(1)->checksum);
	CHECK(look(1)->checksum != look(2)->checksum);
	CHECK(look(2)->checksum == look(3)->checksum);
}

/* --- a forked child --- */

static void fork_job(void)
{
	call("op", 0);
	pid_t pid = fork();
	if (pid == 0) {
		call("x", -1); /* its parent's memory */
		CHECK_INT(reads, 1);
		call("op", 1);
		exit(0);
	}
	int status;
	CHECK(waitpid(pid, &status, 0) == pid);
	CHECK_INT(status, 0);
	call("x", -1);
}

TEST(watch_blocks, forked_child)
{
	session("op", "last", UINT32_MAX);
	run(fork_job);
	unsigned children = 0;
	for (size_t i = 0; i < job_nevents; i++) {
		const struct rec_watch *r = (const struct rec_watch *)job_record(i);
		if (r->head.type != REC_WATCH || job_events[i].proc == 0)
			continue;
		children++;
		CHECK_INT(r->addr, (uintptr_t)memory[1]);
		CHECK_INT(r->call, 1);
	}
	CHECK_INT(children, 1);
	CHECK_INT(count_type(REC_WATCH), 4);
}

/* --- threads --- */

#define THREADS 4
#define ROUNDS 200

static void *thread_main(void *arg)
{
	char name[16];

	snprintf(name, sizeof(name), "op%d", (int)(intptr_t)arg);
	for (int i = 0; i < ROUNDS; i++) {
		struct collect_block b = {.addr = (uintptr_t)memory[i % 3], .pool = POOL_PTA};
		call("start", i % 3);
		call(name, -1);
		collect_free(&b, NULL);
		if (watch_named((uintptr_t)memory[0] + (uintptr_t)arg, 64, name, -1))
			call(name, -1);
		watch_unnamed((uintptr_t)memory[0] + (uintptr_t)arg);
		call("last", -1);
	}
	return NULL;
}

static void threads_job(void)
{
	pthread_t t[THREADS];

	for (intptr_t i = 0; i < THREADS; i++)
		CHECK_INT(pthread_create(&t[i], NULL, thread_main, (void *)i), 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	/* Nothing is left behind: all places are free. */
	unsigned n = 0;
	while (n < 1000 && watch_named((uintptr_t)memory[0] + n, 1, "rest", -1))
		n++;
	CHECK(n >= 250);
}

TEST(watch_blocks, threads)
{
	session("start", "last", UINT32_MAX);
	pid_t pid = job_start(threads_job);
	job_follow(pid);
	CHECK(count_type(REC_WATCH) > ROUNDS);
	/* Of one watch, numbers and names stay what they are. */
	for (size_t i = 0; i < job_nevents; i++) {
		const struct rec_watch *r = (const struct rec_watch *)job_record(i);
		if (r->head.type != REC_WATCH)
			continue;
		CHECK(rec_check(&r->head, r->head.size));
		CHECK(r->watch && r->seq);
		CHECK(r->size_bytes == BYTES || r->size_bytes == 64);
	}
}
