/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Shadow records have coarse times: a block that one thread allocates and another one frees at once
 * may be seen freed before it is allocated, and its successor at the same address allocated before
 * it is freed. Allocations and frees of an address alternate, so it is enough to count what is owed
 * for as long as the times do not decide. The order of one thread's records is always right: a free
 * of a block that we never knew (from before a fork) and the next block at its address are two.
 */
#include "base/mem.h"
#include "memory/track/track_impl.h"

#include <stdlib.h>

#define MIN_EARLY 4096
#define COARSE_NS 10000000u /* how far the time of a shadow record may be behind */

struct sweep {
	uint64_t now_ns;
	uint64_t *keys;
	size_t n, cap;
};

static void collect_old(uint64_t key, void *value, void *arg)
{
	const struct early *e = value;
	struct sweep *w = arg;

	if (e->time_ns + COARSE_NS >= w->now_ns)
		return;
	w->keys = xgrow(w->keys, &w->cap, w->n + 1, sizeof(*w->keys));
	w->keys[w->n++] = key;
}

/* What was owed long ago will not come: frees of blocks that we never knew. */
static void sweep_early(struct proc *p, unsigned map, uint64_t now_ns)
{
	struct sweep w = {.now_ns = now_ns};

	if (p->early[map].count < p->early_limit[map])
		return;
	omap_each(&p->early[map], collect_old, &w);
	for (size_t i = 0; i < w.n; i++)
		free(omap_remove(&p->early[map], w.keys[i]));
	p->early_limit[map] = 2 * p->early[map].count + MIN_EARLY;
	free(w.keys);
}

void owed_add(struct proc *p, const struct owed *o, uint64_t time_ns, int frees)
{
	struct early *e = omap_get(&p->early[o->map], o->addr);

	if (!e) {
		sweep_early(p, o->map, time_ns);
		e = xcalloc(1, sizeof(*e));
		omap_put(&p->early[o->map], o->addr, e);
	}
	if (e->time_ns + COARSE_NS < time_ns)
		e->frees = 0;
	e->frees += frees;
	e->time_ns = time_ns;
	e->tid = o->tid;
}

/* Is this record one that was owed? Then it is settled. */
bool owed_settle(struct proc *p, const struct owed *o, const struct rec *r, int frees)
{
	struct early *e = p->early[o->map].count ? omap_get(&p->early[o->map], o->addr) : NULL;
	bool shadow = r->flags & REC_F_SHADOW;

	/* What comes late is not younger than what made us owe; but exact times run ahead. */
	if (!e || e->frees * frees <= 0 || e->tid == o->tid ||
	    r->time_ns > e->time_ns + (shadow ? 0 : COARSE_NS))
		return false;
	e->frees -= frees;
	if (!e->frees)
		free(omap_remove(&p->early[o->map], o->addr));
	return true;
}
