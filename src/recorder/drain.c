/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * How far a round may go: a ring whose owner is between reading the clock and publishing holds
 * `pending_ns`; no record younger than the oldest such bound is in this round's batch. A hook that
 * hangs in the driver with a hold must not stop the recording: after STALL_NS its bound is
 * ignored, and its late record comes late.
 *
 * Within one ring records keep their order; the merge key is the greatest time so far, so that a
 * prefix of each ring is in the batch and a cursor is enough to go on.
 *
 * Once they are in order, times of host memory are rounded down to steps of PACK_TICK_NS, about as
 * long as it takes to record such an event: exact times would take half of the recording, and be no
 * truer. A time is never rounded to before the record in front of it. This is done here, so that
 * whoever sees the batch and whoever reads the recording see the same.
 */
#include "recorder/drain.h"

#include "base/clock.h"
#include "base/mem.h"
#include "recorder/drain_impl.h"
#include "recorder/pack/pack.h"
#include "wire/record.h"

#include <string.h>

#define LAG_NS 100000u /* longer than a store needs to become visible */
#define STALL_NS 1000000000ull
#define AHEAD_NS 1000000000ull /* a time further in the future is of another clock */
#define RING_BYTES_PER_ROUND (512u << 10) /* of few rings; of many half as much */
#define FEW_RINGS 32
#define BUDGET_SHARE 16 /* a process that has filled one part of so many is read at once */
#define BATCH_BYTES (16u << 20)
#define LOSSES_NS 100000000ull /* between batches that say nothing but what was lost */

/* What may come from this ring in the future is not older than this. */
static uint64_t ring_bound(const struct drain *d, struct arena *a, uint32_t i, uint64_t horizon)
{
	struct ring_reader *rr = &a->rings[i];
	uint64_t pending = arena_pending(a, i);

	/*
	 * A ring that was not there in the last round: its first event is younger than that. One of
	 * an arena that was not read may have been inside a hook for a while.
	 */
	if (!rr->floor_ns)
		rr->floor_ns = a->was_read ? d->horizon : horizon - STALL_NS / 2;
	if (a->proc.dead)
		return UINT64_MAX;
	if (!pending) {
		rr->floor_ns = horizon;
		return horizon;
	}
	uint64_t bound = pending == RING_PENDING_NOW ? rr->floor_ns : pending;
	return bound + STALL_NS < horizon ? horizon : bound;
}

/*
 * A hook that is about to read the clock does so after the last record of its thread. Without this
 * a thread that waits for room would keep the others' records out of the batch, and room from
 * coming.
 */
static uint64_t ring_raise(const struct drain *d, struct arena *a, uint32_t i, uint64_t floor_ns,
			   uint64_t bound)
{
	struct ring_reader *rr = &a->rings[i];
	uint64_t horizon = d->now_ns - LAG_NS;

	if (bound == rr->floor_ns)
		bound = floor_ns < horizon ? floor_ns : horizon;
	rr->floor_ns = floor_ns;
	return bound;
}

