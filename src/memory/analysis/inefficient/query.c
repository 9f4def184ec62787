/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Adds up what was found: for each pool, for each kind, and the most costly places first. */
#include <stdlib.h>

#include "base/mem.h"
#include "memory/analysis/inefficient/inefficient_impl.h"

static int costly_first(const void *pa, const void *pb)
{
	const struct site *a = pa, *b = pb;
	uint64_t cost_a = inefficient_site_cost(a), cost_b = inefficient_site_cost(b);

	if (cost_a != cost_b)
		return cost_a > cost_b ? -1 : 1;
	if (a->weight != b->weight)
		return a->weight > b->weight ? -1 : 1;
	if (a->pool != b->pool)
		return a->pool->number < b->pool->number ? -1 : 1;
	return a->stack != b->stack ? (a->stack < b->stack ? -1 : 1) : (int)a->kind - (int)b->kind;
}

static int by_process_and_device(const void *pa, const void *pb)
{
	const struct block_pool *a = ((const struct pool_waste *)pa)->clock->pool;
	const struct block_pool *b = ((const struct pool_waste *)pb)->clock->pool;

	if (a->process->pid != b->process->pid)
		return a->process->pid < b->process->pid ? -1 : 1;
	if (a->device->device != b->device->device)
		return a->device->device < b->device->device ? -1 : 1;
	return a->number < b->number ? -1 : a->number > b->number;
}

static void waste_add(struct waste *w, const struct site *s)
{
	w->blocks += s->blocks;
	w->bytes += s->bytes;
	w->at_peak_bytes += inefficient_site_cost(s);
}

/* Pools are in the order of their numbers here, with gaps. */
static struct pool_waste *pool_find(struct verdict *v, uint32_t number)
{
	size_t low = 0, high = v->npools;

	while (high - low > 1) {
		size_t mid = (low + high) / 2;
		if (v->pools[mid].clock->pool->number <= number)
			low = mid;
		else
			high = mid;
	}
	return &v->pools[low];
}

static int by_number(const void *pa, const void *pb)
{
	uint32_t a = ((const struct pool_waste *)pa)->clock->pool->number;
	uint32_t b = ((const struct pool_waste *)pb)->clock->pool->number;

	return (a > b) - (a < b);
}

static void list_pools(const struct inefficient *a, struct verdict *v)
{
	size_t cap = 0;

	for (size_t i = 0; i < blocks_nprocesses(a->blocks); i++) {
		struct block_process *p = blocks_process_at(a->blocks, i);

		for (size_t k = 0; k < p->npools; k++) {
			const struct clock *c = p->pools[k]->own;

			if (!c)
				continue;
			v->pools = xgrow(v->pools, &cap, v->npools + 1, sizeof(*v->pools));
			v->pools[v->npools++] = (struct pool_waste){
				.clock = c,
				.unseen_blocks = c->unseen_blocks,
				.unseen_bytes = c->unseen_bytes,
			};
			v->blocks += c->pool->mallocs;
			v->accesses += c->accesses;
			for (int kind = 0; kind < KINDS; kind++)
				v->marked_blocks[kind] += c->marked_blocks[kind];
		}
	}
	if (v->npools)
		qsort(v->pools, v->npools, sizeof(*v->pools), by_number);
}

static void count_unseen(struct block *block, void *arg)
{
	struct use u;

	if (!block->pool->own)
		return;
	memcpy(&u, block->own, sizeof(u));
	if (!(u.flags & USE_FOLLOWED) || u.flags & USE_ACCESSED)
		return;
	struct pool_waste *w = pool_find(arg, block->pool->number);
	w->unseen_blocks++;
	w->unseen_bytes += block->bytes;
}

void inefficient_verdict(struct inefficient *a, struct verdict *out)
{
	*out = (struct verdict){.a = a};
	inefficient_sites(a, &out->sites);
	list_pools(a, out);
	blocks_each(a->blocks, NULL, count_unseen, out);
	for (size_t i = 0; i < out->sites.n; i++) {
		const struct site *s = &out->sites.list[i];
		struct pool_waste *w = pool_find(out, s->pool->number);

		waste_add(&w->kinds[s->kind], s);
		waste_add(&w->all, s);
		waste_add(&out->kinds[s->kind], s);
		waste_add(&out->all, s);
	}
	if (out->sites.n)
		qsort(out->sites.list, out->sites.n, sizeof(*out->sites.list), costly_first);
	if (out->npools)
		qsort(out->pools, out->npools, sizeof(*out->pools), by_process_and_device);
}

void inefficient_verdict_release(struct verdict *v)
{
	inefficient_sites_release(&v->sites);
	free(v->pools);
}
