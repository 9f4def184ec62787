/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Why memory ran out: rows in, verdicts out. */
#include "memory/analysis/oom/oom.h"

#include "test.h"
#include "wire/record.h"

#include <stdint.h>

#define T0 1767225600000000000u
#define MS 1000000u
#define MIB (1u << 20)

#define STACK(function) "/opt/job/train(" function "+0x20) [0x55aa] train.c:12\n"

static struct analysis *a;
static uint64_t next_id, now_ms;
static json_t *answer;

static void begin(void)
{
	if (a)
		analysis_free(a);
	a = oom_new();
	next_id = 1;
	now_ms = 0;
}

static struct row row_of(enum row_event event, enum row_type type)
{
	return (struct row){
		.event = event, .type = type, .pid = 10, .tid = 11, .time_ns = T0 + now_ms++ * MS};
}

static void put(struct row *r, const char *stack)
{
	r->c_stack = stack;
	r->c_stack_len = stack ? strlen(stack) : 0;
	a->ops->row(a, r);
}

/* What others hold, in all rows from here on; UINT64_MAX: not known. */
static uint64_t others = UINT64_MAX;

static void block(enum row_event event, enum row_type type, uint64_t id, uint64_t ptr,
		  uint64_t bytes, const char *stack)
{
	struct row r = row_of(event, type);

	r.has_ptr = true;
	r.ptr = ptr;
	row_attr_number(&r, ATTR_ALLOCATION_ID, id);
	row_attr_number(&r, ATTR_SIZE, bytes);
	if (others != UINT64_MAX) {
		row_attr_number(&r, ATTR_PROCESS_USED, 1);
		row_attr_number(&r, ATTR_DEVICE_USED, others + 1);
	}
	put(&r, stack);
}

static uint64_t take(enum row_type type, uint64_t ptr, uint64_t bytes, const char *stack)
{
	block(ROW_MALLOC, type, next_id, ptr, bytes, stack);
	return next_id++;
}

static void give(enum row_type type, uint64_t id, uint64_t ptr, uint64_t bytes)
{
	block(ROW_FREE, type, id, ptr, bytes, NULL);
}

static void refuse(uint64_t bytes)
{
	struct row r = row_of(ROW_OOM_DETAIL, TYPE_OOM_TRIGGER);

	row_attr_text(&r, ATTR_FUNC, "halMemAlloc", 11);
	row_attr_number(&r, ATTR_REQ_SIZE, bytes);
	row_attr_number(&r, ATTR_FLAG, 6);
	put(&r, STACK("ask"));
}

static void snapshot(uint64_t total, uint64_t unused)
{
	struct row r = row_of(ROW_SNAPSHOT, TYPE_SNAPSHOT);

	row_attr_number(&r, ATTR_TOTAL_MEM, total);
	row_attr_number(&r, ATTR_FREE_MEM, unused);
	put(&r, NULL);
}

static void step(unsigned n)
{
	struct row r = row_of(ROW_SYSTEM, TYPE_STEP);
	char name[16];

	r.name_len = (size_t)snprintf(name, sizeof(name), "%u", n);
	r.name = name;
	put(&r, NULL);
}

static json_t *get(const char *path)
{
	char copy[128], *save = NULL;
	json_t *o = answer;

	snprintf(copy, sizeof(copy), "%s", path);
	for (char *k = strtok_r(copy, ".", &save); k && o; k = strtok_r(NULL, ".", &save))
		o = json_is_array(o) ? json_array_get(o, (size_t)atoi(k)) : json_object_get(o, k);
	if (!o) {
		fprintf(stderr, "no '%s'\n", path);
		exit(1);
	}
	return o;
}

#define NUM(path) json_integer_value(get(path))
#define STR(path) json_string_value(get(path))

static void ask(void)
{
	json_decref(answer);
	answer = a->ops->json(a, 3);
	CHECK(answer);
}

static const char *text(void)
{
	static struct buf b;
	struct analysis_style style = {.top = 5};

	buf_clear(&b);
	a->ops->text(a, &style, &b);
	return buf_str(&b);
}

static void end(void)
{
	analysis_free(a);
	a = NULL;
	json_decref(answer);
	answer = NULL;
}

