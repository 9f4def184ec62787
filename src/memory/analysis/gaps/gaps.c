/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "memory/analysis/gaps/gaps.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "formats/json_value.h"
#include "memory/analysis/common/block_steps.h"
#include "memory/analysis/common/fields.h"
#include "wire/record.h"

#define MAX_SHOWN 3
#define MIB 1048576.0

struct gap_record {
	double ratio;
	uint64_t min_bytes, max_bytes;
	uint32_t step;
};

/* What hangs on a pool. */
struct gap_pool {
	uint64_t level; /* in use after the newest row */
	uint64_t min_bytes, max_bytes; /* since the last step end, the level there included */
	bool any; /* they are set */
	bool carried; /* blocks of a dropped part came last: the level is not known */
	uint32_t steps; /* that are compared */
	struct gap_record min, max;
};

struct gap {
	struct analysis base;
	unsigned max_spread_percent;
};

static struct gap_pool *gap_of(struct block_pool *pool)
{
	if (!pool->own)
		pool->own = xcalloc(1, sizeof(struct gap_pool));
	return pool->own;
}

/* --- rows --- */

/* A step begins with what the one before left: a pool that changes once within it does change. */
static void count_used(struct block_pool *pool, const struct row *row, bool in_steps)
{
	const struct attr *a = row_attr(row, pool->type == TYPE_HOST ? ATTR_TOTAL : ATTR_USED);
	struct gap_pool *g = gap_of(pool);

	if (!a || a->kind != ATTR_NUMBER)
		return;
	if (in_steps) {
		if (!g->any)
			g->min_bytes = g->max_bytes = g->carried ? a->number : g->level;
		if (a->number < g->min_bytes)
			g->min_bytes = a->number;
		if (a->number > g->max_bytes)
			g->max_bytes = a->number;
		g->any = true;
	}
	g->level = a->number;
	g->carried = false;
}

static void close_step(struct gap_pool *g, uint32_t step)
{
	struct gap_record r = {.min_bytes = g->min_bytes, .max_bytes = g->max_bytes, .step = step};

	if (g->any && g->max_bytes) { /* else nothing was in use, and there is no ratio */
		r.ratio = (double)r.min_bytes / (double)r.max_bytes;
		if (!g->steps || r.ratio < g->min.ratio)
			g->min = r;
		if (!g->steps || r.ratio > g->max.ratio)
			g->max = r;
		g->steps++;
	}
	g->any = false;
	g->min_bytes = g->max_bytes = 0;
}

/* Blocks of a dropped part come first, one by one, where the kept part begins: no step did that. */
static void count_change(const struct block_change *c, const struct row *row)
{
	if (c->what == BLOCKS_ALLOC && row_attr(row, ATTR_CARRIED))
		gap_of(c->pool)->carried = true;
	else
		count_used(c->pool, row, c->process->step >= 2);
}

/* What were steps so far was none. */
static void forget_steps(const struct block_process *p)
{
	for (size_t i = 0; i < p->npools; i++) {
		struct gap_pool *g = gap_of(p->pools[i]);

		*g = (struct gap_pool){.level = g->level, .carried = g->carried};
	}
}

static void gap_row(struct analysis *a, const struct row *row)
{
	struct gap *g = (struct gap *)a;
	struct block_change c;
	enum block_what what = blocks_add(g->base.blocks, row, &c);

	if (what == BLOCKS_ALLOC || what == BLOCKS_FREE)
		count_change(&c, row);
	if (c.steps_anew)
		forget_steps(c.process);
	if (c.step_ended < 2)
		return;
	for (size_t i = 0; i < c.process->npools; i++)
		close_step(gap_of(c.process->pools[i]), c.step_ended);
}

/* --- the answer --- */

static bool is_uneven(const struct gap *g, const struct gap_pool *p)
{
	return p->steps && 100 * (p->max.ratio - p->min.ratio) > g->max_spread_percent;
}

/* Pools that have a ratio, by process, device and type. */
static int by_device_and_type(const void *pa, const void *pb)
{
	const struct block_pool *a = *(struct block_pool *const *)pa;
	const struct block_pool *b = *(struct block_pool *const *)pb;

	/* The driver's own comes last. */
	return ORDER(a->device->device, b->device->device)
		       ?: ORDER(blocks_is_driver(a->type), blocks_is_driver(b->type))
		       ?: ORDER(a->type, b->type);
}

static size_t list_pools(const struct gap *g, struct block_pool ***out)
{
	size_t n = 0, cap = 0;

	*out = NULL;
	for (size_t i = 0; i < g->base.blocks->nprocesses; i++) {
		const struct block_process *p = g->base.blocks->processes[i];
		size_t from = n;

		for (size_t k = 0; k < p->npools; k++) {
			const struct gap_pool *own = p->pools[k]->own;

			if (!own || !own->steps)
				continue;
			*out = xgrow(*out, &cap, n + 1, sizeof(struct block_pool *));
			(*out)[n++] = p->pools[k];
		}
		if (n > from)
			qsort(*out + from, n - from, sizeof(struct block_pool *),
			      by_device_and_type);
	}
	return n;
}

static size_t gap_findings(struct analysis *a)
{
	struct gap *g = (struct gap *)a;
	struct block_pool **pools;
	size_t found = 0, n = list_pools(g, &pools);

	for (size_t i = 0; i < n; i++)
		found += is_uneven(g, pools[i]->own);
	free(pools);
	return found;
}

