/* SPDX-License-Identifier: MulanPSL-2.0 */
/* The questions that the writers of text and JSON share. */
#include "memory/analysis/summary/query.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "memory/analysis/common/report.h"

static void add_counts(struct summary_counts *to, const struct summary_counts *from)
{
	to->rows += from->rows;
	to->mallocs += from->mallocs;
	to->frees += from->frees;
	to->unmatched_frees += from->unmatched_frees;
	to->synthetic_frees += from->synthetic_frees;
	to->accesses += from->accesses;
	to->operators += from->operators;
	to->kernels += from->kernels;
	to->marks += from->marks;
	to->ranges += from->ranges;
	to->steps += from->steps;
	to->snapshots += from->snapshots;
	to->ooms += from->ooms;
}

void summary_count(const struct summary_process *p, struct summary_counts *out)
{
	*out = p->seen;
	for (size_t i = 0; i < p->npools; i++) {
		out->mallocs += p->pool_list[i]->mallocs;
		out->frees += p->pool_list[i]->frees;
		out->unmatched_frees += p->pool_list[i]->unmatched_frees;
		out->synthetic_frees += p->pool_list[i]->ended.blocks;
	}
}

void summary_count_all(const struct summary *s, struct summary_counts *out)
{
	struct summary_counts c;

	*out = s->seen;
	for (size_t i = 0; i < s->nprocesses; i++) {
		summary_count(s->processes[i], &c);
		add_counts(out, &c);
	}
}

void summary_loss_all(const struct summary *s, struct summary_loss *out)
{
	*out = (struct summary_loss){0};
	for (size_t i = 0; i < s->nprocesses; i++) {
		out->events += s->processes[i]->lost.events;
		out->stacks += s->processes[i]->lost.stacks;
		out->damaged_bytes += s->processes[i]->lost.damaged_bytes;
	}
}

struct summary_held summary_alive(const struct summary_pool *pool)
{
	return (struct summary_held){pool->live.blocks + pool->ended.blocks,
				     pool->live.bytes + pool->ended.bytes};
}

bool summary_frees_missing(const struct summary_counts *c)
{
	return c->mallocs && !c->frees && !c->synthetic_frees;
}

const struct summary_tally *summary_device_peak(const struct summary_device *d)
{
	return d->has_driver ? &d->driver : &d->pools;
}

struct summary_tally summary_whole_peak(const struct summary *s, const struct summary_device *d,
					bool *out_exact)
{
	struct summary_tally best = *summary_device_peak(d);

	*out_exact = !s->unmerged || d->users < 2;
	if (*out_exact)
		return best;
	best = (struct summary_tally){0};
	for (size_t i = 0; i < s->nprocesses; i++) {
		const struct summary_device *own =
			hmap_get_ptr(&s->processes[i]->devices, d->device);

		if (own && summary_device_peak(own)->peak_bytes > best.peak_bytes)
			best = *summary_device_peak(own);
	}
	return best;
}

static int larger_first(const void *pa, const void *pb)
{
	const struct summary_place *a = pa, *b = pb;

	if (a->held.bytes != b->held.bytes)
		return a->held.bytes > b->held.bytes ? -1 : 1;
	if (a->held.blocks != b->held.blocks)
		return a->held.blocks > b->held.blocks ? -1 : 1;
	return (a->number > b->number) - (a->number < b->number);
}

static struct summary_held group_held(const struct summary_group *g, bool at_peak)
{
	if (at_peak)
		return g->at_peak_no == g->pool->peak_no ? g->at_peak : g->live;
	return (struct summary_held){g->live.blocks + g->ended.blocks,
				     g->live.bytes + g->ended.bytes};
}

struct summary_place *summary_places(const struct summary *s, const struct summary_pool *pool,
				     bool at_peak, size_t *out_n)
{
	struct summary_place *places = NULL;
	size_t n = 0, cap = 0;

	for (uint32_t i = pool->groups; i != SUMMARY_NIL; i = s->groups[i].next) {
		struct summary_held held = group_held(&s->groups[i], at_peak);

		if (!held.blocks)
			continue;
		places = xgrow(places, &cap, n + 1, sizeof(*places));
		bool before = s->groups[i].stack == SUMMARY_BEFORE;
		uint32_t stack = before ? 0 : s->groups[i].stack;
		places[n++] =
			(struct summary_place){stacks_get(&s->stacks, stack), stack, before, held};
	}
	if (n)
		qsort(places, n, sizeof(*places), larger_first);
	*out_n = n;
	return places;
}

size_t summary_merge_places(struct summary_place *places, size_t n)
{
	struct hmap seen = {0};
	size_t kept = 0;

	for (size_t i = 0; i < n; i++) {
		uint64_t looks = page_stack_hash(places[i].stack) + places[i].before;
		uint64_t at = hmap_get(&seen, looks);

		if (at == HMAP_NONE) {
			hmap_put(&seen, looks, kept);
			places[kept++] = places[i];
		} else {
			places[at].held.blocks += places[i].held.blocks;
			places[at].held.bytes += places[i].held.bytes;
		}
	}
	if (kept)
		qsort(places, kept, sizeof(*places), larger_first);
	hmap_release(&seen);
	return kept;
}

static int by_device_and_type(const void *pa, const void *pb)
{
	const struct summary_pool *a = *(struct summary_pool *const *)pa;
	const struct summary_pool *b = *(struct summary_pool *const *)pb;

	if (a->device != b->device)
		return a->device < b->device ? -1 : 1;
	return (a->type > b->type) - (a->type < b->type);
}

struct summary_pool **summary_pools(const struct summary_process *p)
{
	size_t bytes = p->npools * sizeof(struct summary_pool *);
	struct summary_pool **pools = xmalloc(bytes);

	if (p->npools) {
		memcpy(pools, p->pool_list, bytes);
		qsort(pools, p->npools, sizeof(struct summary_pool *), by_device_and_type);
	}
	return pools;
}
