/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * --profile-memory: what was taken and given back in the steps, and how much of what was taken in
 * them each pool still had at every moment. Blocks of before are of unknown size to a trace, so it
 * counts from 0 at its first step; `sonde mem` knows all.
 */
#include "activity/trace/trace.h"
#include "base/compare.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

static const char *const pool_names[POOL_END] = {
	[0] = "device",
	[POOL_HAL] = "HAL",
	[POOL_HOST] = "HOST",
	[POOL_PTA] = "PTA",
	[POOL_PTA_WORKSPACE] = "PTA_WORKSPACE",
	[POOL_MINDSPORE] = "MindSpore",
	[POOL_ATB] = "ATB",
	[POOL_TORCH] = "TORCH",
	[POOL_CUDA] = "CUDA",
	[POOL_PYTHON] = "PYTHON",
};

const char *trace_pool_name(uint8_t pool)
{
	return pool < POOL_END ? pool_names[pool] : "?";
}

static void add_block(struct trace_state *t, const struct trace_block *b)
{
	struct trace_memory *m = &t->memory;

	if (m->n >= TRACE_MAX_MEMORY) {
		t->left_out++;
		return;
	}
	*XPUSH(m->list, m->n, m->cap) = *b;
}

void trace_memory_record(struct trace_state *t, uint32_t tid, const struct rec *r)
{
	const struct rec_alloc *a = (const struct rec_alloc *)r;
	const struct rec_free *f = (const struct rec_free *)r;
	uint64_t ns = r->time_ns + (uint64_t)t->w->wall_minus_mono_ns;

	if (!trace_within(t, ns))
		return;
	if (r->type == REC_ALLOC && a->pool && a->pool < POOL_END && a->kind != ALLOC_PINNED)
		add_block(t, &(struct trace_block){.ns = ns,
						   .addr = a->addr,
						   .bytes = a->size_bytes,
						   .tid = tid,
						   .device = a->device,
						   .pool = a->pool,
						   .kind = a->kind});
	else if (r->type == REC_FREE && f->pool && f->pool < POOL_END && f->kind != ALLOC_PINNED)
		add_block(t, &(struct trace_block){.ns = ns,
						   .addr = f->addr,
						   .tid = tid,
						   .device = f->device,
						   .pool = f->pool,
						   .kind = f->kind,
						   .freed = true});
}

void trace_memory_activity(struct trace_state *t, const struct activity *a)
{
	if (a->flag > 1 || (t->from_ns != TRACE_NOT_YET && !trace_within(t, a->start_ns)))
		return;
	add_block(t, &(struct trace_block){.ns = a->start_ns,
					   .addr = a->number,
					   .bytes = a->amount,
					   .tid = a->tid,
					   .device = a->device < DEV_NONE ? (uint16_t)a->device
									  : DEV_NONE,
					   .freed = a->flag == 1});
}

/* --- at the end --- */

COMPARE_BY(by_time, struct trace_block, ns)

static uint64_t block_key(const struct trace_block *b)
{
	return b->addr ^ (uint64_t)b->pool << 56;
}

/* Only what was taken in the trace can be taken away from it again. */
static void settle_block(struct trace_memory *m, size_t i)
{
	struct trace_block *b = &m->list[i];
	uint64_t at = hmap_remove(&m->live, block_key(b));

	if (b->freed) {
		b->known = at != HMAP_NONE;
		if (!b->known)
			return;
		b->bytes = m->list[at].bytes;
		b->device = m->list[at].device;
	} else {
		b->known = true;
		hmap_put(&m->live, block_key(b), i);
	}
	uint64_t key = (uint64_t)b->pool << 16 | b->device, sum = hmap_get(&m->sums, key);
	if (sum == HMAP_NONE)
		sum = 0;
	b->held_bytes = b->freed ? sum - b->bytes : sum + b->bytes;
	hmap_put(&m->sums, key, b->held_bytes);
}

/* Is it reported by a hook of the driver, too? */
static bool has_driver(const struct trace_memory *m)
{
	for (size_t i = 0; i < m->n; i++)
		if (m->list[i].pool == POOL_HAL || m->list[i].pool == POOL_CUDA)
			return true;
	return false;
}

void trace_memory_finish(struct trace_state *t)
{
	struct trace_memory *m = &t->memory;
	bool twice = has_driver(m);
	size_t n = 0;

	for (size_t i = 0; i < m->n; i++)
		if (trace_within(t, m->list[i].ns) && (m->list[i].pool || !twice))
			m->list[n++] = m->list[i];
	m->n = n;
	if (n)
		qsort(m->list, n, sizeof(*m->list), by_time);
	for (size_t i = 0; i < n; i++)
		settle_block(m, i);
}

/* A number of a device, or what it is instead. */
static void add_device(struct buf *out, uint16_t device)
{
	if (device == DEV_HOST)
		buf_add_str(out, "cpu");
	else if (device == DEV_NONE)
		buf_add_str(out, "N/A");
	else
		buf_add_u64(out, device);
}

void trace_memory_csv(const struct trace_state *t, struct buf *out)
{
	buf_add_str(out, "Time(ns),Event,Pool,Device,Thread Id,Address,Bytes,Held(bytes)\n");
	for (size_t i = 0; i < t->memory.n; i++) {
		const struct trace_block *b = &t->memory.list[i];

		buf_add_u64(out, b->ns);
		buf_add_str(out, b->freed ? ",FREE," : ",MALLOC,");
		buf_add_str(out, trace_pool_name(b->pool));
		buf_add_char(out, ',');
		add_device(out, b->device);
		buf_addf(out, ",%u,", b->tid);
		buf_add_addr(out, b->addr);
		/* Of a block that is older than the trace nobody knows them. */
		if (b->known)
			buf_addf(out, ",%llu,%llu\n", (unsigned long long)b->bytes,
				 (unsigned long long)b->held_bytes);
		else
			buf_add_str(out, ",N/A,N/A\n");
	}
}

void trace_memory_release(struct trace_memory *m)
{
	hmap_release(&m->live);
	hmap_release(&m->sums);
	free(m->list);
}
