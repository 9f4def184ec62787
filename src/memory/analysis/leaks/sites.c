/* SPDX-License-Identifier: MulanPSL-2.0 */
/* The places of a job, and how many blocks each had at the ends of steps. */
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/mem.h"
#include "memory/analysis/common/frames.h"
#include "memory/analysis/leaks/leaks_impl.h"

#define MAX_SIZES 8192 /* sites for a single size; further sizes have their parent alone */

struct leak_process *leak_process_of(struct block_process *p)
{
	if (!p->own)
		p->own = xcalloc(1, sizeof(struct leak_process));
	return p->own;
}

/* --- call stacks that mean the same --- */

/*
 * What tells a line apart: function and source line. The compiler makes several copies of a call,
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
	struct stack stack = stacks_get(blocks_stacks(l->blocks), number);
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
	s->levels = xgrow(s->levels, &s->levels_cap, s->nlevels + 1, sizeof(*s->levels));
	s->levels[s->nlevels++] = (struct leak_level){s->live, step};
}

void leak_site_settle(struct leak_site *s)
{
	const struct leak_process *p = leak_process_of(s->pool->process);

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

void leak_site_count(struct leak_site *s, int by, uint32_t step)
{
	for (; s; s = s->parent) {
		leak_site_settle(s);
		s->live += (uint64_t)(int64_t)by;
		if (by < 0)
			continue;
		s->changed_step = step;
		if (!s->first_step)
			s->first_step = step;
	}
}

void leak_site_freed(struct leak_site *s, uint32_t life)
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
	s->ends = leak_process_of(s->pool->process)->ends;
	l->sites = xgrow(l->sites, &l->sites_cap, l->nsites + 1, sizeof(*l->sites));
	l->sites[l->nsites++] = s;
	l->nsizes += s->parent != NULL;
	hmap_put_ptr(&l->by_key, key, s);
	return s;
}

static struct leak_site *site_find(struct leaks *l, const struct leak_site *like, bool make)
{
	uint64_t key = ((uint64_t)like->pool->number << 34 | (uint64_t)like->pinned << 33 |
			(uint64_t)like->is_parent << 32 | like->stack) ^
		       like->size * 0x9e3779b97f4a7c15u;

	for (;; key++) {
		struct leak_site *s = hmap_get_ptr(&l->by_key, key);

		if (!s)
			return make ? site_new(l, like, key) : NULL;
		if (s->pool == like->pool && s->stack == like->stack && s->size == like->size &&
		    s->pinned == like->pinned && s->is_parent == like->is_parent &&
		    s->before == like->before)
			return s;
	}
}

static uint64_t round_up(uint64_t size)
{
	if (size > 1ull << 63)
		return UINT64_MAX;
	return size < 2 ? size : 1ull << (64 - __builtin_clzll(size - 1));
}

struct leak_site *leak_site_for(struct leaks *l, const struct block *b, bool pinned)
{
	struct leak_site like = {.pool = b->pool, .pinned = pinned};

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
