/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Whose a block is: labels of threads and of addresses, by level. */
#include "memory/track/track.h"

#include "rowtext.h"

#define PLAIN "{\"analysisType\":0}"
#define DECOMPOSE_CPU                                                                              \
	"{\"analysisType\":2,\"dumpEventType\":15,\"collectCpu\":true,\"collectAllNpu\":true}"
#define DECOMPOSE "{\"analysisType\":2,\"dumpEventType\":15}"

static struct buf r, told;

static void done(void)
{
	buf_release(&r);
	buf_release(&told);
	rowtext_done();
}

static void label_at(uint64_t ns, uint8_t kind, uint8_t level, const char *text, uint64_t addr)
{
	TEXT_RECORD(&r, REC_LABEL, rec_label, ns, text, strlen(text), .kind = kind, .level = level,
		    .addr = addr);
}

static void label(uint8_t kind, uint8_t level, const char *text, uint64_t addr)
{
	label_at(1, kind, level, text, addr);
}

static void on_relabel(void *arg, uint32_t proc, uint32_t pid, uint64_t id, const char *owner)
{
	(void)arg;
	buf_addf(&told, "%u/%u #%llu %s\n", proc, pid, (unsigned long long)id, owner);
}

/* As rowtext_begin(), with a listener for owners that change. */
static void begin(const char *config)
{
	struct track_sink sink = {.row = rowtext_row, .relabel = on_relabel};
	struct frame_proc p = {.pid = 100, .exe = "/bin/job"};

	track_free(rowtext_track);
	rowtext_track = track_new(&sink);
	rowtext_frame(FRAME_SESSION, config, strlen(config));
	rowtext_frame(FRAME_PROC, &p, sizeof(p));
	buf_clear(&rowtext);
	buf_clear(&told);
}

static void relabelled(const char *want)
{
	rowtext_feed(0, 7, &r);
	CHECK_STR(buf_str(&told), want);
	buf_clear(&told);
}

/* The owner in the last row that was written. */
static const char *last_owner(void)
{
	static char got[2048];
	const char *row = buf_str(&rowtext), *next;

	while ((next = strchr(row, '\n')) && next[1])
		row = next + 1;
	const char *at = strstr(row, "owner:");
	snprintf(got, sizeof(got), "%.*s", at ? (int)strcspn(at + 6, ",\n") : 0, at ? at + 6 : "");
	return got;
}

/* The owner of the next allocation of that thread, as its row has it. */
static void owner_in(uint32_t tid, uint8_t pool, const char *want)
{
	static uint64_t addr = 0x1000;

	rowtext_feed(0, tid, &r);
	buf_clear(&rowtext);
	add_alloc(&r, 5, addr += 16, 1, pool);
	rowtext_feed(0, tid, &r);
	CHECK_STR(last_owner(), want);
	buf_clear(&rowtext);
}

static void owner(const char *want)
{
	owner_in(7, POOL_PTA, want);
}

/* Two that say the same of different levels, ended in any order. */
TEST(track_labels, same_text_at_two_levels)
{
	begin(PLAIN);
	label(LABEL_PUSH, 2, "activation", 0);
	label(LABEL_PUSH, 3, "activation", 0);
	label(LABEL_PUSH, 1, "fsdp2", 0);
	owner("PTA@fsdp2@activation");
	label(LABEL_POP, 2, "activation", 0);
	label(LABEL_PUSH, 2, "backward", 0);
	owner("PTA@fsdp2@backward@activation");
	label(LABEL_POP, 2, "activation", 0); /* none left there: the other one */
	owner("PTA@fsdp2@backward");
	done();
}

/* The newest label of each system level, whatever the order of the pushes. */
TEST(track_labels, system_levels)
{
	begin(PLAIN);
	label(LABEL_PUSH, 4, "lora", 0);
	label(LABEL_PUSH, 1, "vllm", 0);
	label(LABEL_PUSH, 3, "weights", 0);
	owner("PTA@vllm@weights@lora");
	label(LABEL_PUSH, 3, "kv_cache", 0);
	owner("PTA@vllm@kv_cache@lora");
	label(LABEL_PUSH, 2, "serve", 0);
	owner("PTA@vllm@serve@kv_cache@lora");
	label(LABEL_POP, 3, "kv_cache", 0);
	owner("PTA@vllm@serve@weights@lora");
	label(LABEL_POP, 3, "lora", 0); /* the level does not matter */
	label(LABEL_POP, 3, "vllm", 0);
	owner("PTA@serve@weights");
	owner_in(7, POOL_HAL, "CANN@UNKNOWN@serve@weights");
	owner_in(7, POOL_ATB, "ATB@serve@weights");
	owner_in(8, POOL_PTA, "");
	done();
}

