/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Which module of a model a block belongs to. */
#include "memory/track/track.h"

#include "rowtext.h"

#define CONFIG "{\"analysisType\":2,\"dumpEventType\":15,\"collectCpu\":true}"

static struct buf r, got;

/* `M1 text/bytes` of a MALLOC row, `F1 … temporary` of a FREE row; `+text/bytes` of each that shares it. */
static void on_row(void *arg, uint32_t proc, const struct row *row)
{
	(void)arg;
	(void)proc;
	if (row->event != ROW_MALLOC && row->event != ROW_FREE)
		return;
	buf_addf(&got, "%c%llu %s", row->event == ROW_MALLOC ? 'M' : 'F',
		 (unsigned long long)row_attr(row, ATTR_ALLOCATION_ID)->number,
		 row->layer ? row->layer : "-");
	if (row->tensor_bytes)
		buf_addf(&got, "/%llu", (unsigned long long)row->tensor_bytes);
	for (uint32_t i = 0; i < row->nparts; i++)
		buf_addf(&got, " +%s/%llu", row->parts[i].layer,
			 (unsigned long long)row->parts[i].bytes);
	buf_add_str(&got, row->temporary ? " temporary\n" : "\n");
}

static void begin(void)
{
	struct track_sink sink = {.row = on_row};
	struct frame_proc p = {.pid = 100, .exe = "/bin/job"};
	static const char *const texts[] = {"N:a.0:A", "N:a.1:A", "N::N", "M:a:B"};

	rowtext_track = track_new(&sink);
	rowtext_frame(FRAME_SESSION, CONFIG, strlen(CONFIG));
	rowtext_frame(FRAME_PROC, &p, sizeof(p));
	for (size_t i = 0; i < 4; i++)
		TEXT_RECORD(&r, REC_NAME, rec_name, 1, texts[i], strlen(texts[i]), .hash = i + 1);
	rowtext_feed(0, 7, &r);
}

static void done(void)
{
	buf_release(&r);
	buf_release(&got);
	rowtext_done();
}

static void layer(uint64_t ns, uint8_t kind, uint64_t hash)
{
	RECORD(&r, REC_LAYER, rec_layer, ns, .kind = kind, .layer = hash);
}

static void place(uint64_t ns, uint64_t hash, uint64_t addr, uint64_t bytes)
{
	RECORD(&r, REC_LAYER, rec_layer, ns, .kind = LAYER_ADDR, .layer = hash, .addr = addr,
	       .bytes = bytes);
}

static void gives(uint32_t tid, const char *want)
{
	rowtext_feed(0, tid, &r);
	CHECK_STR(buf_str(&got), want);
	buf_clear(&got);
}

TEST(layers, innermost_module_of_the_thread)
{
	begin();
	layer(10, LAYER_ENTER, 3);
	add_alloc(&r, 11, 0x1000, 16, POOL_PTA);
	layer(12, LAYER_ENTER, 1);
	add_alloc(&r, 13, 0x2000, 16, POOL_PTA);
	layer(14, LAYER_LEAVE, 1);
	add_alloc(&r, 15, 0x3000, 16, POOL_PTA);
	layer(16, LAYER_LEAVE, 3);
	add_alloc(&r, 17, 0x4000, 16, POOL_PTA);
	gives(7, "M1 N::N\nM2 N:a.0:A\nM3 N::N\nM4 -\n");
	add_alloc(&r, 18, 0x5000, 16, POOL_PTA);
	gives(8, "M5 -\n");
	done();
}

TEST(layers, what_was_left_open_ends_with_what_is_around)
{
	begin();
	layer(10, LAYER_ENTER, 3);
	layer(11, LAYER_ENTER, 1);
	layer(12, LAYER_ENTER, 2);
	layer(13, LAYER_LEAVE, 1);
	add_alloc(&r, 14, 0x1000, 16, POOL_PTA);
	layer(15, LAYER_LEAVE, 4); /* never entered */
	add_alloc(&r, 16, 0x2000, 16, POOL_PTA);
	layer(17, LAYER_LEAVE, 0);
	add_alloc(&r, 18, 0x3000, 16, POOL_PTA);
	gives(7, "M1 N::N\nM2 N::N\nM3 -\n");
	done();
}

