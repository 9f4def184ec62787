/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Taking in rows: requests that were refused, and what there is to know about the device. */
#include "memory/analysis/oom/oom.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "memory/analysis/oom/oom_impl.h"
#include "wire/record.h"

#define SECOND_NS 1000000000ull
#define TOGETHER_NS (2 * SECOND_NS)
#define SAMPLE_NS (5 * SECOND_NS) /* what others hold is taken from rows no further away */
#define POOL_FUNCTION "caching allocator" /* as the recorder names a refusal of torch itself */
#define MAX_STATES 4 /* of one incident: looking at a million blocks takes its time */

/* --- what others hold --- */

static struct oom_view *view_of(struct oom *o, struct block_process *p, uint32_t device)
{
	for (size_t i = 0; i < o->nviews; i++)
		if (o->views[i].process == p && o->views[i].device == device)
			return &o->views[i];
	o->views = xgrow(o->views, &o->views_cap, o->nviews + 1, sizeof(*o->views));
	o->views[o->nviews] = (struct oom_view){.process = p, .device = device};
	return &o->views[o->nviews++];
}

static uint64_t distance(uint64_t a, uint64_t b)
{
	return a > b ? a - b : b - a;
}

static bool is_near(const struct oom_incident *i, const struct oom_sample *s)
{
	return s->known && distance(i->last_ns, s->time_ns) <= SAMPLE_NS;
}

/* Where the driver does not report who has what, the rest is everybody else's. */
static void apply_view(struct oom_incident *i, const struct oom_view *v)
{
	bool others = is_near(i, &v->others), rest = is_near(i, &v->rest);

	if (!i->has_others && (others || rest)) {
		i->has_others = true;
		i->others_bytes = others ? v->others.bytes : v->rest.bytes;
		i->job_bytes = others ? v->job_bytes : 0;
	}
	if (!i->has_outside && others && rest && oom_is_cuda(i)) {
		i->has_outside = true;
		i->others_bytes = v->others.bytes;
		i->job_bytes = v->job_bytes;
		i->outside_bytes = oom_less(v->rest.bytes, oom_sum(v->others.bytes, i->kept_bytes));
	}
}

/* Also for the last incidents, those that came before it was known. */
static void note_sample(struct oom *o, struct oom_view *v, struct oom_sample *sample,
			const struct row *row, uint64_t bytes)
{
	*sample = (struct oom_sample){true, bytes, row->time_ns};
	for (size_t i = o->nincidents; i > 0; i--) {
		struct oom_incident *inc = o->incidents[i - 1];
		if (distance(row->time_ns, inc->last_ns) > SAMPLE_NS)
			break;
		if (inc->process == v->process && inc->device == row->device)
			apply_view(inc, v);
	}
}

static uint64_t own_bytes(const struct block_process *p, uint32_t device)
{
	for (size_t i = 0; i < p->ndevices; i++)
		if (p->devices[i]->device == device)
			return p->devices[i]->own[OOM_OWN_BYTES];
	return 0;
}

/* The driver hands out whole pages. */
static uint64_t page_bytes(const struct row *row)
{
	static const struct {
		const char *name;
		uint64_t bytes;
	} pages[] = {{"normal", 4u << 10}, {"huge", 2u << 20}, {"giant", 1u << 30}};

	for (size_t k = 0; k < sizeof(pages) / sizeof(pages[0]); k++)
		if (row_attr_is(row, ATTR_PAGE_TYPE, pages[k].name))
			return pages[k].bytes;
	return 1;
}

static void count_own(const struct block_change *c, const struct row *row)
{
	uint64_t *own = &c->pool->device->own[OOM_OWN_BYTES];

	if (!c->block || !blocks_is_device(c->pool->type))
		return;
	if (c->what == BLOCKS_ALLOC) {
		uint64_t page = page_bytes(row), rest = c->block->bytes % page;
		c->block->own[OOM_OWN_BYTES] = oom_sum(c->block->bytes, rest ? page - rest : 0);
		*own = oom_sum(*own, c->block->own[OOM_OWN_BYTES]);
	} else {
		*own = oom_less(*own, c->block->own[OOM_OWN_BYTES]);
	}
}

static void on_block(struct oom *o, struct block_process *p, const struct row *row)
{
	uint64_t mine, all, job;

	if (!row_number(row, ATTR_PROCESS_USED, &mine) || !row_number(row, ATTR_DEVICE_USED, &all))
		return;
	struct oom_view *v = view_of(o, p, row->device);
	v->job_bytes = row_number(row, ATTR_JOB_USED, &job) ? job : 0;
	if (v->job_bytes > oom_less(all, mine))
		v->job_bytes = oom_less(all, mine);
	note_sample(o, v, &v->others, row, oom_less(all, mine));
}