/* The user's are kept in the order of their pushes, the first three. */
TEST(track_labels, user_levels)
{
	begin(PLAIN);
	label(LABEL_PUSH, 7, "one", 0);
	label(LABEL_PUSH, 5, "two", 0);
	owner("PTA@one@two");
	label(LABEL_PUSH, 6, "three", 0);
	label(LABEL_PUSH, 5, "four", 0);
	owner("PTA@one@two@three");
	label(LABEL_PUSH, 3, "weight", 0);
	owner("PTA@weight@one@two@three");
	label(LABEL_POP, 5, "two", 0);
	owner("PTA@weight@one@three@four");
	label(LABEL_PUSH, 5, "", 0); /* nothing, and in nobody's way */
	owner("PTA@weight@one@three@four");
	label(LABEL_PUSH, 8, "no level", 0);
	label(LABEL_PUSH, 255, "no level", 0);
	owner("PTA@weight@one@three@four");
	done();
}

TEST(track_labels, text)
{
	char longer[300], cut[160];

	begin(PLAIN);
	label(LABEL_PUSH, 5,
	      "a\nb\tc\rd\x01"
	      "e\x7f,f",
	      0);
	owner("PTA@a\\nb\\tc\\rd\\x01e\\x7f;f");
	label(LABEL_POP, 5,
	      "a\nb\tc\rd\x01"
	      "e\x7f,f",
	      0);
	owner("");
	memset(longer, 'x', sizeof(longer) - 1);
	longer[sizeof(longer) - 1] = '\0';
	snprintf(cut, sizeof(cut), "PTA@%.128s", longer);
	label(LABEL_PUSH, 5, longer, 0);
	owner(cut);
	label(LABEL_POP, 5, longer, 0);
	owner("");
	memcpy(longer + 126, "\xe4\xbd\xa0", 3); /* not in the middle of a character */
	snprintf(cut, sizeof(cut), "PTA@%.126s", longer);
	label(LABEL_PUSH, 5, longer, 0);
	owner(cut);
	label(LABEL_POP, 5, longer, 0);
	memset(longer, '\n', sizeof(longer) - 1); /* nor of an escape */
	label(LABEL_PUSH, 5, longer, 0);
	rowtext_feed(0, 7, &r);
	add_alloc(&r, 5, 1, 1, POOL_PTA);
	rowtext_feed(0, 7, &r);
	CHECK_INT((long long)strlen(last_owner()), 4 + 128);
	done();
}

/* A label given by address replaces the one of its level, and the others stay. */
TEST(track_labels, by_address)
{
	begin(PLAIN);
	add_alloc(&r, 1, 0x100, 0x100, POOL_HAL);
	label(LABEL_PUSH, 1, "vllm", 0);
	label(LABEL_PUSH, 5, "mine", 0);
	add_alloc(&r, 1, 0x140, 0x10, POOL_PTA);
	label(LABEL_POP, 5, "mine", 0);
	relabelled("");
	label(LABEL_ADDR, 3, "weights", 0x14f);
	label(LABEL_ADDR, 3, "weights", 0x140); /* again is nothing new */
	label(LABEL_ADDR, 4, "lora", 0x141);
	label(LABEL_ADDR, 3, "drafter", 0x148);
	label(LABEL_ADDR, 5, "yours", 0x148);
	label(LABEL_ADDR, 8, "no level", 0x148);
	label(LABEL_ADDR, 3, "nowhere", 0x5000);
	label(LABEL_ADDR, 3, "past the end", 0x200);
	relabelled("0/100 #2 PTA@vllm@weights@mine\n"
		   "0/100 #2 PTA@vllm@weights@lora@mine\n"
		   "0/100 #2 PTA@vllm@drafter@lora@mine\n"
		   "0/100 #2 PTA@vllm@drafter@lora@yours\n");
	label(LABEL_ADDR, 3, "segment", 0x150); /* behind the pool's block: the driver's */
	relabelled("0/100 #1 CANN@UNKNOWN@segment\n");
	add_free(&r, 3, 0x140, POOL_PTA);
	rowtext_feed(0, 7, &r);
	CHECK_STR(last_owner(), "PTA@vllm@drafter@lora@yours");
	/* The thread's own labels are as they were. */
	owner("PTA@vllm");
	done();
}

