/* SPDX-License-Identifier: MulanPSL-2.0 */
/* What the pools of live processes hold, for whoever asks while the job runs. */
#include "memory/track/track_impl.h"

static void list_pools(const struct proc *p, const struct usage *u,
		       void (*fn)(void *arg, const struct track_usage *u), void *arg)
{
	for (uint32_t pool = 0; pool < POOL_END; pool++) {
		if (!u->peak_used[pool] && !u->peak_total[pool])
			continue;
		struct track_usage found = {
			.pid = p->info.pid,
			.device = u->device,
			.pool = pool,
			.used = u->used[pool],
			.peak = u->peak_used[pool],
			.peak_total = u->peak_total[pool],
		};
		fn(arg, &found);
	}
}

void track_usages(const struct track *t, void (*fn)(void *arg, const struct track_usage *u),
		  void *arg)
{
	for (size_t i = 0; i < t->nprocs; i++)
		for (size_t k = 0; t->procs[i] && k < t->procs[i]->nusage; k++)
			list_pools(t->procs[i], &t->procs[i]->usage[k], fn, arg);
}
