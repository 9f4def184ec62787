/* SPDX-License-Identifier: MulanPSL-2.0 */
/* The table of blocks that analyses stand on. */
#include "memory/analysis/common/blocks.h"
#include "test.h"
#include "wire/record.h"

#define PID 10

static uint64_t clock_ns, next_id;

static struct row row_of(enum row_event event, enum row_type type)
{
	return (struct row){.event = event,
			    .type = type,
			    .pid = PID,
			    .tid = PID,
			    .id = next_id++,
			    .time_ns = ++clock_ns};
}

static struct row block_row(enum row_event event, uint64_t id, uint64_t bytes, bool shadow)
{
	struct row r = row_of(event, TYPE_PTA);

	r.has_ptr = true;
	r.ptr = 0x1000 * id;
	row_attr_number(&r, ATTR_ALLOCATION_ID, id);
	row_attr_number(&r, ATTR_SIZE, bytes);
	if (shadow)
		row_attr_text(&r, ATTR_SHADOW, "true", 4);
	return r;
}

static struct block_change put(struct blocks *b, struct row r)
{
	struct block_change c;

	blocks_add(b, &r, &c);
	return c;
}

static struct block_change mark(struct blocks *b, enum row_type type, const char *name,
				uint64_t range)
{
	struct row r = row_of(ROW_MSTX, type);

	r.name = name;
	r.name_len = strlen(name);
	r.range = range;
	return put(b, r);
}

static struct block_change call_step(struct blocks *b, const char *number)
{
	struct row r = row_of(ROW_SYSTEM, TYPE_STEP);

	r.name = number;
	r.name_len = strlen(number);
	return put(b, r);
}

static uint64_t sum_of(struct block_walk w)
{
	uint64_t sum = 0;

	for (const struct block *block; (block = blocks_next(&w));)
		sum += block->bytes;
	return sum;
}

static uint64_t sum_alive(struct blocks *b)
{
	return sum_of((struct block_walk){.blocks = b});
}

static uint64_t sum_held(struct blocks *b, struct block_device *d)
{
	return sum_of((struct block_walk){.blocks = b, .held = d});
}

TEST(blocks, a_block_lives_and_ends)
{
	struct blocks *b = blocks_new();
	struct block_change c = put(b, block_row(ROW_MALLOC, 1, 100, false));

	CHECK_INT(c.what, BLOCKS_ALLOC);
	CHECK_INT(c.block->bytes, 100);
	CHECK_INT(c.pool->live_bytes, 100);
	CHECK_INT(c.pool->device->pool_bytes, 100);
	struct block *first = c.block;
	c = put(b, block_row(ROW_FREE, 1, 100, false));
	CHECK_INT(c.what, BLOCKS_FREE);
	CHECK(c.block == first);
	CHECK_INT(c.pool->live_blocks, 0);
	c = put(b, block_row(ROW_FREE, 1, 100, false));
	CHECK(!c.block);
	CHECK_INT(c.pool->unmatched_frees, 1);
	CHECK_INT(sum_alive(b), 0);
	blocks_free(b);
}

TEST(blocks, without_an_id_the_address_tells)
{
	struct blocks *b = blocks_new();
	struct row r = row_of(ROW_MALLOC, TYPE_HAL);

	r.has_ptr = true;
	r.ptr = 0x5000;
	row_attr_number(&r, ATTR_SIZE, 7);
	put(b, r);
	r.ptr = 0x6000;
	put(b, r);
	r.event = ROW_FREE;
	r.ptr = 0x5000;
	struct block_change c = put(b, r);
	CHECK(c.block && c.block->ptr == 0x5000);
	CHECK_INT(sum_alive(b), 7);
	blocks_free(b);
}

TEST(blocks, left_blocks_stay_until_their_pool_goes_on)
{
	struct blocks *b = blocks_new();

	put(b, block_row(ROW_MALLOC, 1, 100, false));
	put(b, block_row(ROW_MALLOC, 2, 10, false));
	struct block_change c = put(b, block_row(ROW_FREE, 1, 100, true));
	CHECK_INT(c.what, BLOCKS_LEFT);
	CHECK_INT(c.block->state, BLOCK_LEFT);
	CHECK_INT(sum_alive(b), 110);
	c = put(b, block_row(ROW_MALLOC, 3, 1, false));
	CHECK_INT(sum_alive(b), 11);
	CHECK_INT(c.pool->live_bytes, 11);
	/* The same id again, while the former one is left. */
	put(b, block_row(ROW_FREE, 3, 1, true));
	put(b, block_row(ROW_MALLOC, 3, 2, true));
	CHECK_INT(sum_alive(b), 12);
	put(b, block_row(ROW_MALLOC, 4, 4, false));
	CHECK_INT(sum_alive(b), 16);
	blocks_free(b);
}