TEST(layers, temporary_is_what_the_same_pass_frees)
{
	begin();
	layer(10, LAYER_ENTER, 3);
	layer(11, LAYER_ENTER, 1);
	add_alloc(&r, 12, 0x1000, 16, POOL_PTA);
	add_alloc(&r, 13, 0x2000, 16, POOL_PTA);
	layer(14, LAYER_LEAVE, 1);
	add_free(&r, 15, 0x1000, POOL_PTA);
	layer(16, LAYER_LEAVE, 3);
	layer(17, LAYER_ENTER, 3);
	add_free(&r, 18, 0x2000, POOL_PTA);
	gives(7, "M1 N:a.0:A\nM2 N:a.0:A\nF1 N:a.0:A temporary\nF2 N:a.0:A\n");
	done();
}

/* One more than operation `number` of a thread. */
#define OPERATION(thread, number) (((uint64_t)(thread) << WORK_THREAD_SHIFT | (number)) + 1)

static void numbered(uint64_t ns, uint8_t kind, uint64_t hash, uint64_t operation)
{
	RECORD(&r, REC_LAYER, rec_layer, ns, .kind = kind, .layer = hash, .addr = operation);
}

TEST(layers, a_gradient_belongs_to_the_module_of_its_operation)
{
	begin();
	numbered(10, LAYER_ENTER, 3, OPERATION(5, 100));
	numbered(11, LAYER_ENTER, 1, OPERATION(5, 102));
	numbered(12, LAYER_LEAVE, 1, OPERATION(5, 104));
	numbered(13, LAYER_ENTER, 2, OPERATION(5, 104));
	numbered(14, LAYER_LEAVE, 2, OPERATION(5, 106));
	numbered(15, LAYER_LEAVE, 3, OPERATION(5, 107));
	gives(7, "");
	/* in another thread, as autograd has them for devices */
	static const struct {
		uint64_t operation;
		const char *want;
	} cases[] = {
		{OPERATION(5, 108), "M1 -\n"},
		{OPERATION(5, 107), "M2 -\n"},
		{OPERATION(5, 106), "M3 N::N\n"},
		{OPERATION(5, 105), "M4 N:a.1:A\n"},
		{OPERATION(5, 103), "M5 N:a.0:A\n"},
		{OPERATION(5, 100), "M6 N::N\n"},
		{OPERATION(5, 99), "M7 -\n"},
		{OPERATION(6, 103), "M8 -\n"},
		{OPERATION(5, 102), "M9 N:a.0:A\n"},
		{0, "M10 -\n"},
		{UINT64_MAX, "M11 -\n"},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		numbered(20 + 2 * i, LAYER_GRADIENT, 0, cases[i].operation);
		add_alloc(&r, 21 + 2 * i, 0x1000 * (i + 1), 16, POOL_TORCH);
		gives(8, cases[i].want);
	}
	done();
}

/* Checkpointing calls modules in the backward pass; a counter that goes back begins anew. */
TEST(layers, a_module_that_runs_goes_before_the_gradient)
{
	begin();
	numbered(10, LAYER_ENTER, 1, OPERATION(5, 10));
	numbered(11, LAYER_LEAVE, 1, OPERATION(5, 20));
	numbered(12, LAYER_GRADIENT, 0, OPERATION(5, 15));
	add_alloc(&r, 13, 0x1000, 16, POOL_PTA);
	numbered(14, LAYER_ENTER, 4, OPERATION(5, 12));
	add_alloc(&r, 15, 0x2000, 16, POOL_PTA);
	numbered(16, LAYER_LEAVE, 4, OPERATION(5, 14));
	add_alloc(&r, 17, 0x3000, 16, POOL_PTA);
	numbered(18, LAYER_GRADIENT, 0, OPERATION(5, 13));
	add_alloc(&r, 19, 0x4000, 16, POOL_PTA);
	numbered(20, LAYER_GRADIENT, 0, OPERATION(5, 15));
	add_alloc(&r, 21, 0x5000, 16, POOL_PTA);
	numbered(22, LAYER_GRADIENT, 0, 0);
	add_alloc(&r, 23, 0x6000, 16, POOL_PTA);
	gives(7, "M1 N:a.0:A\nM2 M:a:B\nM3 N:a.0:A\nM4 M:a:B\nM5 -\nM6 -\n");
	done();
}

