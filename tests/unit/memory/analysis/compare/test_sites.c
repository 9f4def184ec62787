/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Two runs compared by call site: what a site held at most. */
#include <jansson.h>

#include "memory/analysis/compare/compare.h"
#include "summary_rows.h"
#include "test.h"

#define SHOWN                                                                                      \
	"/job/a.py(1): f1\n/job/a.py(2): f2\n/job/a.py(3): f3\n/job/a.py(4): f4\n"                 \
	"/job/a.py(5): f5\n"

static void add_row(struct compare *c, enum row_event event, uint64_t id, uint64_t bytes,
		    const char *stack)
{
	static uint64_t time_ns;
	struct row r = {.event = event, .type = TYPE_PTA, .pid = 10, .tid = 10, .has_ptr = true};

	r.time_ns = r.id = ++time_ns;
	r.ptr = id << 20;
	row_attr_number(&r, ATTR_ALLOCATION_ID, id);
	row_attr_number(&r, ATTR_SIZE, bytes);
	r.py_stack = stack;
	r.py_stack_len = stack ? strlen(stack) : 0;
	compare_add(c, COMPARE_OTHER, &r);
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
