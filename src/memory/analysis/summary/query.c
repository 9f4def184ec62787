/* SPDX-License-Identifier: MulanPSL-2.0 */
/* What the writers of text and JSON have in common. */
#include "memory/analysis/summary/summary_impl.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

static uint64_t synthetic_frees(const struct summary_pool *pool)
{
	return pool->ended.blocks - pool->torn_down + pool->left_by_teardown + pool->unseen_frees;
}

void summary_count(const struct summary_process *p, struct summary_counts *out)
{
	*out = p->seen;
	for (size_t i = 0; i < p->npools; i++) {
		out->mallocs += p->pool_list[i]->mallocs;
		out->frees += p->pool_list[i]->frees;
		out->unmatched_frees += p->pool_list[i]->unmatched_frees;
		out->synthetic_frees += synthetic_frees(p->pool_list[i]);
		out->unseen_frees += p->pool_list[i]->unseen_frees;
	}
}

void summary_count_all(const struct summary *s, struct summary_counts *out)
{
	struct summary_counts c;

	*out = s->seen;
	for (size_t i = 0; i < s->nprocesses; i++) {
		summary_count(s->processes[i], &c);
		for (size_t k = 0; k < sizeof(c) / sizeof(uint64_t); k++)
			((uint64_t *)out)[k] += ((uint64_t *)&c)[k];
	}
}

void summary_loss_all(const struct summary *s, struct loss *out)
{
	*out = s->missing;
	out->events = out->stacks = out->damaged_bytes = 0;
	for (size_t i = 0; i < s->nprocesses; i++) {
		out->events += s->processes[i]->lost.events;
		out->stacks += s->processes[i]->lost.stacks;
		out->damaged_bytes += s->processes[i]->lost.damaged_bytes;
	}
}

struct summary_held summary_alive(const struct summary_pool *pool)
{
	return (struct summary_held){pool->live.blocks + pool->ended.blocks,
				     pool->live.bytes + pool->ended.bytes};
}

bool summary_frees_missing(const struct summary_counts *c)
{
	return c->mallocs && !c->frees && !c->synthetic_frees;
}

const struct summary_tally *summary_device_peak(const struct summary_device *d)
{
	return d->has_driver ? &d->driver : &d->pools;
}

static int by_number(const void *pa, const void *pb)
{
	const struct summary_device *a = *(struct summary_device *const *)pa;
	const struct summary_device *b = *(struct summary_device *const *)pb;

	return ORDER(a->device, b->device);
}

void summary_sort_devices(struct summary *s)
{
	SORT(s->devices, s->ndevices, by_number);
}

struct timed_course summary_device_course(struct summary_device *d)
{
	return total_course(d->has_driver ? &d->driver_total : &d->pools_total);
}

/* What is known of the whole where its changes came too late to be added up. */
static struct summary_tally highest_process(const struct summary *s, const struct summary_device *d)
{
	struct summary_tally best = {0};

	for (size_t i = 0; i < s->nprocesses; i++) {
		const struct summary_device *own =
			hmap_get_ptr(&s->processes[i]->devices, d->device);

		if (own && summary_device_peak(own)->peak_bytes > best.peak_bytes)
			best = *summary_device_peak(own);
	}
	return best;
}

static bool settle_total(struct total *t, struct summary_tally *out)
{
	struct total_peak p = total_peak(t);

	*out = (struct summary_tally){p.live_bytes, p.bytes, p.time_ns};
	return p.late;
}

void summary_settle(struct summary *s)
{
	gpu_use_settle(&s->gpu);
	for (size_t i = 0; i < s->ndevices; i++) {
		struct summary_device *d = s->devices[i];
		bool late = settle_total(&d->driver_total, &d->driver);

		late |= settle_total(&d->pools_total, &d->pools);
		d->late = late && d->users > 1;
		if (d->late)
			*(d->has_driver ? &d->driver : &d->pools) = highest_process(s, d);
	}
}

static struct summary_held group_held(const struct summary_group *g, bool at_peak)
{
	if (at_peak)
		return g->at_peak_no == g->pool->peak_no ? g->at_peak : g->live;
	return (struct summary_held){g->live.blocks + g->ended.blocks,
				     g->live.bytes + g->ended.bytes};
}

