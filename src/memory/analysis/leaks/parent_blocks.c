/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "memory/analysis/leaks/parent_blocks.h"

void carve_add(struct carve *c, struct block *b)
{
	c->last = NULL;
	omap_put(&c->by_ptr, b->ptr, b);
}

void carve_remove(struct carve *c, const struct block *b)
{
	c->last = NULL;
	if (omap_get(&c->by_ptr, b->ptr) == b)
		omap_remove(&c->by_ptr, b->ptr);
}

static bool holds(const struct block *b, uint64_t ptr, uint64_t bytes)
{
	return ptr >= b->ptr && bytes <= b->bytes && ptr - b->ptr <= b->bytes - bytes;
}

struct block *carve_around(struct carve *c, uint64_t ptr, uint64_t bytes)
{
	uint64_t start;

	if (c->last && holds(c->last, ptr, bytes))
		return c->last;
	struct block *b = omap_floor(&c->by_ptr, ptr, &start);
	/* With a foreign dump a block may have ended unseen and be another one by now. */
	if (!b || b->ptr != start || !holds(b, ptr, bytes))
		return NULL;
	c->last = b;
	return b;
}

void carve_release(struct carve *c)
{
	omap_release(&c->by_ptr);
	c->last = NULL;
}