TEST(blocks, held_blocks_can_be_seen_after_their_end)
{
	struct blocks *b = blocks_new();
	struct block_change c = put(b, block_row(ROW_MALLOC, 1, 100, false));
	struct block_device *d = c.pool->device;

	put(b, block_row(ROW_MALLOC, 2, 20, false));
	blocks_hold(b, d);
	put(b, block_row(ROW_MALLOC, 3, 3, false));
	put(b, block_row(ROW_FREE, 1, 100, false));
	put(b, block_row(ROW_FREE, 3, 3, false));
	for (uint64_t i = 100; i < 2000; i++) { /* what comes and goes takes nobody's place */
		put(b, block_row(ROW_MALLOC, i, 1, false));
		put(b, block_row(ROW_FREE, i, 1, false));
	}
	CHECK_INT(sum_held(b, d), 120);
	CHECK_INT(sum_alive(b), 20);
	blocks_hold(b, d);
	CHECK_INT(sum_held(b, d), 20);
	blocks_free(b);
}

TEST(blocks, steps_by_ranges_whose_ids_are_known)
{
	struct blocks *b = blocks_new();
	struct block_change c = mark(b, TYPE_RANGE_START, "step start", 5);

	CHECK_INT(c.step_begun, 1);
	CHECK_INT(mark(b, TYPE_RANGE_START, "inner", 6).step_begun, 0);
	CHECK_INT(mark(b, TYPE_RANGE_END, "Range end from id 6", 6).step_ended, 0);
	CHECK_INT(put(b, block_row(ROW_MALLOC, 1, 1, false)).block->step, 1);
	CHECK_INT(mark(b, TYPE_RANGE_END, "Range end from id 5", 5).step_ended, 1);
	CHECK(!c.process->in_step);
	c = mark(b, TYPE_RANGE_START, "\"step start\"", 7);
	CHECK_INT(c.step_begun, 2);
	CHECK_INT(c.step_ended, 0);
	c = mark(b, TYPE_RANGE_START, "step start", 8); /* the end of step 2 was not seen */
	CHECK_INT(c.step_ended, 2);
	CHECK_INT(c.step_begun, 3);
	CHECK_INT(call_step(b, "9").step_ended, 0); /* the first source wins */
	blocks_free(b);
}

/* As rows of a file tell it: the id stands at the end alone, and the first ranges are missing. */
TEST(blocks, steps_by_ranges_of_a_dump)
{
	struct blocks *b = blocks_new();
	uint64_t id = 40;

	for (uint32_t step = 1; step < 5; step++) {
		CHECK_INT(mark(b, TYPE_RANGE_START, "step start", 0).step_begun, step);
		uint64_t outer = id++;
		mark(b, TYPE_RANGE_START, "inner", 0);
		uint64_t inner = id++;
		CHECK_INT(mark(b, TYPE_RANGE_END, "", inner).step_ended, 0);
		CHECK_INT(mark(b, TYPE_RANGE_END, "", outer).step_ended, step);
	}
	blocks_free(b);
}

TEST(blocks, steps_by_calls)
{
	struct blocks *b = blocks_new();

	put(b, block_row(ROW_MALLOC, 1, 1, false));
	struct block_change c = call_step(b, "1");
	CHECK_INT(c.step_ended, 1);
	CHECK_INT(c.step_begun, 2);
	CHECK_INT(put(b, block_row(ROW_MALLOC, 2, 1, false)).block->step, 2);
	c = call_step(b, "2");
	CHECK_INT(c.step_ended, 2);
	CHECK_INT(mark(b, TYPE_RANGE_START, "step start", 1).step_begun, 0);
	blocks_free(b);
}

static struct block_change detect_step(struct blocks *b, enum rec_step_source source,
				       const char *name)
{
	struct row r = row_of(ROW_SYSTEM, TYPE_STEP);

	r.name = name;
	r.name_len = strlen(name);
	r.hidden = true;
	r.range = source;
	return put(b, r);
}

