/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "memory/analysis/peak/peak.h"

#include "breakdown_rows.h"

#define FORWARD "/opt/job/train(forward+0x20) [0x55aa] /opt/job/src/train.c:120\n"
#define SETUP "/opt/job/train(make_model+0x10) [0x55ad]\n"

static const struct blk segment = BLK_INIT(TYPE_HAL, 1, 0x10000, 2000, "CANN@APP");
static const struct blk weight =
	BLK_INIT(TYPE_PTA, 2, 0x10000, 600, "PTA@weight", .reserved = 2000, .c_stack = SETUP);
static const struct blk second =
	BLK_INIT(TYPE_PTA, 3, 0x10400, 300, "PTA@ops", .reserved = 2000, .c_stack = FORWARD);
static const struct blk third =
	BLK_INIT(TYPE_PTA, 4, 0x10600, 250, "PTA@ops", .reserved = 2000, .c_stack = FORWARD);
static const struct blk hccl = BLK_INIT(TYPE_HAL, 5, 0x30000, 500, "CANN@HCCL");

static void usual(struct analysis *a)
{
	take(a, 0, segment);
	take(a, 1, weight);
	step_begins(a, 2, 1);
	take(a, 3, second);
	give(a, 4, second, NULL);
	step_ends(a, 5, 1);
	step_begins(a, 6, 2);
	take(a, 7, hccl);
	take(a, 8, (struct blk)second);
	take(a, 9, third);
	give(a, 11, third, NULL);
	give(a, 12, second, NULL);
	give(a, 13, hccl, NULL);
	step_ends(a, 14, 2);
	left(a, 15, weight);
	left(a, 15, segment);
}

TEST(peak, explained)
{
	struct analysis *a = peak_new(NULL);

	usual(a);
	CHECK_STR(answer_of(a),
		  "Device 0 peaked at 2.44 KiB 9.0 ms after the start, in step 2: 34 % free inside "
		  "the PTA pool, 24 % weights (PTA@weight), 22 % tensors of operators (PTA@ops), "
		  "20 % CANN@HCCL. The largest part from one place, 600 B in 1 block, comes from "
		  "make_model (train). The next highest moment, in step 1, was 500 B lower: "
		  "lowering this one alone gains no more.");
	json_t *o = a->ops->json(a, 10);
	CHECK_INT(NUM(o, "devices.0.peak_bytes"), 2500);
	CHECK_INT(NUM(o, "devices.0.bytes"), 2500);
	CHECK_INT(NUM(o, "devices.0.step"), 2);
	CHECK_INT(NUM(o, "devices.0.after_ns"), 9 * MS);
	CHECK_INT(NUM(o, "devices.0.allocated_in_pools_bytes"), 1150);
	CHECK_INT(NUM(o, "devices.0.free_in_pools_bytes"), 850);
	CHECK_INT(NUM(o, "devices.0.pools.1.reserved_bytes"), 2000);
	CHECK_INT(NUM(o, "devices.0.pools.1.blocks"), 3);
	CHECK_INT(NUM(o, "devices.0.next_highest.step"), 1);
	CHECK_INT(NUM(o, "devices.0.next_highest.driver_bytes"), 2000);
	CHECK_INT(NUM(o, "devices.0.next_highest.allocated_in_pools_bytes"), 900);
	CHECK_INT(NUM(o, "devices.0.places_total"), 3);
	CHECK_INT(NUM(o, "devices.0.places.0.bytes"), 600);
	CHECK_INT(NUM(o, "devices.0.places.1.bytes"), 550);
	CHECK_INT(NUM(o, "devices.0.places.1.blocks"), 2);
	CHECK_HAS(STR(o, "devices.0.places.1.where"), "forward");
	CHECK(json_is_null(at(o, "devices.0.places.2.where")));
	json_decref(o);
	CHECK_STR(owners_of(a, 0), "PTA free 850, PTA@weight 600, PTA@ops 550, CANN@HCCL 500");
	analysis_free(a);
}

TEST(peak, blocks_that_weigh_most)
{
	struct analysis *a = peak_new(NULL);
	struct analysis_style style = {.top = 3};
	struct buf b = {0};

	usual(a);
	json_t *o = a->ops->json(a, 10);
	CHECK_INT(NUM(o, "devices.0.blocks_total"), 4);
	CHECK_INT(NUM(o, "devices.0.blocks.0.bytes"), 600);
	CHECK_INT(NUM(o, "devices.0.blocks.0.age_ns"), 8 * MS);
	CHECK_INT(NUM(o, "devices.0.blocks.0.lived_on_ns"), 6 * MS);
	CHECK_STR(STR(o, "devices.0.blocks.0.end"), "left");
	CHECK_STR(STR(o, "devices.0.blocks.1.owner"), "CANN@HCCL");
	CHECK_INT(NUM(o, "devices.0.blocks.2.bytes"), 300);
	CHECK_INT(NUM(o, "devices.0.blocks.2.age_ns"), 1 * MS);
	CHECK_INT(NUM(o, "devices.0.blocks.2.lived_on_ns"), 3 * MS);
	CHECK_STR(STR(o, "devices.0.blocks.2.end"), "freed");
	CHECK_STR(STR(o, "devices.0.blocks.2.address"), "0x0000000000010400");
	CHECK_INT(NUM(o, "devices.0.blocks.3.age_ns"), 0);
	json_decref(o);
	a->ops->text(a, &style, &b);
	CHECK_HAS(buf_str(&b), "The 3 largest blocks\n");
	CHECK_HAS(buf_str(&b),
		  "600 B        8.0 ms     not freed  PTA@weight, make_model (train)\n");
	CHECK_HAS(buf_str(&b),
		  "300 B        1.0 ms        3.0 ms  PTA@ops, forward (train.c:120)\n");
	CHECK_HAS(buf_str(&b), "Freeing a block of a pool makes room inside the pool");
	CHECK_HAS(buf_str(&b),
		  "  PTA: 1.12 KiB in 3 blocks, 850 B free inside, 1.95 KiB reserved\n");
	buf_release(&b);
	analysis_free(a);
}

