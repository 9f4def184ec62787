/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "memory/analysis/owners/owners.h"
#include "memory/analysis/peak/peak.h"

#include "breakdown_rows.h"

static struct analysis *make(const char *when)
{
	struct owners_at moment;

	CHECK_INT(owners_at_parse(when, strlen(when), &moment, NULL), 0);
	return owners_new(&moment);
}

/* A pool with two segments, one of them empty, and a module that takes memory itself. */
static const struct blk segment = BLK_INIT(TYPE_HAL, 1, 0x10000, 1000, "CANN@APP");
static const struct blk empty = BLK_INIT(TYPE_HAL, 2, 0x20000, 400, "CANN@APP");
static const struct blk hccl = BLK_INIT(TYPE_HAL, 3, 0x30000, 500, "CANN@HCCL");
static const struct blk weight =
	BLK_INIT(TYPE_PTA, 4, 0x10000, 300, "PTA@weight", .reserved = 1400);
static const struct blk ops = BLK_INIT(TYPE_PTA, 5, 0x10200, 200, "PTA@ops", .reserved = 1400);
static const struct blk brief = BLK_INIT(TYPE_PTA, 6, 0x20000, 100, "PTA@brief", .reserved = 1400);

static void usual(struct analysis *a)
{
	take(a, 1, segment);
	take(a, 2, empty);
	take(a, 3, weight);
	take(a, 4, brief);
	give(a, 5, brief, NULL);
	take(a, 6, ops);
	take(a, 7, hccl);
}

TEST(owners, adds_up)
{
	struct analysis *a = make("peak");

	usual(a);
	give(a, 8, hccl, NULL);
	CHECK_STR(owners_of(a, 0), "PTA free 900, PTA@weight 300, PTA@ops 200, CANN@HCCL 500");
	json_t *o = a->ops->json(a, 10);
	CHECK_INT(NUM(o, "devices.0.bytes"), 1900);
	CHECK_INT(NUM(o, "devices.0.driver_bytes"), 1900);
	CHECK_INT(NUM(o, "devices.0.allocated_in_pools_bytes"), 500);
	CHECK_INT(NUM(o, "devices.0.free_in_pools_bytes"), 900);
	CHECK_INT(NUM(o, "devices.0.outside_bytes"), 0);
	CHECK_INT(NUM(o, "devices.0.after_ns"), 6 * MS);
	CHECK_INT(NUM(o, "devices.0.owners.0.bytes"), 1400);
	CHECK_INT(NUM(o, "devices.0.owners.0.blocks"), 2);
	CHECK_INT(NUM(o, "devices.0.owners.1.bytes"), 500);
	CHECK(json_is_true(at(o, "has_owners")));
	json_decref(o);
	CHECK_STR(answer_of(a), "Device 0 held 1.86 KiB at its peak 6.0 ms after the start: 47 % "
				"free inside the PTA pool, 26 % CANN@HCCL, 16 % weights "
				"(PTA@weight), 11 % tensors of operators (PTA@ops).");
	CHECK_HAS(text_of(a), "\n      1.37 KiB   73.7 %          2  PTA\n"
			      "         900 B   47.4 %               free inside the pool\n"
			      "         300 B   15.8 %          1    weight\n");
	analysis_free(a);
}

TEST(owners, top_keeps_the_sum)
{
	struct analysis *a = make("peak");
	struct analysis_style style = {.top = 1};
	struct buf b = {0};

	usual(a);
	a->ops->text(a, &style, &b);
	CHECK_HAS(buf_str(&b), "500 B   26.3 %          2    2 more\n");
	CHECK_HAS(buf_str(&b), "500 B   26.3 %          1  1 more\n");
	buf_release(&b);
	json_t *o = a->ops->json(a, 1);
	CHECK_INT((long long)json_array_size(at(o, "devices.0.owners")), 1);
	CHECK_INT(NUM(o, "devices.0.owners_total"), 2);
	CHECK_INT(NUM(o, "devices.0.owners.0.below_total"), 3);
	json_decref(o);
	style.console = true;
	a->ops->text(a, &style, &b);
	CHECK_INT((long long)b.len, 0);
	CHECK_INT((long long)a->ops->findings(a), 0);
	analysis_free(a);
}

