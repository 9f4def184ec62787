/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * A recording without its oldest part. Whatever was recorded, and wherever it is cut: the rows of
 * the rest are those that the whole recording has there, to the byte.
 */
#include "recorder/rotate/drop_oldest.h"

#include "base/containers/hmap.h"
#include "base/fs.h"
#include "base/mem.h"
#include "memory/dump/calls.h"
#include "recorder/recording.h"
#include "rowtext.h"
#include "tmpdir.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#define CONFIG                                                                                     \
	"{\"analysisType\":15,\"dumpEventType\":15,\"collectCpu\":true,\"collectAllNpu\":true,"    \
	"\"enableCStack\":true,\"wallMinusMono\":1000}"
#define PROCS 3
#define BATCHES 160
#define SECOND 1000000000ull

static uint64_t seed;

static uint32_t pick(uint32_t n)
{
	seed = seed * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(seed >> 33) % n;
}

/* --- a recording of everything that has a state --- */

struct job {
	uint64_t now_ns;
	uint64_t step[PROCS], range[PROCS];
	uint64_t counted[PROCS], lost[PROCS];
	bool ended[PROCS];
	bool steps; /* there are any */
};

static const uint8_t pools[] = {POOL_HAL,	POOL_HOST, POOL_PTA,   POOL_PTA_WORKSPACE,
				POOL_MINDSPORE, POOL_ATB,  POOL_TORCH, POOL_PYTHON};
static const char *const names[] = {"model", "n:h.0.a:A", "n:h.1.b:", "a,b"};

static uint64_t address(void)
{
	return 0x100000 + 0x1000ull * pick(40);
}

static void put_block(struct buf *b, uint64_t ns)
{
	uint8_t pool = pools[pick(sizeof(pools))];
	uint8_t flags = pick(8) ? 0 : REC_F_SHADOW;
	bool pinned = pool == POOL_HOST && !pick(6);
	size_t at = b->len;

	if (pick(5) < 3)
		add_alloc(b, ns, address(), 1 + pick(0x3000), pool);
	else
		add_free(b, ns, address(), pool);
	struct rec *r = (struct rec *)(b->data + at);
	r->flags = flags;
	if (r->type == REC_ALLOC) {
		r->stack = pick(5);
		if (pinned)
			((struct rec_alloc *)r)->kind = ALLOC_PINNED;
	} else if (pinned) {
		((struct rec_free *)r)->kind = ALLOC_PINNED;
	}
}

static void put_context(struct buf *b, uint64_t ns, uint32_t what)
{
	const char *name = names[pick(4)];

	if (what == 0)
		RECORD(b, REC_MAP, rec_map, ns, .addr = address() & ~0xfffull,
		       .bytes = 0x1000u * (1 + pick(8)), .op = (uint8_t)pick(MAP_OP_END),
		       .kind = (uint8_t)(ALLOC_MAPPED + pick(4)));
	else if (what == 1)
		RECORD(b, REC_HEAP, rec_heap, ns, .addr = address(), .bytes = 1 + pick(100000),
		       .pool = POOL_PTA, .mode = (uint8_t)pick(3));
	else if (what == 2)
		TEXT_RECORD(b, REC_LABEL, rec_label, ns, name, strlen(name),
			    .kind = (uint8_t)pick(3), .level = (uint8_t)pick(8),
			    .addr = pick(2) ? address() : 0);
	else if (what == 3)
		RECORD(b, REC_KERNEL, rec_kernel, ns, .name_hash = 1 + pick(4));
	else if (what == 4)
		TEXT_RECORD(b, REC_NAME, rec_name, ns, name, strlen(name),
			    .hash = (uint64_t)(name == names[0] ? 1 : 1 + pick(4)));
	else if (what == 5)
		RECORD(b, REC_CALL, rec_call, ns, .kind = (uint8_t)pick(CALL_KIND_END),
		       .name = 1 + pick(3), .place = pick(3));
	else if (what == 6)
		TEXT_RECORD(b, REC_OP, rec_op, ns, name, strlen(name), .kind = (uint8_t)pick(4));
	else if (what == 7)
		TEXT_RECORD(b, REC_ACCESS, rec_access, ns, name, strlen(name), .addr = address(),
			    .size_bytes = 8, .pool = POOL_PTA, .kind = ACCESS_READ);
	else if (what == 8)
		RECORD(b, REC_OOM, rec_oom, ns, .size_bytes = 1 << 20);
	else if (what == 9)
		RECORD(b, REC_DEVICE, rec_device, ns, .total_bytes = 1 << 30,
		       .used_bytes = pick(1 << 30), .process_bytes = DEVICE_UNKNOWN,
		       .others_bytes = DEVICE_UNKNOWN);
	else if (what == 10)
		RECORD(b, REC_LAYER, rec_layer, ns, .kind = (uint8_t)pick(LAYER_KIND_END),
		       .layer = pick(5), .addr = address(), .bytes = pick(0x2000));
	else
		RECORD(b, REC_SYSTEM, rec_system, ns, .device = DEV_NONE,
		       .kind = pick(2) ? SYSTEM_START_TRACE : SYSTEM_STOP_TRACE);
}