TEST(blocks, detected_steps)
{
	struct blocks *b = blocks_new();
	struct block *first = put(b, block_row(ROW_MALLOC, 1, 1, false)).block;
	struct block_change c = detect_step(b, STEP_FORWARD, "1 Net");

	CHECK(c.step_ended == 1 && c.step_begun == 2 && !c.steps_anew);
	CHECK_INT(c.process->steps_by, STEPS_BY_FORWARD);
	CHECK_STR(c.process->step_name, "Net");
	struct block *second = put(b, block_row(ROW_MALLOC, 2, 1, false)).block;
	CHECK_INT(detect_step(b, STEP_FORWARD, "2 Net").step_ended, 2);
	CHECK_INT(second->step, 2);
	/* Training begins: that was no inference. */
	c = detect_step(b, STEP_OPTIMIZER, "1 SGD");
	CHECK(c.step_ended == 1 && c.step_begun == 2 && c.steps_anew);
	CHECK(first->step == 0 && second->step == 0);
	CHECK_STR(c.process->step_name, "SGD");
	c = detect_step(b, STEP_OPTIMIZER, "2 SGD");
	CHECK(c.step_ended == 2 && !c.steps_anew);
	/* The pattern of its optimizers is another one. */
	CHECK(detect_step(b, STEP_OPTIMIZER, "1 SGD").steps_anew);
	blocks_free(b);
}

TEST(blocks, steps_of_the_program_count)
{
	for (unsigned range = 0; range < 2; range++) {
		struct blocks *b = blocks_new();

		detect_step(b, STEP_OPTIMIZER, "1 ");
		detect_step(b, STEP_OPTIMIZER, "2 ");
		struct block *block = put(b, block_row(ROW_MALLOC, 1, 1, false)).block;
		CHECK_INT(block->step, 3);
		struct block_change c =
			range ? mark(b, TYPE_RANGE_START, "step start", 1) : call_step(b, "1");
		CHECK(c.steps_anew && !c.process->step_name && block->step == 0);
		CHECK_INT(c.step_ended, !range);
		CHECK_INT(c.process->steps_by, range ? STEPS_BY_RANGE : STEPS_BY_CALL);
		c = detect_step(b, STEP_OPTIMIZER, "3 ");
		CHECK(!c.steps_anew && !c.step_ended);
		blocks_free(b);
	}
}

TEST(blocks, owners_and_late_owners)
{
	struct blocks *b = blocks_new();
	struct row r = block_row(ROW_MALLOC, 1, 1, false);

	row_attr_text(&r, ATTR_OWNER, "PTA", 3);
	CHECK_STR(text_numbers_text(&b->owners, put(b, r).block->owner), "PTA");
	put(b, block_row(ROW_MALLOC, 2, 1, false));
	r = block_row(ROW_FREE, 1, 1, false);
	row_attr_text(&r, ATTR_OWNER, "PTA@weight", 10);
	CHECK_STR(text_numbers_text(&b->owners, put(b, r).block->owner), "PTA@weight");
	CHECK_STR(text_numbers_text(&b->owners,
				    put(b, block_row(ROW_FREE, 2, 1, false)).block->owner),
		  "");
	CHECK_INT(text_numbers_find(&b->owners, "PTA@weight", 10, 2), 2);
	CHECK_INT(text_numbers_find(&b->owners, "too many", 8, 3), 0);
	blocks_free(b);
}

TEST(blocks, rows_that_go_back_in_time_are_noticed)
{
	struct blocks *b = blocks_new();
	struct row r = block_row(ROW_MALLOC, 1, 1, false);

	put(b, r);
	struct row kernel = row_of(ROW_KERNEL_LAUNCH, TYPE_KERNEL_EXECUTE_START);
	kernel.time_ns = 0; /* of the device, told later */
	put(b, kernel);
	CHECK(!b->unordered);
	put(b, block_row(ROW_MALLOC, 2, 1, false));
	r = block_row(ROW_FREE, 1, 1, false);
	r.time_ns -= 2;
	put(b, r);
	CHECK(b->unordered);
	blocks_free(b);
}

TEST(blocks, a_pid_that_is_used_again_is_another_process)
{
	struct blocks *b = blocks_new();

	blocks_process(b, PID, "one");
	put(b, block_row(ROW_MALLOC, 1, 1, false));
	blocks_process(b, PID, "two");
	CHECK(!put(b, block_row(ROW_FREE, 1, 1, false)).block);
	CHECK_INT(b->nprocesses, 2);
	CHECK_STR(b->processes[1]->command, "two");
	blocks_free(b);
}
