/* SPDX-License-Identifier: MulanPSL-2.0 */
/* The groups of blocks that came from one call stack. */
#include "base/mem.h"
#include "memory/analysis/summary/summary_impl.h"

uint32_t summary_group_of(struct summary *s, struct summary_pool *pool, uint32_t stack)
{
	if (pool->last_group != SUMMARY_NIL && pool->last_stack == stack)
		return pool->last_group;
	uint64_t key = (uint64_t)pool->number << 32 | stack;
	uint64_t found = hmap_get(&s->by_group, key);
	if (found == HMAP_NONE) {
		s->groups = xgrow(s->groups, &s->groups_cap, s->ngroups + 1, sizeof(*s->groups));
		found = s->ngroups++;
		s->groups[found] =
			(struct summary_group){.pool = pool, .stack = stack, .next = pool->groups};
		pool->groups = (uint32_t)found;
		hmap_put(&s->by_group, key, found);
	}
	pool->last_stack = stack;
	pool->last_group = (uint32_t)found;
	return pool->last_group;
}
