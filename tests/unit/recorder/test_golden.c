/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * A recording of every format version stays readable: tests/golden/vN.sonde gives the CSV files
 * beside it, byte for byte. What is in them is made here; with SONDE_GOLDEN=DIR in the environment
 * the test writes a new set there instead (for a new version: never over an old one).
 */
#include "base/fs.h"
#include "base/mem.h"
#include "memory/outputs/outputs.h"
#include "recorder/recording.h"
#include "records.h"
#include "test.h"
#include "tmpdir.h"

#include <errno.h>
#include <ftw.h>
#include <time.h>

#define GOLDEN "tests/golden"
#define NOW 1000000000ull

static struct recording_writer *out;

static void frame(enum frame_type type, const void *payload, size_t n)
{
	CHECK_INT(recording_append(out, type, payload, n, NULL), 0);
}

static void proc(uint32_t number, uint32_t pid, const char *visible)
{
	struct frame_proc p = {.proc = number, .pid = pid, .ppid = 1, .pid_ns = 5};

	p.time_ns = NOW;
	strcpy(p.exe, "/usr/bin/job");
	memcpy(p.cmdline, "job\0--steps\0003", 13);
	strcpy(p.visible_devices, visible);
	frame(FRAME_PROC, &p, sizeof(p));
}

static void proc_end(uint32_t number, uint64_t lost)
{
	struct frame_proc_end e = {.proc = number, .time_ns = NOW + 1000, .lost_events = lost};

	frame(FRAME_PROC_END, &e, sizeof(e));
}

static void memory_records(struct buf *b)
{
	RECORD(b, REC_ALLOC, rec_alloc, NOW + 1, .addr = 0x12c041000000, .size_bytes = 1 << 21,
	       .pool = POOL_HAL, .page = PAGE_HUGE, .module = 3);
	((struct rec *)b->data)->stack = 1;
	RECORD(b, REC_HEAP, rec_heap, NOW + 2, .pool = POOL_PTA, .bytes = 1 << 21);
	add_alloc(b, NOW + 3, 0x12c041000000, 512, POOL_PTA);
	TEXT_RECORD(b, REC_LABEL, rec_label, NOW + 4, "weights", 7, .kind = LABEL_PUSH, .level = 5);
	add_alloc(b, NOW + 5, 0x12c041000200, 1024, POOL_PTA);
	TEXT_RECORD(b, REC_LABEL, rec_label, NOW + 6, "weights", 7, .kind = LABEL_POP, .level = 5);
	add_alloc(b, NOW + 7, 0x12c041000600, 2048, POOL_PTA_WORKSPACE);
	add_alloc(b, NOW + 8, 0x12c041001000, 4096, POOL_MINDSPORE);
	add_alloc(b, NOW + 9, 0x12c041002000, 8192, POOL_ATB);
	add_alloc(b, NOW + 10, 0x55d000001000, 64, POOL_HOST);
	RECORD(b, REC_ALLOC, rec_alloc, NOW + 11, .addr = 0x55d000002000, .size_bytes = 4096,
	       .pool = POOL_HOST, .kind = ALLOC_PINNED, .device = DEV_HOST);
	RECORD(b, REC_OOM, rec_oom, NOW + 12, .size_bytes = 1ull << 40, .flag = 5, .device = 0);
	add_free(b, NOW + 13, 0x12c041000000, POOL_PTA);
	add_alloc(b, NOW + 14, 0x12c041000000, 256, POOL_PTA);
	add_alloc(b, NOW + 15, 0x12c041000000, 128, POOL_PTA); /* a lost free in between */
	add_free(b, NOW + 16, 0x55d000001000, POOL_HOST);
}

