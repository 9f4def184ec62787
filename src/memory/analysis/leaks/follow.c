/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Following the rows: the call sites of a job and how many blocks each has at the ends of steps,
 * and the driver's blocks that pools cut theirs from. judge.c finds out what it means.
 */
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/containers/omap.h"
#include "base/mem.h"
#include "memory/analysis/common/frames.h"
#include "memory/analysis/leaks/leaks_impl.h"
#include "memory/analysis/processes/processes.h"

#define MAX_SIZES 8192 /* sites for a single size; further sizes have their parent alone */

static struct leak_process *process_of(struct block_process *p)
{
	if (!p->own)
		p->own = xcalloc(1, sizeof(struct leak_process));
	return p->own;
}

/* --- call stacks that mean the same --- */

/*
 * What distinguishes a line: function and source line. The compiler makes several copies of a call,
 * so the address says too much; where there is no source line, the offset in the function stays.
 */
static uint64_t hash_line(const struct frame_line *line, uint64_t inner)
{
	const char *end = line->text + line->len;
	const char *address = memmem(line->text, line->len, " [0x", 4);
	const char *source = address ? memchr(address, ']', (size_t)(end - address)) : NULL;

	if (!address)
		return XXH3_64bits_withSeed(line->text, line->len, inner);
	if (!source || !memchr(source, ':', (size_t)(end - source)))
		return XXH3_64bits_withSeed(line->text, (size_t)(address - line->text), inner);
	const char *offset = memrchr(line->text, '+', (size_t)(address - line->text));
	const char *stop = offset ? offset : address;
	inner = XXH3_64bits_withSeed(line->text, (size_t)(stop - line->text), inner);
	return XXH3_64bits_withSeed(source, (size_t)(end - source), inner);
}

static uint64_t hash_stack(const struct stack *s)
{
	const char *parts[] = {s->c, s->py};
	struct frame_line line;
	uint64_t h = 0;

	for (size_t i = 0; i < 2; i++) {
		h++;
		for (const char *text = parts[i]; text && frame_next(&text, &line);)
			h = hash_line(&line, h);
	}
	return h;
}

/* The first call stack that means the same as this one. */
static uint32_t stack_for(struct leaks *l, uint32_t number)
{
	if (number < l->nstacks && l->stacks[number])
		return l->stacks[number];
	size_t old = l->stacks_cap;
	l->stacks = xgrow(l->stacks, &l->stacks_cap, number + 1u, sizeof(*l->stacks));
	if (l->stacks_cap > old)
		memset(l->stacks + old, 0, (l->stacks_cap - old) * sizeof(*l->stacks));
	if (number >= l->nstacks)
		l->nstacks = number + 1u;
	struct stack stack = stacks_get(&l->base.blocks->stacks, number);
	uint64_t hash = hash_stack(&stack);
	uint64_t first = hmap_get(&l->by_stack, hash);
	if (first == HMAP_NONE) {
		hmap_put(&l->by_stack, hash, number);
		first = number;
	}
	l->stacks[number] = (uint32_t)first;
	return (uint32_t)first;
}

/* --- sites --- */

/* A step ended with `live` blocks: no level above that has lasted. */
static void put_level(struct leak_site *s, uint32_t step)
{
	while (s->nlevels && s->levels[s->nlevels - 1].live > s->live)
		step = s->levels[--s->nlevels].step;
	if (s->live <= s->base) {
		s->base = s->live;
		return;
	}
	if (s->nlevels && s->levels[s->nlevels - 1].live == s->live)
		return;
	LIST_ADD(s->levels, s->nlevels, s->levels_cap, (struct leak_level){s->live, step});
}

void leak_site_settle(struct leak_site *s)
{
	const struct leak_process *p = process_of(s->pool->process);

	if (s->ends == p->ends)
		return;
	if (s->ends)
		put_level(s, s->changed_step);
	else /* the warm-up has ended: this is where counting begins */
		s->base = s->live;
	s->ends = p->ends;
	s->freed_at_end = s->freed;
	s->life_at_end = s->life;
}

