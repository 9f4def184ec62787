/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "recorder/stream.h"

#include "recorder/recording.h"
#include "records.h"
#include "test.h"
#include "tmpdir.h"
#include "wire/ring.h"

#include <errno.h>

/* What was told, as text. */
static struct buf told;

static void on_session(void *arg, const char *json, size_t len)
{
	(void)arg;
	buf_addf(&told, "session %.*s;", (int)len, json);
}

static void on_proc(void *arg, const struct frame_proc *p)
{
	(void)arg;
	buf_addf(&told, "proc %u %s;", p->proc, p->exe);
}

static void on_stack(void *arg, uint32_t proc, uint32_t id, const uint64_t *pc, uint32_t depth)
{
	(void)arg;
	buf_addf(&told, "stack %u %u %u %llx;", proc, id, depth,
		 depth ? (unsigned long long)pc[depth - 1] : 0);
}

static void on_record(void *arg, uint32_t proc, uint32_t tid, const struct rec *r)
{
	(void)arg;
	buf_addf(&told, "rec %u %u %u;", proc, tid, r->type);
}

static void on_cursor(void *arg, const struct batch_cursor *c)
{
	(void)arg;
	buf_addf(&told, "cursor %u %llu %u;", c->ring, (unsigned long long)c->seq, c->offset);
}

static void on_count(void *arg, const struct batch_count *c)
{
	(void)arg;
	buf_addf(&told, "count %u %llu %llu;", c->head.proc, (unsigned long long)c->records,
		 (unsigned long long)c->in_batch);
}

static void on_proc_end(void *arg, const struct frame_proc_end *e)
{
	(void)arg;
	buf_addf(&told, "end %u lost %llu;", e->proc, (unsigned long long)e->lost_events);
}

static void on_end(void *arg)
{
	(void)arg;
	buf_add_str(&told, "over;");
}

static const struct stream_ops ops = {
	.session = on_session,
	.proc = on_proc,
	.stack = on_stack,
	.record = on_record,
	.cursor = on_cursor,
	.count = on_count,
	.proc_end = on_proc_end,
	.end = on_end,
};
static const struct stream_ops deaf;

static int tell(uint32_t type, const void *payload, size_t n)
{
	struct err err = {0};

	buf_clear(&told);
	int r = stream_frame(&ops, NULL, type, payload, n, &err);
	CHECK_INT(stream_frame(&deaf, NULL, type, payload, n, NULL), r);
	if (r < 0)
		CHECK(strstr(err.text, "damaged recording: "));
	return r;
}

TEST(stream, every_frame)
{
	struct frame_proc p = {.proc = 3, .exe = "/bin/job"};
	struct frame_proc_end e = {.proc = 3, .lost_events = 9};

	CHECK_INT(tell(FRAME_SESSION, "{}", 2), 0);
	CHECK_STR(buf_str(&told), "session {};");
	CHECK_INT(tell(FRAME_PROC, &p, sizeof(p)), 0);
	CHECK_STR(buf_str(&told), "proc 3 /bin/job;");
	CHECK_INT(tell(FRAME_PROC_END, &e, sizeof(e)), 0);
	CHECK_STR(buf_str(&told), "end 3 lost 9;");
	CHECK_INT(tell(FRAME_END, NULL, 0), 0);
	CHECK_STR(buf_str(&told), "over;");
	CHECK_INT(tell(FRAME_BATCH, NULL, 0), 0);
	CHECK_INT(tell(77, "of a later version", 18), 0);
	CHECK_STR(buf_str(&told), "");
}

static void one_of_each(struct buf *batch)
{
	static const uint64_t pcs[] = {0x10, 0x20};
	struct buf recs = {0};

	add_stack(batch, 1, 5, pcs, 2);
	add_alloc(&recs, 1, 0x100, 8, POOL_HAL);
	MARK_RECORD(&recs, 2, MARK_INSTANT, 0, "hello");
	add_run(batch, 1, 70, &recs);
	add_cursor(batch, 1, 2, 3, 400);
	buf_release(&recs);
}

TEST(stream, batch)
{
	struct buf b = {0};

	one_of_each(&b);
	CHECK_INT(tell(FRAME_BATCH, b.data, b.len), 0);
	CHECK_STR(buf_str(&told), "stack 1 5 2 20;rec 1 70 2;rec 1 70 9;cursor 2 3 400;");
	buf_clear(&b);
	add_stack(&b, 0, 1, NULL, 0);
	CHECK_INT(tell(FRAME_BATCH, b.data, b.len), 0);
	struct batch_item later = {99, sizeof(later), 0, 0};
	CHECK_INT(tell(FRAME_BATCH, &later, sizeof(later)), 0);
	CHECK_STR(buf_str(&told), "");
	buf_release(&b);
}

