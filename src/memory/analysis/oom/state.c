/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The state of a process on a device at one moment: its pools, the gaps in them, the largest and
 * the newest blocks, and what looks leaked.
 *
 * A pool's memory is the driver's blocks that hold its own; the gaps between its blocks in there
 * are what it could still give away. What a pool keeps in driver's blocks that hold nothing at all
 * is not counted: before a request is refused for good the frameworks give those back.
 */
#include "memory/analysis/oom/oom_impl.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "wire/record.h"

#define LEAK_FIRST_STEP 2 /* the first step still sets things up */
#define LEAK_AGE 2 /* steps that a block may live without suspicion */
#define LEAK_STEPS 3 /* in how many steps a call site must have left something */

/* --- lists --- */

bool oom_is_larger(const struct oom_block *a, const struct oom_block *b)
{
	return a->bytes != b->bytes ? a->bytes > b->bytes : a->time_ns > b->time_ns;
}

bool oom_is_newer(const struct oom_block *a, const struct oom_block *b)
{
	return a->time_ns > b->time_ns;
}

void oom_list_offer(struct oom_list *l, const struct oom_block *b,
		    bool (*better)(const struct oom_block *a, const struct oom_block *b))
{
	if (l->n == OOM_MAX_LIST) {
		if (!better(b, &l->list[l->n - 1]))
			return;
		l->n--;
	}
	l->list = xgrow(l->list, &l->cap, l->n + 1, sizeof(*l->list));
	size_t at = l->n++;
	for (; at && better(b, &l->list[at - 1]); at--)
		l->list[at] = l->list[at - 1];
	l->list[at] = *b;
}

/* --- collecting --- */

/* One live block; `holds`: a pool's blocks lie in it. */
struct item {
	const struct block *block;
	bool holds;
};

struct state {
	struct oom_incident *incident;
	struct item *items;
	size_t n, cap;
};

static void collect_blocks(const struct oom *o, struct state *s)
{
	struct block_walk w = {.blocks = o->base.blocks, .process = s->incident->process};

	for (struct block *b; (b = blocks_next(&w));) {
		uint32_t device = b->pool->device->device;

		if (b->state == BLOCK_ALIVE &&
		    (device == s->incident->device || device == DEV_HOST))
			LIST_ADD(s->items, s->n, s->cap, (struct item){b, false});
	}
}

/* Pool by pool, the driver first, each in the order of addresses. */
static int by_pool_and_address(const void *pa, const void *pb)
{
	const struct block *a = ((const struct item *)pa)->block;
	const struct block *b = ((const struct item *)pb)->block;

	return ORDER(blocks_is_device(b->pool->type), blocks_is_device(a->pool->type))
		       ?: ORDER(a->pool->number, b->pool->number)
		       ?: ORDER(a->ptr, b->ptr)
		       ?: ORDER(a->seq, b->seq);
}

/* The driver's block around an address, of the first n items; NULL: none. */
static struct item *find_driver_block(struct item *items, size_t n, uint64_t ptr)
{
	size_t low = 0, high = n;

	while (low < high) {
		size_t mid = low + (high - low) / 2;
		if (items[mid].block->ptr <= ptr)
			low = mid + 1;
		else
			high = mid;
	}
	struct item *found = low ? &items[low - 1] : NULL;
	return found && ptr - found->block->ptr < found->block->bytes ? found : NULL;
}

static void add_gap(struct oom_pool *p, uint64_t bytes)
{
	if (!bytes)
		return;
	p->pieces++;
	p->free_bytes = oom_sum(p->free_bytes, bytes);
	if (bytes > p->largest_free)
		p->largest_free = bytes;
}

static uint64_t end_of(const struct block *b)
{
	return oom_sum(b->ptr, b->bytes);
}

/* Walks the pool's blocks (sorted) and the driver's blocks around them side by side. */
static void map_pool(struct oom_pool *p, struct item *items, size_t n, struct item *driver,
		     size_t ndriver)
{
	struct item *in = NULL;
	uint64_t at = 0; /* up to here the driver's block is accounted for */
	uint64_t reserved = 0;

	for (size_t i = 0; i < n; i++) {
		const struct block *b = items[i].block;
		struct item *holder = find_driver_block(driver, ndriver, b->ptr);
		p->blocks++;
		p->allocated = oom_sum(p->allocated, b->bytes);
		if (holder != in) {
			if (in)
				add_gap(p, oom_less(end_of(in->block), at));
			in = holder;
			at = holder ? holder->block->ptr : 0;
			if (holder && !holder->holds)
				reserved = oom_sum(reserved, holder->block->bytes);
			if (holder)
				holder->holds = true;
		}
		if (!holder)
			continue;
		p->mapped = true;
		add_gap(p, oom_less(b->ptr, at));
		if (end_of(b) > at)
			at = end_of(b);
	}
	if (in)
		add_gap(p, oom_less(end_of(in->block), at));
	if (p->mapped)
		p->reserved = reserved;
}

