/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "memory/analysis/gaps/gaps.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/text/plain_words.h"
#include "formats/json_value.h"
#include "memory/analysis/common/blocks.h"
#include "memory/analysis/common/json.h"
#include "memory/analysis/common/memory_words.h"
#include "memory/analysis/common/report.h"
#include "wire/record.h"

#define MAX_SAID 3
#define MIB 1048576.0

struct gap_record {
	double ratio;
	uint64_t min_bytes, max_bytes;
	uint32_t step;
};

/* What hangs on a pool. */
struct gap_pool {
	uint64_t min_bytes, max_bytes; /* since the last step end */
	bool any; /* they are set */
	uint32_t steps; /* that were looked at */
	struct gap_record min, max;
};

struct gap {
	struct analysis base;
	unsigned max_spread_percent;
	struct blocks *blocks;
};

static struct gap_pool *gap_of(struct block_pool *pool)
{
	if (!pool->own)
		pool->own = xcalloc(1, sizeof(struct gap_pool));
	return pool->own;
}

/* --- rows --- */

static void note_used(struct block_pool *pool, const struct row *row)
{
	const struct attr *a = row_attr(row, pool->type == TYPE_HOST ? ATTR_TOTAL : ATTR_USED);
	struct gap_pool *g = gap_of(pool);

	if (!a || a->kind != ATTR_NUMBER)
		return;
	if (!g->any || a->number < g->min_bytes)
		g->min_bytes = a->number;
	if (!g->any || a->number > g->max_bytes)
		g->max_bytes = a->number;
	g->any = true;
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

static void gap_row(struct analysis *a, const struct row *row)
{
	struct gap *g = (struct gap *)a;
	struct block_change c;
	enum block_what what = blocks_add(g->blocks, row, &c);

	if ((what == BLOCKS_ALLOC || what == BLOCKS_FREE) && c.process->step >= 2)
		note_used(c.pool, row);
	if (c.step_ended < 2)
		return;
	for (size_t i = 0; i < c.process->npools; i++)
		close_step(gap_of(c.process->pools[i]), c.step_ended);
}

static void gap_process(struct analysis *a, uint32_t pid, const char *command)
{
	blocks_process(((struct gap *)a)->blocks, pid, command);
}

static bool gap_unordered(const struct analysis *a)
{
	return blocks_unordered(((const struct gap *)a)->blocks);
}

/* --- the answer --- */

static bool is_uneven(const struct gap *g, const struct gap_pool *p)
{
	return p->steps && 100 * (p->max.ratio - p->min.ratio) > g->max_spread_percent;
}

/* Pools that have a ratio, by process, device and type. */
static int by_place(const void *pa, const void *pb)
{
	const struct block_pool *a = *(struct block_pool *const *)pa;
	const struct block_pool *b = *(struct block_pool *const *)pb;

	if (a->device->device != b->device->device)
		return a->device->device > b->device->device ? 1 : -1;
	/* The driver's own is said last. */
	if (blocks_is_driver(a->type) != blocks_is_driver(b->type))
		return blocks_is_driver(a->type) ? 1 : -1;
	return (a->type > b->type) - (a->type < b->type);
}

static size_t list_pools(const struct gap *g, struct block_pool ***out)
{
	size_t n = 0, cap = 0;

	*out = NULL;
	for (size_t i = 0; i < blocks_nprocesses(g->blocks); i++) {
		const struct block_process *p = blocks_process_at(g->blocks, i);
		size_t from = n;

		for (size_t k = 0; k < p->npools; k++) {
			const struct gap_pool *own = p->pools[k]->own;

			if (!own || !own->steps)
				continue;
			*out = xgrow(*out, &cap, n + 1, sizeof(struct block_pool *));
			(*out)[n++] = p->pools[k];
		}
		if (n > from)
			qsort(*out + from, n - from, sizeof(struct block_pool *), by_place);
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

static void say_ratio(struct buf *out, const struct gap_record *r)
{
	buf_addf(out, "%.1f %% of its most (", 100 * r->ratio);
	words_bytes(out, r->min_bytes);
	buf_add_str(out, " of ");
	words_bytes(out, r->max_bytes);
	buf_addf(out, ") in step %u", r->step);
}

static void say_pool(const struct gap *g, const struct block_pool *pool, struct buf *out)
{
	const struct gap_pool *p = pool->own;
	char device[16];

	buf_addf(out, "Within a step, the %s memory of process %u on device %s ",
		 words_pool(pool->type), pool->process->pid,
		 blocks_device_name(pool->device->device, device));
	if (p->min.ratio == 1) {
		buf_add_str(out, "does not change at all.");
		return;
	}
	buf_add_str(out, "falls to ");
	say_ratio(out, &p->min);
	if (p->max.ratio - p->min.ratio >= 0.001) {
		buf_add_str(out, ", and to ");
		say_ratio(out, &p->max);
	}
	buf_add_str(out, is_uneven(g, p) ? ": the steps are not alike."
			 : p->steps > 1	 ? ": the steps are alike."
					 : ".");
}

static void print_pool(const struct block_pool *pool, struct buf *out)
{
	const struct gap_pool *p = pool->own;
	char device[16];

	buf_addf(out, "\n======= %s Gap Analysis of Device %s =======\n",
		 blocks_pool_name(pool->type), blocks_device_name(pool->device->device, device));
	buf_addf(out, "\t%-25s%-25s%s\n", "MinAlloc/MaxAlloc(%)", "MinAllocMem(MB)", "StepId");
	buf_addf(out, "MinGap\t%-25.4f%-25.4f%u\n", 100 * p->min.ratio,
		 (double)p->min.min_bytes / MIB, p->min.step);
	buf_addf(out, "MaxGap\t%-25.4f%-25.4f%u\n", 100 * p->max.ratio,
		 (double)p->max.min_bytes / MIB, p->max.step);
}

static void gap_text(struct analysis *a, const struct analysis_style *style, struct buf *out)
{
	struct page page = page_begin(style, out);
	struct gap *g = (struct gap *)a;
	struct block_pool **pools;
	struct buf t = {0};
	size_t n = list_pools(g, &pools);

	for (size_t i = 0; i < n && i < MAX_SAID; i++) {
		if (i)
			buf_add_char(&t, ' ');
		say_pool(g, pools[i], &t);
	}
	if (n > MAX_SAID)
		buf_addf(&t, " %zu more pools are in the tables below.", n - MAX_SAID);
	if (!n && !style->console)
		buf_add_str(&t, "There is no step after the first in which memory was in use, so "
				"there is nothing to compare. Mark the steps of the "
				"job: " WORDS_MARK_STEPS);
	if (t.len)
		page_paragraph(&page, 0, &t);
	for (size_t i = 0; i < n; i++)
		print_pool(pools[i], out);
	free(pools);
}

static json_t *record_value(const struct gap_record *r)
{
	json_t *o = json_object();

	json_object_set_new(o, "ratio", json_real(r->ratio));
	put_number(o, "min_bytes", r->min_bytes);
	put_number(o, "max_bytes", r->max_bytes);
	put_number(o, "step", r->step);
	return o;
}

static json_t *gap_json(struct analysis *a, unsigned top)
{
	struct gap *g = (struct gap *)a;
	json_t *o = json_object(), *list = json_array();
	struct block_pool **pools;
	size_t n = list_pools(g, &pools);

	(void)top; /* there are few */
	put_number(o, "findings", gap_findings(a));
	for (size_t i = 0; i < n; i++) {
		const struct gap_pool *own = pools[i]->own;
		json_t *p = json_object();

		put_number(p, "pid", pools[i]->process->pid);
		put_device(p, pools[i]->device->device);
		put_pool(p, pools[i]->type);
		put_number(p, "steps", own->steps);
		json_object_set_new(p, "min_gap", record_value(&own->min));
		json_object_set_new(p, "max_gap", record_value(&own->max));
		put_bool(p, "uneven", is_uneven(g, own));
		json_array_append_new(list, p);
	}
	json_object_set_new(o, "pools", list);
	free(pools);
	return o;
}

static void gap_free(struct analysis *a)
{
	struct gap *g = (struct gap *)a;

	for (size_t i = 0; i < blocks_nprocesses(g->blocks); i++) {
		struct block_process *p = blocks_process_at(g->blocks, i);

		for (size_t k = 0; k < p->npools; k++)
			free(p->pools[k]->own);
	}
	blocks_free(g->blocks);
	free(g);
}

static const struct analysis_ops gap_ops = {
	.name = "gap",
	.row = gap_row,
	.process = gap_process,
	.unordered = gap_unordered,
	.findings = gap_findings,
	.text = gap_text,
	.json = gap_json,
	.free = gap_free,
};

struct analysis *gap_new(const struct gap_options *options)
{
	struct gap *g = xcalloc(1, sizeof(*g));

	g->base.ops = &gap_ops;
	g->max_spread_percent = options ? options->max_spread_percent : GAP_MAX_SPREAD_PERCENT;
	g->blocks = blocks_new();
	return &g->base;
}
