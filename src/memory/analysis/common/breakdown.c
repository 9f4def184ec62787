/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Following the rows, then dividing the driver's bytes of a moment.
 *
 * Which driver blocks a pool cuts from is noted when it does: at the moment that is counted such a
 * block may be all free, and nothing else would show whose it is.
 */
#include "memory/analysis/common/breakdown.h"

#include <stdlib.h>
#include <string.h>

#include "base/containers/omap.h"
#include "base/mem.h"

/* What struct block's own[] is used for. */
enum breakdown_own {
	OWN_CARVED, /* of a driver block: the struct block_pool that cut from it first */
	OWN_CREATED, /* of a driver block: it has a handle in place of an address */
	OWN_LEFT, /* rows until it was LEFT, and one; 0 before */
};

/* What is known of a device besides; in own[0] of struct block_device. */
struct breakdown_device {
	struct breakdown_moment moment;
	bool indexed; /* there are pools: driver blocks are kept by address */
	struct omap driver; /* may hold blocks that have ended: surrounds() looks */
	struct block *last; /* driver block of the newest pool block */
	uint64_t last_row; /* the how manyth was its newest, made-up frees aside */
};

static inline struct block_pool *block_carved_by(const struct block *b)
{
	return (struct block_pool *)(uintptr_t)b->own[OWN_CARVED];
}

static inline uint64_t block_end(const struct block *b)
{
	return b->ptr + b->bytes < b->ptr ? UINT64_MAX : b->ptr + b->bytes;
}

struct breakdown *breakdown_new(void)
{
	struct breakdown *c = xcalloc(1, sizeof(*c));

	c->blocks = blocks_new();
	return c;
}

void breakdown_free(struct breakdown *c)
{
	if (!c)
		return;
	for (size_t i = 0; i < c->ndevices; i++) {
		omap_release(&c->devices[i]->driver);
		free(c->devices[i]->moment.pools);
		free(c->devices[i]);
	}
	free(c->devices);
	blocks_free(c->blocks);
	free(c);
}

static struct breakdown_device *device_of(struct breakdown *c, struct block_device *d)
{
	struct breakdown_device *known = (struct breakdown_device *)(uintptr_t)d->own[0];

	if (known)
		return known;
	known = xcalloc(1, sizeof(*known));
	LIST_ADD(c->devices, c->ndevices, c->cap_devices, known);
	d->own[0] = (uintptr_t)known;
	return known;
}

struct breakdown_moment *breakdown_moment(struct breakdown *c, struct block_device *d)
{
	return &device_of(c, d)->moment;
}

/* --- which driver block a pool cuts from --- */

static bool is_addressed(const struct block *b)
{
	return blocks_is_driver(b->pool->type) && !b->own[OWN_CREATED];
}

/* Blocks end without a word when their free was lost, so what the index has is checked. */
static bool surrounds(const struct block *driver, const struct block *b)
{
	return driver->state == BLOCK_ALIVE && driver->pool->device == b->pool->device &&
	       is_addressed(driver) && b->ptr >= driver->ptr && b->ptr < block_end(driver);
}

static void index_driver(struct breakdown *c, struct breakdown_device *known,
			 const struct block_device *d)
{
	struct block_walk w = {.blocks = c->blocks, .process = d->process};

	known->indexed = true;
	for (struct block *b; (b = blocks_next(&w));)
		if (b->pool->device == d && b->state == BLOCK_ALIVE && is_addressed(b))
			omap_put(&known->driver, b->ptr, b);
}

static void note_driver(struct breakdown *c, struct block *b, const struct row *row)
{
	struct breakdown_device *known = device_of(c, b->pool->device);

	if (row_attr_is(row, ATTR_ALLOC_TYPE, "create") ||
	    row_attr_is(row, ATTR_ALLOC_TYPE, "array"))
		b->own[OWN_CREATED] = 1;
	else if (known->indexed)
		omap_put(&known->driver, b->ptr, b);
}

static void note_pool(struct breakdown *c, struct block *b)
{
	struct breakdown_device *known = device_of(c, b->pool->device);
	uint64_t start;

	if (!known->indexed)
		index_driver(c, known, b->pool->device);
	if (!known->last || !surrounds(known->last, b)) {
		known->last = omap_floor(&known->driver, b->ptr, &start);
		if (!known->last || !surrounds(known->last, b))
			return;
	}
	if (known->last->own[OWN_CARVED])
		return;
	known->last->own[OWN_CARVED] = (uintptr_t)b->pool;
	c->carved = known->last;
}

static void note_end(struct breakdown *c, struct block *b)
{
	struct breakdown_device *known = device_of(c, b->pool->device);

	if (!known->indexed || !is_addressed(b))
		return;
	if (omap_get(&known->driver, b->ptr) == b)
		omap_remove(&known->driver, b->ptr);
	if (known->last == b)
		known->last = NULL;
}

