/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * What the job has mapped, as ranges that do not overlap. The pool is a tree: a byte counts once.
 *
 *	mapping		counts as host memory (HOST rows), with three exceptions:
 *	  of a file	has rows and a sum of its own: its pages are the page cache's
 *	  reserved	addresses without memory: no row, until mprotect() makes it writable
 *	  of malloc	malloc has served a block from it (jemalloc, tcmalloc): from then on its
 *			blocks count, as those of the C library do, whose mappings nobody sees
 *	object of Python	lies in a mapping that counts: a row, but no host memory of its own.
 *			In one that does not (mimalloc reserves), it is host memory itself.
 *
 * A mapping of which a part goes away ends, and what is left of it are new ones with its call
 * stack: sizes of rows never change.
 */
#include "memory/track/track_impl.h"

#include <stdlib.h>
#include <string.h>

#define MAX_MOVING 4096 /* threads inside mremap() */

static inline uint64_t end_of(const struct block *b)
{
	return b->addr + b->size_bytes;
}

/* The highest of these mappings that begins below `until`, if it reaches beyond `from`. */
static struct block *find_below(const struct omap *mappings, uint64_t from, uint64_t until)
{
	uint64_t start;
	struct block *b = omap_floor(mappings, until - 1, &start);

	return b && end_of(b) > from ? b : NULL;
}

static void count_arena(struct proc *p, const struct block *b, bool more)
{
	struct usage *u = usage_of(p, b->device);
	uint64_t *total = &u->total[POOL_PYTHON];

	if (!b->arena)
		return;
	*total += more ? b->size_bytes : -b->size_bytes;
	if (*total > u->peak_total[POOL_PYTHON])
		u->peak_total[POOL_PYTHON] = *total;
}

/* Its memory is not in use any more; r: the record that says so. */
static void end_memory(struct proc *p, struct block *b, const struct rec *r, uint32_t tid)
{
	if (!block_is_memory(b))
		return;
	count_arena(p, b, false);
	count_used(p, b, false);
	if (b->written)
		rows_free(p, b, r, tid, r->time_ns, false);
	b->written = false;
}

/* [addr, until) is like the block. */
static void put_mapping(struct proc *p, const struct block *like, uint64_t addr, uint64_t until,
			uint64_t time_ns)
{
	if (!budget_take(p, BLOCK_COST))
		return;
	struct block *b = block_new(p->track);
	*b = *like;
	b->addr = addr;
	b->size_bytes = until - addr;
	b->id = ++p->next_block;
	b->step = (uint32_t)p->step;
	b->written = b->hidden = b->labelled_late = b->shadow = false;
	b->labels = labels_share(like->labels);
	layers_split_block(p, b, like);
	omap_put(&p->maps[MAP_MAPPINGS], addr, b);
	if (b->kind == ALLOC_RESERVED)
		omap_put(&p->reserved, addr, b);
	if (!block_is_memory(b))
		return;
	count_arena(p, b, true);
	count_used(p, b, true);
	if (p->window && rows_wanted(p, b->device))
		rows_malloc(p, b, time_ns, false);
}

static void clear_range(struct proc *p, uint64_t from, uint64_t until, const struct rec *r,
			uint32_t tid)
{
	struct block *b;

	while ((b = find_below(&p->maps[MAP_MAPPINGS], from, until))) {
		omap_remove(&p->maps[MAP_MAPPINGS], b->addr);
		if (b->kind == ALLOC_RESERVED)
			omap_remove(&p->reserved, b->addr);
		end_memory(p, b, r, tid);
		if (b->addr < from)
			put_mapping(p, b, b->addr, from, r->time_ns);
		if (end_of(b) > until)
			put_mapping(p, b, until, end_of(b), r->time_ns);
		block_free(p->track, b);
	}
}

static void add_mapping(struct proc *p, uint64_t from, uint64_t until, uint8_t kind,
			const struct rec *r, uint32_t tid)
{
	struct block like = {
		.time_ns = r->time_ns,
		.tid = tid,
		.stack = r->stack,
		.device = DEV_HOST,
		.pool = POOL_HOST,
		.kind = kind,
		.module = MODULE_NONE,
	};

	clear_range(p, from, until, r, tid);
	if (p->threads.count)
		like.labels = labels_of(p, tid, POOL_HOST, r->time_ns);
	put_mapping(p, &like, from, until, r->time_ns);
	labels_put(like.labels);
}

