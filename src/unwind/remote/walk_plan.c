/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The plan: which memory the next walk copies in its one system call. It is what the last walk met,
 * because stacks change at their innermost end and are otherwise what they were a millisecond ago.
 *
 *	chunks	the chain from newest to oldest, whole, but for the newest: up to the innermost
 *		frame and CHUNK_SLACK for frames that come on top until then
 *	areas	frames that lie in no chunk (generators, borders to C; all of them to 3.10), those
 *		near each other in one area: fewer spans, and closer in time
 *	recent	frames that were there a while ago: a generator that is resumed again and again
 *
 * A plan that does not fit costs one more attempt, never a wrong stack.
 */
#include "unwind/remote/walk_plan.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

#define MAX_CHUNKS 160
#define MAX_CHUNK_BYTES (16u << 20)
#define CHUNK_SLACK 1024 /* for frames that come on top until the next walk */
#define AREA_GAP 3000 /* frames that are no farther apart are copied together: less than a page */
#define AREA_MAX (64u << 10)

static uint64_t *sorted; /* scratch memory */
static size_t sorted_cap;

/* Bounded in number and bytes: a chain that was read while it changed may lead anywhere. */
int plan_chunks(struct walker *w, struct walk_thread *t, uint64_t newest)
{
	uint64_t total = 0;

	t->nchunks = 0;
	for (uint64_t at = newest; at; t->nchunks++) {
		struct chunk_head head;
		int ret = t->nchunks < MAX_CHUNKS ? remote_read(w->remote, at, &head, sizeof(head))
						  : -E2BIG;
		if (ret < 0)
			return ret;
		total += head.size;
		if (head.size < sizeof(head) || total > MAX_CHUNK_BYTES)
			return -EPROTO;
		t->chunks = xgrow(t->chunks, &t->chunks_cap, t->nchunks + 1, sizeof(*t->chunks));
		t->chunks[t->nchunks] =
			(struct walk_area){at, (uint32_t)head.size, (uint32_t)head.size};
		at = head.previous;
	}
	return 0;
}

void plan_used(struct walk_thread *t, uint64_t innermost, uint32_t frame_size)
{
	struct walk_area *c = t->chunks;

	if (!t->nchunks || innermost < c->addr || innermost >= c->addr + c->size)
		return;
	uint64_t want = innermost - c->addr + frame_size + CHUNK_SLACK;
	/* Stacks go up and down: shrink slowly, so that not every second walk is too short. */
	if (want < c->used)
		want = c->used - (c->used - want) / 8;
	c->used = (uint32_t)(want < c->size ? want : c->size);
}

static int by_address(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

/*
 * Areas around all loose frames that are known.
 *
 * Less than a page of gap costs less to copy than another span. An area stays below AREA_MAX, so
 * that its bytes are near each other in time.
 */
static void plan_areas(struct walk_thread *t, uint32_t size)
{
	unsigned n = t->nloose + t->nrecent;

	sorted = xgrow(sorted, &sorted_cap, n + 1, sizeof(uint64_t));
	if (t->nloose)
		memcpy(sorted, t->loose, t->nloose * sizeof(uint64_t));
	memcpy(sorted + t->nloose, t->recent, t->nrecent * sizeof(uint64_t));
	qsort(sorted, n, sizeof(uint64_t), by_address);
	t->nareas = 0;
	for (unsigned i = 0; i < n; i++) {
		struct walk_area *last = t->nareas ? &t->areas[t->nareas - 1] : NULL;
		uint64_t at = sorted[i];

		if (last && at <= last->addr + last->size + AREA_GAP &&
		    at + size - last->addr <= AREA_MAX) {
			if (at + size > last->addr + last->size)
				last->size = last->used = (uint32_t)(at + size - last->addr);
			continue;
		}
		t->areas = xgrow(t->areas, &t->areas_cap, t->nareas + 1, sizeof(*t->areas));
		t->areas[t->nareas++] = (struct walk_area){at, size, size};
	}
}

static bool list_contains(const uint64_t *list, unsigned n, uint64_t what)
{
	while (n-- > 0)
		if (list[n] == what)
			return true;
	return false;
}

/* The innermost frames of the last walk that are not there any more: they come and go. */
static void keep_recent(struct walk_thread *t, const uint64_t *found, unsigned nfound)
{
	unsigned inner = t->nloose < WALK_RECENT ? t->nloose : WALK_RECENT;

	for (unsigned i = 0; i < inner; i++) {
		if (list_contains(found, nfound < 64 ? nfound : 64, t->loose[i]) ||
		    list_contains(t->recent, t->nrecent, t->loose[i]))
			continue;
		if (t->nrecent == WALK_RECENT)
			memmove(t->recent, t->recent + 1, --t->nrecent * sizeof(*t->recent));
		t->recent[t->nrecent++] = t->loose[i];
	}
}

void plan_loose(struct walk_thread *t, const uint64_t *found, unsigned n, uint32_t size)
{
	if (n == t->nloose && (!n || !memcmp(t->loose, found, n * sizeof(*found))))
		return;
	keep_recent(t, found, n);
	t->loose = xgrow(t->loose, &t->loose_cap, n, sizeof(*t->loose));
	if (n)
		memcpy(t->loose, found, n * sizeof(*found));
	t->nloose = n;
	plan_areas(t, size);
}

void plan_without(struct walk_thread *t, uint64_t addr, uint32_t size)
{
	if (addr == t->cframe)
		t->cframe = 0;
	for (unsigned i = 0; i < t->nchunks; i++)
		if (addr == t->chunks[i].addr)
			t->nchunks = 0;
	for (unsigned i = 0; i < t->nareas; i++) {
		if (addr == t->areas[i].addr) {
			t->nloose = t->nrecent = 0;
			plan_areas(t, size);
		}
	}
}