/* The pool reserved all it needs early: of equal heights that with the fullest pool is the peak. */
TEST(owners, fullest_pool_of_equal_heights)
{
	struct analysis *a = make("peak");
	struct blk big = BLK_INIT(TYPE_PTA, 9, 0x10000, 900, "PTA@big");

	take(a, 1, segment);
	take(a, 2, weight);
	give(a, 3, weight, NULL);
	take(a, 4, big);
	give(a, 5, big, NULL);
	take(a, 6, weight);
	CHECK_STR(owners_of(a, 0), "PTA@big 900, PTA free 100");
	analysis_free(a);
}

/* The optimizer names the weights when the peak is over. */
TEST(owners, label_after_the_peak)
{
	struct analysis *a = make("peak");
	struct blk plain = weight, left_over = ops, alive = brief;

	plain.owner = left_over.owner = alive.owner = "PTA";
	take(a, 1, segment);
	take(a, 2, plain);
	take(a, 3, left_over);
	take(a, 3, BLK(TYPE_PTA, 7, 0x10300, 50, "PTA"));
	give(a, 4, plain, "PTA@weight");
	left_over.owner = "PTA@gradient";
	left_over.shadow = true;
	put_row(a, ROW_FREE, 5, left_over);
	CHECK_STR(owners_of(a, 0), "PTA 50, PTA free 450, PTA@weight 300, PTA@gradient 200");
	CHECK_HAS(text_of(a), "50 B    5.0 %          1    no label\n");
	analysis_free(a);
}

TEST(owners, a_moment)
{
	static const struct {
		const char *when, *owners;
	} table[] = {
		{"+0ms", "PTA free 1000"},
		{"+1.5ms", "PTA free 1400"},
		{"+2ms", "PTA free 1100, PTA@weight 300"},
		{"+3999us", "PTA free 1000, PTA@weight 300, PTA@brief 100"},
		{"+0.005s", "PTA free 900, PTA@weight 300, PTA@ops 200"},
		{"+6ms", "PTA free 900, PTA@weight 300, PTA@ops 200, CANN@HCCL 500"},
		{"1767225600004000000", "PTA free 1000, PTA@weight 300, PTA@brief 100"},
		{"end", "PTA free 900, PTA@weight 300, PTA@ops 200, CANN@HCCL 500"},
	};

	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		struct analysis *a = make(table[i].when);
		usual(a);
		CHECK_INT(owners_reached(a, NULL), 0);
		CHECK_STR(owners_of(a, 0), table[i].owners);
		analysis_free(a);
	}
}

/* What is left at the end has made-up frees; one of before says that an address was reused. */
TEST(owners, the_end)
{
	struct analysis *a = make("end");
	struct blk again = BLK_INIT(TYPE_PTA, 8, 0x10000, 150, "PTA@again");

	usual(a);
	left(a, 8, weight);
	take(a, 8, again);
	CHECK_STR(owners_of(a, 0), "PTA free 1050, PTA@ops 200, PTA@again 150, CANN@HCCL 500");
	left(a, 9, segment);
	left(a, 9, empty);
	left(a, 9, again);
	left(a, 9, ops);
	left(a, 9, hccl);
	CHECK_STR(owners_of(a, 0), "PTA free 1050, PTA@ops 200, PTA@again 150, CANN@HCCL 500");
	CHECK_HAS(answer_of(a), "Device 0 held 1.86 KiB at the end: ");
	analysis_free(a);
	a = make("peak"); /* at the very row after the reuse */
	take(a, 1, segment);
	take(a, 2, weight);
	left(a, 3, weight);
	take(a, 3, BLK(TYPE_PTA, 8, 0x10000, 301, "PTA@again"));
	left(a, 4, segment);
	CHECK_STR(owners_of(a, 0), "PTA free 699, PTA@again 301");
	analysis_free(a);
}