/* More than is kept: the older half is forgotten, and nobody's. */
TEST(layers, operations_are_bounded)
{
	begin();
	for (uint64_t i = 0; i < 100000; i++) {
		numbered(10 + i, i % 2 ? LAYER_LEAVE : LAYER_ENTER, 1, OPERATION(5, 10 + i));
		if (r.len > 1u << 20)
			gives(7, "");
	}
	numbered(200000, LAYER_GRADIENT, 0, OPERATION(5, 10));
	add_alloc(&r, 200001, 0x1000, 16, POOL_PTA);
	numbered(200002, LAYER_GRADIENT, 0, OPERATION(5, 10 + 99998));
	add_alloc(&r, 200003, 0x2000, 16, POOL_PTA);
	for (uint64_t i = 0; i < 1000;
	     i++) { /* each thread counts for itself, and there are many */
		numbered(200010 + 2 * i, LAYER_ENTER, 1, OPERATION(1000 + i, 1));
		numbered(200011 + 2 * i, LAYER_LEAVE, 1, OPERATION(1000 + i, 2));
	}
	gives(7, "M1 -\nM2 N:a.0:A\n");
	done();
}

TEST(layers, allocations_that_come_late_get_the_module_of_their_time)
{
	begin();
	layer(10, LAYER_ENTER, 3);
	layer(20, LAYER_ENTER, 1);
	layer(30, LAYER_LEAVE, 1);
	layer(40, LAYER_LEAVE, 3);
	rowtext_feed(0, 7, &r);
	add_alloc(&r, 5, 0x1000, 16, POOL_PTA);
	rowtext_feed(0, 7, &r);
	add_alloc(&r, 15, 0x2000, 16, POOL_PTA);
	rowtext_feed(0, 7, &r);
	add_alloc(&r, 25, 0x3000, 16, POOL_PTA);
	rowtext_feed(0, 7, &r);
	add_free(&r, 35, 0x3000, POOL_PTA);
	rowtext_feed(0, 7, &r);
	add_alloc(&r, 45, 0x4000, 16, POOL_PTA);
	gives(7, "M1 -\nM2 N::N\nM3 N:a.0:A\nF3 N:a.0:A temporary\nM4 -\n");
	done();
}

TEST(layers, tensors_by_address)
{
	begin();
	add_alloc(&r, 10, 0x1000, 512, POOL_PTA);
	place(11, 1, 0x1000, 400);
	place(12, 1, 0x1000, 400); /* told again after each step */
	add_free(&r, 13, 0x1000, POOL_PTA);
	gives(7, "M1 -\nF1 N:a.0:A/400\n");
	add_alloc(&r, 20, 0x1000, 512, POOL_PTA);
	for (unsigned i = 0; i < 2; i++) {
		place(21, 1, 0x1000, 100);
		place(22, 2, 0x1080, 100); /* several in one block: what is around them */
	}
	add_free(&r, 23, 0x1000, POOL_PTA);
	gives(7, "M2 -\nF2 N:a:/200 +N:a.0:A/100 +N:a.1:A/100\n");
	add_alloc(&r, 30, 0x1000, 512, POOL_PTA);
	place(31, 1, 0x1000, 100);
	place(32, 4, 0x1080, 600); /* of different models: the last; no more than there is */
	place(33, 4, 0x9000, 1); /* nobody's */
	add_free(&r, 34, 0x1000, POOL_PTA);
	gives(7, "M3 -\nF3 M:a:B/512 +N:a.0:A/100 +M:a:B/512\n");
	done();
}

