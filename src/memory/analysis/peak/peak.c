/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "memory/analysis/peak/peak.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "memory/analysis/peak/peak_impl.h"
#include "memory/analysis/processes/processes.h"

/* --- rows --- */

static bool is_higher(const struct height *a, const struct height *b)
{
	if (!a->known || !b->known)
		return a->known;
	if (a->driver_bytes != b->driver_bytes)
		return a->driver_bytes > b->driver_bytes;
	return a->pool_bytes > b->pool_bytes;
}

static struct heights *heights_of(struct peak *p, struct block_device *d)
{
	struct heights *h = (struct heights *)(uintptr_t)d->own[1];

	if (h)
		return h;
	h = xcalloc(1, sizeof(*h));
	LIST_ADD(p->heights, p->nheights, p->cap_heights, h);
	d->own[1] = (uintptr_t)h;
	return h;
}

static struct height height_now(const struct block_device *d)
{
	const struct block_process *p = d->process;

	return (struct height){d->driver_bytes, d->pool_bytes, p->in_step ? p->step : 0, true};
}

static void settle_heights(struct heights *h)
{
	if (is_higher(&h->now, &h->first)) {
		h->second = h->first;
		h->first = h->now;
	} else if (is_higher(&h->now, &h->second)) {
		h->second = h->now;
	}
}

/* A step begins with what it finds. */
static void change_step(struct peak *p, const struct block_process *process)
{
	p->has_steps = true;
	for (size_t i = 0; i < process->ndevices; i++) {
		struct heights *h = heights_of(p, process->devices[i]);
		settle_heights(h);
		h->now = height_now(process->devices[i]);
	}
}

/* What were steps so far was none: it was one time before the first. */
static void forget_steps(struct peak *p, const struct block_process *process)
{
	for (size_t i = 0; i < process->ndevices; i++) {
		struct heights *h = heights_of(p, process->devices[i]);

		settle_heights(h);
		h->now = h->first;
		h->now.step = 0;
		h->first = h->second = (struct height){0};
	}
}

static void peak_row(struct analysis *a, const struct row *row)
{
	struct peak *p = (struct peak *)a;
	struct block_change c;

	breakdown_row(p->breakdown, row, &c);
	if (c.steps_anew)
		forget_steps(p, c.process);
	if (c.step_ended || c.step_begun)
		change_step(p, c.process);
	device_peaks_add(&p->peaks, &c, row->time_ns);
	if (c.what != BLOCKS_ALLOC)
		return;
	struct block_device *d = c.pool->device;
	struct height now = height_now(d);
	struct heights *h = heights_of(p, d);
	if (is_higher(&now, &h->now))
		h->now = now;
	if (breakdown_is_higher(d, breakdown_moment(p->breakdown, d)))
		breakdown_take(p->breakdown, d);
}

/* --- the answer --- */

/* Blocks first, by their bytes; of equal ones the older. */
static int heavier_first(const void *pa, const void *pb)
{
	const struct breakdown_share *a = pa, *b = pb;

	return ORDER(!a->block, !b->block)
		       ?: ORDER(b->bytes, a->bytes)
		       ?: (a->block ? ORDER(a->block->seq, b->block->seq) : 0);
}

static void list_sites(const struct peak *p, struct peak_device *d)
{
	struct hmap by_stack = {0};
	size_t cap = 0;

	for (size_t i = 0; i < d->nblocks; i++) {
		const struct breakdown_share *s = &d->shares.list[i];
		bool before = s->block->shadow && !s->block->stack;
		uint64_t key = before ? UINT32_MAX : s->block->stack, k = hmap_get(&by_stack, key);

		if (k == HMAP_NONE) {
			k = d->nsites++;
			hmap_put(&by_stack, key, k);
			d->sites = xgrow(d->sites, &cap, d->nsites, sizeof(*d->sites));
			d->sites[k] =
				(struct call_site){.stack = s->block->stack, .before = before};
		}
		d->sites[k].bytes += s->bytes;
		d->sites[k].blocks++;
	}
	hmap_release(&by_stack);
	call_sites_sort(d->sites, d->nsites);
	d->places = xcalloc(d->nsites + 1, sizeof(*d->places));
	if (d->nsites)
		memcpy(d->places, d->sites, d->nsites * sizeof(*d->places));
	d->nplaces = call_sites_merge(d->places, d->nsites, peak_stacks(p));
}