static void two_steps(struct analysis *a)
{
	take(a, 1, segment);
	take(a, 1, weight);
	step_begins(a, 2, 1);
	take(a, 3, ops);
	give(a, 4, ops, NULL);
	step_ends(a, 5, 1);
	take(a, 6, BLK(TYPE_PTA, 20, 0x10200, 700, "PTA@between"));
	give(a, 7, BLK(TYPE_PTA, 20, 0x10200, 700, NULL), NULL);
	step_begins(a, 8, 2);
	give(a, 9, weight, "PTA@weight");
	take(a, 10, BLK(TYPE_PTA, 21, 0x10200, 10, "PTA@two"));
	step_ends(a, 11, 2);
	take(a, 12, BLK(TYPE_PTA, 22, 0x10300, 20, "PTA@after"));
}

TEST(owners, in_a_step)
{
	struct analysis *a = make("step:1");

	two_steps(a);
	CHECK_STR(owners_of(a, 0), "PTA free 500, PTA@weight 300, PTA@ops 200");
	CHECK_HAS(answer_of(a), " 2.0 ms after the start, in step 1: ");
	analysis_free(a);
	a = make("step:2"); /* which is highest when it begins */
	two_steps(a);
	CHECK_STR(owners_of(a, 0), "PTA free 700, PTA@weight 300");
	analysis_free(a);
	a = make("step:1"); /* steps by calls do not say that the first has begun */
	take(a, 1, segment);
	take(a, 2, ops);
	give(a, 3, ops, NULL);
	step_call(a, 4, "1");
	take(a, 5, weight);
	step_call(a, 6, "2");
	CHECK_INT(owners_reached(a, NULL), 0);
	CHECK_STR(owners_of(a, 0), "PTA free 800, PTA@ops 200");
	analysis_free(a);
}

static void not_there(const char *when, void (*rows)(struct analysis *a), const char *why)
{
	struct analysis *a = make(when);
	struct err err = {0};

	rows(a);
	CHECK(owners_reached(a, &err) < 0);
	CHECK_STR(err.text, why);
	analysis_free(a);
}

/* What follows the last call is no step. */
static void two_calls(struct analysis *a)
{
	take(a, 1, segment);
	step_call(a, 2, "1");
	take(a, 3, weight);
	step_call(a, 4, "2");
	take(a, 5, ops);
}

TEST(owners, moments_that_are_not_there)
{
	not_there("step:9", two_calls, "there is no step 9; the last one is 2");
	not_there("step:3", two_steps, "there is no step 3; the last one is 2");
	not_there("step:1", usual, "there are no steps in these rows");
	not_there("+1min", usual,
		  "no process has rows around that time; there are rows from 1767225600001000000 "
		  "to 1767225600007000000, that is from +0s to 6.0 ms later");
	not_there("1", usual,
		  "no process has rows around that time; there are rows from 1767225600001000000 "
		  "to 1767225600007000000, that is from +0s to 6.0 ms later");
	struct analysis *a = make("step:3"); /* nothing at all is no mistake of the question */
	CHECK_INT(owners_reached(a, NULL), 0);
	CHECK_STR(answer_of(a), "No allocation of memory was recorded. ");
	analysis_free(a);
}

TEST(owners, words_for_moments)
{
	static const char *const good[] = {"peak",    "end", "step:1", "+0s",	"+1ns", "+2us",
					   "+3.25ms", "+4s", "+5min",  "12345", "0"};
	static const char *const bad[] = {"",
					  "Peak",
					  "step:",
					  "step:0",
					  "step:-1",
					  "step:x",
					  "+",
					  "+s",
					  "+1",
					  "+1h",
					  "-1s",
					  "12a",
					  "+1.5.2s",
					  " 1",
					  "99999999999999999999",
					  "step:4294967295"};
	struct owners_at moment;
	struct err err = {0};

	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
		CHECK_INT(owners_at_parse(good[i], strlen(good[i]), &moment, NULL), 0);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		CHECK(owners_at_parse(bad[i], strlen(bad[i]), &moment, &err) < 0);
		CHECK_HAS(err.text, "accepted are peak, end");
	}
	CHECK_INT(owners_at_parse("+3.25ms", 7, &moment, NULL), 0);
	CHECK_INT((long long)moment.ns, 3250000);
}