static void check_verdict(const char *want)
{
	ask();
	CHECK_STR(STR("incidents.0.verdict"), want);
	CHECK_INT(json_array_size(get("incidents")), 1);
	CHECK_INT(a->ops->findings(a), 1);
	CHECK(strstr(text(), want));
}

TEST(oom, nothing_was_refused)
{
	begin();
	take(TYPE_HAL, MIB, MIB, NULL);
	ask();
	CHECK_INT(NUM("requests"), 0);
	CHECK_INT(json_array_size(get("incidents")), 0);
	CHECK_INT(a->ops->findings(a), 0);
	CHECK(strstr(text(), "No request for memory was refused"));
	struct analysis_style console = {.top = 5, .console = true};
	struct buf b = {0};
	a->ops->text(a, &console, &b);
	CHECK_INT(b.len, 0);
	end();
}

TEST(oom, exhaustion)
{
	begin();
	others = 4 * MIB;
	take(TYPE_HAL, MIB, 90 * MIB, STACK("load"));
	snapshot(100 * MIB, 6 * MIB);
	refuse(16 * MIB);
	check_verdict("real exhaustion");
	CHECK_INT(NUM("incidents.0.requested_bytes"), 16 * MIB);
	CHECK_STR(STR("incidents.0.function"), "halMemAlloc");
	CHECK_STR(STR("incidents.0.where"), "ask (train.c:12)");
	CHECK_INT(NUM("incidents.0.device_memory.total_bytes"), 100 * MIB);
	CHECK_INT(NUM("incidents.0.device_memory.process_bytes"), 90 * MIB);
	CHECK_INT(NUM("incidents.0.device_memory.others_bytes"), 4 * MIB);
	CHECK_INT(NUM("incidents.0.device_memory.free_bytes"), 6 * MIB);
	CHECK(json_is_false(get("incidents.0.own_view_only")));
	CHECK_STR(STR("incidents.0.largest.0.where"), "load (train.c:12)");
	end();
}

TEST(oom, without_samples_it_is_the_own_view)
{
	begin();
	take(TYPE_HAL, MIB, 90 * MIB, NULL);
	refuse(16 * MIB);
	check_verdict("real exhaustion");
	CHECK(json_is_true(get("incidents.0.own_view_only")));
	CHECK(json_is_null(get("incidents.0.device_memory.total_bytes")));
	CHECK(strstr(STR("incidents.0.reason"), "this process' view only"));
	end();
}

TEST(oom, more_than_the_device_has)
{
	begin();
	others = 90 * MIB;
	take(TYPE_HAL, MIB, MIB, NULL);
	snapshot(100 * MIB, 9 * MIB);
	refuse(200 * MIB);
	check_verdict("oversized request");
	CHECK(!strncmp(text(), "Device memory was refused once: oversized request.", 50));
	CHECK(strstr(STR("incidents.0.reason"), "has 100.00 MiB in all"));
	end();
}

TEST(oom, other_process)
{
	begin();
	others = 60 * MIB;
	take(TYPE_HAL, MIB, 38 * MIB, NULL);
	snapshot(100 * MIB, 2 * MIB);
	refuse(16 * MIB);
	check_verdict("other process");
	/* A little of others is the driver's own. */
	begin();
	others = 10 * MIB;
	take(TYPE_HAL, MIB, 88 * MIB, NULL);
	snapshot(100 * MIB, 2 * MIB);
	refuse(11 * MIB);
	check_verdict("real exhaustion");
	/* Without them it would not have fitted either. */
	begin();
	others = 20 * MIB;
	take(TYPE_HAL, MIB, 78 * MIB, NULL);
	snapshot(100 * MIB, 2 * MIB);
	refuse(30 * MIB);
	check_verdict("real exhaustion");
	end();
}

/* What others hold may come with a row after the request, or with the snapshot. */
TEST(oom, others_are_told_later)
{
	begin();
	uint64_t id = take(TYPE_HAL, MIB, 38 * MIB, NULL);
	refuse(16 * MIB);
	others = 60 * MIB;
	give(TYPE_HAL, id, MIB, 38 * MIB);
	check_verdict("other process");
	others = UINT64_MAX;
	begin();
	take(TYPE_HAL, MIB, 38 * MIB, NULL);
	refuse(16 * MIB);
	snapshot(100 * MIB, 2 * MIB);
	check_verdict("other process");
	CHECK_INT(NUM("incidents.0.device_memory.others_bytes"), 60 * MIB);
	end();
}