/* The short words of 26.0 mean the same here. */
static void on_snapshot(struct oom *o, struct block_process *p, const struct row *row)
{
	uint64_t total, unused;

	if (!row_number(row, ATTR_TOTAL_MEM, &total) && !row_number(row, ATTR_TOTAL, &total))
		return;
	if (!total || row->device >= DEV_NONE)
		return;
	hmap_put(&o->totals, row->device, total == HMAP_NONE ? total - 1 : total);
	if (!row_number(row, ATTR_FREE_MEM, &unused) && !row_number(row, ATTR_FREE, &unused))
		return;
	struct oom_view *v = view_of(o, p, row->device);
	note_sample(o, v, &v->rest, row,
		    oom_less(oom_less(total, unused), own_bytes(p, row->device)));
}

/* --- requests that were refused --- */

static struct oom_incident *last_of(struct oom *o, const struct block_process *p, uint32_t device)
{
	for (size_t i = o->nincidents; i > 0; i--)
		if (o->incidents[i - 1]->process == p && o->incidents[i - 1]->device == device)
			return o->incidents[i - 1];
	return NULL;
}

static void read_function(const struct row *row, char out[OOM_FUNCTION_BYTES])
{
	const struct attr *a = row_attr(row, ATTR_FUNC);

	if (a && a->text)
		snprintf(out, OOM_FUNCTION_BYTES, "%.*s", (int)a->text_len, a->text);
}

static struct oom_incident *new_incident(struct oom *o, struct block_process *p,
					 const struct row *row, uint64_t requested)
{
	struct oom_incident *i = xcalloc(1, sizeof(*i));

	i->process = p;
	i->device = row->device;
	i->first_ns = row->time_ns;
	i->requested = requested;
	i->step = p->in_step ? p->step : 0;
	i->driver_free = UINT64_MAX;
	read_function(row, i->function);
	if (!strcmp(i->function, POOL_FUNCTION) || i->device == DEV_HOST)
		row_number(row, ATTR_FLAG, &i->limit);
	if (i->device == DEV_HOST) {
		row_number(row, ATTR_USED, &i->space_bytes);
		if (!row_number(row, ATTR_TOTAL_MEM, &i->machine_bytes))
			row_number(row, ATTR_TOTAL, &i->machine_bytes); /* so in 26.0 */
	}
	LIST_ADD(o->incidents, o->nincidents, o->incidents_cap, i);
	return i;
}

static bool is_cuda_call(const char *function)
{
	return !strncmp(function, "cu", 2);
}

/*
 * Another try of the same. An allocator that CUDA's driver has refused memory may ask for less and
 * less, as XLA does, and refuses its own request in the end, which is what the job asked for.
 */
static bool is_same(const struct oom_incident *i, const struct row *row, uint64_t requested)
{
	char function[OOM_FUNCTION_BYTES] = "";

	if (i->granted || distance(row->time_ns, i->last_ns) >= TOGETHER_NS)
		return false;
	if (i->requested == requested)
		return true;
	read_function(row, function);
	if (!is_cuda_call(i->function) || i->tid != row->tid || !i->open)
		return false;
	return is_cuda_call(function) ? requested < i->last_requested
				      : !strcmp(function, POOL_FUNCTION);
}

static void on_trigger(struct oom *o, struct block_process *p, const struct row *row)
{
	struct oom_incident *i = last_of(o, p, row->device);
	uint64_t requested = 0;

	row_number(row, ATTR_REQ_SIZE, &requested);
	o->requests++;
	if (row_attr(row, ATTR_FREE_MEM)) /* at this very moment */
		on_snapshot(o, p, row);
	if (!i || !is_same(i, row, requested)) {
		if (o->nincidents == OOM_MAX_INCIDENTS) {
			o->dropped++;
			return;
		}
		i = new_incident(o, p, row, requested);
	}
	i->last_ns = row->time_ns;
	i->last_requested = requested;
	i->tid = row->tid;
	if (is_cuda_call(i->function) && row_attr(row, ATTR_FUNC)) {
		read_function(row, i->function);
		if (!strcmp(i->function, POOL_FUNCTION)) {
			i->requested = requested;
			row_number(row, ATTR_FLAG, &i->limit);
		}
	}
	if (row_attr(row, ATTR_FREE_MEM) && row->device != DEV_HOST) {
		row_number(row, ATTR_FREE_MEM, &i->driver_free);
		row_number(row, ATTR_TOTAL_MEM, &i->driver_total);
	}
	i->open = true;
	uint32_t stack = stacks_of(&o->base.blocks->stacks, row);
	if (stack)
		i->stack = stack;
	if (i->count++ < MAX_STATES)
		oom_take_state(o, i);
	apply_view(i, view_of(o, p, row->device));
}

