/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * What is alive: blocks and pools. A FREE row is written whenever the MALLOC row of its block was;
 * when that is, is said in memory/track/window.c.
 */
#include "base/mem.h"
#include "memory/track/track_impl.h"

#include <stdlib.h>
#include <string.h>

#define FADING_NS 10000000ull /* in which pages of freed blocks go */

struct usage *usage_of(struct proc *p, uint32_t device)
{
	for (size_t i = 0; i < p->nusage; i++)
		if (p->usage[i].device == device)
			return &p->usage[i];
	p->usage = xgrow(p->usage, &p->cap_usage, p->nusage + 1, sizeof(*p->usage));
	p->usage[p->nusage] = (struct usage){.device = device};
	p->track->signs.users++;
	return &p->usage[p->nusage++];
}

uint32_t physical_device(const struct proc *p, uint32_t device)
{
	if (device >= DEV_NONE || !p->nvisible || p->checkpoint)
		return device;
	return device < (uint32_t)p->nvisible ? (uint32_t)p->visible[device] : device;
}

/* Nobody has that many; and each would be searched among all others. */
bool alive_has_room(struct proc *p, const struct rec *r)
{
	uint32_t device;

	if (p->nusage < MAX_DEVICES)
		return true;
	switch (r->type) {
	case REC_ALLOC:
		device = ((const struct rec_alloc *)r)->device;
		break;
	case REC_HEAP:
		device = physical_device(p, ((const struct rec_heap *)r)->device);
		break;
	case REC_OOM:
		device = ((const struct rec_oom *)r)->device;
		break;
	case REC_DEVICE:
		device = ((const struct rec_device *)r)->device;
		break;
	case REC_SNAPSHOT:
		device = ((const struct rec_snapshot *)r)->device;
		break;
	case REC_BLOCK:
		device = ((const struct rec_block *)r)->device;
		break;
	case REC_STATE:
		device = ((const struct rec_state *)r)->device;
		break;
	default:
		return true;
	}
	for (size_t i = 0; i < p->nusage; i++)
		if (p->usage[i].device == device)
			return true;
	p->track->refused++;
	p->refused++;
	return false;
}

struct block *block_new(struct track *t)
{
	struct block *b = t->free_blocks;

	if (!b)
		return xcalloc(1, sizeof(*b));
	t->free_blocks = b->next_free;
	memset(b, 0, sizeof(*b));
	return b;
}

void block_free(struct track *t, struct block *b)
{
	labels_put(b->labels);
	layers_block_gone(t, b);
	budget_give_back(t, BLOCK_COST);
	b->next_free = t->free_blocks;
	t->free_blocks = b;
}

struct block *block_around(struct proc *p, unsigned map, uint64_t addr)
{
	uint64_t start;
	struct block *b = omap_floor(&p->maps[map], addr, &start);

	return b && (addr == start || addr - start < b->size_bytes) ? b : NULL;
}

/* A free is written before the pages go, which takes milliseconds for large blocks. */
static void note_high(struct proc *p, uint64_t used)
{
	if (used < p->high_bytes && p->last_ns - p->high_ns <= FADING_NS)
		return;
	p->high_bytes = used;
	p->high_ns = p->last_ns;
}

/* A sample of memory belongs to the blocks of its time, which come a little later. */
void alive_emit_usage(struct proc *p)
{
	const struct rec_usage *u = &p->sampled;
	uint64_t time_ns = u->head.time_ns, fading = 0;

	if (!u->head.size)
		return;
	uint64_t used = usage_of(p, DEV_HOST)->used[POOL_HOST];
	if (p->high_bytes > used && time_ns <= p->high_ns + FADING_NS)
		fading = p->high_bytes - used;
	p->track->sink.usage(p->track->sink.arg, p->info.proc,
			     time_ns + (uint64_t)p->track->wall_minus_mono_ns, u, fading);
	p->sampled.head.size = 0;
}

void count_used(struct proc *p, const struct block *b, bool more)
{
	unsigned map = block_sum(b);
	struct usage *u = usage_of(p, b->device);
	uint64_t *used = &u->used[map];

	if (map == POOL_HOST && !more)
		note_high(p, *used);
	if (more)
		*used = *used > UINT64_MAX - b->size_bytes ? UINT64_MAX : *used + b->size_bytes;
	else
		*used = *used > b->size_bytes ? *used - b->size_bytes : 0;
	if (*used > u->peak_used[map]) {
		u->peak_used[map] = *used;
		u->peak_ns[map] = p->last_ns;
	}
	if (map == POOL_HAL || map == POOL_CUDA)
		u->own_bytes += more ? whole_pages(b) : -whole_pages(b);
	if (b->kind == ALLOC_ASYNC)
		u->async_bytes += more ? b->size_bytes : -b->size_bytes;
}

static void drop_block(struct proc *p, struct block *b)
{
	count_used(p, b, false);
	block_free(p->track, b);
}

/* The time for a row: that of a shadow record is no earlier than what has been written already. */
static uint64_t row_time(const struct proc *p, const struct rec *r)
{
	return r->flags & REC_F_SHADOW ? p->last_ns : r->time_ns;
}

/* The others are of mappings. */
static bool is_block_kind(uint8_t kind)
{
	return kind <= ALLOC_REGION || (kind >= ALLOC_ASYNC && kind <= ALLOC_GRAPH);
}