/* Memory that one pool takes from another belongs to the inner one. */
TEST(owners, pools_inside_pools)
{
	struct analysis *a = make("peak");

	take(a, 1, segment);
	take(a, 2, BLK(TYPE_PTA, 5, 0x10000, 800, "PTA@ops"));
	take(a, 3, BLK(TYPE_ATB, 6, 0x10010, 100, "ATB"));
	take(a, 4, BLK(TYPE_ATB, 7, 0x10000 + 700, 100, "ATB"));
	CHECK_STR(owners_of(a, 0), "PTA@ops 600, PTA free 200, ATB 200");
	analysis_free(a);
}

/* Frees that were lost leave blocks that overlap: the newer ones count, and the sum is right. */
TEST(owners, overlaps)
{
	struct analysis *a = make("peak");

	take(a, 1, segment);
	take(a, 2, BLK(TYPE_PTA, 5, 0x10000, 100, "PTA@old"));
	take(a, 3, BLK(TYPE_PTA, 6, 0x10000 + 50, 100, "PTA@new"));
	take(a, 4, BLK(TYPE_PTA, 7, 0x10000 + 990, 100, "PTA@beyond"));
	take(a, 5, BLK(TYPE_HAL, 8, 0x10000 + 500, 1000, "CANN@APP"));
	CHECK_STR(owners_of(a, 0), "PTA free 1750, PTA@beyond 100, PTA@new 100, PTA@old 50");
	analysis_free(a);
}

/* Physical memory has a handle in place of an address, so blocks are found by their sizes. */
TEST(owners, created_memory)
{
	struct analysis *a = make("peak");

	take(a, 1, BLK(TYPE_HAL, 1, 7, 1000, "CANN@APP", .created = true));
	take(a, 2, BLK(TYPE_HAL, 2, 8, 600, "CANN@HCCL", .created = true));
	take(a, 3, BLK(TYPE_PTA, 3, 0x900000, 300, "PTA@weight", .reserved = 1000));
	CHECK_STR(owners_of(a, 0), "PTA free 700, PTA@weight 300, CANN@HCCL 600");
	analysis_free(a);
	a = make("peak"); /* the pool does not say how much it holds */
	take(a, 1, BLK(TYPE_HAL, 1, 7, 1000, "CANN@APP", .created = true));
	take(a, 3, BLK(TYPE_PTA, 3, 0x900000, 300, "PTA@weight"));
	CHECK_STR(owners_of(a, 0), "CANN@APP 700, PTA@weight 300");
	take(a, 4, BLK(TYPE_PTA, 4, 0x800000, 800, "PTA@ops")); /* more than there is */
	CHECK_STR(owners_of(a, 0), "PTA@ops 800, PTA@weight 300");
	CHECK_HAS(text_of(a), "100 B of this lie in no driver memory that was recorded");
	analysis_free(a);
}

TEST(owners, without_the_driver)
{
	struct analysis *a = make("peak");

	take(a, 1, weight);
	take(a, 2, ops);
	CHECK_STR(owners_of(a, 0), "PTA free 900, PTA@weight 300, PTA@ops 200");
	CHECK_HAS(text_of(a), "The driver's memory was not recorded");
	analysis_free(a);
}

TEST(owners, without_owners)
{
	struct analysis *a = make("peak");
	struct blk s = segment, w = weight, h = hccl;

	s.owner = w.owner = h.owner = NULL;
	take(a, 1, s);
	take(a, 2, w);
	take(a, 3, h);
	take(a, 3, BLK(TYPE_HOST, 9, 0x1, 70, NULL, .device = DEV_HOST));
	take(a, 3, BLK(TYPE_HOST, 10, 0x2, 30, "loader", .device = DEV_HOST));
	CHECK_STR(owners_of(a, 0), "PTA 300, PTA free 700, CANN 500");
	CHECK_STR(owners_of(a, 1), "HOST 70, loader 30");
	analysis_free(a);
	a = make("peak");
	take(a, 1, s);
	CHECK_HAS(text_of(a), "with --analysis=decompose to see modules");
	analysis_free(a);
}

