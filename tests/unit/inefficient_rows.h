/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Rows for the tests of inefficient memory: a job told call by call. */
#ifndef SONDE_TESTS_UNIT_INEFFICIENT_ROWS_H
#define SONDE_TESTS_UNIT_INEFFICIENT_ROWS_H

#include "memory/analysis/inefficient/inefficient.h"
#include "summary_rows.h"

#define PID 10
#define EARLY "early_allocation"
#define LATE "late_deallocation"
#define IDLE "temporary_idleness"
#define K "pools.0.kinds."

/* A job in the making: each row is a millisecond after the one before. */
struct job {
	struct analysis *a;
	uint64_t ms;
	uint32_t tid, device, pid;
	enum row_type pool;
	const char *stack;
};

static inline void row_of(struct job *j, struct row r)
{
	r.pid = j->pid;
	r.tid = j->tid;
	r.device = j->device;
	r.time_ns = T0 + ++j->ms * MS;
	r.id = j->ms;
	j->a->ops->row(j->a, &r);
}

static inline struct row memory_row(enum row_event event, enum row_type type, uint64_t id,
				    uint64_t bytes)
{
	struct row r = {.event = event, .type = type, .has_ptr = true, .ptr = 0x1000 * id};

	row_attr_number(&r, ATTR_ALLOCATION_ID, id);
	row_attr_number(&r, ATTR_SIZE, bytes);
	return r;
}

static inline void alloc(struct job *j, uint64_t id, uint64_t bytes)
{
	struct row r = memory_row(ROW_MALLOC, j->pool, id, bytes);

	r.c_stack = j->stack;
	r.c_stack_len = strlen(j->stack);
	row_of(j, r);
}

static inline void drop(struct job *j, uint64_t id)
{
	row_of(j, memory_row(ROW_FREE, j->pool, id, 0));
}

static inline void left(struct job *j, uint64_t id)
{
	struct row r = memory_row(ROW_FREE, j->pool, id, 0);

	row_attr_text(&r, ATTR_SHADOW, "true", 4);
	row_of(j, r);
}

static inline void use_as(struct job *j, uint64_t id, const char *name, const char *type)
{
	struct row r = memory_row(ROW_ACCESS, TYPE_READ, id, 0);

	r.name = name;
	r.name_len = strlen(name);
	row_attr_text(&r, ATTR_TYPE, type, strlen(type));
	row_of(j, r);
}

static inline void use(struct job *j, uint64_t id)
{
	use_as(j, id, "aten.mm.default", j->pool == TYPE_ATB ? "ATB" : "PTA");
}

static inline void op(struct job *j, bool start, const char *name)
{
	bool atb = j->pool == TYPE_ATB;
	enum row_type type = start ? (atb ? TYPE_ATB_START : TYPE_ATEN_START)
				   : (atb ? TYPE_ATB_END : TYPE_ATEN_END);

	row_of(j, (struct row){.event = ROW_OP_LAUNCH,
			       .type = type,
			       .name = name,
			       .name_len = strlen(name)});
}

static inline void begin(struct job *j, const char *name)
{
	op(j, true, name);
}

static inline void done(struct job *j, const char *name)
{
	op(j, false, name);
}

/* n calls that touch nothing. */
static inline void pass(struct job *j, unsigned n)
{
	while (n--) {
		begin(j, "aten.other.default");
		done(j, "aten.other.default");
	}
}

/* A job whose first operator is over, so that it is not being set up. */
static inline struct job job_with(const struct inefficient_options *o)
{
	struct job j = {
		.a = inefficient_new(o), .tid = 1, .pid = PID, .pool = TYPE_PTA, .stack = "f\n"};

	pass(&j, 1);
	return j;
}

static inline struct job job_new(void)
{
	return job_with(NULL);
}

/* Two calls: somebody allocates and frees. */
static inline void churn(struct job *j)
{
	static uint64_t id = 1000000;

	id++;
	alloc(j, id, 1);
	drop(j, id);
}

static inline void step(struct job *j, uint32_t n)
{
	char name[16];

	row_of(j, (struct row){.event = ROW_SYSTEM,
			       .type = TYPE_STEP,
			       .name = name,
			       .name_len = (size_t)snprintf(name, sizeof(name), "%u", n)});
}

static inline json_t *answer(struct job *j)
{
	static json_t *o;

	json_decref(o);
	o = j->a->ops->json(j->a, 10);
	CHECK(o);
	return o;
}

static inline const char *said(struct job *j, bool console)
{
	static struct buf b;
	struct analysis_style style = {.top = 10, .console = console};

	buf_clear(&b);
	j->a->ops->text(j->a, &style, &b);
	for (size_t i = 0; i < b.len; i++) /* as if it were one line */
		if (b.data[i] == '\n')
			b.data[i] = ' ';
	return buf_str(&b);
}

#define MARK(j, id, want) CHECK_STR(inefficient_of((j)->a, PID, id) ?: "", want)
#define FINDINGS(j, want) CHECK_INT((j)->a->ops->findings((j)->a), want)

#endif