/* Page-locked by CUDA, and in a block or mapping of the host that is recorded: that one counts. */
static bool is_counted_memory(struct proc *p, const struct rec_alloc *r)
{
	return r->pool == POOL_CUDA && r->kind == ALLOC_PINNED &&
	       (block_around(p, POOL_HOST, r->addr) || block_around(p, MAP_MAPPINGS, r->addr));
}

void alive_add(struct proc *p, uint32_t tid, const struct rec_alloc *r)
{
	unsigned map = block_map(r->pool, r->kind);
	struct owed owed = {map, tid, r->addr};
	uint64_t now_ns = row_time(p, &r->head);
	bool shadow = r->head.flags & REC_F_SHADOW;

	if (r->pool >= POOL_END || !r->pool || !is_block_kind(r->kind) || is_counted_memory(p, r) ||
	    !budget_take(p, BLOCK_COST))
		return;
	struct block *b = block_new(p->track);
	b->addr = r->addr;
	b->size_bytes = r->size_bytes;
	b->id = ++p->next_block;
	b->step = (uint32_t)p->step;
	b->time_ns = r->head.time_ns;
	b->tid = tid;
	b->stack = r->head.stack;
	b->pool = r->pool;
	b->kind = r->kind;
	b->page = r->page;
	b->module = r->module;
	b->context = r->pool == POOL_CUDA || r->pool == POOL_HOST ? r->context : 0;
	b->device = (uint16_t)(r->kind == ALLOC_REGION ? physical_device(p, r->device) : r->device);
	if (r->pool == POOL_PYTHON && !mappings_object(p, b)) {
		block_free(p->track, b);
		return;
	}
	if (map == POOL_HOST)
		mappings_malloc(p, r->addr, tid, now_ns);
	if (p->threads.count) /* the time of a shadow record is a rough one, its place is not */
		b->labels = labels_of(p, tid, r->pool, shadow ? UINT64_MAX : b->time_ns);
	if (p->layers.count)
		layers_allocated(p, b, shadow ? UINT64_MAX : b->time_ns);
	if (r->pool == POOL_CUDA && r->kind == ALLOC_CREATE)
		cuda_created(p, r->addr);
	struct block *old = omap_put(&p->maps[map], r->addr, b);
	if (old) {
		/* Its free was never seen (lost, or before we looked): it ended no later than now.
		 */
		if (shadow)
			owed_add(p, &owed, r->head.time_ns, 1);
		if (old->written)
			rows_free(p, old, NULL, tid, now_ns, true);
		drop_block(p, old);
	}
	count_used(p, b, true);
	if (p->track->for_checkpoint)
		checkpoint_keep_cut(p, b);
	if (p->window && rows_wanted(p, b->device))
		rows_malloc(p, b, now_ns, shadow);
	if (owed_settle(p, &owed, &r->head, -1)) {
		omap_remove(&p->maps[map], r->addr);
		if (b->written)
			rows_free(p, b, NULL, tid, now_ns, true);
		drop_block(p, b);
	}
}

void alive_remove(struct proc *p, uint32_t tid, const struct rec_free *r)
{
	if (r->pool >= POOL_END || !r->pool)
		return;
	unsigned map = block_map(r->pool, r->kind);
	struct owed owed = {map, tid, r->addr};
	bool shadow = r->head.flags & REC_F_SHADOW;
	if (shadow && owed_settle(p, &owed, &r->head, 1))
		return;
	struct block *b = omap_remove(&p->maps[map], r->addr);
	/* The driver's free does not say whether it was host memory. */
	if (!b && r->pool == POOL_HAL)
		b = omap_remove(&p->maps[POOL_HOST], r->addr);
	if (!b) {
		/* Allocated before the library was there, or in a moment. CPython frees what it has
		 * from malloc in the same way. */
		if (shadow && r->pool != POOL_PYTHON)
			owed_add(p, &owed, r->head.time_ns, -1);
		return;
	}
	alive_end(p, b, &r->head, tid);
}

void alive_end(struct proc *p, struct block *b, const struct rec *r, uint32_t tid)
{
	if (!b)
		return;
	count_used(p, b, false);
	if (b->written)
		rows_free(p, b, r, tid, row_time(p, r), false);
	block_free(p->track, b);
}

static void set_total(struct usage *u, uint8_t pool, uint64_t bytes)
{
	u->total[pool] = bytes;
	if (bytes > u->peak_total[pool])
		u->peak_total[pool] = bytes;
}

void alive_set_pool(struct proc *p, const struct rec_heap *r)
{
	uint32_t device = physical_device(p, r->device);

	if (r->pool >= POOL_END || r->mode > HEAP_DROP)
		return;
	if (r->mode == HEAP_SET && r->pool != POOL_CUDA) { /* of CUDA: one of the driver's pools */
		set_total(usage_of(p, device), r->pool, r->bytes > 0 ? (uint64_t)r->bytes : 0);
		return;
	}
	struct usage *heap = omap_remove(&p->heaps, r->addr);
	if (heap) { /* dropped now, or added once more: then its end was not seen */
		uint64_t *total = &usage_of(p, heap->device)->total[r->pool];
		if (*total >= heap->total[r->pool])
			*total -= heap->total[r->pool];
		free(heap);
	}
	if (r->mode != HEAP_DROP && r->bytes > 0) {
		struct usage *u = usage_of(p, device);
		set_total(u, r->pool, u->total[r->pool] + (uint64_t)r->bytes);
		heap = xcalloc(1, sizeof(*heap));
		heap->device = device;
		heap->total[r->pool] = (uint64_t)r->bytes;
		omap_put(&p->heaps, r->addr, heap);
	}
}
