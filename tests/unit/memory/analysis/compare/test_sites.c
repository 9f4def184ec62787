/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Two runs compared by call site: what a site held at most. */
#include <jansson.h>

#include "memory/analysis/compare/compare.h"
#include "summary_rows.h"
#include "test.h"

#define SHOWN                                                                                      \
	"/job/a.py(1): f1\n/job/a.py(2): f2\n/job/a.py(3): f3\n/job/a.py(4): f4\n"                 \
	"/job/a.py(5): f5\n"

static void add_row_of(struct compare *c, enum compare_side side, enum row_event event, uint64_t id,
		       uint64_t bytes, const char *stack)
{
	static uint64_t time_ns;
	struct row r = {.event = event, .type = TYPE_PTA, .pid = 10, .tid = 10, .has_ptr = true};

	r.time_ns = r.id = ++time_ns;
	r.ptr = id << 20;
	row_attr_number(&r, ATTR_ALLOCATION_ID, id);
	row_attr_number(&r, ATTR_SIZE, bytes);
	r.py_stack = stack;
	r.py_stack_len = stack ? strlen(stack) : 0;
	compare_add(c, side, &r);
}

static void add_row(struct compare *c, enum row_event event, uint64_t id, uint64_t bytes,
		    const char *stack)
{
	add_row_of(c, COMPARE_OTHER, event, id, bytes, stack);
}

/* One block from `line` of f(), which main() calls in `caller`. */
static void add_block(struct compare *c, enum compare_side side, unsigned line, unsigned caller,
		      uint64_t bytes)
{
	static uint64_t id = 1000;
	char stack[256];

	snprintf(stack, sizeof(stack), "/job/a.py(%u): f\n/job/a.py(%u): main\n", line, caller);
	add_row_of(c, side, ROW_MALLOC, ++id, bytes, stack);
}

/* Somebody has added three lines at the top, and an allocation between two others. */
TEST(sites, lines_that_moved_are_paired_by_function)
{
	struct compare *c = compare_new(COMPARE_SITES);
	struct buf text = {0};
	struct err err = {0};

	add_block(c, COMPARE_BASE, 4, 20, 4000);
	add_block(c, COMPARE_BASE, 7, 20, 1000);
	add_block(c, COMPARE_OTHER, 7, 24, 4000);
	add_block(c, COMPARE_OTHER, 8, 24, 70);
	add_block(c, COMPARE_OTHER, 11, 24, 1500);
	CHECK_INT(compare_finish(c, &err), 0);
	json_t *o = compare_json(c, 10);
	CHECK_INT(NUM(o, "moved_sites"), 2);
	CHECK_INT(json_array_size(at(o, "sites")), 2);
	CHECK_STR(json_string_value(at(o, "sites.0.name")), "f (a.py:11) < main (a.py:24)");
	CHECK_STR(json_string_value(at(o, "sites.0.base_name")), "f (a.py:7) < main (a.py:20)");
	CHECK_INT(NUM(o, "sites.0.held_at_most.diff_bytes"), 500);
	CHECK_STR(json_string_value(at(o, "sites.1.name")), "f (a.py:8) < main (a.py:24)");
	CHECK(json_is_null(at(o, "sites.1.base_name")));
	json_decref(o);
	compare_text(c, 10, false, &text);
	CHECK_HAS(buf_str(&text),
		  "Lines have moved: 2 call sites were\npaired by function and file");
	CHECK_HAS(buf_str(&text), "      in base: f (a.py:7) < main (a.py:20)\n");
	buf_release(&text);
	compare_free(c);
}

/* Call stacks that differ only in frames that are not shown are one place. They held their most at
 * different times, so the place never held the sum of it. */
TEST(sites, most_is_that_of_one_moment)
{
	struct compare *c = compare_new(COMPARE_SITES);
	struct err err = {0};
	char stack[256];

	for (unsigned i = 1; i <= 10; i++) {
		snprintf(stack, sizeof(stack), SHOWN "/job/a.py(%u): outer\n", 10 + i);
		add_row(c, ROW_MALLOC, i, 1000 + i, stack);
		if (i != 3)
			add_row(c, ROW_FREE, i, 1000 + i, NULL);
	}
	CHECK_INT(compare_finish(c, &err), 0);
	json_t *o = compare_json(c, 10);
	CHECK_INT(json_array_size(at(o, "sites")), 1);
	CHECK_INT(NUM(o, "sites.0.allocations.compare"), 10);
	CHECK_INT(NUM(o, "sites.0.held_at_most.compare_bytes"), 1003 + 1010);
	CHECK_INT(NUM(o, "sites.0.left.compare_bytes"), 1003);
	CHECK_INT(NUM(o, "devices.0.compare_peak_bytes"), 1003 + 1010);
	json_decref(o);
	compare_free(c);
}
