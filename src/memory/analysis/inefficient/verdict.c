/* SPDX-License-Identifier: MulanPSL-2.0 */
/* What blocks waste, added up: for each pool, for each kind, and the most costly call sites first. */
#include "memory/analysis/inefficient/inefficient_impl.h"

#include "base/mem.h"

#include <stdlib.h>

static int costly_first(const void *pa, const void *pb)
{
	const struct site *a = pa, *b = pb;

	return ORDER(inefficient_site_waste(b).at_peak_bytes,
		     inefficient_site_waste(a).at_peak_bytes)
		       ?: ORDER(b->weight, a->weight)
		       ?: ORDER(a->pool->number, b->pool->number)
		       ?: ORDER(a->stack, b->stack)
		       ?: ORDER(a->kind, b->kind);
}

static int by_process_and_device(const void *pa, const void *pb)
{
	const struct block_pool *a = ((const struct pool_waste *)pa)->pool;
	const struct block_pool *b = ((const struct pool_waste *)pb)->pool;

	return ORDER(a->process->pid, b->process->pid)
		       ?: ORDER(a->device->device, b->device->device)
		       ?: ORDER(a->number, b->number);
}

void inefficient_waste_add(struct waste *w, const struct site *s)
{
	w->blocks += s->blocks;
	w->bytes += s->bytes;
	w->at_peak_bytes += inefficient_site_waste(s).at_peak_bytes;
}

static struct pool_waste *pool_find(struct verdict *v, const struct block_pool *pool)
{
	return &v->pools[((const struct clock *)pool->own)->waste];
}

static void list_pools(const struct inefficient *a, struct verdict *v)
{
	size_t cap = 0;

	for (size_t i = 0; i < a->base.blocks->nprocesses; i++) {
		struct block_process *p = a->base.blocks->processes[i];

		for (size_t k = 0; k < p->npools; k++) {
			struct block_pool *pool = p->pools[k];
			struct clock *c = pool->own;

			if (!c)
				continue;
			v->pools = xgrow(v->pools, &cap, v->npools + 1, sizeof(*v->pools));
			v->pools[v->npools] = (struct pool_waste){
				.pool = pool,
				.command = p->command,
				.blocks = pool->mallocs,
				.peak_bytes = c->peak_bytes,
				.peak_ns = c->peak_ns,
				.unseen = c->unseen,
			};
			c->waste = v->npools++;
			v->blocks += pool->mallocs;
			v->accesses += c->accesses;
		}
	}
}

/* Of the living; the ended ones are counted. */
static void count_unseen(struct verdict *v)
{
	struct block_walk w = {.blocks = v->a->base.blocks};

	for (struct block *b; (b = blocks_next(&w));) {
		struct use u = inefficient_use(b);

		if (!b->pool->own || !(u.flags & USE_FOLLOWED) || u.flags & USE_ACCESSED)
			continue;
		struct waste *unseen = &pool_find(v, b->pool)->unseen;
		unseen->blocks++;
		unseen->bytes += b->bytes;
	}
}

void inefficient_verdict(struct inefficient *a, struct verdict *out)
{
	*out = (struct verdict){.a = a};
	inefficient_sites_list(a, &out->sites);
	list_pools(a, out);
	count_unseen(out);
	for (size_t i = 0; i < out->sites.n; i++) {
		const struct site *s = &out->sites.list[i];
		struct pool_waste *w = pool_find(out, s->pool);

		inefficient_waste_add(&w->kinds[s->kind], s);
		inefficient_waste_add(&w->all, s);
		inefficient_waste_add(&out->kinds[s->kind], s);
		inefficient_waste_add(&out->all, s);
	}
	SORT(out->sites.list, out->sites.n, costly_first);
	SORT(out->pools, out->npools, by_process_and_device);
}

void inefficient_verdict_release(struct verdict *v)
{
	inefficient_sites_release(&v->sites);
	free(v->pools);
}