TEST(layers, tensors_that_share_a_block)
{
	begin();
	add_alloc(&r, 10, 0x1000, 4096, POOL_PTA);
	place(11, 2, 0x1400, 100);
	place(12, 1, 0x1000, 100);
	place(13, 1, 0x1800, 50);
	place(14, 2, 0x1400, 300); /* it is told anew */
	place(15, 3, 0x1002, 200); /* in the place of what lay there */
	add_free(&r, 16, 0x1000, POOL_PTA);
	gives(7, "M1 -\nF1 N::/550 +N::N/200 +N:a.1:A/300 +N:a.0:A/50\n");
	add_alloc(&r, 20, 0x1000, 64, POOL_PTA); /* another block */
	place(21, 1, 0x1000, 64);
	add_free(&r, 22, 0x1000, POOL_PTA);
	gives(7, "M2 -\nF2 N:a.0:A/64\n");
	done();
}

/* Weights of a file that is mapped, of which parts are unmapped. */
TEST(layers, each_part_of_a_mapping_has_its_own_tensors)
{
	begin();
	RECORD(&r, REC_MAP, rec_map, 10, .op = MAP_ADD, .addr = 0x10000, .bytes = 0x4000,
	       .kind = ALLOC_MAPPED);
	place(11, 1, 0x10000, 256);
	place(12, 2, 0x13000, 512);
	place(13, 1, 0x11f00, 512); /* half of it goes */
	RECORD(&r, REC_MAP, rec_map, 14, .op = MAP_DROP, .addr = 0x12000, .bytes = 0x1000);
	place(15, 2, 0x10100, 128);
	RECORD(&r, REC_MAP, rec_map, 16, .op = MAP_DROP, .addr = 0x10000, .bytes = 0x4000);
	gives(7, "M1 -\nF1 N:a:/1280 +N:a.0:A/256 +N:a.0:A/512 +N:a.1:A/512\n"
		 "M2 N:a:/256 +N:a.0:A/256\nM3 N:a:/512 +N:a.1:A/512\n"
		 "F3 N:a:/512 +N:a.1:A/512\nF2 N:a:/384 +N:a.0:A/256 +N:a.1:A/128\n");
	done();
}

TEST(layers, a_block_has_room_for_so_many_tensors)
{
	begin();
	add_alloc(&r, 10, 0x100000, 1 << 20, POOL_PTA);
	for (uint64_t i = 0; i < 5000; i++)
		place(11 + i, 1, 0x100000 + (4999 - i) * 16, 16);
	add_free(&r, 6000, 0x100000, POOL_PTA);
	rowtext_feed(0, 7, &r);
	const char *sum = strchr(buf_str(&got), '/');
	CHECK(sum && !strncmp(sum, "/65536 ", strlen("/65536 ")));
	buf_clear(&got);
	done();
}

TEST(layers, a_thread_begins_with_none)
{
	begin();
	layer(10, LAYER_ENTER, 1);
	RECORD(&r, REC_THREAD, rec_thread, 11, .tid = 7);
	add_alloc(&r, 12, 0x1000, 16, POOL_PTA);
	gives(7, "M1 -\n");
	done();
}

TEST(layers, nesting_without_end)
{
	begin();
	for (unsigned i = 0; i < 100000; i++)
		layer(10 + i, LAYER_ENTER, 1 + i % 2);
	add_alloc(&r, 200000, 0x1000, 16, POOL_PTA);
	layer(200001, LAYER_LEAVE, 0);
	add_alloc(&r, 200002, 0x2000, 16, POOL_PTA);
	gives(7, "M1 N:a.1:A\nM2 -\n");
	done();
}