/* Blocks of one MiB, every second one free: [. x . x . x] in two segments, a third one is full. */
static void fragments(void)
{
	begin();
	for (unsigned s = 0; s < 3; s++)
		take(TYPE_HAL, (100 + 20 * s) * MIB, 10 * MIB, NULL);
	for (unsigned i = 0; i < 10; i++) {
		if (i % 2)
			take(TYPE_PTA, (100 + i) * MIB, MIB, NULL);
		if (i % 2 == 0)
			take(TYPE_PTA, (120 + i) * MIB, MIB, NULL);
	}
	take(TYPE_PTA, 140 * MIB, 10 * MIB, NULL);
}

TEST(oom, fragmentation)
{
	fragments();
	refuse(8 * MIB);
	check_verdict("fragmentation");
	CHECK_STR(STR("incidents.0.pools.0.pool"), "PTA");
	CHECK_INT(NUM("incidents.0.pools.0.reserved_bytes"), 30 * MIB);
	CHECK_INT(NUM("incidents.0.pools.0.allocated_bytes"), 20 * MIB);
	CHECK_INT(NUM("incidents.0.pools.0.blocks"), 11);
	CHECK_INT(NUM("incidents.0.pools.0.free_bytes"), 10 * MIB);
	CHECK_INT(NUM("incidents.0.pools.0.free_pieces"), 10);
	CHECK_INT(NUM("incidents.0.pools.0.largest_free_bytes"), MIB);
	/* Segments are not listed beside what is in them. */
	CHECK_STR(STR("incidents.0.largest.0.pool"), "PTA");
	CHECK_INT(NUM("incidents.0.largest.0.bytes"), 10 * MIB);
	CHECK_INT(NUM("incidents.0.largest.1.bytes"), MIB);
	/* More than is free in all is not fragmentation. */
	fragments();
	refuse(11 * MIB);
	check_verdict("real exhaustion");
	end();
}

TEST(oom, fragmentation_of_the_device)
{
	begin();
	others = 0;
	take(TYPE_HAL, MIB, 60 * MIB, NULL);
	snapshot(100 * MIB, 40 * MIB);
	refuse(16 * MIB);
	check_verdict("fragmentation");
	others = UINT64_MAX;
	end();
}

/* A buffer per step that nobody frees; the others are freed in their step. */
static void steps(unsigned n, unsigned first_leak, unsigned last_leak)
{
	begin();
	take(TYPE_HAL, 100 * MIB, 100 * MIB, NULL);
	for (unsigned s = 1; s <= n; s++) {
		if (s > 1)
			step(s - 1); /* ends it */
		uint64_t id = take(TYPE_PTA, 199 * MIB, MIB, STACK("forward"));
		if (s >= first_leak && s <= last_leak)
			take(TYPE_PTA, (100 + s) * MIB, MIB, STACK("keep"));
		give(TYPE_PTA, id, 199 * MIB, MIB);
	}
}

TEST(oom, leak)
{
	steps(10, 1, 10);
	refuse(7 * MIB);
	check_verdict("leak");
	CHECK_INT(NUM("incidents.0.leak.bytes"), 7 * MIB); /* steps 2 to 8 */
	CHECK_INT(NUM("incidents.0.leak.blocks"), 7);
	CHECK_INT(NUM("incidents.0.leak.places"), 1);
	CHECK_INT(NUM("incidents.0.leak.first_step"), 2);
	CHECK_INT(NUM("incidents.0.leak.last_step"), 8);
	CHECK_STR(STR("incidents.0.leak.where"), "keep (train.c:12)");
	CHECK(strstr(STR("incidents.0.reason"), "keep (train.c:12)"));
	/* Too little to explain it. */
	steps(10, 1, 10);
	refuse(93 * MIB);
	check_verdict("real exhaustion");
	/* Two steps are no growth. */
	steps(10, 2, 3);
	refuse(MIB);
	ask();
	CHECK_INT(NUM("incidents.0.leak.bytes"), 0);
	end();
}