/* Each process and device has its own moment. */
TEST(owners, processes_and_devices)
{
	struct analysis *a = make("+2ms");
	struct blk one = hccl, two = hccl, other = hccl;

	two.device = 1;
	two.id = 50;
	two.bytes = 600;
	other.pid = 11;
	other.bytes = 700;
	take(a, 1, one);
	take(a, 2, other);
	take(a, 3, two);
	give(a, 4, one, NULL);
	give(a, 9, other, NULL);
	CHECK_STR(owners_of(a, 0), "CANN@HCCL 700");
	CHECK_STR(owners_of(a, 1), "CANN@HCCL 600");
	CHECK_STR(owners_of(a, 2), "CANN@HCCL 500");
	CHECK_HAS(answer_of(a), "Device 0 of process 11 held 700 B 2.0 ms after the start: ");
	CHECK(!a->ops->unordered(a));
	other.pid = 12;
	take(a, 0, other); /* a file of another process that began earlier */
	CHECK(a->ops->unordered(a));
	analysis_free(a);
}

/* A process that calls exec() is another one with the same number. */
TEST(owners, one_pid_twice)
{
	struct analysis *a = make("+5ms");

	a->ops->process(a, 10, "first");
	take(a, 1, hccl);
	left(a, 3, hccl);
	a->ops->process(a, 10, "second");
	take(a, 4, segment);
	take(a, 9, weight);
	CHECK_STR(owners_of(a, 0), "PTA free 1000");
	analysis_free(a);
}

TEST(owners, strange_owners)
{
	struct analysis *a = make("peak");
	char deep[2000];
	uint64_t id = 1;
	static const char *const texts[] = {
		"@", "@@@", "PTA@@x", "@PTA@x@", "PTA@\xff\xfe", "PTA@new\nline", "PTA@a", "PTA"};

	memset(deep, '@', sizeof(deep));
	for (size_t i = 0; i < sizeof(deep); i += 2)
		deep[i] = 'a';
	deep[sizeof(deep) - 1] = '\0';
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++, id++)
		take(a, 1, BLK(TYPE_HAL, id, id * 0x1000, 10, texts[i]));
	take(a, 1, BLK(TYPE_HAL, id, id * 0x1000, 10, deep));
	take(a, 1, BLK(TYPE_HAL, id + 1, id * 0x1000, UINT64_MAX, "CANN@APP"));
	take(a, 1, BLK(TYPE_PTA, id + 2, UINT64_MAX - 5, UINT64_MAX, "PTA@x"));
	CHECK_HAS(text_of(a), "PTA");
	CHECK_LACKS(text_of(a), "new\nline");
	json_t *o = a->ops->json(a, 1000);
	CHECK(o);
	json_decref(o);
	analysis_free(a);
}

/* --- everything at once, against a count of single bytes --- */

#define SPACE 4096
#define SEGMENT 512
#define NOWNERS 5

struct model {
	struct blk segments[SPACE / SEGMENT];
	bool is_pool[SPACE / SEGMENT]; /* a pool has cut from it */
	struct blk live[64];
	size_t nlive;
	uint64_t driver, pool, next_id;
	/* at the peak */
	bool any;
	uint64_t peak_driver, peak_pool;
	uint64_t bytes[NOWNERS + 2]; /* of owners, free, other */
	struct blk peak_segments[SPACE / SEGMENT];
};

static const char *const model_owners[NOWNERS] = {"PTA@a", "PTA@b", "PTA@b@c", "PTA@d", "PTA"};

static void model_peak(struct model *m)
{
	if (m->any && (m->driver < m->peak_driver ||
		       (m->driver == m->peak_driver && m->pool <= m->peak_pool)))
		return;
	m->any = true;
	m->peak_driver = m->driver;
	m->peak_pool = m->pool;
	memset(m->bytes, 0, sizeof(m->bytes));
	for (size_t i = 0; i < m->nlive; i++)
		for (size_t k = 0; k < NOWNERS; k++)
			if (!strcmp(model_owners[k], m->live[i].owner))
				m->bytes[k] += m->live[i].bytes;
	memcpy(m->peak_segments, m->segments, sizeof(m->segments));
}