/*
 * What was reserved there may be written from now on. The other mappings of the range are not looked
 * at: there may be many, and the same records again and again.
 */
static void commit_range(struct proc *p, uint64_t from, uint64_t until, const struct rec *r,
			 uint32_t tid)
{
	struct block *b;

	while (until > from && (b = find_below(&p->reserved, from, until))) {
		uint64_t lo = b->addr > from ? b->addr : from;
		uint64_t hi = end_of(b) < until ? end_of(b) : until;

		add_mapping(p, lo, hi, ALLOC_MAPPED, r, tid);
		until = lo;
	}
}

static void note_left(struct proc *p, uint32_t tid, uint64_t addr)
{
	const struct block *b = block_around(p, MAP_MAPPINGS, addr);

	if (b && p->moving.count < MAX_MOVING)
		omap_put(&p->moving, tid, (void *)(uintptr_t)(b->kind + 1u));
}

static uint8_t kind_left(struct proc *p, uint32_t tid)
{
	uintptr_t kind = (uintptr_t)omap_remove(&p->moving, tid);

	return kind ? (uint8_t)(kind - 1) : ALLOC_MAPPED;
}

void mappings_set_moving(struct proc *p, uint32_t tid, uint8_t kind)
{
	if (p->moving.count < MAX_MOVING && kind)
		omap_put(&p->moving, tid, (void *)(uintptr_t)kind);
}

void mappings_record(struct proc *p, uint32_t tid, const struct rec_map *r)
{
	uint64_t from = r->addr, until = r->addr + r->bytes;

	if (!r->bytes) {
		const struct block *b = omap_get(&p->maps[MAP_MAPPINGS], from);
		until = b ? end_of(b) : from;
	}
	if (until <= from)
		return;
	memset(p->quiet, 0, sizeof(p->quiet));
	switch (r->op) {
	case MAP_ADD:
		if (r->kind >= ALLOC_MAPPED && r->kind <= ALLOC_RESERVED)
			add_mapping(p, from, until, r->kind, &r->head, tid);
		break;
	case MAP_ARRIVE:
		add_mapping(p, from, until, kind_left(p, tid), &r->head, tid);
		break;
	case MAP_LEAVE:
		note_left(p, tid, from);
		clear_range(p, from, until, &r->head, tid);
		break;
	case MAP_DROP:
		clear_range(p, from, until, &r->head, tid);
		break;
	case MAP_COMMIT:
		commit_range(p, from, until, &r->head, tid);
		break;
	default:
		break;
	}
}

/* --- who serves blocks from mappings --- */

void mappings_malloc_slow(struct proc *p, uint64_t addr, uint32_t tid, uint64_t time_ns)
{
	unsigned i = addr >> 32 & (NQUIET - 1);
	uint64_t start = 0;
	struct block *b = omap_floor(&p->maps[MAP_MAPPINGS], addr, &start);

	if (!b || addr >= end_of(b)) {
		p->quiet[i].from = b ? end_of(b) : 0;
		p->quiet[i].until = addr + 1;
		return;
	}
	if (b->kind != BLOCK_OF_MALLOC) {
		end_memory(p, b, &(struct rec){.time_ns = time_ns}, tid);
		if (b->kind == ALLOC_RESERVED)
			omap_remove(&p->reserved, b->addr);
		b->kind = BLOCK_OF_MALLOC;
		b->arena = false;
	}
	p->quiet[i].from = b->addr;
	p->quiet[i].until = end_of(b);
}

bool mappings_object(struct proc *p, struct block *b)
{
	struct block *m = block_around(p, MAP_MAPPINGS, b->addr);

	if (!m || (m->kind != ALLOC_MAPPED && m->kind != ALLOC_SHARED)) {
		b->alone = true;
		return !block_around(p, POOL_HOST, b->addr);
	}
	if (!m->arena) {
		m->arena = true;
		count_arena(p, m, true);
	}
	return true;
}