static void map_pools(struct state *s)
{
	struct oom_incident *inc = s->incident;
	size_t ndriver = 0;

	while (ndriver < s->n && blocks_is_device(s->items[ndriver].block->pool->type))
		ndriver++;
	for (size_t i = 0; i < ndriver; i++) {
		const struct block *b = s->items[i].block;

		inc->own_bytes = oom_sum(inc->own_bytes, b->own[OOM_OWN_BYTES]);
		if (b->pool->type == TYPE_CUDA && b->pool->device->device == inc->device)
			inc->kept_bytes = b->pool->reserved; /* with the blocks */
	}
	inc->kept_bytes = oom_less(inc->kept_bytes, inc->own_bytes);
	for (size_t from = ndriver, to; from < s->n; from = to) {
		const struct block_pool *pool = s->items[from].block->pool;
		for (to = from + 1; to < s->n && s->items[to].block->pool == pool;)
			to++;
		if (blocks_is_driver(pool->type) || inc->npools == OOM_POOLS)
			continue;
		struct oom_pool *p = &inc->pools[inc->npools++];
		*p = (struct oom_pool){.type = pool->type, .reserved = pool->reserved};
		map_pool(p, s->items + from, to - from, s->items, ndriver);
	}
}

static void list_blocks(struct state *s)
{
	for (size_t i = 0; i < s->n; i++) {
		const struct block *b = s->items[i].block;
		struct oom_block kept = {.ptr = b->ptr,
					 .bytes = b->bytes,
					 .time_ns = b->time_ns,
					 .type = b->pool->type,
					 .stack = b->stack,
					 .owner = b->owner,
					 .step = b->step};
		if (s->items[i].holds) /* what is in it is listed */
			continue;
		oom_list_offer(&s->incident->largest, &kept, oom_is_larger);
		oom_list_offer(&s->incident->recent, &kept, oom_is_newer);
	}
}

/* --- what looks leaked --- */

/* The same call site: same pool and call stack; without call stacks, same size. */
static uint64_t site_key(const struct block *b)
{
	if (b->stack)
		return b->stack;
	return 1ull << 63 | b->bytes;
}

static int by_site_and_step(const void *pa, const void *pb)
{
	const struct block *a = ((const struct item *)pa)->block;
	const struct block *b = ((const struct item *)pb)->block;

	return ORDER(a->pool->number, b->pool->number) ?: ORDER(site_key(a), site_key(b))
	       ?: ORDER(a->step, b->step);
}

static bool may_be_leaked(const struct item *item, uint32_t step_now)
{
	const struct block *b = item->block;

	return !item->holds && !b->shadow && b->step >= LEAK_FIRST_STEP && b->step < step_now &&
	       b->pool->type != TYPE_HOST;
}

/* The blocks of one call site, in the order of steps. */
static void judge_site(struct oom_leak *leak, const struct item *items, size_t n, uint32_t step_now,
		       uint64_t *most)
{
	struct oom_leak here = {.stack = items[0].block->stack, .sites = 1};
	uint32_t steps = 0, before = 0;

	for (size_t i = 0; i < n; i++) {
		const struct block *b = items[i].block;
		steps += b->step != before;
		before = b->step;
		if (step_now - b->step < LEAK_AGE)
			continue;
		here.bytes = oom_sum(here.bytes, b->bytes);
		here.blocks++;
		here.last_step = b->step;
	}
	if (steps < LEAK_STEPS || !here.bytes)
		return;
	here.first_step = items[0].block->step;
	if (here.bytes > *most) {
		*most = here.bytes;
		leak->stack = here.stack;
	}
	if (!leak->sites || here.first_step < leak->first_step)
		leak->first_step = here.first_step;
	if (here.last_step > leak->last_step)
		leak->last_step = here.last_step;
	leak->bytes = oom_sum(leak->bytes, here.bytes);
	leak->blocks += here.blocks;
	leak->sites++;
}

static void find_leaks(struct state *s)
{
	uint32_t now = s->incident->process->step;
	struct oom_leak leak = {0};
	uint64_t most = 0;
	size_t n = 0;

	for (size_t i = 0; i < s->n; i++)
		if (may_be_leaked(&s->items[i], now))
			s->items[n++] = s->items[i];
	SORT(s->items, n, by_site_and_step);
	for (size_t from = 0, to; from < n; from = to) {
		const struct block *first = s->items[from].block;
		for (to = from + 1; to < n && s->items[to].block->pool == first->pool &&
				    site_key(s->items[to].block) == site_key(first);)
			to++;
		judge_site(&leak, s->items + from, to - from, now, &most);
	}
	s->incident->leak = leak;
}

void oom_take_state(struct oom *o, struct oom_incident *i)
{
	struct state s = {.incident = i};

	i->own_bytes = i->kept_bytes = 0;
	i->npools = 0;
	i->largest.n = 0;
	i->recent.n = 0;
	collect_blocks(o, &s);
	i->has_blocks = s.n > 0;
	SORT(s.items, s.n, by_pool_and_address);
	map_pools(&s);
	list_blocks(&s);
	find_leaks(&s); /* last: it rearranges the items */
	free(s.items);
	for (size_t k = 0; i->device == DEV_HOST && k < i->process->ndevices; k++)
		if (i->process->devices[k]->device == DEV_HOST)
			i->own_bytes = i->process->devices[k]->driver_bytes;
}