struct call_site *summary_sites(const struct summary *s, const struct summary_pool *pool,
				bool at_peak, size_t *out_n)
{
	struct call_site *sites = NULL;
	size_t n = 0, cap = 0;

	for (uint32_t i = pool->groups; i != SUMMARY_NIL; i = s->groups[i].next) {
		struct summary_held held = group_held(&s->groups[i], at_peak);
		bool before = s->groups[i].stack == SUMMARY_BEFORE;

		if (!held.blocks)
			continue;
		LIST_ADD(sites, n, cap,
			 (struct call_site){.stack = before ? 0 : s->groups[i].stack,
					    .before = before,
					    .blocks = held.blocks,
					    .bytes = held.bytes});
	}
	call_sites_sort(sites, n);
	*out_n = n;
	return sites;
}

static int by_device_and_type(const void *pa, const void *pb)
{
	const struct summary_pool *a = *(struct summary_pool *const *)pa;
	const struct summary_pool *b = *(struct summary_pool *const *)pb;

	return ORDER(a->device, b->device) ?: ORDER(a->type, b->type);
}

struct summary_pool **summary_pools(const struct summary_process *p)
{
	size_t bytes = p->npools * sizeof(struct summary_pool *);
	struct summary_pool **pools = xmalloc(bytes);

	if (p->npools) {
		memcpy(pools, p->pool_list, bytes);
		qsort(pools, p->npools, sizeof(struct summary_pool *), by_device_and_type);
	}
	return pools;
}

#define ROW(key_, title_, kind_, member_)                                                          \
	COLUMN(key_, title_, kind_, struct summary_pool_row, member_)

const struct field summary_pool_fields[] = {
	ROW(NULL, "Process", FIELD_ID, pid),
	ROW("device", "Device", FIELD_DEVICE, device),
	ROW("pool", "Pool", FIELD_POOL, type),
	FIELDS(struct summary_pool_row, events),
	ROW("mallocs", "Allocs", FIELD_U64, mallocs),
	ROW("frees", "Frees", FIELD_U64, frees),
	FIELDS(struct summary_pool_row, unmatched_frees, synthetic_frees, teardown_frees,
	       carried_over_blocks),
	ROW("peak_bytes", "Peak", FIELD_BYTES, peak_bytes),
	FIELDS(struct summary_pool_row, peak_blocks, peak_time_ns, peak_after_ns),
	KNOWN(NULL, "Peak at", FIELD_DURATION, struct summary_pool_row, peak_after_ns, has_peak),
	ROW(NULL, "Blocks left", FIELD_U64, alive.blocks),
	ROW(NULL, "Bytes left", FIELD_BYTES, alive.bytes),
	{0},
};

struct summary_pool_row summary_pool_row(const struct summary *s, const struct summary_pool *pool)
{
	const struct summary_tally *t = &pool->bytes;

	return (struct summary_pool_row){
		.pid = pool->process->pid,
		.device = pool->device,
		.type = pool->type,
		.events = pool->mallocs + pool->frees,
		.mallocs = pool->mallocs,
		.frees = pool->frees,
		.unmatched_frees = pool->unmatched_frees,
		.synthetic_frees = synthetic_frees(pool),
		.teardown_frees = pool->torn_down,
		.carried_over_blocks = pool->carried,
		.peak_bytes = t->peak_bytes,
		.peak_blocks = pool->peak_blocks,
		.peak_time_ns = t->peak_time_ns,
		.peak_after_ns = t->peak_time_ns > s->first_ns ? t->peak_time_ns - s->first_ns : 0,
		.has_peak = t->peak_bytes != 0,
		.alive = summary_alive(pool),
	};
}

/* Their pages are the page cache's, and the same for all who map them. */
void summary_describe_files(const struct summary *s, struct buf *out)
{
	const struct summary_process *most = NULL;
	uint64_t mappings = 0;

	for (size_t i = 0; i < s->nprocesses; i++) {
		const struct summary_process *p = s->processes[i];

		mappings += p->file_mappings;
		if (p->file_mappings && (!most || p->files.peak_bytes > most->files.peak_bytes))
			most = p;
	}
	if (most)
		add_text(out,
			 "\nNot counted above: {} of files, up to {} at a time in process {}.\n",
			 COUNT_OF(mappings, "mapping"), BYTES(most->files.peak_bytes),
			 NUMBER(most->pid));
}