/* Copies what one ring has published into entries; returns the bound that this sets. */
static uint64_t ring_copy_published(struct drain *d, struct arena *a, uint32_t i, uint64_t bound)
{
	struct arena_piece piece;
	struct ring_reader at = a->rings[i];
	size_t begin = d->nentries, taken = 0;
	uint64_t key = at.key, floor_ns = at.floor_ns;

	while (arena_next_piece(a, i, &at, &piece)) {
		size_t raw = d->raw.len;
		buf_add(&d->raw, piece.data, piece.bytes);
		for (size_t off = 0; off < piece.bytes;) {
			const struct rec *r = (const struct rec *)(d->raw.data + raw + off);
			if (!rec_check(r, piece.bytes - off)) {
				/* First what came before it; skipped when nothing does. */
				if (d->nentries != begin)
					goto out;
				arena_damaged(a, i, &at, piece.bytes - off);
				break;
			}
			/* A ring must not wait for a time that no clock of ours shows. */
			if (r->time_ns > key && r->time_ns <= d->now_ns + AHEAD_NS &&
			    !rec_is_inside_event(r)) {
				key = r->time_ns;
				if (r->type != REC_KERNEL && key > floor_ns)
					floor_ns = key;
			}
			d->entries = xgrow(d->entries, &d->cap_entries, d->nentries + 1,
					   sizeof(*d->entries));
			off += r->size;
			d->entries[d->nentries++] = (struct entry){
				.key = key,
				.raw = (uint32_t)((const char *)r - d->raw.data),
				.run = (uint32_t)d->nruns,
				.seg = at.seg,
				.end = piece.offset + (uint32_t)off,
			};
		}
		bound = ring_raise(d, a, i, floor_ns, bound);
		taken += piece.bytes;
		if (taken >= d->ring_bytes) {
			bound = key < bound ? key : bound;
			break;
		}
	}
out:
	if (d->nentries == begin)
		return bound;
	d->runs = xgrow(d->runs, &d->cap_runs, d->nruns + 1, sizeof(*d->runs));
	d->run_begin = xgrow(d->run_begin, &d->cap_begin, d->nruns + 2, sizeof(*d->run_begin));
	d->run_begin[d->nruns] = (uint32_t)begin;
	d->runs[d->nruns++] = (struct run){.arena = a, .ring = i, .tid = a->rings[i].tid};
	return bound;
}

/* Merges neighbouring sorted runs, twice as long in each pass. */
static void merge_runs(struct drain *d)
{
	size_t n = d->nruns;
	uint32_t *begin = d->run_begin;

	if (n < 2)
		return;
	d->spare = xgrow(d->spare, &d->cap_spare, d->nentries, sizeof(*d->spare));
	begin[n] = (uint32_t)d->nentries;
	while (n > 1) {
		size_t out_runs = 0, k = 0;
		for (size_t r = 0; r < n; r += 2) {
			size_t i = begin[r], iend = begin[r + 1], j = iend;
			size_t jend = r + 1 < n ? begin[r + 2] : iend;
			begin[out_runs++] = (uint32_t)k;
			while (i < iend && j < jend)
				d->spare[k++] = d->entries[j].key < d->entries[i].key
							? d->entries[j++]
							: d->entries[i++];
			while (i < iend)
				d->spare[k++] = d->entries[i++];
			while (j < jend)
				d->spare[k++] = d->entries[j++];
		}
		struct entry *t = d->entries;
		d->entries = d->spare;
		d->spare = t;
		size_t c = d->cap_entries;
		d->cap_entries = d->cap_spare;
		d->cap_spare = c;
		n = out_runs;
		begin[n] = (uint32_t)d->nentries;
	}
}

/* Where the run item being written begins in the batch; SIZE_MAX: none. */
struct open_item {
	size_t at;
	uint32_t proc;
	uint32_t tid;
};

static void item_close(struct buf *batch, struct open_item *it)
{
	if (it->at != SIZE_MAX)
		((struct batch_item *)(batch->data + it->at))->bytes =
			(uint32_t)(batch->len - it->at);
	it->at = SIZE_MAX;
}

static void item_open(struct buf *batch, struct open_item *it, uint32_t proc, uint32_t tid)
{
	struct batch_item head = {.kind = BATCH_RUN, .proc = proc, .tid = tid};

	if (it->at != SIZE_MAX && it->proc == proc && it->tid == tid)
		return;
	item_close(batch, it);
	*it = (struct open_item){batch->len, proc, tid};
	buf_add(batch, &head, sizeof(head));
}

/* The stack behind a record goes before it, once. An id that makes no sense is taken out. */
static void emit_stack(struct buf *batch, struct open_item *it, struct arena *a, struct rec *r)
{
	uint64_t pc[ARENA_MAX_DEPTH];
	uint32_t depth;

	if (!r->stack || arena_stack_is_recorded(a, r->stack))
		return;
	depth = arena_read_stack(a, r->stack, pc);
	if (!depth) {
		r->stack = 0;
		return;
	}
	struct batch_stack s = {
		.head = {.kind = BATCH_STACK, .proc = a->proc.number},
		.id = r->stack,
		.depth = depth,
	};
	s.head.bytes = (uint32_t)(sizeof(s) + depth * sizeof(pc[0]));
	item_close(batch, it);
	buf_add(batch, &s, sizeof(s));
	buf_add(batch, pc, depth * sizeof(pc[0]));
	arena_set_stack_recorded(a, r->stack);
}