enum block_what breakdown_row(struct breakdown *c, const struct row *row, struct block_change *out)
{
	enum block_what what = blocks_add(c->blocks, row, out);

	c->rows++;
	c->row_ns = row->time_ns;
	c->carved = NULL;
	if (what == BLOCKS_ALLOC && blocks_is_driver(out->pool->type))
		note_driver(c, out->block, row);
	else if (what == BLOCKS_ALLOC)
		note_pool(c, out->block);
	else if ((what == BLOCKS_FREE || what == BLOCKS_LEFT) && out->block)
		note_end(c, out->block);
	if (what == BLOCKS_LEFT && out->block)
		out->block->own[OWN_LEFT] = c->rows;
	else if (what == BLOCKS_ALLOC || what == BLOCKS_FREE)
		device_of(c, out->pool->device)->last_row = c->rows;
	return what;
}

/* --- moments --- */

bool breakdown_is_higher(const struct block_device *d, const struct breakdown_moment *m)
{
	if (!m->taken || d->driver_bytes != m->driver_bytes)
		return !m->taken || d->driver_bytes > m->driver_bytes;
	return d->pool_bytes > m->pool_bytes;
}

static void note_pools(struct breakdown_moment *m, const struct block_device *d)
{
	const struct block_process *p = d->process;

	m->npools = 0;
	for (size_t i = 0; i < p->npools; i++) {
		struct block_pool *pool = p->pools[i];
		if (pool->device != d)
			continue;
		LIST_ADD(m->pools, m->npools, m->cap_pools,
			 (struct breakdown_pool){pool, pool->live_bytes, pool->live_blocks,
						 pool->reserved});
	}
}

static void note_moment(struct breakdown_moment *m, const struct breakdown *c,
			const struct block_device *d)
{
	m->taken = true;
	m->at_end = false;
	m->time_ns = c->row_ns;
	m->rows = c->rows;
	m->step = d->process->step;
	m->in_step = d->process->in_step;
	m->driver_bytes = d->driver_bytes;
	m->pool_bytes = d->pool_bytes;
	note_pools(m, d);
}

void breakdown_take(struct breakdown *c, struct block_device *d)
{
	note_moment(breakdown_moment(c, d), c, d);
	blocks_hold(c->blocks, d);
}

void breakdown_forget(struct breakdown *c, struct block_device *d)
{
	breakdown_moment(c, d)->taken = false;
}

/* Was it alive at the moment? Asked of blocks that were held for it, or are in the table. */
static bool was_alive(const struct breakdown_moment *m, const struct block *b)
{
	/* The made-up frees of the end are behind all others; one before that means that an
	 * address was used again. */
	return !b->own[OWN_LEFT] || b->own[OWN_LEFT] > m->rows;
}

static void count_alive(struct breakdown_moment *m, const struct block *b)
{
	*(blocks_is_driver(b->pool->type) ? &m->driver_bytes : &m->pool_bytes) += b->bytes;
	for (size_t i = 0; i < m->npools; i++) {
		if (m->pools[i].pool != b->pool)
			continue;
		m->pools[i].live_bytes += b->bytes;
		m->pools[i].live_blocks++;
	}
}

/* Blocks with a FREE that was made up do not count as alive in the sums of struct blocks. */
void breakdown_take_end(struct breakdown *c, struct block_device *d)
{
	struct breakdown_moment *m = breakdown_moment(c, d);
	struct block_walk w = {.blocks = c->blocks, .process = d->process};

	note_moment(m, c, d);
	m->at_end = true;
	m->time_ns = d->process->last_ns;
	m->rows = device_of(c, d)->last_row;
	m->driver_bytes = m->pool_bytes = 0;
	for (size_t i = 0; i < m->npools; i++)
		m->pools[i].live_bytes = m->pools[i].live_blocks = 0;
	for (struct block *b; (b = blocks_next(&w));)
		if (b->pool->device == d && was_alive(m, b))
			count_alive(m, b);
}

/* --- dividing ---
 *
 * Blocks are sorted by address and walked once; blocks that are open at an address form a stack,
 * and the bytes up to the next edge belong to its top.
 */

struct open {
	uint64_t end;
	size_t share; /* its number */
};

struct count {
	const struct breakdown_moment *moment;
	struct block_device *device;
	struct block_list driver, created, pools, outside;
	struct open *stack;
	size_t depth, cap_stack;
	uint64_t *carved; /* bytes of the driver that each of moment->pools cuts from */
	struct breakdown_shares *out;
};

