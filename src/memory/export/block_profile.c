/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "memory/export/block_profile.h"

#include <errno.h>
#include <stdlib.h>

#include "base/containers/intern.h"
#include "base/mem.h"
#include "memory/analysis/common/breakdown.h"
#include "memory/analysis/processes/processes.h"
#include "memory/dump/row.h"
#include "memory/export/block_frames.h"
#include "wire/record.h"

enum value { INUSE_BYTES, INUSE_BLOCKS, ALLOC_BYTES, ALLOC_BLOCKS };

static const struct profile_values heap_values = {
	.n = 4,
	.list = {[INUSE_BYTES] = {"inuse_space", "bytes"},
		 [INUSE_BLOCKS] = {"inuse_objects", "count"},
		 [ALLOC_BYTES] = {"alloc_space", "bytes"},
		 [ALLOC_BLOCKS] = {"alloc_objects", "count"}},
	.main = INUSE_BYTES,
	.title = "bytes",
	.ids = {"pid", "device"},
	.names = {"process", "pool"},
};

/* All allocations of a pool from one call stack. */
struct site {
	struct block_pool *pool;
	struct block sample; /* the first of them, for its frames */
	uint64_t bytes, blocks;
};

struct block_profile {
	struct analysis base;
	struct block_profile_options options;
	struct analysis *owners;
	struct site *sites;
	size_t nsites, cap_sites;
	struct hmap site_of; /* pool and stack, or owner */
	/* while it is written: */
	struct block_frames frames;
	struct profile *profile;
	struct export_sums *sums;
};

static void count_allocation(struct block_profile *p, const struct block *b)
{
	uint64_t what = b->stack ? (uint64_t)b->stack << 1 : (uint64_t)b->owner << 1 | 1;
	uint64_t key = (uint64_t)b->pool->number << 40 | what;
	uint64_t at = hmap_get(&p->site_of, key);

	if (at == HMAP_NONE) {
		at = p->nsites;
		LIST_ADD(p->sites, p->nsites, p->cap_sites,
			 (struct site){.pool = b->pool, .sample = *b});
		hmap_put(&p->site_of, key, at);
	}
	p->sites[at].bytes += b->bytes;
	p->sites[at].blocks++;
}

static void profile_row(struct analysis *a, const struct row *row)
{
	struct block_profile *p = (struct block_profile *)a;
	const struct block_change *c;

	p->owners->ops->row(p->owners, row);
	c = owners_change(p->owners);
	if (c->what == BLOCKS_ALLOC && !c->block->shadow && p->options.format == PROFILE_PPROF)
		count_allocation(p, c->block);
}

static void profile_process(struct analysis *a, uint32_t pid, const char *command)
{
	struct block_profile *p = (struct block_profile *)a;

	p->owners->ops->process(p->owners, pid, command);
}

static bool profile_unordered(const struct analysis *a)
{
	const struct block_profile *p = (const struct block_profile *)a;

	return p->owners->ops->unordered(p->owners);
}

static void profile_end(struct analysis *a)
{
	struct block_profile *p = (struct block_profile *)a;

	analysis_free(p->owners);
	free(p->sites);
	hmap_release(&p->site_of);
	free(p);
}

static const struct analysis_ops ops = {
	.name = "profile",
	.attrs = BREAKDOWN_ATTRS,
	.row = profile_row,
	.process = profile_process,
	.unordered = profile_unordered,
	.free = profile_end,
};

struct analysis *block_profile_new(const struct block_profile_options *o)
{
	struct block_profile *p = xcalloc(1, sizeof(*p));

	p->options = *o;
	p->owners = owners_new(&o->at);
	p->base = (struct analysis){.ops = &ops, .blocks = p->owners->blocks};
	return &p->base;
}

/* --- writing --- */

static void add_values(struct block_profile *p, const struct block_pool *pool,
		       const struct stack_frames *frames, const uint64_t values[4])
{
	struct profile_frame *outermost_first = xcalloc(frames->n + 1, sizeof(*outermost_first));
	const struct block_device *d = pool->device;
	const char *type = row_type_text(pool->type, ROW_SEED);
	struct buf process = {0}, place = {0};

	for (unsigned i = 0; i < frames->n; i++)
		outermost_first[i] = frames->list[frames->n - 1 - i];
	processes_describe(p->base.processes, pool->process->pid, &process);
	if (d->device == DEV_HOST)
		buf_addf(&place, "host memory, %s", type);
	else
		buf_addf(&place, "device %u, %s", d->device, type);
	profile_add_values(p->profile, intern(process.data, process.len),
			   intern(place.data, place.len), pool->process->pid,
			   d->device == DEV_HOST ? -1 : (int64_t)d->device, outermost_first,
			   frames->n, values);
	buf_release(&process);
	buf_release(&place);
	free(outermost_first);
}

static void add_device(void *arg, struct block_device *d)
{
	struct block_profile *p = arg;
	struct breakdown_shares shares = {0};

	breakdown_count(owners_breakdown(p->owners), d, &shares);
	for (size_t i = 0; i < shares.n; i++) {
		const struct breakdown_share *s = &shares.list[i];
		struct profile_frame unused = {.name = "free inside the pool", .file = ""};
		struct stack_frames made_up = {&unused, 1};
		uint64_t values[4] = {[INUSE_BYTES] = s->bytes, [INUSE_BLOCKS] = s->block != NULL};

		if (s->bytes || s->block)
			add_values(p, s->block ? s->block->pool : s->pool,
				   s->block ? block_frames_of(&p->frames, p->base.blocks, s->block)
					    : &made_up,
				   values);
		p->sums->blocks += s->block != NULL;
	}
	p->sums->bytes += shares.bytes;
	p->sums->devices++;
	breakdown_shares_release(&shares);
}

int block_profile_write(struct analysis *a, const char *path, struct export_sums *out,
			struct err *err)
{
	struct block_profile *p = (struct block_profile *)a;
	struct profile_options o = {.format = p->options.format,
				    .values = &heap_values,
				    .lines = true,
				    .title = p->options.title,
				    .start_real_ns = (int64_t)a->blocks->first_ns};
	int r = owners_reached(p->owners, err);

	if (r < 0)
		return r;
	*out = (struct export_sums){0};
	p->sums = out;
	p->profile = profile_new(&o);
	owners_each_device(p->owners, add_device, p);
	for (size_t i = 0; i < p->nsites; i++) {
		struct site *s = &p->sites[i];
		uint64_t values[4] = {[ALLOC_BYTES] = s->bytes, [ALLOC_BLOCKS] = s->blocks};

		add_values(p, s->pool, block_frames_of(&p->frames, a->blocks, &s->sample), values);
	}
	if (o.format == PROFILE_FLAME && !out->blocks)
		r = err_set(
			err, -ENODATA,
			"no block was alive at that moment, so the picture would be empty; "
			"Python stacks of a recording are in a page: sonde flame -o flame.html");
	else
		r = profile_write(p->profile, path, err);
	profile_free(p->profile);
	block_frames_release(&p->frames);
	return r;
}
