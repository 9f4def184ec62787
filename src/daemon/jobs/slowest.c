/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Which rank the others wait for, of processes that report what takes their time. */
#include <stdlib.h>

#include "activity/live/toplist.h"
#include "base/mem.h"
#include "daemon/jobs/jobs_impl.h"

#define LATE 3 /* intervals without a report: its numbers say nothing about now */

bool jobs_report_is_late(const struct toplist_report *r, int64_t now_ms)
{
	int64_t ms = (int64_t)(r->interval_ns / 1000000);

	return now_ms - r->taken_ms > LATE * (ms > 1000 ? ms : 1000);
}

/* Of a rank's devices the one that communicates most counts: it is the one that waits. */
static struct toplist_rank describe_rank(const struct jobs_process *p)
{
	const struct toplist_report *r = toplist_last(p->top);
	struct toplist_rank rank = {.rank = r->rank,
				    .pid = p->pid,
				    .interval_ns = r->interval_ns,
				    .steps = r->steps,
				    .step_mean_ns = r->step_mean_ns};

	for (size_t i = 0; i < r->ndevices; i++) {
		if (r->devices[i].comm_ns > rank.comm_ns)
			rank.comm_ns = r->devices[i].comm_ns;
		if (r->devices[i].kernel_ns > rank.kernel_ns)
			rank.kernel_ns = r->devices[i].kernel_ns;
	}
	return rank;
}

/* Several jobs have nothing in common. */
static bool comes_twice(const struct toplist_rank *ranks, size_t n)
{
	struct hmap seen = {0};
	bool twice = false;

	for (size_t i = 0; i < n && !twice; i++) {
		twice = hmap_get(&seen, (uint32_t)ranks[i].rank) != HMAP_NONE;
		hmap_put(&seen, (uint32_t)ranks[i].rank, 1);
	}
	hmap_release(&seen);
	return twice;
}

bool jobs_find_slowest(struct jobs_process *const *all, size_t n, int64_t now_ms,
		       struct jobs_slowest *out)
{
	struct toplist_rank *ranks = xcalloc(n + 1, sizeof(*ranks));
	size_t kept = 0;

	for (size_t i = 0; i < n; i++) {
		const struct toplist_report *r = all[i]->top ? toplist_last(all[i]->top) : NULL;

		if (r && r->rank >= 0 && !jobs_report_is_late(r, now_ms))
			ranks[kept++] = describe_rank(all[i]);
	}
	struct toplist_slowest s = toplist_slowest(ranks, kept);
	bool found = s.by != TOPLIST_SLOW_NONE && !comes_twice(ranks, kept);
	if (found)
		*out = (struct jobs_slowest){.rank = ranks[s.at].rank,
					     .pid = ranks[s.at].pid,
					     .by = s.by == TOPLIST_SLOW_STEPS ? "steps" : "waiting",
					     .ratio = s.ratio,
					     .behind_ns = s.behind_ns};
	free(ranks);
	return found;
}