/* Process 0 counts its steps by calls, process 1 by ranges; those of process 2 are detected. */
#define STEP_NAME 0x1234567

static void put_step(struct job *j, struct buf *b, uint32_t proc, uint64_t ns)
{
	if (proc == 0) {
		RECORD(b, REC_SYSTEM, rec_system, ns, .device = DEV_NONE, .kind = SYSTEM_STEP,
		       .value = ++j->step[0]);
	} else if (proc == 1) {
		if (j->range[1])
			MARK_RECORD(b, ns, MARK_RANGE_END, j->range[1], "");
		else
			MARK_RECORD(b, ns, MARK_RANGE_START, ++j->step[1], "step start");
		j->range[1] = j->range[1] ? 0 : j->step[1];
	} else {
		if (!j->step[2]++) {
			TEXT_RECORD(b, REC_NAME, rec_name, ns, "SGD", 3, .hash = STEP_NAME);
			RECORD(b, REC_SYSTEM, rec_system, ns, .kind = SYSTEM_STEP_NAME,
			       .value = STEP_NAME);
		}
		RECORD(b, REC_SYSTEM, rec_system, ns, .device = DEV_NONE,
		       .kind = SYSTEM_DETECTED_STEP, .source = STEP_OPTIMIZER, .value = j->step[2]);
	}
}

static void put_run(struct job *j, struct buf *batch, uint32_t proc)
{
	struct buf recs = {0};
	uint32_t n = 1 + pick(12);

	for (uint32_t i = 0; i < n; i++) {
		uint64_t ns = j->now_ns += 1 + pick(2000000);
		if (j->steps && proc < 2 && !pick(20))
			put_step(j, &recs, proc, ns);
		else if (pick(3))
			put_block(&recs, ns);
		else
			put_context(&recs, ns, pick(200) ? pick(11) : 11);
		j->counted[proc]++;
	}
	add_run(batch, proc, 50 + pick(3), &recs);
	buf_release(&recs);
}

static void put_count(struct job *j, struct buf *batch, uint32_t proc, uint64_t before)
{
	struct batch_count c = {.head = {BATCH_COUNT, sizeof(c), proc, 0},
				.records = j->counted[proc],
				.in_batch = j->counted[proc] - before,
				.lost_events = j->lost[proc]};

	buf_add(batch, &c, sizeof(c));
}

