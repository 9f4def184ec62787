/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Which launches of the traced steps have not run yet: a queue may hold them long after the host
 * has gone on. A launch and the work that it started have the same correlation id, and may be
 * reported in any order; by any thread of the vendor's library.
 *
 * A bucket of slots for each hash of an id; a slot is free when it is empty or has seen both. Where
 * a bucket is full we cannot know, and only wait as long as is usual.
 *
 *	slot	id << 2 | DONE | LAUNCHED
 *
 *	0 ---- launch ----> LAUNCHED (+1 open) ---- work ----> BOTH (-1): free again
 *	0 ---- work ------> DONE               ---- launch --> BOTH: never open
 *
 * Each arrow is one compare-and-swap; the count of open launches changes with the winner of it. An
 * id that is seen twice by the same side changes nothing.
 */
#include "guest/monitor/monitor_impl.h"

#include "guest/collect/collect.h"
#include "guest/runtime/guest.h"

#include <string.h>

#define BUCKETS 4096u
#define BUCKET 16u
#define LATE_NS (2000 * MS_NS) /* work that is reported so late after the steps is not of them */

enum { LAUNCHED = 1, DONE = 2, BOTH = LAUNCHED | DONE };

static _Atomic uint64_t slots[BUCKETS][BUCKET]; /* the id, and above bits below it */
static _Atomic int64_t open_launches;
static _Atomic bool full;
static _Atomic uint64_t from_ns, until_ns; /* wall clock: when launches count */

/* Is work of a device to be expected? By the names that vendors give. */
static bool is_launch(const char *name)
{
	if (!name || strstr(name, "HostFunc") || strstr(name, "allback"))
		return false;
	return strstr(name, "aunch") || strstr(name, "cpyAsync") || strstr(name, "setAsync");
}

static bool mark_slot(_Atomic uint64_t *slot, uint64_t id, uint64_t bit)
{
	uint64_t was = atomic_load_explicit(slot, memory_order_relaxed);

	while (was >> 2 == id && (was & BOTH) != BOTH) {
		if (was & bit)
			return true;
		if (!atomic_compare_exchange_weak(slot, &was, was | bit))
			continue;
		if (bit == DONE)
			atomic_fetch_sub(&open_launches, 1);
		return true;
	}
	return was >> 2 == id && was != 0;
}

static bool claim_slot(_Atomic uint64_t *slot, uint64_t id, uint64_t bit)
{
	uint64_t was = atomic_load_explicit(slot, memory_order_relaxed);

	if (was && (was & BOTH) != BOTH)
		return false;
	if (!atomic_compare_exchange_strong(slot, &was, id << 2 | bit))
		return false;
	if (bit == LAUNCHED)
		atomic_fetch_add(&open_launches, 1);
	return true;
}

static void note_half(uint64_t id, uint64_t bit, bool add)
{
	_Atomic uint64_t *bucket = slots[(id * 0x9e3779b97f4a7c15ull >> 40) % BUCKETS];

	for (uint32_t i = 0; i < BUCKET; i++)
		if (mark_slot(&bucket[i], id, bit))
			return;
	for (uint32_t i = 0; add && i < BUCKET; i++)
		if (claim_slot(&bucket[i], id, bit))
			return;
	if (add)
		atomic_store(&full, true);
}

static void on_activity(const struct collect_activity *a)
{
	uint64_t from = atomic_load(&from_ns), until = atomic_load(&until_ns);

	if (!a->correlation || a->kind == ACTIVITY_MARKER || a->kind == ACTIVITY_MEMORY)
		return;
	if (!(ACTIVITY_APIS & ACTIVITY_BIT(a->kind)))
		note_half(a->correlation, DONE,
			  a->start_ns >= from &&
				  (until == UINT64_MAX || a->start_ns < until + LATE_NS));
	else if (a->start_ns >= from && a->start_ns < until && is_launch(a->name))
		note_half(a->correlation, LAUNCHED, true);
}

void pending_begin(void)
{
	memset((void *)slots, 0, sizeof(slots));
	atomic_store(&open_launches, 0);
	atomic_store(&full, false);
	atomic_store(&until_ns, UINT64_MAX);
	atomic_store(&from_ns, UINT64_MAX);
	collect_on_activity(on_activity);
}

void pending_from_now(void)
{
	atomic_store(&from_ns, guest_wall_now());
}

void pending_until_now(void)
{
	atomic_store(&until_ns, guest_wall_now());
}

uint64_t pending_launches(void)
{
	int64_t n = atomic_load(&open_launches);

	return n > 0 && !atomic_load(&full) ? (uint64_t)n : 0;
}

void pending_end(void)
{
	collect_on_activity(NULL);
}