static bool model_is_free(const struct model *m, uint64_t from, uint64_t to)
{
	for (size_t i = 0; i < m->nlive; i++)
		if (from < m->live[i].ptr + m->live[i].bytes && m->live[i].ptr < to)
			return false;
	return true;
}

static void model_alloc(struct model *m, struct analysis *a, uint64_t ms)
{
	size_t s = (size_t)rand() % (SPACE / SEGMENT);
	uint64_t offset = (uint64_t)rand() % SEGMENT, bytes = 1 + (uint64_t)rand() % 100;

	if (!m->segments[s].bytes) {
		m->segments[s] = BLK(TYPE_HAL, ++m->next_id, s * SEGMENT, SEGMENT, "CANN@APP");
		m->is_pool[s] = false;
		m->driver += SEGMENT;
		take(a, ms, m->segments[s]);
	} else if (m->nlive < 64 && offset + bytes <= SEGMENT &&
		   model_is_free(m, s * SEGMENT + offset, s * SEGMENT + offset + bytes)) {
		struct blk b = BLK_INIT(TYPE_PTA, ++m->next_id, s * SEGMENT + offset, bytes,
					model_owners[rand() % NOWNERS]);
		m->live[m->nlive++] = b;
		m->is_pool[s] = true;
		m->pool += bytes;
		take(a, ms, b);
	}
	model_peak(m);
}

static void model_free(struct model *m, struct analysis *a, uint64_t ms)
{
	size_t s = (size_t)rand() % (SPACE / SEGMENT);

	if (m->segments[s].bytes && !m->is_pool[s]) {
		give(a, ms, m->segments[s], NULL);
		m->segments[s].bytes = 0;
		m->driver -= SEGMENT;
	} else if (m->nlive) {
		size_t i = (size_t)rand() % m->nlive;
		give(a, ms, m->live[i], NULL);
		m->pool -= m->live[i].bytes;
		m->live[i] = m->live[--m->nlive];
	}
}

TEST(owners, against_a_model)
{
	for (unsigned seed = 0; seed < 200; seed++) {
		struct analysis *a = make("peak");
		struct model m = {0};
		struct buf want = {0}, got = {0};
		uint64_t used = 0;

		srand(seed);
		for (uint64_t ms = 1; ms < 20 + seed; ms++) {
			if (rand() % 3)
				model_alloc(&m, a, ms);
			else
				model_free(&m, a, ms);
		}
		json_t *o = a->ops->json(a, 1000);
		CHECK_INT(NUM(o, "devices.0.driver_bytes"), (long long)m.peak_driver);
		CHECK_INT(NUM(o, "devices.0.bytes"), (long long)m.peak_driver);
		CHECK_INT(NUM(o, "devices.0.allocated_in_pools_bytes"), (long long)m.peak_pool);
		json_decref(o);
		const char *text = owners_of(a, 0);
		for (size_t k = 0; k < NOWNERS; k++) {
			buf_clear(&want);
			buf_clear(&got);
			buf_addf(&want, ", %s %llu,", model_owners[k],
				 (unsigned long long)m.bytes[k]);
			buf_addf(&got, ", %s,", text);
			if (m.bytes[k])
				CHECK_HAS(buf_str(&got), buf_str(&want));
			used += m.bytes[k];
		}
		CHECK_INT((long long)used, (long long)m.peak_pool);
		buf_release(&want);
		buf_release(&got);
		analysis_free(a);
	}
}

/* --- rows that nobody would write --- */

static uint64_t odd_number(void)
{
	static const uint64_t odd[] = {0,	  1, 2, 511, 512, 4096, 1ull << 40, UINT64_MAX - 7,
				       UINT64_MAX};
	uint64_t n = odd[(size_t)rand() % (sizeof(odd) / sizeof(odd[0]))];

	return rand() % 3 ? (uint64_t)rand() % 2048 : n;
}