/* Blocks share the labels they were allocated under; one of them gets its own. */
TEST(track_labels, of_others_stay)
{
	begin(PLAIN);
	label(LABEL_PUSH, 5, "both", 0);
	add_alloc(&r, 1, 0x100, 0x10, POOL_PTA);
	add_alloc(&r, 1, 0x200, 0x10, POOL_PTA);
	label(LABEL_ADDR, 5, "one", 0x100);
	add_free(&r, 2, 0x100, POOL_PTA);
	rowtext_feed(0, 7, &r);
	CHECK_STR(last_owner(), "PTA@one");
	add_free(&r, 2, 0x200, POOL_PTA);
	label(LABEL_ADDR, 3, "three", 0x200); /* gone */
	rowtext_feed(0, 7, &r);
	CHECK_STR(last_owner(), "");
	owner("PTA@both");
	done();
}

static void aten(uint64_t ns, uint64_t addr)
{
	char text[200];

	snprintf(text, sizeof(text),
		 "memscope-aten-ac:ptr=%llu;is_write=True;is_read=False;is_output=True;name=mm;"
		 "shape=torch.Size([1]);dtype=torch.float;tensor_size=4;device=npu:0",
		 (unsigned long long)addr);
	MARK_RECORD(&r, ns, MARK_INSTANT, 0, text);
}

/* What operators touch is theirs, if nobody else told. */
TEST(track_labels, operators)
{
	begin(DECOMPOSE);
	add_alloc(&r, 1, 0x1000, 0x1000, POOL_HAL);
	add_alloc(&r, 1, 0x1000, 0x10, POOL_PTA);
	add_alloc(&r, 1, 0x1100, 0x10, POOL_ATB);
	label(LABEL_PUSH, 4, "lora", 0);
	add_alloc(&r, 1, 0x1200, 0x10, POOL_PTA);
	label(LABEL_POP, 4, "lora", 0);
	aten(2, 0x1008);
	aten(2, 0x1008);
	aten(2, 0x1100);
	aten(2, 0x1200);
	aten(2, 0x1300);
	relabelled("0/100 #2 PTA@ops\n");
	label(LABEL_ADDR, 3, "gradient", 0x1000);
	relabelled("0/100 #2 PTA@gradient@ops\n");
	begin(PLAIN); /* nobody asked */
	add_alloc(&r, 1, 0x1000, 0x10, POOL_PTA);
	aten(2, 0x1008);
	relabelled("");
	done();
}

/* A thread that ended leaves its number, not its labels. */
TEST(track_labels, thread_numbers_are_reused)
{
	begin(PLAIN);
	label(LABEL_PUSH, 5, "first", 0);
	owner("PTA@first");
	RECORD(&r, REC_THREAD, rec_thread, 2, .tid = 7, .level = 1); /* for its signals */
	owner("PTA@first");
	RECORD(&r, REC_THREAD, rec_thread, 3, .tid = 7);
	owner("");
	label(LABEL_PUSH, 5, "second", 0);
	owner("PTA@second");
	done();
}

/* A stream that only pushes does not grow for ever. */
TEST(track_labels, bounds)
{
	begin(PLAIN);
	for (uint32_t tid = 1; tid < 70000; tid++) {
		label(LABEL_PUSH, 5, "x", 0);
		label(LABEL_POP, 5, "never pushed", 0);
		rowtext_feed(0, tid, &r);
	}
	owner_in(65536, POOL_PTA, "PTA@x");
	owner_in(65537, POOL_PTA, "");
	for (int i = 0; i < 10000; i++)
		label(LABEL_PUSH, 3, "deep", 0);
	owner("PTA@deep@x");
	for (int i = 0; i < 63; i++)
		label(LABEL_POP, 3, "deep", 0);
	owner("PTA@x");
	done();
}

/* Open twice, it counts once, until both are closed; a system's label of the same name is another.
 */
TEST(track_labels, open_twice)
{
	begin(PLAIN);
	label(LABEL_PUSH, 5, "mine", 0);
	label(LABEL_PUSH, 5, "mine", 0);
	label(LABEL_PUSH, 5, "yours", 0);
	label(LABEL_PUSH, 6, "mine", 0);
	label(LABEL_PUSH, 5, "third", 0);
	owner("PTA@mine@yours@third");
	label(LABEL_POP, 5, "mine", 0);
	label(LABEL_POP, 5, "mine", 0);
	owner("PTA@mine@yours@third");
	label(LABEL_POP, 5, "mine", 0);
	owner("PTA@yours@third");
	label(LABEL_PUSH, 3, "yours", 0);
	owner("PTA@yours@yours@third");
	done();
}