static size_t share_add(struct count *x, struct block *b, struct block_pool *pool, uint64_t bytes)
{
	struct breakdown_shares *s = x->out;

	s->list = xgrow(s->list, &s->cap, s->n + 1, sizeof(*s->list));
	s->list[s->n] = (struct breakdown_share){b, pool, bytes};
	s->bytes += bytes;
	return s->n++;
}

static void charge_share(struct count *x, size_t share, uint64_t bytes)
{
	x->out->list[share].bytes += bytes;
	x->out->bytes += bytes;
}

static void collect_blocks(struct breakdown *c, struct count *x)
{
	struct block_walk w = {.blocks = c->blocks,
			       .process = x->device->process,
			       .held = x->moment->at_end ? NULL : x->device};

	for (struct block *b; (b = blocks_next(&w));) {
		if (b->pool->device != x->device || !was_alive(x->moment, b))
			continue;
		struct block_list *l = !blocks_is_driver(b->pool->type) ? &x->pools
				       : b->own[OWN_CREATED]		? &x->created
									: &x->driver;
		block_list_add(l, b);
	}
}

void breakdown_alive(struct breakdown *c, struct block_device *d, struct block_list *out)
{
	const struct breakdown_moment *m = breakdown_moment(c, d);
	struct block_walk w = {
		.blocks = c->blocks, .process = d->process, .held = m->at_end ? NULL : d};

	for (struct block *b; (b = blocks_next(&w));)
		if (b->pool->device == d && was_alive(m, b))
			block_list_add(out, b);
}

bool breakdown_is_carved(const struct block *b)
{
	return b->own[OWN_CARVED] != 0;
}

bool breakdown_is_created(const struct block *b)
{
	return blocks_is_driver(b->pool->type) && b->own[OWN_CREATED];
}

/* By address; of two at the same one the outer first. */
static int by_address(const void *pa, const void *pb)
{
	const struct block *a = *(struct block *const *)pa, *b = *(struct block *const *)pb;

	return ORDER(a->ptr, b->ptr) ?: ORDER(b->bytes, a->bytes) ?: ORDER(a->seq, b->seq);
}

static int by_seq(const void *pa, const void *pb)
{
	const struct block *a = *(struct block *const *)pa, *b = *(struct block *const *)pb;

	return ORDER(a->seq, b->seq);
}

static void sort_list(struct block_list *l, int (*order)(const void *, const void *))
{
	SORT(l->at, l->n, order);
}

/* Closes what ends before `to`; returns how far everything is charged. */
static uint64_t close_until(struct count *x, uint64_t at, uint64_t to)
{
	while (x->depth && x->stack[x->depth - 1].end <= to) {
		struct open *top = &x->stack[--x->depth];
		if (top->end > at) {
			charge_share(x, top->share, top->end - at);
			at = top->end;
		}
	}
	return at;
}

/*
 * Divides [start, end) among n blocks that begin in it; returns what none of them covers. One that
 * a later block reaches beyond has ended unseen, and gets nothing behind that one's beginning.
 */
static uint64_t divide_range(struct count *x, uint64_t start, uint64_t end, struct block **blocks,
			     size_t n)
{
	uint64_t at = start, rest = 0;

	x->depth = 0;
	for (size_t i = 0; i < n; i++) {
		struct block *b = blocks[i];
		uint64_t b_end = block_end(b) < end ? block_end(b) : end;

		at = close_until(x, at, b->ptr);
		if (x->depth)
			charge_share(x, x->stack[x->depth - 1].share, b->ptr - at);
		else
			rest += b->ptr - at;
		at = b->ptr;
		LIST_ADD(x->stack, x->depth, x->cap_stack,
			 (struct open){b_end, share_add(x, b, b->pool, 0)});
	}
	at = close_until(x, at, end);
	return rest + (end - at);
}

static void add_carved(struct count *x, const struct block_pool *pool, uint64_t bytes)
{
	for (size_t i = 0; i < x->moment->npools; i++)
		if (x->moment->pools[i].pool == pool)
			x->carved[i] += bytes;
}

/* One block of the driver, and the n pool blocks that begin in it. */
static void divide_driver(struct count *x, struct block *driver, struct block **blocks, size_t n)
{
	struct block_pool *pool = n ? blocks[0]->pool : block_carved_by(driver);

	if (!pool) {
		share_add(x, driver, driver->pool, driver->bytes);
		return;
	}
	if (block_carved_by(driver))
		pool = block_carved_by(driver);
	uint64_t end = block_end(driver);
	uint64_t rest = divide_range(x, driver->ptr, end, blocks, n);
	rest += driver->bytes - (end - driver->ptr); /* nonsense that goes round the end */
	if (rest)
		share_add(x, NULL, pool, rest);
	add_carved(x, pool, driver->bytes);
}