static void put_batch(struct job *j, struct recording_writer *w, uint32_t number)
{
	static const uint64_t pc[] = {0x400100, 0x400200, 0x400300};
	struct buf batch = {0};
	uint64_t before[PROCS];

	memcpy(before, j->counted, sizeof(before));
	if (number == BATCHES / 3) { /* a frame that could not be written */
		j->counted[0] += 7;
		before[0] += 7;
	}
	j->lost[1] += number % 50 == 49;
	for (uint32_t i = 0; i < PROCS; i++)
		if (!j->ended[i] && number < 4)
			add_stack(&batch, i, 1 + number, pc, 1 + pick(3));
	for (uint32_t i = 0; i < 4; i++) {
		uint32_t proc = pick(PROCS);
		if (!j->ended[proc])
			put_run(j, &batch, proc);
	}
	for (uint32_t i = 0; i < PROCS; i++) {
		if (j->counted[i] == before[i])
			continue;
		add_cursor(&batch, i, pick(3), 1 + number / 10, 64 * number);
		put_count(j, &batch, i, before[i]);
	}
	CHECK_INT(recording_append(w, FRAME_BATCH, batch.data, batch.len, NULL), 0);
	buf_release(&batch);
}

static void end_process(struct job *j, struct recording_writer *w, uint32_t proc)
{
	struct frame_proc_end e = {
		.proc = proc, .time_ns = j->now_ns + 1, .records = (uint32_t)j->counted[proc]};

	j->ended[proc] = true;
	CHECK_INT(recording_append(w, FRAME_PROC_END, &e, sizeof(e), NULL), 0);
}

/* Frames are small, so that there are many places to cut at. */
static void write_job(const char *path, uint64_t number, bool steps)
{
	struct job j = {.now_ns = SECOND, .steps = steps};
	struct recording_writer *w;

	seed = number;
	CHECK_INT(recording_create(&w, path, NULL), 0);
	CHECK_INT(recording_append(w, FRAME_SESSION, CONFIG, sizeof(CONFIG) - 1, NULL), 0);
	for (uint32_t i = 0; i < PROCS; i++) {
		struct frame_proc p = {.proc = i, .pid = 100 + i, .time_ns = SECOND};
		snprintf(p.exe, sizeof(p.exe), "/bin/job%u", i);
		snprintf(p.visible_devices, sizeof(p.visible_devices), i ? "" : "3,2");
		CHECK_INT(recording_append(w, FRAME_PROC, &p, sizeof(p), NULL), 0);
	}
	for (uint32_t i = 0; i < BATCHES; i++) {
		put_batch(&j, w, i);
		if (i == BATCHES / 2)
			end_process(&j, w, 2);
	}
	for (uint32_t i = 0; i < 2; i++)
		end_process(&j, w, i);
	CHECK_INT(recording_append(w, FRAME_END, NULL, 0, NULL), 0);
	recording_close(w);
}

/* --- what comes of it --- */

struct reading {
	struct buf rows; /* but those that are carried over */
	struct buf calls;
	struct buf ends; /* and what was lost */
	struct track_cut cut;
	bool was_cut;
	uint64_t carried; /* blocks */
	uint64_t newest_ns; /* of a row */
};

static void on_row(void *arg, uint32_t proc, const struct row *r)
{
	struct reading *out = arg;

	if (r->time_ns > out->newest_ns)
		out->newest_ns = r->time_ns;
	if (row_attr(r, ATTR_CARRIED)) {
		out->carried += r->event == ROW_MALLOC && !r->hidden;
		CHECK(r->time_ns <= out->cut.cut.until_ns || !out->cut.cut.until_ns);
		return;
	}
	buf_clear(&rowtext);
	rowtext_row(NULL, proc, r);
	buf_addf(&out->rows, "%llu ", (unsigned long long)r->id);
	if (r->layer)
		buf_addf(&out->rows, "%s %llu%s ", r->layer, (unsigned long long)r->tensor_bytes,
			 r->temporary ? " temporary" : "");
	buf_add(&out->rows, rowtext.data, rowtext.len);
}

static void on_call(void *arg, uint32_t proc, const struct trace_row *r)
{
	struct reading *out = arg;

	if (r)
		buf_addf(&out->calls, "%u %u %s%.*s %llu %llu\n", proc, r->tid, r->prefix,
			 (int)r->text_len, r->text, (unsigned long long)r->start_ns,
			 (unsigned long long)r->end_ns);
}