static void count_block(struct leak_site *s, int by, uint32_t step, uint64_t bytes)
{
	const struct leak_process *p = process_of(s->pool->process);

	for (; s; s = s->parent) {
		leak_site_settle(s);
		s->live += (uint64_t)(int64_t)by;
		if (!p->ends)
			growth_count(s, &p->windows, (int64_t)(by < 0 ? 0 - bytes : bytes));
		if (by < 0)
			continue;
		s->changed_step = step;
		if (!s->first_step)
			s->first_step = step;
	}
}

static void count_freed(struct leak_site *s, uint32_t life)
{
	for (; s; s = s->parent) {
		leak_site_settle(s);
		s->freed++;
		if (life > s->life)
			s->life = life;
	}
}

static struct leak_site *site_new(struct leaks *l, const struct leak_site *like, uint64_t key)
{
	struct leak_site *s = xmalloc(sizeof(*s));

	*s = *like;
	s->number = (uint32_t)l->nsites;
	s->ends = process_of(s->pool->process)->ends;
	LIST_ADD(l->sites, l->nsites, l->sites_cap, s);
	l->nsizes += s->parent != NULL;
	hmap_put_ptr(&l->by_key, key, s);
	return s;
}

static struct leak_site *site_find(struct leaks *l, const struct leak_site *like, bool make)
{
	uint64_t key =
		((uint64_t)like->pool->number << 35 | (uint64_t)like->mapping << 34 |
		 (uint64_t)like->pinned << 33 | (uint64_t)like->is_parent << 32 | like->stack) ^
		like->size * 0x9e3779b97f4a7c15u;

	for (;; key++) {
		struct leak_site *s = hmap_get_ptr(&l->by_key, key);

		if (!s)
			return make ? site_new(l, like, key) : NULL;
		if (s->pool == like->pool && s->stack == like->stack && s->size == like->size &&
		    s->pinned == like->pinned && s->mapping == like->mapping &&
		    s->is_parent == like->is_parent && s->before == like->before)
			return s;
	}
}

static uint64_t round_up(uint64_t size)
{
	if (size > 1ull << 63)
		return UINT64_MAX;
	return size < 2 ? size : 1ull << (64 - __builtin_clzll(size - 1));
}

/* The call site that a block belongs to. */
static struct leak_site *site_for(struct leaks *l, const struct block *b, bool pinned)
{
	struct leak_site like = {.pool = b->pool, .pinned = pinned, .mapping = b->mapping};

	if (b->stack) {
		like.stack = stack_for(l, b->stack);
		return site_find(l, &like, true);
	}
	if (b->shadow) {
		like.before = true;
		return site_find(l, &like, true);
	}
	like.size = b->bytes;
	struct leak_site *s = site_find(l, &like, false);
	if (s)
		return s;
	like.size = round_up(b->bytes);
	like.is_parent = true;
	struct leak_site *parent = site_find(l, &like, true);
	if (l->nsizes >= MAX_SIZES)
		return parent;
	like.size = b->bytes;
	like.is_parent = false;
	like.parent = parent;
	return site_find(l, &like, true);
}

/* --- the driver's blocks of a device by address --- */

struct parent_blocks {
	struct omap by_ptr;
	struct block *last; /* the one that was found last */
};

/* May pools cut from it? From memory of malloc none does. */
static bool is_parent(const struct block *b)
{
	return blocks_is_device(b->pool->type) || b->mapping;
}

static void parent_blocks_add(struct parent_blocks *c, struct block *b)
{
	c->last = NULL;
	omap_put(&c->by_ptr, b->ptr, b);
}

static void parent_blocks_remove(struct parent_blocks *c, const struct block *b)
{
	c->last = NULL;
	if (omap_get(&c->by_ptr, b->ptr) == b)
		omap_remove(&c->by_ptr, b->ptr);
}

static bool block_holds(const struct block *b, uint64_t ptr, uint64_t bytes)
{
	return ptr >= b->ptr && bytes <= b->bytes && ptr - b->ptr <= b->bytes - bytes;
}