/* Labels reach blocks of every source; that of a pool comes before the one it was cut from. */
TEST(track_labels, sources)
{
	static const struct {
		uint8_t pool;
		const char *owner;
	} pools[] = {{POOL_HAL, "CANN@UNKNOWN@weight"},
		     {POOL_HOST, "HOST@weight"},
		     {POOL_PTA, "PTA@weight"},
		     {POOL_PTA_WORKSPACE, "PTA_WORKSPACE@weight"},
		     {POOL_MINDSPORE, "MINDSPORE@weight"},
		     {POOL_ATB, "ATB@weight"},
		     {POOL_TORCH, "TORCH@weight"},
		     {POOL_CUDA, "CUDA@torch@weight"}};
	char want[100];

	for (size_t i = 0; i < sizeof(pools) / sizeof(pools[0]); i++) {
		begin(DECOMPOSE_CPU);
		add_alloc(&r, 1, 0x1000, 0x1000, pools[i].pool);
		label(LABEL_ADDR, 3, "weight", 0x1fff);
		label(LABEL_ADDR, 3, "beyond", 0x2000);
		snprintf(want, sizeof(want), "0/100 #1 %s\n", pools[i].owner);
		relabelled(want);
	}
	begin(DECOMPOSE_CPU);
	add_alloc(&r, 1, 0x1000, 0x1000, POOL_HOST);
	add_alloc(&r, 1, 0x1000, 0x1000, POOL_CUDA);
	add_alloc(&r, 1, 0x1100, 0x10, POOL_TORCH);
	label(LABEL_ADDR, 3, "weight", 0x1108);
	relabelled("0/100 #3 TORCH@weight\n");
	label(LABEL_ADDR, 3, "", 0x1108); /* takes it back */
	relabelled("0/100 #3 TORCH\n");
	owner_in(7, POOL_HOST, ""); /* of host memory without labels nothing is told */
	done();
}

/* Told for another thread: its next allocations, not those of the one that tells. */
TEST(track_labels, for_another_thread)
{
	begin(PLAIN);
	label(LABEL_PUSH, 3, "backward", 9);
	owner("");
	owner_in(9, POOL_PTA, "PTA@backward");
	label(LABEL_PUSH, 3, "backward", 0);
	owner("PTA@backward");
	label(LABEL_POP, 3, "backward", 9);
	owner("PTA@backward");
	owner_in(9, POOL_PTA, "");
	done();
}

static void owner_then(uint64_t ns, const char *want)
{
	static uint64_t addr = 0x100000;

	rowtext_feed(0, 7, &r);
	buf_clear(&rowtext);
	add_alloc(&r, ns, addr += 16, 1, POOL_TORCH);
	rowtext_feed(0, 7, &r);
	CHECK_STR(last_owner(), want);
}

/* An allocation that is told late has the labels of its own time. */
TEST(track_labels, told_late)
{
	begin(PLAIN);
	label_at(10, LABEL_PUSH, 3, "activation", 0);
	label_at(20, LABEL_PUSH, 5, "mine", 0);
	label_at(30, LABEL_POP, 5, "mine", 0);
	label_at(40, LABEL_POP, 3, "activation", 0);
	label_at(40, LABEL_PUSH, 3, "backward", 0);
	label_at(50, LABEL_POP, 3, "backward", 0);
	owner_then(9, "");
	owner_then(10, "TORCH@activation");
	owner_then(25, "TORCH@activation@mine");
	owner_then(30, "TORCH@activation");
	owner_then(40, "TORCH@backward");
	owner_then(49, "TORCH@backward");
	owner_then(50, "");
	owner_then(5, "");
	for (uint64_t ns = 100; ns < 3000; ns++) { /* more than is remembered */
		label_at(ns, LABEL_PUSH, 3, ns % 2 ? "odd" : "even", 0);
		label_at(ns, LABEL_POP, 3, ns % 2 ? "odd" : "even", 0);
		label_at(ns, LABEL_PUSH, 4, ns % 2 ? "odd" : "even", 0);
		label_at(ns, LABEL_POP, 4, ns % 2 ? "even" : "odd", 0);
		rowtext_feed(0, 7, &r);
	}
	owner_then(2998, "TORCH@even");
	owner_then(2997, "TORCH@odd");
	owner_then(2500, "TORCH@even");
	owner_then(25, "");
	done();
}