static void emit_cursors(struct drain *d, struct buf *batch)
{
	for (size_t i = 0; i < d->nruns; i++) {
		struct run *run = &d->runs[i];
		if (!run->emitted)
			continue;
		struct batch_cursor c = {
			.head = {BATCH_CURSOR, sizeof(c), run->arena->proc.number, run->tid},
			.ring = run->ring,
			.offset = run->off,
			.seq = arena_seq(run->arena, run->seg),
		};
		buf_add(batch, &c, sizeof(c));
	}
}

static void emit_count(struct buf *batch, struct arena *a, const struct arena_losses *losses)
{
	struct batch_count c = {
		.head = {BATCH_COUNT, sizeof(c), a->proc.number, 0},
		.records = a->records + a->in_batch,
		.in_batch = a->in_batch,
		.lost_events = losses->events,
		.lost_stacks = losses->stacks,
		.damaged = losses->damaged,
	};

	buf_add(batch, &c, sizeof(c));
	a->losses = *losses;
}

/*
 * Losses that have grown since the last batch. Before its records: who counts them up to the end of
 * something that a record announces has all that came before that.
 */
static void emit_losses(struct drain *d, struct buf *batch)
{
	bool due = d->nentries || d->now_ns - d->losses_ns >= LOSSES_NS;

	if (due)
		d->losses_ns = d->now_ns;
	for (size_t i = 0; i < d->narenas; i++) {
		struct arena *a = d->arenas[i];
		struct arena_losses now = arena_losses(a);
		if ((due || a->proc.dead) && arena_is_due(a) &&
		    (now.events != a->losses.events || now.stacks != a->losses.stacks ||
		     now.damaged != a->losses.damaged))
			emit_count(batch, a, &now);
	}
}

static void emit_counts(struct drain *d, struct buf *batch)
{
	for (size_t i = 0; i < d->narenas; i++)
		if (d->arenas[i]->in_batch)
			emit_count(batch, d->arenas[i], &d->arenas[i]->losses);
}

static bool is_of_host(const struct rec *r)
{
	uint8_t pool = r->type == REC_ALLOC  ? ((const struct rec_alloc *)r)->pool
		       : r->type == REC_FREE ? ((const struct rec_free *)r)->pool
					     : 0;

	return pool == POOL_HOST || pool == POOL_PYTHON;
}

/* The time of a record that comes next in the batch; `key` is its merge key. */
static void round_time(struct drain *d, struct rec *r, uint64_t key)
{
	uint64_t t = r->time_ns;

	if (is_of_host(r)) {
		r->time_ns = t - t % PACK_TICK_NS;
		if (r->time_ns < d->last_ns && d->last_ns <= t)
			r->time_ns = d->last_ns;
	}
	if (r->time_ns > d->last_ns && r->time_ns <= key)
		d->last_ns = r->time_ns;
}

/* Adds everything up to `until` to the batch, in order. */
static uint32_t emit_batch(struct drain *d, uint64_t until, struct buf *batch)
{
	struct open_item it = {.at = SIZE_MAX};
	uint32_t n = 0;

	for (size_t i = 0; i < d->nentries && batch->len < BATCH_BYTES; i++) {
		struct entry *e = &d->entries[i];
		struct run *run = &d->runs[e->run];
		struct rec *r = (struct rec *)(d->raw.data + e->raw);
		if (e->key > until)
			break;
		run->emitted = true;
		run->seg = e->seg;
		run->off = e->end;
		run->arena->rings[run->ring].key = e->key;
		if (r->type == REC_THREAD) {
			run->tid = ((struct rec_thread *)r)->tid;
			/* Its number may have been another thread's; what that did is over. */
			if (!((struct rec_thread *)r)->level) {
				item_open(batch, &it, run->arena->proc.number, run->tid);
				buf_add(batch, r, r->size);
			}
			continue;
		}
		round_time(d, r, e->key);
		emit_stack(batch, &it, run->arena, r);
		item_open(batch, &it, run->arena->proc.number, run->tid);
		buf_add(batch, r, r->size);
		run->records++;
		run->arena->in_batch++;
		n++;
	}
	item_close(batch, &it);
	emit_cursors(d, batch);
	emit_counts(d, batch);
	return n;
}