static void other_records(struct buf *b)
{
	static const char nasty[] = "a,\"b\"\n\xe2\x82\xac\xff";

	RECORD(b, REC_SYSTEM, rec_system, NOW + 20, .kind = SYSTEM_ACL_INIT, .device = DEV_NONE);
	MARK_RECORD(b, NOW + 21, MARK_RANGE_START, 1, "step start");
	TEXT_RECORD(b, REC_MARK, rec_mark, NOW + 22, nasty, sizeof(nasty) - 1, .device = DEV_NONE);
	MARK_RECORD(b, NOW + 23, MARK_INSTANT, 0, "memscope-aten-b: name=aten.add");
	MARK_RECORD(b, NOW + 24, MARK_INSTANT, 0,
		    "memscope-aten-ac:ptr=20616933540368;is_write=True;is_read=False;"
		    "is_output=True;name=aten.add;shape=torch.Size([2, 3]);"
		    "dtype=torch.float16;tensor_size=12;device=npu:0");
	MARK_RECORD(b, NOW + 25, MARK_INSTANT, 0, "memscope-aten-e: name=aten.add");
	TEXT_RECORD(b, REC_OP, rec_op, NOW + 26, "Linear\0path:0_1,workspace ptr:1", 31,
		    .kind = OP_ATB_START);
	TEXT_RECORD(b, REC_ACCESS, rec_access, NOW + 27, "Linear\0dtype:f,shape:[1,5]", 26,
		    .addr = 0x12c041002010, .size_bytes = 10, .pool = POOL_ATB,
		    .kind = ACCESS_READ);
	TEXT_RECORD(b, REC_NAME, rec_name, NOW + 28, "MatMul_bf16", 11, .hash = 0xabcdef);
	RECORD(b, REC_KERNEL, rec_kernel, NOW + 29, .name_hash = 0xabcdef, .stream = 3, .task = 7);
	RECORD(b, REC_KERNEL, rec_kernel, NOW + 30, .name_hash = 0x123, .kind = 1);
	MARK_RECORD(b, NOW + 31, MARK_RANGE_END, 1, "");
	RECORD(b, REC_SYSTEM, rec_system, NOW + 32, .kind = SYSTEM_STOP_TRACE, .device = DEV_NONE);
	RECORD(b, REC_ALLOC, rec_alloc, NOW + 33, .head.flags = 0, .addr = 0x99000, .size_bytes = 9,
	       .pool = POOL_PTA, .kind = ALLOC_REGION);
	RECORD(b, REC_SYSTEM, rec_system, NOW + 34, .kind = SYSTEM_START_TRACE, .device = DEV_NONE);
	RECORD(b, REC_SYSTEM, rec_system, NOW + 35, .kind = SYSTEM_STEP, .value = 1);
}

static void write_recording(const char *path)
{
	static const char session[] =
		"{\"analysisType\":11,\"collectCpu\":true,\"dumpEventType\":15,\"eventType\":15,"
		"\"outputDir\":\"/tmp/golden\",\"wallMinusMono\":1767225600000000000}";
	static const uint64_t pcs[] = {0x401010, 0x7f0000001234, 0x402020};
	struct buf b = {0}, batch = {0};

	CHECK_INT(recording_create(&out, path, NULL), 0);
	frame(FRAME_SESSION, session, sizeof(session) - 1);
	proc(0, 4242, "");
	proc(1, 4243, "5,6");
	TEXT_RECORD(&b, REC_MODULE, rec_module, NOW, "/nonexistent/sonde/libjob.so", 28,
		    .start = 0x7f0000000000, .end = 0x7f0000010000, .bias = 0x7f0000000000);
	add_run(&batch, 0, 4242, &b);
	add_stack(&batch, 0, 1, pcs, 3);
	buf_clear(&b);
	memory_records(&b);
	add_run(&batch, 0, 4242, &b);
	add_cursor(&batch, 0, 0, 3, 4096);
	frame(FRAME_BATCH, batch.data, batch.len); /* large enough to be packed */
	buf_clear(&b);
	buf_clear(&batch);
	other_records(&b);
	add_run(&batch, 0, 4250, &b);
	frame(FRAME_BATCH, batch.data, batch.len);
	buf_clear(&b);
	buf_clear(&batch);
	add_alloc(&b, NOW + 40, 0x1000, 16, POOL_PTA);
	add_run(&batch, 1, 4243, &b);
	frame(FRAME_BATCH, batch.data, batch.len); /* small enough not to be */
	frame(99, "of a later version", 18);
	proc_end(0, 3);
	proc_end(1, 0);
	frame(FRAME_END, NULL, 0);
	recording_close(out);
	buf_release(&b);
	buf_release(&batch);
}

static const char *found[8];
static unsigned nfound;

static int collect(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
	(void)st;
	(void)ftw;
	size_t n = strlen(path);
	if (flag == FTW_F && n > 4 && !strcmp(path + n - 4, ".csv") && nfound < 8)
		found[nfound++] = xstrdup(path);
	return 0;
}

/* v1_4242_0.csv from …/msmemscope_4242_<time>_ascend/device_0/dump/memscope_dump_<time>.csv */
static char *golden_name(const char *dir, unsigned version, const char *path)
{
	unsigned pid;
	char device[16];

	CHECK_INT(sscanf(strstr(path, "/msmemscope_"), "/msmemscope_%u_%*u_ascend/device_%15[^/]",
			 &pid, device),
		  2);
	return xasprintf("%s/v%u_%u_%s.csv", dir, version, pid, device);
}