/* With the same driver memory in every step the pools tell steps apart. */
TEST(peak, next_highest)
{
	struct analysis *a = peak_new(NULL);

	take(a, 0, segment);
	step_begins(a, 1, 1);
	take(a, 2, weight);
	give(a, 3, weight, NULL);
	step_ends(a, 4, 1);
	step_begins(a, 5, 2);
	take(a, 6, second);
	take(a, 7, third);
	step_ends(a, 8, 2);
	CHECK_HAS(answer_of(a), "The next highest moment, in step 2, was 50 B lower inside the "
				"pools, with the same driver memory.");
	give(a, 9, second, NULL);
	step_begins(a, 10, 3);
	take(a, 11, BLK(TYPE_PTA, 9, 0x10000, 350, "PTA"));
	step_ends(a, 12, 3);
	CHECK_HAS(answer_of(a), "The next highest moment, in step 3, was as high.");
	analysis_free(a);
	a = peak_new(NULL); /* without steps nothing separates one peak from the next */
	take(a, 0, segment);
	CHECK_LACKS(answer_of(a), "next highest");
	json_t *o = a->ops->json(a, 10);
	CHECK(json_is_null(at(o, "devices.0.next_highest")));
	json_decref(o);
	CHECK_HAS(text_of(a), "No call stacks were recorded");
	analysis_free(a);
}

TEST(peak, limit)
{
	struct peak_options options = {.limit_bytes = 2499};
	struct analysis *a = peak_new(&options);
	struct analysis_style console = {.top = 10, .console = true};
	struct buf b = {0};

	usual(a);
	take(a, 16, BLK(TYPE_HOST, 90, 1, 1u << 30, NULL, .device = DEV_HOST));
	take(a, 16, BLK(TYPE_HAL, 91, 1, 100, "CANN@APP", .device = 1));
	CHECK_INT((long long)a->ops->findings(a), 2); /* of the device, and of the host */
	CHECK_HAS(answer_of(a), "That is 1 B above the limit of 2.44 KiB.");
	a->ops->text(a, &console, &b);
	CHECK_HAS(buf_str(&b), "That is 1 B above");
	CHECK_HAS(buf_str(&b), "Host memory");
	buf_clear(&b);
	analysis_free(a);
	options.limit_bytes = 2500;
	a = peak_new(&options);
	usual(a);
	CHECK_INT((long long)a->ops->findings(a), 0);
	a->ops->text(a, &console, &b);
	CHECK_INT((long long)b.len, 0);
	buf_release(&b);
	analysis_free(a);
}

TEST(peak, nothing)
{
	struct analysis *a = peak_new(NULL);

	CHECK_STR(answer_of(a), "No allocation of memory was recorded. ");
	CHECK_INT((long long)a->ops->findings(a), 0);
	json_t *o = a->ops->json(a, 10);
	CHECK_INT((long long)json_array_size(at(o, "devices")), 0);
	json_decref(o);
	CHECK(!a->ops->unordered(a));
	give(a, 5, weight, NULL); /* a free alone */
	take(a, 4, weight);
	CHECK(a->ops->unordered(a));
	CHECK_HAS(text_of(a), "not in the order of time");
	analysis_free(a);
}

/* Age is only a lower bound for what was there before the recording. */
TEST(peak, older_than_the_recording)
{
	struct analysis *a = peak_new(NULL);
	struct blk old = segment;

	old.shadow = true;
	take(a, 1, old);
	take(a, 3, weight);
	CHECK_HAS(text_of(a), "600 B           0 s     not freed  PTA@weight");
	json_t *o = a->ops->json(a, 10);
	CHECK(json_is_false(at(o, "devices.0.blocks.0.older_than_recording")));
	json_decref(o);
	analysis_free(a);
	a = peak_new(NULL);
	old.c_stack = NULL;
	take(a, 1, old);
	take(a, 3, hccl);
	CHECK_HAS(text_of(a), "1.95 KiB       >2.0 ms     not freed  CANN@APP\n");
	analysis_free(a);
}

TEST(peak, behind_the_last_call_of_a_step)
{
	struct analysis *a = peak_new(NULL);

	take(a, 1, segment);
	step_call(a, 2, "1");
	take(a, 3, hccl);
	give(a, 4, hccl, NULL);
	step_call(a, 5, "2");
	take(a, 6, weight);
	CHECK_HAS(answer_of(a), "in step 2");
	CHECK_HAS(answer_of(a), "The next highest moment, after step 2, was 500 B lower");
	take(a, 7, hccl);
	take(a, 8, BLK(TYPE_HAL, 9, 0x50000, 500, "CANN@HCCL"));
	CHECK_HAS(answer_of(a), ", after step 2: ");
	CHECK_HAS(answer_of(a), "The next highest moment, in step 2, was 500 B lower");
	json_t *o = a->ops->json(a, 10);
	CHECK_INT(NUM(o, "devices.0.step"), 2);
	CHECK(json_is_false(at(o, "devices.0.in_step")));
	json_decref(o);
	analysis_free(a);
}
