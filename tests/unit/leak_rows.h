/* SPDX-License-Identifier: MulanPSL-2.0 */
/* A job made of rows, for the tests of analyses that look at steps. */
#ifndef SONDE_TESTS_UNIT_LEAK_ROWS_H
#define SONDE_TESTS_UNIT_LEAK_ROWS_H

#include <inttypes.h>

#include "memory/analysis/common/analysis.h"
#include "summary_rows.h"

#define STACK_OF(name) "/opt/job/train(" name "+0x20) [0x55aa] /opt/job/src/train.c:120\n"

/* Rows of one process go to one analysis; time goes on by itself. */
struct job {
	struct analysis *a;
	uint64_t time_ns, row, ids;
	uint64_t ranges, step_range;
	uint32_t pid, device;
	enum row_type type;
	uint64_t used;
	bool no_ids; /* rows without allocation_id */
	const char *layer; /* of what is allocated next; NULL: none */
	const char *owner; /* the same */
	bool python; /* its stacks are of Python */
};

/* What was allocated. */
struct mem {
	uint64_t id, ptr, bytes;
	uint32_t device;
	enum row_type type;
};

static inline struct job job_of(struct analysis *a)
{
	return (struct job){.a = a, .time_ns = T0, .pid = 10, .type = TYPE_PTA};
}

static inline void feed(struct job *j, struct row *r)
{
	r->id = ++j->row;
	r->time_ns = j->time_ns += 1000;
	r->pid = r->tid = j->pid;
	j->a->ops->row(j->a, r);
}

static inline void put_mem(struct job *j, struct row *r, const struct mem *m, bool shadow)
{
	r->type = m->type;
	r->device = m->device;
	r->has_ptr = true;
	r->ptr = m->ptr;
	if (!j->no_ids)
		row_attr_number(r, ATTR_ALLOCATION_ID, m->id);
	row_attr_number(r, ATTR_ADDR, m->ptr);
	row_attr_number(r, ATTR_SIZE, m->bytes);
	if (shadow)
		row_attr_text(r, ATTR_SHADOW, "true", 4);
	else
		row_attr_number(r, m->type == TYPE_HOST ? ATTR_TOTAL : ATTR_USED, j->used);
}

static inline struct mem take_at(struct job *j, uint64_t ptr, uint64_t bytes, const char *stack)
{
	struct mem m = {++j->ids, ptr, bytes, j->device, j->type};
	struct row r = {.event = ROW_MALLOC};

	j->used += bytes;
	put_mem(j, &r, &m, false);
	*(j->python ? &r.py_stack : &r.c_stack) = stack;
	*(j->python ? &r.py_stack_len : &r.c_stack_len) = stack ? strlen(stack) : 0;
	r.layer = j->layer;
	if (j->owner)
		row_attr_text(&r, ATTR_OWNER, j->owner, strlen(j->owner));
	feed(j, &r);
	return m;
}

static inline struct mem take_one(struct job *j, uint64_t bytes, const char *stack)
{
	return take_at(j, 0x100000000 + j->ids * 0x10000000, bytes, stack);
}

static inline void give_one(struct job *j, struct mem m)
{
	struct row r = {.event = ROW_FREE};

	j->used -= m.bytes;
	put_mem(j, &r, &m, false);
	feed(j, &r);
}

/* The FREE row that is made up for a block which nobody freed. */
static inline void leave_one(struct job *j, struct mem m)
{
	struct row r = {.event = ROW_FREE};

	put_mem(j, &r, &m, true);
	feed(j, &r);
}

static inline void put_event(struct job *j, enum row_event event, enum row_type type,
			     const char *name, uint64_t range)
{
	struct row r = {.event = event, .type = type, .device = j->device, .range = range};

	r.name = name;
	r.name_len = strlen(name);
	feed(j, &r);
}

static inline void begin_step(struct job *j)
{
	j->step_range = ++j->ranges;
	put_event(j, ROW_MSTX, TYPE_RANGE_START, "step start", j->step_range);
}

static inline void end_step(struct job *j)
{
	char name[40];

	snprintf(name, sizeof(name), "Range end from id %" PRIu64, j->step_range);
	put_event(j, ROW_MSTX, TYPE_RANGE_END, name, j->step_range);
}

static inline void mark(struct job *j, const char *text)
{
	put_event(j, ROW_MSTX, TYPE_MARK, text, 0);
}

static inline json_t *json_answer(struct analysis *a)
{
	json_t *o = a->ops->json(a, 100);

	CHECK(o);
	return o;
}

/* The text; its first paragraph, which is wrapped, in one line. */
static inline const char *text_answer(struct analysis *a, bool console)
{
	static struct buf b;
	struct analysis_style style = {.top = 10, .console = console, .literal = true};

	buf_clear(&b);
	a->ops->text(a, &style, &b);
	buf_str(&b);
	for (size_t i = 0; i + 1 < b.len && (b.data[i] != '\n' || b.data[i + 1] != '\n'); i++)
		if (b.data[i] == '\n' && i)
			b.data[i] = ' ';
	return b.data;
}

#endif
