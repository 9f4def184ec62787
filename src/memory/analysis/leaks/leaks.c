/* SPDX-License-Identifier: MulanPSL-2.0 */
/* What the rows say about places, kept up to date; the judgement is made in
 * memory/analysis/leaks/judge.c. */
#include "memory/analysis/leaks/leaks.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "memory/analysis/leaks/leaks_impl.h"

static struct leak_pool *pool_of(struct block_pool *pool)
{
	if (!pool->own)
		pool->own = xcalloc(1, sizeof(struct leak_pool));
	return pool->own;
}

static struct carve *carve_of(struct block_device *d)
{
	if (!d->own[0])
		d->own[0] = (uintptr_t)xcalloc(1, sizeof(struct carve));
	return (struct carve *)(uintptr_t)d->own[0];
}

/* --- rows --- */

static bool attr_is(const struct row *row, enum attr_key key, const char *text)
{
	const struct attr *a = row_attr(row, key);
	size_t len = strlen(text);

	return a && a->kind == ATTR_TEXT && a->text_len == len && !memcmp(a->text, text, len);
}

static void uncount(struct block *b)
{
	if (!(b->own[OWN_FLAGS] & LEAK_COUNTED))
		return;
	leak_site_count(leak_site_of(b), -1, 0);
	b->own[OWN_FLAGS] &= ~(uint64_t)LEAK_COUNTED;
}

/* A pool has cut a block from the driver's memory: from now on that is the pool's affair. */
static void on_pool_alloc(const struct block *b)
{
	struct block *from = carve_around(carve_of(b->pool->device), b->ptr, b->bytes);

	if (!from || from->own[OWN_FLAGS] & LEAK_CARVED || !blocks_is_device(from->pool->type))
		return;
	uncount(from);
	from->own[OWN_FLAGS] |= LEAK_CARVED;
}

static void on_alloc(struct leaks *l, const struct row *row, struct block *b)
{
	bool driver = blocks_is_driver(b->pool->type);
	struct leak_site *s = leak_site_for(l, b, driver && attr_is(row, ATTR_PINNED, "true"));

	b->own[OWN_SITE] = (uintptr_t)s;
	if (!driver)
		on_pool_alloc(b);
	else if (b->pool->type == TYPE_HAL && attr_is(row, ATTR_ALLOC_TYPE, "create"))
		b->own[OWN_FLAGS] |= LEAK_CREATED;
	else if (blocks_is_device(b->pool->type))
		carve_add(carve_of(b->pool->device), b);
	if (b->shadow) /* nobody knows in which step it was allocated */
		return;
	leak_site_count(s, 1, b->step);
	b->own[OWN_FLAGS] |= LEAK_COUNTED;
}

static void on_end(const struct block_change *c)
{
	struct block *b = c->block;

	uncount(b);
	if (c->what == BLOCKS_LEFT)
		return;
	if (blocks_is_device(b->pool->type))
		carve_remove(carve_of(b->pool->device), b);
	if (b->shadow || !b->step)
		return;
	leak_site_freed(leak_site_of(b),
			c->process->step > b->step ? c->process->step - b->step : 0);
}

static void on_step_end(struct leaks *l, struct block_process *p, uint32_t step, uint64_t time_ns)
{
	struct leak_process *own = leak_process_of(p);

	own->ends++;
	own->last_step = step;
	own->end_ns = time_ns;
	for (size_t i = 0; i < p->ndevices; i++)
		blocks_hold(l->blocks, p->devices[i]);
	for (size_t i = 0; i < p->npools; i++)
		pool_of(p->pools[i])->reserved_at_end = p->pools[i]->reserved;
}

static void leaks_row(struct analysis *a, const struct row *row)
{
	struct leaks *l = (struct leaks *)a;
	struct block_change c;

	l->dumped |= row->event == ROW_MALLOC && !row->hidden;
	switch (blocks_add(l->blocks, row, &c)) {
	case BLOCKS_ALLOC:
		on_alloc(l, row, c.block);
		break;
	case BLOCKS_FREE:
	case BLOCKS_LEFT:
		if (c.block)
			on_end(&c);
		break;
	default:
		break;
	}
	if (c.step_ended)
		on_step_end(l, c.process, c.step_ended, row->time_ns);
}

static void leaks_process(struct analysis *a, uint32_t pid, const char *command)
{
	blocks_process(((struct leaks *)a)->blocks, pid, command);
}

static bool leaks_unordered(const struct analysis *a)
{
	return blocks_unordered(((const struct leaks *)a)->blocks);
}

static size_t leaks_findings(struct analysis *a)
{
	struct leak_answer answer;

	leaks_judge((struct leaks *)a, &answer);
	size_t n = answer.growing;
	leak_answer_release(&answer);
	return n;
}

static void free_own(struct block_process *p)
{
	for (size_t i = 0; i < p->npools; i++)
		free(p->pools[i]->own);
	for (size_t i = 0; i < p->ndevices; i++) {
		struct carve *c = (struct carve *)(uintptr_t)p->devices[i]->own[0];

		if (c)
			carve_release(c);
		free(c);
	}
	free(p->own);
}

static void leaks_free(struct analysis *a)
{
	struct leaks *l = (struct leaks *)a;

	for (size_t i = 0; i < blocks_nprocesses(l->blocks); i++)
		free_own(blocks_process_at(l->blocks, i));
	for (size_t i = 0; i < l->nsites; i++) {
		free(l->sites[i]->levels);
		free(l->sites[i]);
	}
	free(l->sites);
	free(l->stacks);
	hmap_release(&l->by_key);
	hmap_release(&l->by_stack);
	blocks_free(l->blocks);
	free(l);
}

static bool leaks_judged(struct analysis *a)
{
	struct leak_answer answer;

	leaks_judge((struct leaks *)a, &answer);
	bool judged = answer.judged;
	leak_answer_release(&answer);
	return judged;
}

static const struct analysis_ops leaks_ops = {
	.name = "leaks",
	.attrs = BLOCKS_ATTRS | 1ull << ATTR_PINNED | 1ull << ATTR_ALLOC_TYPE,
	.row = leaks_row,
	.process = leaks_process,
	.unordered = leaks_unordered,
	.judged = leaks_judged,
	.findings = leaks_findings,
	.text = leaks_text,
	.json = leaks_json,
	.free = leaks_free,
};

struct analysis *leaks_new(const struct leaks_options *options)
{
	struct leaks *l = xcalloc(1, sizeof(*l));

	l->base.ops = &leaks_ops;
	l->min_bytes = options ? options->min_bytes : UINT64_MAX;
	l->blocks = blocks_new();
	return &l->base;
}