static bool gap_judged(struct analysis *a)
{
	struct block_pool **pools;
	size_t n = list_pools((struct gap *)a, &pools);

	free(pools);
	return n != 0;
}

static void describe_ratio(struct buf *out, const struct gap_record *r)
{
	buf_addf(out, "%.1f %% of its maximum ", 100 * r->ratio);
	add_text(out, "({} of {}) in step {}", BYTES(r->min_bytes), BYTES(r->max_bytes),
		 NUMBER(r->step));
}

static void describe_pool(const struct gap *g, const struct block_pool *pool, struct buf *out)
{
	const struct gap_pool *p = pool->own;

	add_text(out, "Within a step, the {} memory of process {} on device {} ", POOL(pool->type),
		 NUMBER(pool->process->pid), DEVICE(pool->device->device));
	if (p->min.ratio == 1) {
		add_text(out, "does not change.");
		return;
	}
	add_text(out, "falls to ");
	describe_ratio(out, &p->min);
	if (p->max.ratio - p->min.ratio >= 0.001) {
		add_text(out, ", and to ");
		describe_ratio(out, &p->max);
	}
	add_text(out, is_uneven(g, p) ? ": the steps are not alike."
		      : p->steps > 1  ? ": the steps are alike."
				      : ".");
}

static void print_record(const char *title, const struct gap_record *r, struct buf *out)
{
	buf_addf(out, "%s\t%-25.4f%-25.4f%u\n", title, 100 * r->ratio, (double)r->min_bytes / MIB,
		 r->step);
}

/* Scripts look for msMemScope's title, which says MB of these numbers. */
static void print_pool(const struct block_pool *pool, bool console, struct buf *out)
{
	const struct gap_pool *p = pool->own;

	add_text(out, "\n======= {} Gap Analysis of Device {} =======\n",
		 TEXT(blocks_pool_name(pool->type)), DEVICE(pool->device->device));
	buf_addf(out, "\t%-25s%-25s%s\n", "MinAlloc/MaxAlloc(%)",
		 console ? "MinAllocMem(MB)" : "MinAllocMem(MiB)", "StepId");
	print_record("MinGap", &p->min, out);
	print_record("MaxGap", &p->max, out);
}

static void gap_text(struct analysis *a, const struct analysis_style *style, struct buf *out)
{
	struct report report = report_begin(style, out);
	struct gap *g = (struct gap *)a;
	struct block_pool **pools;
	struct buf t = {0};
	size_t n = list_pools(g, &pools);

	for (size_t i = 0; i < n && i < MAX_SHOWN; i++) {
		add_text(&t, i ? " " : "");
		describe_pool(g, pools[i], &t);
	}
	if (n > MAX_SHOWN)
		add_text(&t, " {} more pools are in the tables below.", NUMBER(n - MAX_SHOWN));
	if (!n && !style->console)
		add_text(&t,
			 "There is no step after the first in which memory was in use, so there is "
			 "nothing to compare. Mark the steps of the job: " WORDS_MARK_STEPS);
	if (n)
		steps_describe(g->base.blocks, &t);
	if (t.len)
		report_paragraph(&report, 0, &t);
	for (size_t i = 0; i < n; i++)
		print_pool(pools[i], style->console, out);
	free(pools);
}

static const struct field record_fields[] = {
	FIELDS(struct gap_record, ratio, min_bytes, max_bytes, step),
	{0},
};
static const struct field pool_fields[] = {
	FIELDS(struct gap_pool, steps),
	OBJECT("min_gap", record_fields, struct gap_pool, min),
	OBJECT("max_gap", record_fields, struct gap_pool, max),
	{0},
};

static json_t *gap_json(struct analysis *a, unsigned top)
{
	struct gap *g = (struct gap *)a;
	json_t *o = json_object(), *list = json_array();
	struct block_pool **pools;
	size_t n = list_pools(g, &pools);

	(void)top; /* there are few */
	put_number(o, "findings", gap_findings(a));
	for (size_t i = 0; i < n; i++) {
		json_t *p = json_object();

		put_in_pool(p, pools[i]);
		fields_put(p, pool_fields, pools[i]->own, NULL);
		put_bool(p, "uneven", is_uneven(g, pools[i]->own));
		json_array_append_new(list, p);
	}
	json_object_set_new(o, "pools", list);
	json_object_set_new(o, "steps", steps_json(g->base.blocks));
	free(pools);
	return o;
}

static void gap_free(struct analysis *a)
{
	struct gap *g = (struct gap *)a;

	for (size_t i = 0; i < g->base.blocks->nprocesses; i++) {
		struct block_process *p = g->base.blocks->processes[i];

		for (size_t k = 0; k < p->npools; k++)
			free(p->pools[k]->own);
	}
	blocks_free(g->base.blocks);
	free(g);
}

static const struct analysis_ops gap_ops = {
	.name = "gap",
	.row = gap_row,
	.process = analysis_blocks_process,
	.unordered = analysis_blocks_unordered,
	.judged = gap_judged,
	.findings = gap_findings,
	.text = gap_text,
	.json = gap_json,
	.free = gap_free,
};

struct analysis *gap_new(const struct gap_options *options)
{
	struct gap *g = xcalloc(1, sizeof(*g));

	g->base = (struct analysis){.ops = &gap_ops, .blocks = blocks_new()};
	g->max_spread_percent = options ? options->max_spread_percent : GAP_MAX_SPREAD_PERCENT;
	return &g->base;
}
