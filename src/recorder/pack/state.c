/* SPDX-License-Identifier: MulanPSL-2.0 */
/* What packing and expanding both know of a batch. */
#include "base/mem.h"
#include "recorder/pack/pack_impl.h"

#include <string.h>

#define ALIGNED 16 /* what malloc() gives, and the sizes of its blocks */
#define OVERHEAD 8 /* of a block */
#define SMALLEST 32

void pack_state_reset(struct pack_state *s)
{
	struct pack_alloc *allocs = s->allocs;
	size_t cap = s->cap_allocs;

	memset(s, 0, sizeof(*s));
	s->allocs = allocs;
	s->cap_allocs = cap;
}

static uint64_t block_size(uint64_t size_bytes)
{
	uint64_t n = (size_bytes + OVERHEAD + ALIGNED - 1) / ALIGNED * ALIGNED;

	return n < SMALLEST ? SMALLEST : n;
}

uint32_t pack_state_class(uint64_t size_bytes)
{
	return (uint32_t)((size_bytes + OVERHEAD + ALIGNED - 1) / ALIGNED % SIZE_CLASSES);
}

uint64_t pack_state_guess(struct pack_state *s, uint32_t class)
{
	uint64_t addr = 0;

	(void)pack_state_take(s, class, PLACE_CLASS, &addr);
	return addr;
}

bool pack_state_take(struct pack_state *s, uint32_t class, unsigned place, uint64_t *out_addr)
{
	uint32_t *at = &s->freed[class];

	if (place >= PLACE_BEHIND) {
		uint32_t back = place - PLACE_FREED;
		if (place != PLACE_BEHIND && back >= s->nrecent)
			return false;
		*out_addr = place == PLACE_BEHIND ? s->behind
						  : s->recent[(s->nrecent - 1 - back) % RECENT];
		return true;
	}
	for (; *at && place; place--)
		at = &s->allocs[*at - 1].next;
	if (!*at)
		return false;
	*out_addr = s->allocs[*at - 1].addr;
	*at = s->allocs[*at - 1].next;
	return true;
}

void pack_state_alloc(struct pack_state *s, uint64_t addr, uint64_t size_bytes, unsigned place)
{
	s->allocs = xgrow(s->allocs, &s->cap_allocs, s->nallocs + 1, sizeof(*s->allocs));
	s->allocs[s->nallocs++] =
		(struct pack_alloc){.addr = addr, .class = pack_state_class(size_bytes)};
	s->alloc_addr = addr;
	if (place == PLACE_BEHIND || place >= PLACE_ANY)
		s->behind = addr + block_size(size_bytes);
}

void pack_state_free(struct pack_state *s, size_t index)
{
	struct pack_alloc *a = &s->allocs[index];

	a->next = s->freed[a->class];
	s->freed[a->class] = (uint32_t)index + 1;
	s->recent[s->nrecent++ % RECENT] = a->addr;
}

void pack_state_free_other(struct pack_state *s, uint64_t addr)
{
	s->free_addr = addr;
	s->recent[s->nrecent++ % RECENT] = addr;
}

void pack_state_learn(struct pack_state *s, const struct rec *r)
{
	if (r->type == REC_ALLOC && r->size == sizeof(struct rec_alloc)) {
		const struct rec_alloc *a = (const struct rec_alloc *)r;
		s->alloc_as = s->nalloc_slots++ % PACK_SLOTS;
		s->alloc_slot[s->alloc_as] = *a;
		pack_state_alloc(s, a->addr, a->size_bytes, PLACE_ANY);
	} else if (r->type == REC_FREE && r->size == sizeof(struct rec_free)) {
		s->free_as = s->nfree_slots++ % PACK_SLOTS;
		s->free_slot[s->free_as] = *(const struct rec_free *)r;
	}
}

void pack_state_stack(struct pack_state *s, const struct batch_stack *stack)
{
	memcpy(s->pc, stack->pc, stack->depth * sizeof(stack->pc[0]));
	s->depth = stack->depth;
	s->stack = stack->id;
	s->stack_is_new = true;
}