/* The block that holds all of [ptr, ptr + bytes), or NULL. */
static struct block *parent_blocks_around(struct parent_blocks *c, uint64_t ptr, uint64_t bytes)
{
	uint64_t start;

	if (c->last && block_holds(c->last, ptr, bytes))
		return c->last;
	struct block *b = omap_floor(&c->by_ptr, ptr, &start);
	/* With a foreign dump a block may have ended unseen and be another one by now. */
	if (!b || b->ptr != start || !block_holds(b, ptr, bytes))
		return NULL;
	c->last = b;
	return b;
}

static void parent_blocks_release(struct parent_blocks *c)
{
	omap_release(&c->by_ptr);
	c->last = NULL;
}

static struct parent_blocks *parents_of(struct block_device *d)
{
	if (!d->own[0])
		d->own[0] = (uintptr_t)xcalloc(1, sizeof(struct parent_blocks));
	return (struct parent_blocks *)(uintptr_t)d->own[0];
}

static struct leak_pool *pool_of(struct block_pool *pool)
{
	if (!pool->own)
		pool->own = xcalloc(1, sizeof(struct leak_pool));
	return pool->own;
}

/* --- rows --- */

static void uncount_block(struct block *b)
{
	if (!(b->own[OWN_FLAGS] & LEAK_COUNTED))
		return;
	count_block(leak_site_of(b), -1, 0, b->bytes);
	b->own[OWN_FLAGS] &= ~(uint64_t)LEAK_COUNTED;
}

/* A pool has cut a block from the driver's memory: from now on that is the pool's affair. */
static void on_pool_alloc(const struct block *b)
{
	struct block *from = parent_blocks_around(parents_of(b->pool->device), b->ptr, b->bytes);

	if (!from || from->own[OWN_FLAGS] & LEAK_CARVED)
		return;
	uncount_block(from);
	from->own[OWN_FLAGS] |= LEAK_CARVED;
}

static void on_alloc(struct leaks *l, const struct row *row, struct block *b)
{
	bool driver = blocks_is_driver(b->pool->type);
	struct leak_site *s = site_for(l, b, driver && row_attr_is(row, ATTR_PINNED, "true"));

	b->own[OWN_SITE] = (uintptr_t)s;
	if (!driver)
		on_pool_alloc(b);
	else if (b->pool->type == TYPE_HAL && row_attr_is(row, ATTR_ALLOC_TYPE, "create"))
		b->own[OWN_FLAGS] |= LEAK_CREATED;
	else if (is_parent(b))
		parent_blocks_add(parents_of(b->pool->device), b);
	if (b->shadow) /* nobody knows in which step it was allocated */
		return;
	count_block(s, 1, b->step, b->bytes);
	b->own[OWN_FLAGS] |= LEAK_COUNTED;
}

static void on_end(const struct block_change *c)
{
	struct block *b = c->block;

	uncount_block(b);
	if (c->what == BLOCKS_LEFT)
		return;
	if (is_parent(b))
		parent_blocks_remove(parents_of(b->pool->device), b);
	if (b->shadow || !b->step)
		return;
	count_freed(leak_site_of(b), c->process->step > b->step ? c->process->step - b->step : 0);
}

static void on_step_end(struct leaks *l, struct block_process *p, uint32_t step,
			const struct row *row)
{
	struct leak_process *own = process_of(p);
	/* Of steps that were dropped, those have rows whose blocks are alive. */
	bool skips = step > own->last_step && row_attr(row, ATTR_CARRIED);

	own->ends += skips ? step - own->last_step : 1;
	own->last_step = step;
	own->end_ns = row->time_ns;
	for (size_t i = 0; i < p->ndevices; i++)
		blocks_hold(l->base.blocks, p->devices[i]);
	for (size_t i = 0; i < p->npools; i++)
		pool_of(p->pools[i])->reserved_at_end = p->pools[i]->reserved;
}

