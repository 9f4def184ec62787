/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Who holds it: blocks that have pool, call stack, owner and module in common are counted together. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/text/printable.h"
#include "memory/analysis/common/breakdown.h"
#include "memory/live/live_impl.h"

const char *const live_by_names[] = {"line", "owner", "module", NULL};
const char *const live_sort_names[] = {"held", "blocks", "allocated", "calls", "name", NULL};

/* --- counting --- */

static uint64_t hash_of(const struct live_site *s)
{
	uint64_t h = (uint64_t)s->pool << 32 | s->stack;

	h = (h ^ h >> 31) * 0x9e3779b97f4a7c15ull;
	h ^= (uint64_t)s->owner << 32 | s->layer;
	return ((h ^ h >> 29) * 0xbf58476d1ce4e5b9ull) & ~(1ull << 63);
}

static bool is_same(const struct live_site *a, const struct live_site *b)
{
	return a->pool == b->pool && a->stack == b->stack && a->owner == b->owner &&
	       a->layer == b->layer;
}

/* Its number, from 1. Of more than there may be, those of a pool that have neither. */
static uint32_t site_of(struct live *l, const struct block *b)
{
	struct live_site want = {b->pool->number, b->stack, b->owner, b->layer, 0, {0}};

	for (unsigned round = 0; round < 2; round++) {
		uint64_t hash = hash_of(&want), first = hmap_get(&l->by_hash, hash);
		uint32_t at = first == HMAP_NONE ? 0 : (uint32_t)first;

		while (at && !is_same(&l->sites[at - 1], &want))
			at = l->sites[at - 1].next;
		if (at)
			return at;
		if (l->nsites < LIVE_MAX_SITES || round) {
			want.next = first == HMAP_NONE ? 0 : (uint32_t)first;
			*XPUSH(l->sites, l->nsites, l->cap_sites) = want;
			hmap_put(&l->by_hash, hash, l->nsites);
			return (uint32_t)l->nsites;
		}
		want = (struct live_site){.pool = b->pool->number};
	}
	return 0;
}

static void note_pool(struct live *l, const struct block_pool *pool)
{
	size_t had = l->cap_pools;

	if (pool->number < had && l->pools[pool->number])
		return;
	l->pools = xgrow(l->pools, &l->cap_pools, pool->number + 1u, sizeof(*l->pools));
	memset(l->pools + had, 0, (l->cap_pools - had) * sizeof(*l->pools));
	l->pools[pool->number] = pool;
}

static void add_block(struct live *l, struct block *b)
{
	struct live_count *n;

	note_pool(l, b->pool);
	b->own[0] = site_of(l, b);
	n = &l->sites[b->own[0] - 1].n;
	n->bytes += b->bytes;
	n->blocks++;
	n->allocated_bytes += b->carried ? 0 : b->bytes;
	n->allocations += !b->carried;
}

static void take_block(struct live *l, struct block *b, bool left)
{
	struct live_count *n = b->own[0] ? &l->sites[b->own[0] - 1].n : NULL;

	if (!n)
		return;
	n->bytes -= b->bytes;
	n->blocks--;
	n->left_bytes += left ? b->bytes : 0;
	n->left_blocks += left;
	b->own[0] = 0;
}

/* It has another owner now, and always had. */
static void move_block(struct live *l, struct block *b)
{
	uint32_t to = site_of(l, b);

	if (!b->own[0] || b->own[0] == to)
		return;
	struct live_count *from = &l->sites[b->own[0] - 1].n;
	struct live_count *n = &l->sites[to - 1].n;
	from->bytes -= b->bytes, n->bytes += b->bytes;
	from->blocks--, n->blocks++;
	if (!b->carried) {
		from->allocated_bytes -= b->bytes, n->allocated_bytes += b->bytes;
		from->allocations--, n->allocations++;
	}
	b->own[0] = to;
}

void live_site_row(struct live *l, const struct block_change *c)
{
	if (c->what == BLOCKS_ALLOC)
		add_block(l, c->block);
	else if (c->what == BLOCKS_ACCESS)
		move_block(l, c->block);
	else
		take_block(l, c->block, c->what == BLOCKS_LEFT);
}

void live_sites_release(struct live *l)
{
	for (size_t i = 0; i < l->cap_names; i++)
		free(l->names[i]);
	free(l->names);
	free(l->sites);
	free(l->pools);
	hmap_release(&l->by_hash);
	l->names = NULL;
	l->sites = NULL;
	l->pools = NULL;
	l->cap_names = l->stacks_named = l->nsites = l->cap_sites = l->cap_pools = 0;
}

/* --- names --- */

/* The line of the user's own code that names a call stack. Which that is depends on what else was
 * called, so names are made again when there are many more stacks. */
static const char *line_name(struct live *l, uint32_t stack)
{
	const struct stacks *s = &l->blocks->stacks;
	size_t had = l->cap_names;
	struct buf where = {0};

	if (s->count > l->stacks_named + l->stacks_named / 4 + 64) {
		for (size_t i = 0; i < l->cap_names; i++) {
			free(l->names[i]);
			l->names[i] = NULL;
		}
		l->stacks_named = s->count;
	}
	l->names = xgrow(l->names, &l->cap_names, stack + 1u, sizeof(*l->names));
	memset(l->names + had, 0, (l->cap_names - had) * sizeof(*l->names));
	if (!l->names[stack]) {
		if (!stacks_where(s, stack, &where) || !where.len)
			buf_add_str(&where, "(no call stack)");
		l->names[stack] = xstrdup(buf_str(&where));
	}
	buf_release(&where);
	return l->names[stack];
}