/* The framework gives back what it cached and asks again. */
TEST(oom, granted_in_the_end)
{
	begin();
	uint64_t id = take(TYPE_HAL, MIB, 10 * MIB, NULL);
	refuse(16 * MIB);
	give(TYPE_HAL, id, MIB, 10 * MIB);
	take(TYPE_HAL, MIB, 16 * MIB, NULL);
	ask();
	CHECK(json_is_true(get("incidents.0.granted_later")));
	CHECK_INT(a->ops->findings(a), 0);
	CHECK(strstr(text(), "came close"));
	/* Something else came first: it was not. */
	begin();
	refuse(16 * MIB);
	take(TYPE_HAL, MIB, MIB, NULL);
	take(TYPE_HAL, 10 * MIB, 16 * MIB, NULL);
	ask();
	CHECK(json_is_false(get("incidents.0.granted_later")));
	CHECK_INT(a->ops->findings(a), 1);
	end();
}

TEST(oom, what_is_one_incident)
{
	begin();
	refuse(16 * MIB);
	now_ms += 1900;
	refuse(16 * MIB); /* again */
	refuse(8 * MIB); /* something else */
	now_ms += 2100;
	refuse(8 * MIB); /* much later */
	ask();
	CHECK_INT(NUM("requests"), 4);
	CHECK_INT(json_array_size(get("incidents")), 3);
	CHECK_INT(NUM("incidents.0.count"), 2);
	CHECK_INT(a->ops->findings(a), 3);
	for (unsigned i = 0; i < 1000; i++)
		refuse(i);
	ask();
	CHECK_INT(json_array_size(get("incidents")), 200);
	CHECK_INT(a->ops->findings(a), 1003);
	end();
}

/* A dump without MALLOC rows still lists blocks. */
TEST(oom, from_the_listed_blocks)
{
	struct row r;

	begin();
	refuse(16 * MIB);
	for (unsigned i = 0; i < 4; i++) {
		r = row_of(ROW_OOM_DETAIL, i < 2 ? TYPE_OOM_RECENT_ALLOC : TYPE_OOM_TOP_ALLOC);
		r.time_ns = T0; /* as the request */
		row_attr_text(&r, ATTR_POOL, "MINDSPORE", 9);
		r.attrs[r.nattrs++] = (struct attr){.key = ATTR_PTR, .kind = ATTR_HEX, .number = 1};
		row_attr_number(&r, ATTR_SIZE, (i + 1) * MIB);
		row_attr_number(&r, ATTR_TIMESTAMP, T0 - i);
		put(&r, STACK("load"));
	}
	ask();
	CHECK_INT(json_array_size(get("incidents.0.largest")), 2);
	CHECK_INT(json_array_size(get("incidents.0.recent")), 2);
	CHECK_STR(STR("incidents.0.largest.0.pool"), "MindSpore");
	CHECK_STR(STR("incidents.0.largest.0.where"), "load (train.c:12)");
	CHECK_INT(NUM("incidents.0.largest.0.bytes"), 4 * MIB);
	CHECK(json_is_null(get("incidents.0.device_memory.process_bytes")));
	CHECK(strstr(text(), "Largest blocks:"));
	end();
}

/* Foreign numbers: overlapping blocks, ends beyond the address space. */
TEST(oom, nonsense_does_no_harm)
{
	begin();
	take(TYPE_HAL, UINT64_MAX - 5, UINT64_MAX, NULL);
	take(TYPE_HAL, 0, UINT64_MAX, NULL);
	take(TYPE_PTA, 0, UINT64_MAX, NULL);
	take(TYPE_PTA, 1, UINT64_MAX, NULL);
	take(TYPE_PTA, UINT64_MAX, UINT64_MAX, NULL);
	take(TYPE_PTA, UINT64_MAX, 0, NULL);
	snapshot(UINT64_MAX, UINT64_MAX);
	snapshot(0, 0);
	refuse(UINT64_MAX);
	refuse(0);
	ask();
	CHECK_INT(json_array_size(get("incidents")), 2);
	CHECK(strlen(text()) > 0);
	end();
}