TEST(stream, counts)
{
	struct batch_count c = {
		.head = {BATCH_COUNT, sizeof(c), 3, 0}, .records = 7, .in_batch = 2};
	struct stream_losses l = {0};
	struct frame_proc_end e = {.records = 3};

	CHECK_INT(tell(FRAME_BATCH, &c, sizeof(c)), 0);
	CHECK_STR(buf_str(&told), "count 3 7 2;");
	stream_losses_count(&l, &c);
	CHECK_INT(l.missing, 5);
	CHECK(stream_is_repeated(&l, &c));
	stream_losses_count(&l, &c); /* whatever a file says, it goes on */
	c.records = c.in_batch = 1;
	CHECK(stream_is_repeated(&l, &c));
	stream_losses_count(&l, &c);
	CHECK_INT(l.missing, 5);
	CHECK_INT(l.records, 7);
	c.records = 8; /* the next one, in its place */
	CHECK(!stream_is_repeated(&l, &c));
	stream_losses_count(&l, &c);
	CHECK_INT(l.missing, 5);
	CHECK(!stream_is_repeated(&l, &(struct batch_count){.records = 3})); /* losses alone */
	c.records = 1;
	l.records = (1ull << 32) + 1; /* the end knows the lower half */
	stream_losses_end(&l, &e);
	CHECK_INT(e.lost_events, 5 + 2);
	c.in_batch = 2;
	CHECK_INT(tell(FRAME_BATCH, &c, sizeof(c)), -EINVAL);
	c.head.bytes = sizeof(c) - 8;
	CHECK_INT(tell(FRAME_BATCH, &c, sizeof(c) - 8), -EINVAL);
}

/* A batch that ends early: an error, except between two items. */
TEST(stream, batch_cut_anywhere)
{
	struct buf b = {0};

	one_of_each(&b);
	size_t stack = 24 + 16, run = stack + 16 + 40 + 40;
	for (size_t n = 0; n < b.len; n++) {
		char *exact = malloc(n ? n : 1);
		memcpy(exact, b.data, n);
		CHECK_INT(tell(FRAME_BATCH, exact, n),
			  n == 0 || n == stack || n == run ? 0 : -EINVAL);
		free(exact);
	}
	buf_release(&b);
}

TEST(stream, malformed_items)
{
	struct buf b = {0};
	struct batch_item *it;

	one_of_each(&b);
	it = (struct batch_item *)b.data;
	static const uint32_t sizes[] = {0, 8, 15, 17, 20, 41, 48, UINT32_MAX, UINT32_MAX - 7};
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		it->bytes = sizes[i];
		CHECK_INT(tell(FRAME_BATCH, b.data, b.len), -EINVAL);
	}
	it->bytes = 40;
	struct batch_stack *s = (struct batch_stack *)b.data;
	static const uint32_t depths[] = {0, 1, 3, ARENA_MAX_DEPTH + 1, UINT32_MAX, 0x20000002};
	for (size_t i = 0; i < sizeof(depths) / sizeof(depths[0]); i++) {
		s->depth = depths[i];
		CHECK_INT(tell(FRAME_BATCH, b.data, b.len), -EINVAL);
		CHECK_STR(buf_str(&told), "");
	}
	s->depth = 2;
	/* A record inside a run; what came before it has been told. */
	((struct rec *)(b.data + 40 + 16 + 40))->size = 8;
	CHECK_INT(tell(FRAME_BATCH, b.data, b.len), -EINVAL);
	CHECK_STR(buf_str(&told), "stack 1 5 2 20;rec 1 70 2;");
	buf_clear(&b);
	add_cursor(&b, 0, 0, 0, 0);
	((struct batch_item *)b.data)->bytes = 24;
	CHECK_INT(tell(FRAME_BATCH, b.data, 24), -EINVAL);
	buf_release(&b);
}

TEST(stream, malformed_frames)
{
	struct frame_proc p = {.proc = 1};
	struct frame_proc_end e = {.proc = 1};

	CHECK_INT(tell(FRAME_PROC, &p, sizeof(p) - 1), -EINVAL);
	CHECK_INT(tell(FRAME_PROC, NULL, 0), -EINVAL);
	CHECK_INT(tell(FRAME_PROC_END, &e, sizeof(e) - 8), -EINVAL);
	CHECK_INT(tell(FRAME_PROC_END, NULL, 0), -EINVAL);
	memset(p.exe, 'x', sizeof(p.exe));
	CHECK_INT(tell(FRAME_PROC, &p, sizeof(p)), -EINVAL);
	p.exe[10] = 0;
	memset(p.visible_devices, '1', sizeof(p.visible_devices));
	CHECK_INT(tell(FRAME_PROC, &p, sizeof(p)), -EINVAL);
	p.visible_devices[0] = 0;
	memset(p.cmdline, 'x', sizeof(p.cmdline)); /* may be cut: it has no end of its own */
	CHECK_INT(tell(FRAME_PROC, &p, sizeof(p)), 0);
}

TEST(stream, file)
{
	const char *path = tmpfile_path("f");
	struct recording_writer *w;
	struct buf b = {0};
	bool torn = true;

	one_of_each(&b);
	CHECK_INT(recording_create(&w, path, NULL), 0);
	CHECK_INT(recording_append(w, FRAME_SESSION, "{}", 2, NULL), 0);
	CHECK_INT(recording_append(w, FRAME_BATCH, b.data, b.len, NULL), 0);
	CHECK_INT(recording_append(w, FRAME_END, NULL, 0, NULL), 0);
	buf_clear(&told);
	CHECK_INT(stream_file(path, &ops, NULL, &torn, NULL), 0);
	CHECK(!torn);
	CHECK_STR(buf_str(&told),
		  "session {};stack 1 5 2 20;rec 1 70 2;rec 1 70 9;cursor 2 3 400;over;");
	CHECK(truncate(path, (off_t)recording_bytes(w) - 1) == 0);
	CHECK_INT(stream_file(path, &ops, NULL, &torn, NULL), 0);
	CHECK(torn);
	recording_close(w);
	CHECK_INT(stream_file(tmpfile_path("none"), &ops, NULL, &torn, NULL), -ENOENT);
	buf_release(&b);
	buf_release(&told);
}
