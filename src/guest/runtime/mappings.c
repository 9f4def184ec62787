/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Our memory in the job: control page, arenas, the epoch's page. A job may unmap or protect what it
 * does not know (checkpointers do); the next event would be a fault. The preload libraries see the
 * calls (src/guest/interpose/mappings.c) and leave our ranges out, so that nothing is lost.
 *
 * What a job puts in place of ours (MAP_FIXED) is its own from then on: guest_detach() ends the
 * recording of this process before.
 */
#include "guest/runtime/guest.h"

#include <errno.h>

#define MAX_RANGES 32u /* two for each arena, also those that were left, and the epoch's page */
#define DETACH_NS 1000000000ull

static struct {
	_Atomic uint64_t lo, hi; /* hi 0: free */
} ranges[MAX_RANGES];

void guest_own_range(const void *at, uint64_t bytes)
{
	for (unsigned i = 0; i < MAX_RANGES; i++) {
		uint64_t none = 0;

		if (!atomic_compare_exchange_strong(&ranges[i].hi, &none, 1))
			continue;
		atomic_store(&ranges[i].lo, (uint64_t)at);
		atomic_store(&ranges[i].hi, (uint64_t)at + bytes);
		return;
	}
}

void guest_disown_range(const void *at)
{
	for (unsigned i = 0; i < MAX_RANGES; i++)
		if (atomic_load(&ranges[i].hi) && atomic_load(&ranges[i].lo) == (uint64_t)at)
			atomic_store(&ranges[i].hi, 0);
}

bool guest_find_own(uint64_t lo, uint64_t hi, uint64_t *out_lo, uint64_t *out_hi)
{
	uint64_t first = UINT64_MAX;

	for (unsigned i = 0; i < MAX_RANGES; i++) {
		uint64_t to = atomic_load_explicit(&ranges[i].hi, memory_order_relaxed);
		uint64_t from = atomic_load_explicit(&ranges[i].lo, memory_order_relaxed);

		if (to <= lo || from >= hi || from >= first)
			continue;
		first = *out_lo = from;
		*out_hi = to;
	}
	return first != UINT64_MAX;
}

/* By stores alone, but for the wait for hooks that are writing there. */
void guest_detach(void)
{
	struct arena_head *a = guest.arena;
	int saved = errno;

	if (!guest_has_joined())
		return;
	atomic_fetch_add(&guest.page->detached, 1);
	guest_leave_epoch();
	guest_wait_for_hooks(a, DETACH_NS);
	guest.arena = NULL;
	guest.page = NULL;
	errno = saved;
}