/* "h.0.mlp.fc" is one of many: "h.*.mlp.fc". */
static void add_module(struct buf *out, const char *path)
{
	while (*path) {
		size_t len = strcspn(path, "."), digits = strspn(path, "0123456789");

		if (len && digits == len)
			buf_add_char(out, '*');
		else
			text_add_printable(out, path, len);
		path += len;
		if (*path) {
			buf_add_char(out, '.');
			path++;
		}
	}
}

static void add_name(struct live *l, unsigned by, const struct live_site *s,
		     const struct block_pool *pool, struct buf *out)
{
	const char *owner = text_numbers_text(&l->blocks->owners, s->owner);

	if (by == LIVE_BY_LINE)
		buf_add_str(out, line_name(l, s->stack));
	else if (by == LIVE_BY_MODULE && s->layer)
		add_module(out, text_numbers_text(&l->blocks->layers, s->layer));
	else if (by == LIVE_BY_MODULE)
		buf_add_str(out, "(no module)");
	else if (*owner)
		text_add_printable(out, owner, strlen(owner));
	else
		buf_add_str(out, breakdown_source(pool->type));
}

/* --- groups --- */

static struct live_group *group_of(struct live_groups *g, struct hmap *by_name, const char *name,
				   enum row_type pool)
{
	uint64_t hash = 14695981039346656037ull ^ (uint64_t)pool;

	for (const char *p = name; *p; p++)
		hash = (hash ^ (unsigned char)*p) * 1099511628211ull;
	for (;; hash++) {
		uint64_t at = hmap_get(by_name, hash);

		if (at != HMAP_NONE && (g->list[at].pool != pool || strcmp(g->list[at].name, name)))
			continue;
		if (at != HMAP_NONE)
			return &g->list[at];
		*XPUSH(g->list, g->n, g->cap) =
			(struct live_group){.name = xstrdup(name), .pool = pool};
		hmap_put(by_name, hash, g->n - 1);
		return &g->list[g->n - 1];
	}
}

static void add_counts(struct live_count *to, const struct live_count *n)
{
	to->bytes += n->bytes;
	to->blocks += n->blocks;
	to->left_bytes += n->left_bytes;
	to->left_blocks += n->left_blocks;
	to->allocated_bytes += n->allocated_bytes;
	to->allocations += n->allocations;
}

static uint64_t sort_value(const struct live_group *g, unsigned sort)
{
	switch (sort) {
	case LIVE_SORT_BLOCKS:
		return g->held_blocks;
	case LIVE_SORT_ALLOCATED:
		return g->n.allocated_bytes;
	case LIVE_SORT_CALLS:
		return g->n.allocations;
	default:
		return g->held;
	}
}

static int compare_groups(const void *pa, const void *pb, void *arg)
{
	const struct live_group *a = pa, *b = pb;
	const struct live_view *v = arg;
	int order = v->sort == LIVE_SORT_NAME
			    ? strcmp(a->name, b->name)
			    : ORDER(sort_value(b, v->sort), sort_value(a, v->sort));

	if (!order)
		order = ORDER(b->n.allocated_bytes, a->n.allocated_bytes)
				?: strcmp(a->name, b->name);
	return v->inverted ? -order : order;
}

void live_groups(struct live *l, const struct live_view *v, struct live_groups *out)
{
	bool ended = live_state(l) != LIVE_RUNNING;
	struct hmap by_name = {0};
	struct buf name = {0};

	*out = (struct live_groups){0};
	for (size_t i = 0; i < l->nsites; i++) {
		const struct live_site *s = &l->sites[i];
		const struct block_pool *pool = l->pools[s->pool];

		if (!(s->n.allocations | s->n.blocks | s->n.left_blocks) ||
		    (v->by_pid && pool->process->pid != v->pid))
			continue;
		buf_clear(&name);
		add_name(l, v->by, s, pool, &name);
		if (v->filter && !strcasestr(buf_str(&name), v->filter))
			continue;
		add_counts(&group_of(out, &by_name, buf_str(&name), pool->type)->n, &s->n);
	}
	for (size_t i = 0; i < out->n; i++) {
		struct live_group *g = &out->list[i];

		g->held = g->n.bytes + (ended ? g->n.left_bytes : 0);
		g->held_blocks = g->n.blocks + (ended ? g->n.left_blocks : 0);
		out->most = g->held > out->most ? g->held : out->most;
	}
	if (out->n)
		qsort_r(out->list, out->n, sizeof(*out->list), compare_groups, (void *)v);
	hmap_release(&by_name);
	buf_release(&name);
}

void live_groups_release(struct live_groups *g)
{
	for (size_t i = 0; i < g->n; i++)
		free(g->list[i].name);
	free(g->list);
	*g = (struct live_groups){0};
}