static void compare(const char *path, unsigned version)
{
	const char *make = getenv("SONDE_GOLDEN");
	char *name = golden_name(make ? make : GOLDEN, version, path);
	struct buf got = {0}, want = {0};
	struct err err = {0};

	CHECK_INT(fs_read_file(path, 1 << 20, &got, NULL), 0);
	if (make) {
		CHECK_INT(fs_write_atomic(name, &got, 0644, NULL), 0);
	} else if (fs_read_file(name, 1 << 20, &want, &err) < 0) {
		fprintf(stderr, "%s (run from the top of the repository)\n", err.text);
		CHECK(0);
	} else if (got.len != want.len || memcmp(got.data, want.data, got.len)) {
		fprintf(stderr, "%s: differs, got\n%s", name, buf_str(&got));
		CHECK(0);
	}
	buf_release(&got);
	buf_release(&want);
	free(name);
}

static void export_and_compare(const char *recording, unsigned version)
{
	struct err err = {0};
	const char *to = tmpfile_path("out");

	setenv("TZ", "UTC", 1);
	tzset();
	struct outputs_export options = {.format = "csv", .output_dir = to, .compat = ROW_SEED};
	if (outputs_export(recording, &options, &err) < 0) {
		fprintf(stderr, "%s\n", err.text);
		CHECK(0);
	}
	nfound = 0;
	CHECK_INT(nftw(to, collect, 16, FTW_PHYS), 0);
	CHECK_INT(nfound, 3);
	for (unsigned i = 0; i < nfound; i++) {
		CHECK(strstr(found[i], "_20260101000001_ascend/"));
		compare(found[i], version);
		free((char *)(uintptr_t)found[i]);
	}
}

/* First, so that a new set is made as a whole. */
TEST(golden, current_writer)
{
	const char *make = getenv("SONDE_GOLDEN");
	char *path = make ? xasprintf("%s/v%u.sonde", make, RECORDING_PLAIN)
			  : xstrdup(tmpfile_path("now.sonde"));

	write_recording(path);
	export_and_compare(path, RECORDING_PLAIN);
	free(path);
}

TEST(golden, v1)
{
	if (!getenv("SONDE_GOLDEN"))
		export_and_compare(GOLDEN "/v1.sonde", 1);
}

TEST(golden, v2)
{
	if (!getenv("SONDE_GOLDEN"))
		export_and_compare(GOLDEN "/v2.sonde", 2);
}

TEST(golden, v3)
{
	if (!getenv("SONDE_GOLDEN"))
		export_and_compare(GOLDEN "/v3.sonde", 3);
}

/* One that another version began is continued in its own form: its readers understand it all. */
static void goes_on_as_it_is(uint32_t version)
{
	char *golden = xasprintf(GOLDEN "/v%u.sonde", version);
	const char *path = tmpfile_path("goes_on.sonde");
	struct buf all = {0}, b = {0}, batch = {0};
	struct recording_reader *r;
	const char *payload;
	uint32_t type;
	size_t n;

	CHECK_INT(fs_read_file(golden, 1 << 20, &all, NULL), 0);
	size_t had = all.len;
	CHECK_INT(fs_write_atomic(path, &all, 0600, NULL), 0);
	CHECK_INT(recording_create(&out, path, NULL), 0);
	for (unsigned i = 0; i < 100; i++)
		add_alloc(&b, NOW + i, 64 * i, 64, POOL_HOST);
	add_run(&batch, 0, 1, &b);
	frame(FRAME_BATCH, batch.data, batch.len);
	recording_close(out);
	buf_clear(&all);
	CHECK_INT(fs_read_file(path, 1 << 20, &all, NULL), 0);
	CHECK_INT(((struct recording_head *)all.data)->version, version);
	struct frame added;
	memcpy(&added, all.data + had, sizeof(added));
	CHECK_INT(added.type, FRAME_BATCH);
	CHECK_INT(recording_open(&r, path, NULL), 0);
	while (recording_next(r, &type, &payload, &n, NULL) == 1)
		;
	CHECK(n == batch.len && !memcmp(payload, batch.data, n));
	recording_reader_free(r);
	free(golden);
	buf_release(&all);
	buf_release(&b);
	buf_release(&batch);
}

TEST(golden, old_ones_go_on_as_they_are)
{
	for (uint32_t version = 1; version < RECORDING_PACKED; version++)
		goes_on_as_it_is(version);
}
