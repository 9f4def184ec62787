/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Following the rows. Which driver blocks a pool cuts from is noted when it does: at the moment
 * that is counted such a block may be all free, and nothing else would tell whose it is.
 */
#include "memory/analysis/common/breakdown.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "memory/analysis/common/breakdown_impl.h"

struct census *census_new(void)
{
	struct census *c = xcalloc(1, sizeof(*c));

	c->blocks = blocks_new();
	return c;
}

void census_free(struct census *c)
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

struct blocks *census_blocks(struct census *c)
{
	return c->blocks;
}

static struct census_device *device_of(struct census *c, struct block_device *d)
{
	struct census_device *known = (struct census_device *)(uintptr_t)d->own[0];

	if (known)
		return known;
	known = xcalloc(1, sizeof(*known));
	c->devices =
		xgrow(c->devices, &c->cap_devices, c->ndevices + 1, sizeof(struct census_device *));
	c->devices[c->ndevices++] = known;
	d->own[0] = (uintptr_t)known;
	return known;
}

struct census_moment *census_moment(struct census *c, struct block_device *d)
{
	return &device_of(c, d)->moment;
}

/* --- which driver block a pool cuts from --- */

static bool is_addressed(const struct block *b)
{
	return blocks_is_driver(b->pool->type) && !b->own[OWN_CREATED];
}

/* Blocks end without a word when their free was lost, so what the index has is looked at. */
static bool surrounds(const struct block *driver, const struct block *b)
{
	return driver->state == BLOCK_ALIVE && driver->pool->device == b->pool->device &&
	       is_addressed(driver) && b->ptr >= driver->ptr && b->ptr < block_end(driver);
}

struct indexing {
	struct census_device *known;
	struct block_device *device;
};

static void index_block(struct block *b, void *arg)
{
	struct indexing *x = arg;

	if (b->pool->device == x->device && b->state == BLOCK_ALIVE && is_addressed(b))
		omap_put(&x->known->driver, b->ptr, b);
}

static void note_driver(struct census *c, struct block *b, const struct row *row)
{
	const struct attr *how = row_attr(row, ATTR_ALLOC_TYPE);
	struct census_device *known = device_of(c, b->pool->device);

	if (how && how->text && how->text_len == 6 && !memcmp(how->text, "create", 6))
		b->own[OWN_CREATED] = 1;
	else if (known->indexed)
		omap_put(&known->driver, b->ptr, b);
}

static void note_pool(struct census *c, struct block *b)
{
	struct census_device *known = device_of(c, b->pool->device);
	uint64_t start;

	if (!known->indexed) {
		struct indexing x = {known, b->pool->device};
		known->indexed = true;
		blocks_each(c->blocks, b->pool->process, index_block, &x);
	}
	if (!known->last || !surrounds(known->last, b)) {
		known->last = omap_floor(&known->driver, b->ptr, &start);
		if (!known->last || !surrounds(known->last, b))
			return;
	}
	if (!known->last->own[OWN_CARVED])
		known->last->own[OWN_CARVED] = (uintptr_t)b->pool;
}

static void note_end(struct census *c, struct block *b)
{
	struct census_device *known = device_of(c, b->pool->device);

	if (!known->indexed || !is_addressed(b))
		return;
	if (omap_get(&known->driver, b->ptr) == b)
		omap_remove(&known->driver, b->ptr);
	if (known->last == b)
		known->last = NULL;
}

enum block_what census_row(struct census *c, const struct row *row, struct block_change *out)
{
	enum block_what what = blocks_add(c->blocks, row, out);

	c->rows++;
	c->row_ns = row->time_ns;
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

bool census_is_higher(const struct block_device *d, const struct census_moment *m)
{
	if (!m->taken || d->driver_bytes != m->driver_bytes)
		return !m->taken || d->driver_bytes > m->driver_bytes;
	return d->pool_bytes > m->pool_bytes;
}

static void note_pools(struct census_moment *m, const struct block_device *d)
{
	const struct block_process *p = d->process;

	m->npools = 0;
	for (size_t i = 0; i < p->npools; i++) {
		struct block_pool *pool = p->pools[i];
		if (pool->device != d)
			continue;
		m->pools = xgrow(m->pools, &m->cap_pools, m->npools + 1, sizeof(*m->pools));
		m->pools[m->npools++] = (struct census_pool){pool, pool->live_bytes,
							     pool->live_blocks, pool->reserved};
	}
}

static void note_moment(struct census_moment *m, const struct census *c,
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

void census_take(struct census *c, struct block_device *d)
{
	note_moment(census_moment(c, d), c, d);
	blocks_hold(c->blocks, d);
}

void census_forget(struct census *c, struct block_device *d)
{
	census_moment(c, d)->taken = false;
}

struct ending {
	struct census_moment *moment;
	struct block_device *device;
};

static void count_ending(struct block *b, void *arg)
{
	struct ending *x = arg;
	struct census_moment *m = x->moment;

	if (b->pool->device != x->device || !census_was_alive(m, b))
		return;
	if (blocks_is_driver(b->pool->type))
		m->driver_bytes += b->bytes;
	else
		m->pool_bytes += b->bytes;
	for (size_t i = 0; i < m->npools; i++) {
		if (m->pools[i].pool != b->pool)
			continue;
		m->pools[i].live_bytes += b->bytes;
		m->pools[i].live_blocks++;
	}
}

/* Blocks with a FREE that was made up do not count as alive in the sums of struct blocks. */
void census_take_end(struct census *c, struct block_device *d)
{
	struct census_moment *m = census_moment(c, d);
	struct ending x = {m, d};

	note_moment(m, c, d);
	m->at_end = true;
	m->time_ns = d->process->last_ns;
	m->rows = device_of(c, d)->last_row;
	m->driver_bytes = m->pool_bytes = 0;
	for (size_t i = 0; i < m->npools; i++)
		m->pools[i].live_bytes = m->pools[i].live_blocks = 0;
	blocks_each(c->blocks, d->process, count_ending, &x);
}

bool census_was_alive(const struct census_moment *m, const struct block *b)
{
	/* Of the end are made-up frees behind all others; one before that tells of a reused
	 * address. */
	return !b->own[OWN_LEFT] || b->own[OWN_LEFT] > m->rows;
}

/* --- words --- */

const char *census_source(enum row_type type)
{
	switch (type) {
	case TYPE_HAL:
		return "CANN";
	case TYPE_HOST:
		return "HOST";
	case TYPE_PTA:
		return "PTA";
	case TYPE_PTA_WORKSPACE:
		return "PTA_WORKSPACE";
	case TYPE_ATB:
		return "ATB";
	case TYPE_MINDSPORE:
		return "MINDSPORE";
	case TYPE_TORCH:
		return "TORCH";
	case TYPE_CUDA:
		return "CUDA";
	default:
		return "unknown";
	}
}

bool census_has_owners(struct census *c)
{
	return blocks_nowners(c->blocks) > 1;
}