static void describe_peak(struct peak *p, struct peak_device *d)
{
	struct heights all = *heights_of(p, d->device);

	settle_heights(&all);
	if (p->has_steps)
		d->next = all.second;
	breakdown_count(p->breakdown, d->device, &d->shares);
	owner_tree_build(&d->tree, p->breakdown, &d->shares);
	if (p->options.groups.by != GROUPS_BY_OWNER)
		groups_build(&d->groups, &p->options.groups, p->breakdown->blocks, &d->shares);
	SORT(d->shares.list, d->shares.n, heavier_first);
	while (d->nblocks < d->shares.n && d->shares.list[d->nblocks].block)
		d->nblocks++;
	list_sites(p, d);
}

static int higher_first(const void *pa, const void *pb)
{
	const struct peak_device *a = pa, *b = pb;

	return ORDER(peak_bytes(b), peak_bytes(a))
		       ?: ORDER(a->device->process->pid, b->device->process->pid)
		       ?: ORDER(a->device->device, b->device->device);
}

/* All devices with a peak, the highest first; to be released. */
struct peak_device *peak_list_devices(struct peak *p, size_t *out_n)
{
	struct peak_device *list = NULL;
	size_t n = 0, cap = 0;

	for (size_t i = 0; i < p->base.blocks->nprocesses; i++) {
		struct block_process *process = p->base.blocks->processes[i];

		for (size_t k = 0; k < process->ndevices; k++) {
			struct block_device *d = process->devices[k];
			struct breakdown_moment *m = breakdown_moment(p->breakdown, d);

			if (!m->taken)
				continue;
			list = xgrow(list, &cap, n + 1, sizeof(*list));
			list[n] = (struct peak_device){.device = d, .moment = m};
			describe_peak(p, &list[n++]);
		}
	}
	SORT(list, n, higher_first);
	*out_n = n;
	return list;
}

void peak_release_devices(struct peak_device *list, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		breakdown_shares_release(&list[i].shares);
		owner_tree_release(&list[i].tree);
		groups_release(&list[i].groups);
		free(list[i].sites);
		free(list[i].places);
	}
	free(list);
}

static size_t peak_findings(struct analysis *a)
{
	struct peak *p = (struct peak *)a;
	size_t n, found = 0;
	struct peak_device *list = peak_list_devices(p, &n);

	for (size_t i = 0; i < n; i++)
		found += peak_is_above_limit(p, &list[i]);
	peak_release_devices(list, n);
	return found;
}

/* Not where memory that is not covered could have gone beyond the limit. */
static bool peak_judged(struct analysis *a)
{
	const struct processes *ps = a->processes;
	uint64_t limit = ((struct peak *)a)->options.limit_bytes;

	for (size_t i = 0; limit && ps && ps->host && i < ps->n; i++) {
		uint64_t rest = process_not_in_peak(&ps->list[i]);

		if (rest && (rest > limit || ps->list[i].max_blocks > limit - rest))
			return false;
	}
	return true;
}

/* --- the analysis --- */

static void peak_free(struct analysis *a)
{
	struct peak *p = (struct peak *)a;

	for (size_t i = 0; i < p->nheights; i++)
		free(p->heights[i]);
	free(p->heights);
	device_peaks_release(&p->peaks);
	breakdown_free(p->breakdown);
	free(p);
}

static const struct analysis_ops peak_ops = {
	.name = "peak",
	.attrs = BREAKDOWN_ATTRS,
	.row = peak_row,
	.process = analysis_blocks_process,
	.unordered = analysis_blocks_unordered,
	.judged = peak_judged,
	.findings = peak_findings,
	.text = peak_text,
	.json = peak_json,
	.free = peak_free,
};

struct analysis *peak_new(const struct peak_options *o)
{
	struct peak *p = xcalloc(1, sizeof(*p));

	if (o)
		p->options = *o;
	p->breakdown = breakdown_new();
	p->base = (struct analysis){.ops = &peak_ops, .blocks = p->breakdown->blocks};
	return &p->base;
}