static void on_proc_end(void *arg, const struct frame_proc_end *e)
{
	buf_addf(&((struct reading *)arg)->ends, "%u lost %llu of %u\n", e->proc,
		 (unsigned long long)e->lost_events, e->records);
}

static void read_job(const char *path, struct reading *out)
{
	struct track_sink sink = {
		.row = on_row, .call = on_call, .proc_end = on_proc_end, .arg = out};
	struct track *t = track_new(&sink);
	bool torn;

	*out = (struct reading){0};
	CHECK_INT(track_file(t, path, &torn, NULL), 0);
	CHECK(!torn && track_is_whole(t) && track_is_read(t));
	out->was_cut = track_cut(t, &out->cut);
	track_free(t);
	buf_release(&rowtext);
}

static void release_reading(struct reading *r)
{
	buf_release(&r->rows);
	buf_release(&r->calls);
	buf_release(&r->ends);
}

static bool ends_with(struct buf *whole, struct buf *part)
{
	return part->len <= whole->len &&
	       (!part->len || !memcmp(whole->data + whole->len - part->len, part->data, part->len));
}

static void drop(const char *from, const char *to, uint64_t keep_bytes, uint64_t keep_from_ns)
{
	struct stat st;
	uint64_t checkpoint_bytes;
	struct err err = {0};

	CHECK(stat(from, &st) == 0);
	fs_unlink(to, NULL);
	struct drop_request order = {.from = from,
				     .to = to,
				     .end = (uint64_t)st.st_size,
				     .keep_bytes = keep_bytes,
				     .limit_bytes = 1 << 20,
				     .keep_from_ns = keep_from_ns,
				     .checkpoints = {&track_checkpoint},
				     .ncheckpoints = 1};
	CHECK_INT(drop_oldest(&order, &checkpoint_bytes, &err), 0);
}

/* The rest of the rows, call rows and losses; returns how many rows were dropped. */
static size_t check_same(struct reading *whole, struct reading *rest)
{
	CHECK(rest->was_cut);
	CHECK(ends_with(&whole->rows, &rest->rows));
	CHECK(ends_with(&whole->calls, &rest->calls));
	CHECK(ends_with(&whole->ends, &rest->ends));
	return whole->rows.len - rest->rows.len;
}

static void check_cuts(uint64_t number, bool steps)
{
	const char *path = xstrdup(tmpfile_path("whole.sonde"));
	const char *once = xstrdup(tmpfile_path("once.sonde"));
	const char *twice = xstrdup(tmpfile_path("twice.sonde"));
	struct reading whole, rest;
	struct stat st;

	write_job(path, number, steps);
	read_job(path, &whole);
	CHECK(!whole.was_cut && whole.rows.len && whole.calls.len);
	CHECK(stat(path, &st) == 0);
	for (uint64_t keep = (uint64_t)st.st_size; keep > 2000; keep -= (uint64_t)st.st_size / 12) {
		drop(path, once, keep, 0);
		read_job(once, &rest);
		size_t dropped = check_same(&whole, &rest);
		CHECK(dropped || keep == (uint64_t)st.st_size);
		CHECK(rest.cut.cut.cuts == 1 && (!steps || rest.cut.cut.last_step));
		release_reading(&rest);
		drop(once, twice, keep * 2 / 3, 0);
		read_job(twice, &rest);
		CHECK(check_same(&whole, &rest) >= dropped);
		CHECK_INT(rest.cut.cut.cuts, 2);
		CHECK(rest.carried);
		release_reading(&rest);
	}
	release_reading(&whole);
	fs_unlink(path, NULL);
	free((char *)(uintptr_t)path);
	free((char *)(uintptr_t)once);
	free((char *)(uintptr_t)twice);
}

TEST(drop_oldest, rest_is_as_in_the_whole)
{
	for (uint64_t i = 1; i <= 3; i++)
		check_cuts(i, true);
}