/* What were steps so far was none: all of it was the warm-up. */
static void forget_steps(struct leaks *l, struct block_process *p)
{
	*process_of(p) = (struct leak_process){0};
	for (size_t i = 0; i < l->nsites; i++) {
		struct leak_site *s = l->sites[i];

		if (s->pool->process != p)
			continue;
		s->first_step = s->ends = s->changed_step = s->life = s->life_at_end = 0;
		s->freed = s->freed_at_end = s->base = s->nlevels = 0;
		free(s->growth); /* a step follows at once */
		s->growth = NULL;
	}
}

/* Steps are better than windows of time; and what comes after its end is not the program's. */
static void advance_time(struct block_process *p, const struct row *row)
{
	struct leak_process *own = process_of(p);

	if (!own->ends && !p->torn_down && !row_attr(row, ATTR_CARRIED))
		growth_advance(&own->windows, row->time_ns);
}

static void leaks_row(struct analysis *a, const struct row *row)
{
	struct leaks *l = (struct leaks *)a;
	struct block_change c;

	l->dumped |= row->event == ROW_MALLOC && !row->hidden;
	switch (blocks_add(l->base.blocks, row, &c)) {
	case BLOCKS_ALLOC:
		advance_time(c.process, row);
		on_alloc(l, row, c.block);
		break;
	case BLOCKS_FREE:
	case BLOCKS_LEFT:
		advance_time(c.process, row);
		if (c.block)
			on_end(&c);
		break;
	default:
		break;
	}
	if (c.steps_anew)
		forget_steps(l, c.process);
	if (c.step_ended)
		on_step_end(l, c.process, c.step_ended, row);
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
		struct parent_blocks *c = (struct parent_blocks *)(uintptr_t)p->devices[i]->own[0];

		if (c)
			parent_blocks_release(c);
		free(c);
	}
	free(p->own);
}

static void leaks_free(struct analysis *a)
{
	struct leaks *l = (struct leaks *)a;

	for (size_t i = 0; i < l->base.blocks->nprocesses; i++)
		free_own(l->base.blocks->processes[i]);
	for (size_t i = 0; i < l->nsites; i++) {
		free(l->sites[i]->levels);
		free(l->sites[i]->growth);
		free(l->sites[i]);
	}
	free(l->sites);
	free(l->stacks);
	hmap_release(&l->by_key);
	hmap_release(&l->by_stack);
	blocks_free(l->base.blocks);
	free(l);
}

static bool leaks_judged(struct analysis *a)
{
	struct leak_answer answer;

	leaks_judge((struct leaks *)a, &answer);
	bool judged = answer.judged && !answer.ngrowths &&
		      !(a->processes && processes_uncovered(a->processes));
	leak_answer_release(&answer);
	return judged;
}

bool leaks_kept_after_end(struct analysis *a)
{
	struct leak_answer answer;
	bool kept = false;

	leaks_judge((struct leaks *)a, &answer);
	for (size_t i = 0; i < answer.nrests; i++)
		kept |= answer.rests[i].driver.blocks && !answer.rests[i].running &&
			answer.rests[i].process->finalized;
	leak_answer_release(&answer);
	return kept;
}

static const struct analysis_ops leaks_ops = {
	.name = "leaks",
	.attrs = BLOCKS_ATTRS | 1ull << ATTR_PINNED,
	.row = leaks_row,
	.process = analysis_blocks_process,
	.unordered = analysis_blocks_unordered,
	.judged = leaks_judged,
	.findings = leaks_findings,
	.text = leaks_text,
	.json = leaks_json,
	.free = leaks_free,
};

struct analysis *leaks_new(const struct leaks_options *options)
{
	struct leaks *l = xcalloc(1, sizeof(*l));

	l->base = (struct analysis){.ops = &leaks_ops, .blocks = blocks_new()};
	l->min_bytes = options ? options->min_bytes : UINT64_MAX;
	l->by = options ? (enum leaks_by)options->by : LEAKS_BY_SITE;
	return &l->base;
}