/* A block that the dump itself lists: needed when there were no MALLOC rows. */
static void on_listed(struct oom *o, struct block_process *p, const struct row *row)
{
	struct oom_incident *i = last_of(o, p, row->device);
	bool largest = row->type == TYPE_OOM_TOP_ALLOC;
	struct oom_block b = {.type = TYPE_UNKNOWN};

	if (!i || i->has_blocks || row->time_ns != i->last_ns)
		return;
	row_number(row, ATTR_PTR, &b.ptr);
	row_number(row, ATTR_SIZE, &b.bytes);
	row_number(row, ATTR_TIMESTAMP, &b.time_ns);
	const struct attr *pool = row_attr(row, ATTR_POOL);
	if (pool && pool->text)
		b.type = row_type_find(pool->text, pool->text_len);
	b.stack = stacks_of(&o->base.blocks->stacks, row);
	oom_list_offer(largest ? &i->largest : &i->recent, &b,
		       largest ? oom_is_larger : oom_is_newer);
}

/* Was the request granted after all? The thread may free in between, and nothing else. */
static void on_change(struct oom *o, const struct block_change *c, const struct row *row)
{
	struct oom_incident *i = last_of(o, c->process, row->device);

	bool driver = blocks_is_driver(c->pool->type);

	if (!i || !i->open)
		return;
	if (c->what == BLOCKS_FREE && c->block && driver)
		i->given_back = oom_sum(i->given_back, c->block->bytes);
	if (c->what != BLOCKS_ALLOC || row->tid != i->tid)
		return;
	i->open = false;
	i->granted = driver &&
		     (c->block->bytes == i->requested || c->block->bytes == i->last_requested) &&
		     distance(row->time_ns, i->last_ns) < TOGETHER_NS;
}

static void oom_row(struct analysis *a, const struct row *row)
{
	struct oom *o = (struct oom *)a;
	struct block_change c;

	blocks_add(o->base.blocks, row, &c);
	switch (row->event) {
	case ROW_MALLOC:
	case ROW_FREE:
		on_block(o, c.process, row);
		if (c.pool)
			count_own(&c, row);
		if (o->nincidents && c.pool)
			on_change(o, &c, row);
		break;
	case ROW_SNAPSHOT:
		on_block(o, c.process, row); /* on GPUs it says who has what, too */
		on_snapshot(o, c.process, row);
		break;
	case ROW_SYSTEM:
		if (row->type == TYPE_START_TRACE)
			row_number(row, ATTR_TOTAL, &o->any_total);
		break;
	case ROW_OOM_DETAIL:
		if (row->type == TYPE_OOM_TRIGGER)
			on_trigger(o, c.process, row);
		else if (row->type == TYPE_OOM_RECENT_ALLOC || row->type == TYPE_OOM_TOP_ALLOC)
			on_listed(o, c.process, row);
		break;
	default:
		break;
	}
}

size_t oom_group_kills(const struct oom *o)
{
	const struct processes *ps = o->base.processes;
	size_t n = 0;

	for (size_t i = 0; ps && i < ps->n; i++)
		n += ps->list[i].group_killed;
	return n;
}

static size_t oom_findings(struct analysis *a)
{
	struct oom *o = (struct oom *)a;
	size_t n = o->dropped;

	for (size_t i = 0; i < o->nincidents; i++)
		n += !o->incidents[i]->granted;
	return n + oom_group_kills(o);
}

static void oom_free(struct analysis *a)
{
	struct oom *o = (struct oom *)a;

	for (size_t i = 0; i < o->nincidents; i++) {
		free(o->incidents[i]->largest.list);
		free(o->incidents[i]->recent.list);
		free(o->incidents[i]);
	}
	free(o->incidents);
	free(o->views);
	hmap_release(&o->totals);
	blocks_free(o->base.blocks);
	free(o);
}

static const struct analysis_ops ops = {
	.name = "oom",
	.row = oom_row,
	.process = analysis_blocks_process,
	.unordered = analysis_blocks_unordered,
	.findings = oom_findings,
	.text = oom_text,
	.json = oom_json,
	.free = oom_free,
};

struct analysis *oom_new(void)
{
	struct oom *o = xcalloc(1, sizeof(*o));

	o->base = (struct analysis){.ops = &ops, .blocks = blocks_new()};
	return &o->base;
}