static size_t count_rings(struct drain *d)
{
	size_t n = 0;

	for (size_t i = 0; i < d->narenas; i++)
		n += arena_is_due(d->arenas[i]) ? arena_nrings(d->arenas[i]) : 0;
	return n;
}

bool drain_has_much(struct drain *d, size_t much)
{
	size_t all = 0;

	for (size_t i = 0; i < d->narenas; i++) {
		struct arena *a = d->arenas[i];
		uint64_t budget = (uint64_t)a->max_segs * ARENA_SEG_SIZE, bytes = 0;
		uint32_t n = arena_is_due(a) ? arena_nrings(a) : 0;
		for (uint32_t k = 0; k < n; k++) {
			struct ring_reader at = a->rings[k];
			struct arena_piece piece;
			while (bytes < much && arena_next_piece(a, k, &at, &piece))
				bytes += piece.bytes;
		}
		all += bytes;
		if (all >= much || bytes >= budget / BUDGET_SHARE)
			return true;
	}
	return false;
}

uint32_t drain_round(struct drain *d, struct buf *batch)
{
	uint64_t horizon, until = UINT64_MAX;

	d->now_ns = clock_mono_ns();
	horizon = d->now_ns - LAG_NS;
	buf_clear(&d->raw);
	d->nentries = 0;
	d->nruns = 0;
	d->ring_bytes =
		count_rings(d) > FEW_RINGS ? RING_BYTES_PER_ROUND / 2 : RING_BYTES_PER_ROUND;
	for (size_t i = 0; i < d->narenas; i++) {
		struct arena *a = d->arenas[i];
		uint32_t n = arena_is_due(a) ? arena_nrings(a) : 0;
		for (uint32_t k = 0; k < n; k++) {
			uint64_t bound = ring_bound(d, a, k, horizon);
			bound = ring_copy_published(d, a, k, bound);
			if (bound < until)
				until = bound;
		}
		a->was_read = true;
		a->in_batch = 0;
	}
	d->horizon = horizon;
	emit_losses(d, batch);
	if (!d->nentries)
		return 0;
	merge_runs(d);
	return emit_batch(d, until, batch);
}

static void end_round(struct drain *d)
{
	for (size_t i = 0; i < d->narenas; i++) {
		d->arenas[i]->records += d->arenas[i]->in_batch;
		d->arenas[i]->in_batch = 0;
	}
	d->nruns = 0;
	d->nentries = 0;
}

void drain_commit(struct drain *d)
{
	for (size_t i = 0; i < d->nruns; i++) {
		struct run *run = &d->runs[i];
		if (!run->emitted)
			continue;
		run->arena->rings[run->ring].tid = run->tid;
		arena_advance(run->arena, run->ring, run->seg, run->off);
	}
	end_round(d);
}

void drain_drop(struct drain *d)
{
	for (size_t i = 0; i < d->nruns; i++) {
		struct run *run = &d->runs[i];
		if (!run->emitted)
			continue;
		run->arena->rings[run->ring].tid = run->tid;
		arena_drop(run->arena, run->ring, run->seg, run->off, run->records);
		arena_forget_stacks(run->arena);
	}
	for (size_t i = 0; i < d->narenas; i++)
		d->arenas[i]->losses = (struct arena_losses){UINT64_MAX, UINT64_MAX, UINT64_MAX};
	end_round(d);
}
