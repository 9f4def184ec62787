/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Dividing the driver's bytes of a moment. Blocks are sorted by address and walked once; blocks
 * that are open at an address form a stack, and the bytes up to the next edge belong to its top.
 */
#include "memory/analysis/common/breakdown.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "memory/analysis/common/breakdown_impl.h"

struct list {
	struct block **at;
	size_t n, cap;
};

struct open {
	uint64_t end;
	size_t share; /* its number */
};

struct count {
	const struct census_moment *moment;
	struct block_device *device;
	struct list driver, created, pools, outside;
	struct open *stack;
	size_t depth, cap_stack;
	uint64_t *carved; /* bytes of the driver that each of moment->pools cuts from */
	struct census_shares *out;
};

static void list_add(struct list *l, struct block *b)
{
	l->at = xgrow(l->at, &l->cap, l->n + 1, sizeof(struct block *));
	l->at[l->n++] = b;
}

static size_t share_add(struct count *x, struct block *b, struct block_pool *pool, uint64_t bytes)
{
	struct census_shares *s = x->out;

	s->list = xgrow(s->list, &s->cap, s->n + 1, sizeof(*s->list));
	s->list[s->n] = (struct census_share){b, pool, bytes};
	s->bytes += bytes;
	return s->n++;
}

static void charge(struct count *x, size_t share, uint64_t bytes)
{
	x->out->list[share].bytes += bytes;
	x->out->bytes += bytes;
}

static void collect(struct block *b, void *arg)
{
	struct count *x = arg;

	if (b->pool->device != x->device || !census_was_alive(x->moment, b))
		return;
	if (!blocks_is_driver(b->pool->type))
		list_add(&x->pools, b);
	else if (b->own[OWN_CREATED])
		list_add(&x->created, b);
	else
		list_add(&x->driver, b);
}

/* By address; of two at the same one the outer first. */
static int by_address(const void *pa, const void *pb)
{
	const struct block *a = *(struct block *const *)pa, *b = *(struct block *const *)pb;

	if (a->ptr != b->ptr)
		return a->ptr < b->ptr ? -1 : 1;
	if (a->bytes != b->bytes)
		return a->bytes > b->bytes ? -1 : 1;
	return (a->seq > b->seq) - (a->seq < b->seq);
}

static int by_seq(const void *pa, const void *pb)
{
	const struct block *a = *(struct block *const *)pa, *b = *(struct block *const *)pb;

	return (a->seq > b->seq) - (a->seq < b->seq);
}

static void sort(struct list *l, int (*order)(const void *, const void *))
{
	if (l->n)
		qsort(l->at, l->n, sizeof(struct block *), order);
}

/* Closes what ends before `to`; returns how far everything is charged. */
static uint64_t close_until(struct count *x, uint64_t at, uint64_t to)
{
	while (x->depth && x->stack[x->depth - 1].end <= to) {
		struct open *top = &x->stack[--x->depth];
		if (top->end > at) {
			charge(x, top->share, top->end - at);
			at = top->end;
		}
	}
	return at;
}

/*
 * Divides [start, end) among n blocks that begin in it; returns what none of them covers. One that
 * a later block reaches beyond has ended unseen, and gets nothing behind that one's beginning.
 */
static uint64_t divide(struct count *x, uint64_t start, uint64_t end, struct block **blocks,
		       size_t n)
{
	uint64_t at = start, rest = 0;

	x->depth = 0;
	for (size_t i = 0; i < n; i++) {
		struct block *b = blocks[i];
		uint64_t b_end = block_end(b) < end ? block_end(b) : end;

		at = close_until(x, at, b->ptr);
		if (x->depth)
			charge(x, x->stack[x->depth - 1].share, b->ptr - at);
		else
			rest += b->ptr - at;
		at = b->ptr;
		x->stack = xgrow(x->stack, &x->cap_stack, x->depth + 1, sizeof(*x->stack));
		x->stack[x->depth++] = (struct open){b_end, share_add(x, b, b->pool, 0)};
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
	uint64_t rest = divide(x, driver->ptr, end, blocks, n);
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
			list_add(&x->outside, x->pools.at[k]);
		for (first = k; k < x->pools.n && x->pools.at[k]->ptr < end;)
			k++;
		divide_driver(x, driver, k > first ? &x->pools.at[first] : NULL, k - first);
	}
	for (; k < x->pools.n; k++)
		list_add(&x->outside, x->pools.at[k]);
}

/* What a pool has beyond its blocks, if its rows say how much it holds; at most `most`. */
static uint64_t share_free(struct count *x, size_t i, uint64_t allocated, uint64_t most)
{
	const struct census_pool *p = &x->moment->pools[i];
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

void census_count(struct census *c, struct block_device *d, struct census_shares *out)
{
	struct count x = {.moment = census_moment(c, d), .device = d, .out = out};
	uint64_t outside = 0;

	*out = (struct census_shares){0};
	if (!x.moment->taken)
		return;
	x.carved = xcalloc(x.moment->npools + 1, sizeof(*x.carved));
	if (x.moment->at_end)
		blocks_each(c->blocks, d->process, collect, &x);
	else
		blocks_each_held(c->blocks, d, collect, &x);
	sort(&x.driver, by_address);
	sort(&x.created, by_seq);
	sort(&x.pools, by_address);
	divide_drivers(&x);
	size_t first = out->n;
	if (x.outside.n)
		divide(&x, x.outside.at[0]->ptr, UINT64_MAX, x.outside.at, x.outside.n);
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

void census_shares_release(struct census_shares *s)
{
	free(s->list);
	*s = (struct census_shares){0};
}