static void divide_drivers(struct count *x)
{
	size_t k = 0;

	for (size_t i = 0; i < x->driver.n; i++) {
		struct block *driver = x->driver.at[i];
		uint64_t end = block_end(driver);
		size_t first;

		if (i + 1 < x->driver.n && x->driver.at[i + 1]->ptr < end)
			end = x->driver.at[i + 1]->ptr;
		for (; k < x->pools.n && x->pools.at[k]->ptr < driver->ptr; k++)
			block_list_add(&x->outside, x->pools.at[k]);
		for (first = k; k < x->pools.n && x->pools.at[k]->ptr < end;)
			k++;
		divide_driver(x, driver, k > first ? &x->pools.at[first] : NULL, k - first);
	}
	for (; k < x->pools.n; k++)
		block_list_add(&x->outside, x->pools.at[k]);
}

/* What a pool has beyond its blocks, if its rows say how much it holds; at most `most`. */
static uint64_t share_free(struct count *x, size_t i, uint64_t allocated, uint64_t most)
{
	const struct breakdown_pool *p = &x->moment->pools[i];
	uint64_t known = x->carved[i] + allocated;
	uint64_t rest = p->reserved > known ? p->reserved - known : 0;

	if (rest > most)
		rest = most;
	if (rest)
		share_add(x, NULL, p->pool, rest);
	return rest;
}

/*
 * Pool blocks in no driver block with an address: they must lie in memory that was created. What
 * is left of that is free inside those pools as far as they say how much they hold, and for the
 * remainder the driver's own.
 */
static void divide_created(struct count *x, size_t first, uint64_t outside)
{
	uint64_t created = 0, left, used;

	for (size_t i = 0; i < x->created.n; i++)
		created += x->created.at[i]->bytes;
	used = outside < created ? outside : created;
	left = created - used;
	x->out->outside_bytes = outside - used;
	for (size_t i = 0; i < x->moment->npools && outside; i++) {
		uint64_t allocated = 0;

		for (size_t k = first; k < x->out->n; k++)
			if (x->out->list[k].pool == x->moment->pools[i].pool &&
			    x->out->list[k].block)
				allocated += x->out->list[k].bytes;
		if (!allocated)
			continue;
		uint64_t rest =
			share_free(x, i, allocated, x->device->has_driver ? left : UINT64_MAX);
		if (x->device->has_driver) {
			left -= rest;
			used += rest;
		} else {
			x->out->outside_bytes += rest;
		}
	}
	for (size_t i = 0; i < x->created.n; i++) {
		struct block *b = x->created.at[i];
		uint64_t taken = b->bytes < used ? b->bytes : used;
		used -= taken;
		if (b->bytes > taken || !b->bytes)
			share_add(x, b, b->pool, b->bytes - taken);
	}
}

void breakdown_count(struct breakdown *c, struct block_device *d, struct breakdown_shares *out)
{
	struct count x = {.moment = breakdown_moment(c, d), .device = d, .out = out};
	uint64_t outside = 0;

	*out = (struct breakdown_shares){0};
	if (!x.moment->taken)
		return;
	x.carved = xcalloc(x.moment->npools + 1, sizeof(*x.carved));
	collect_blocks(c, &x);
	sort_list(&x.driver, by_address);
	sort_list(&x.created, by_seq);
	sort_list(&x.pools, by_address);
	divide_drivers(&x);
	size_t first = out->n;
	if (x.outside.n)
		divide_range(&x, x.outside.at[0]->ptr, UINT64_MAX, x.outside.at, x.outside.n);
	for (size_t i = first; i < out->n; i++)
		outside += out->list[i].bytes;
	divide_created(&x, first, outside);
	free(x.driver.at);
	free(x.created.at);
	free(x.pools.at);
	free(x.outside.at);
	free(x.stack);
	free(x.carved);
}

void breakdown_shares_release(struct breakdown_shares *s)
{
	free(s->list);
	*s = (struct breakdown_shares){0};
}

/* --- words --- */

const char *breakdown_source(enum row_type type)
{
	static const char *const sources[TYPE_END] = {
		[TYPE_HAL] = "CANN",	  [TYPE_HOST] = "HOST",
		[TYPE_PTA] = "PTA",	  [TYPE_PTA_WORKSPACE] = "PTA_WORKSPACE",
		[TYPE_ATB] = "ATB",	  [TYPE_MINDSPORE] = "MINDSPORE",
		[TYPE_TORCH] = "TORCH",	  [TYPE_CUDA] = "CUDA",
		[TYPE_PYTHON] = "PYTHON",
	};

	return type < TYPE_END && sources[type] ? sources[type] : "unknown";
}

bool breakdown_has_owners(struct breakdown *c)
{
	return c->blocks->owners.count > 1;
}