static void nonsense(struct analysis *a)
{
	static const enum row_type types[] = {TYPE_HAL, TYPE_PTA, TYPE_ATB, TYPE_HOST, TYPE_END};
	static const char *const owners[] = {NULL, "", "@", "PTA@a@b@c", "CANN@HCCL", "\xff@\n"};
	struct blk b = BLK_INIT(types[rand() % 5], (uint64_t)rand() % 20, odd_number(),
				odd_number(), owners[rand() % 6], .reserved = odd_number(),
				.pid = 10 + (uint32_t)rand() % 2, .device = (uint32_t)rand() % 2,
				.shadow = rand() % 5 == 0, .created = rand() % 4 == 0);
	uint64_t ms = (uint64_t)rand() % 1000, range = (uint64_t)rand() % 4;

	switch (rand() % 8) {
	case 0:
		step_begins(a, ms, range);
		break;
	case 1:
		step_ends(a, ms, range);
		break;
	case 2:
		step_call(a, ms, rand() % 2 ? "3" : "x");
		break;
	case 3:
	case 4:
		give(a, ms, b, b.owner);
		break;
	default:
		take(a, ms, b);
	}
}

TEST(owners, nonsense)
{
	static const char *const moments[] = {"peak", "end", "step:1", "step:4", "+300ms", "+0s"};

	for (unsigned seed = 0; seed < 300; seed++) {
		struct analysis *a = seed % 7 ? make(moments[seed % 6]) : peak_new(NULL);

		srand(seed);
		for (unsigned i = 0; i < 200; i++) {
			nonsense(a);
			if (rand() % 50 == 0)
				text_of(a);
			if (rand() % 100 == 0)
				a->ops->process(a, 10, "again");
		}
		json_t *o = a->ops->json(a, (unsigned)rand() % 5);
		CHECK(o);
		json_decref(o);
		text_of(a);
		analysis_free(a);
	}
}

TEST(owners, what_operators_used_is_what_it_is)
{
	struct analysis *a = make("end");

	take(a, 0, BLK(TYPE_HOST, 1, 0x10000, 400, "HOST@activation@ops"));
	take(a, 1, BLK(TYPE_HOST, 2, 0x20000, 100, "HOST@activation"));
	take(a, 2, BLK(TYPE_HOST, 3, 0x30000, 300, "HOST@backward@ops"));
	take(a, 3, BLK(TYPE_HOST, 4, 0x40000, 120, "HOST@optimizer_state@ops"));
	take(a, 4, BLK(TYPE_HOST, 5, 0x50000, 80, "HOST@ops"));
	CHECK_HAS(answer_of(a),
		  ": 50 % activations (HOST@activation), 30 % what backward allocated "
		  "(HOST@backward), 12 % optimizer states (HOST@optimizer_state), 8 % tensors of "
		  "operators (HOST@ops).");
	CHECK_HAS(text_of(a), "         500 B   50.0 %          2    activation\n"
			      "         400 B   40.0 %          1      ops\n"
			      "         100 B   10.0 %          1      no label\n"
			      "         300 B   30.0 %          1    backward\n"
			      "         120 B   12.0 %          1    optimizer_state\n"
			      "          80 B    8.0 %          1    ops\n");
	analysis_free(a);
}

TEST(owners, a_line_that_says_nothing_more_is_left_out)
{
	struct analysis *a = make("end");

	take(a, 0, BLK(TYPE_PTA, 1, 0x10000, 400, "PTA@weight@ops@mine"));
	CHECK_HAS(text_of(a), "         400 B  100.0 %          1  PTA\n"
			      "         400 B  100.0 %          1    weight\n"
			      "         400 B  100.0 %          1      mine\n");
	json_t *o = a->ops->json(a, 10); /* programs get it all */
	CHECK_STR(json_string_value(at(o, "devices.0.owners.0.below.0.below.0.owner")),
		  "PTA@weight@ops");
	json_decref(o);
	analysis_free(a);
}