TEST(drop_oldest, without_steps)
{
	check_cuts(7, false);
}

/* By time the cut is anywhere, inside of a batch and of what belongs together. */
TEST(drop_oldest, by_time)
{
	char *path = xstrdup(tmpfile_path("whole.sonde"));
	char *once = xstrdup(tmpfile_path("once.sonde"));
	struct reading whole, rest;
	size_t before = 0;

	write_job(path, 11, true);
	read_job(path, &whole);
	for (uint64_t i = 1; i < 40; i++) {
		drop(path, once, 0, SECOND + (whole.newest_ns - SECOND) / 40 * i);
		read_job(once, &rest);
		size_t dropped = check_same(&whole, &rest);
		CHECK(dropped >= before);
		before = dropped;
		release_reading(&rest);
	}
	CHECK(before > whole.rows.len / 2);
	release_reading(&whole);
	fs_unlink(path, NULL);
	fs_unlink(once, NULL);
	free(path);
	free(once);
}

/* Of a job that is only looked at from outside, samples say when it began and how far it reaches. */
TEST(drop_oldest, times_of_samples_alone)
{
	char *path = xstrdup(tmpfile_path("whole.sonde"));
	char *once = xstrdup(tmpfile_path("once.sonde"));
	struct recording_writer *w;
	struct reading rest;

	CHECK_INT(recording_create(&w, path, NULL), 0);
	CHECK_INT(recording_append(w, FRAME_SESSION, CONFIG, sizeof(CONFIG) - 1, NULL), 0);
	for (uint64_t i = 0; i < 10; i++) {
		struct buf batch = {0}, recs = {0};
		RECORD(&recs, REC_SAMPLE, rec_sample, (100 + i) * SECOND, .pid = 7, .tid = 7);
		add_run(&batch, PROC_NONE, 0, &recs);
		CHECK_INT(recording_append(w, FRAME_BATCH, batch.data, batch.len, NULL), 0);
		buf_release(&recs);
		buf_release(&batch);
	}
	recording_close(w);
	drop(path, once, 0, 106 * SECOND);
	struct track *t = track_new(&(struct track_sink){0});
	bool torn;
	CHECK_INT(track_file(t, once, &torn, NULL), 0);
	CHECK(track_cut(t, &rest.cut));
	CHECK_INT(rest.cut.cut.until_ns - rest.cut.cut.from_ns, 5 * SECOND);
	CHECK_INT(rest.cut.newest_ns - rest.cut.cut.until_ns, 4 * SECOND);
	track_free(t);
	fs_unlink(path, NULL);
	fs_unlink(once, NULL);
	free(path);
	free(once);
}

/* Nothing is written to a file that somebody else has put there. */
TEST(drop_oldest, new_file_is_new)
{
	char *path = xstrdup(tmpfile_path("whole.sonde"));
	char *planted = xstrdup(tmpfile_path("planted.sonde"));
	struct buf text = {0};
	uint64_t checkpoint_bytes;
	struct err err = {0};
	struct stat st;

	write_job(path, 1, true);
	CHECK(stat(path, &st) == 0);
	buf_add_str(&text, "not a recording");
	CHECK_INT(fs_write_atomic(planted, &text, 0644, NULL), 0);
	struct drop_request order = {.from = path,
				     .to = planted,
				     .end = (uint64_t)st.st_size,
				     .keep_bytes = (uint64_t)st.st_size / 2,
				     .checkpoints = {&track_checkpoint},
				     .ncheckpoints = 1};
	CHECK_INT(drop_oldest(&order, &checkpoint_bytes, &err), -EEXIST);
	buf_clear(&text);
	CHECK_INT(fs_read_file(planted, 100, &text, NULL), 0);
	CHECK_STR(buf_str(&text), "not a recording");
	fs_unlink(path, NULL);
	fs_unlink(planted, NULL);
	buf_release(&text);
	free(path);
	free(planted);
}
