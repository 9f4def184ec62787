/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "memory/analysis/peak/peak.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "memory/analysis/peak/peak_impl.h"
#include "wire/record.h"

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
	p->heights = xgrow(p->heights, &p->cap_heights, p->nheights + 1, sizeof(struct heights *));
	p->heights[p->nheights++] = h;
	d->own[1] = (uintptr_t)h;
	return h;
}

static struct height height_now(const struct block_device *d)
{
	const struct block_process *p = d->process;

	return (struct height){d->driver_bytes, d->pool_bytes, p->in_step ? p->step : 0, true};
}

static void settle(struct heights *h)
{
	if (is_higher(&h->now, &h->first)) {
		h->second = h->first;
		h->first = h->now;
	} else if (is_higher(&h->now, &h->second)) {
		h->second = h->now;
	}
}

/* A step begins with what it finds. */
static void step_changes(struct peak *p, const struct block_process *process)
{
	p->has_steps = true;
	for (size_t i = 0; i < process->ndevices; i++) {
		struct heights *h = heights_of(p, process->devices[i]);
		settle(h);
		h->now = height_now(process->devices[i]);
	}
}

static void peak_row(struct analysis *a, const struct row *row)
{
	struct peak *p = (struct peak *)a;
	struct block_change c;

	census_row(p->census, row, &c);
	if (c.step_ended || c.step_begun)
		step_changes(p, c.process);
	if (c.what != BLOCKS_ALLOC)
		return;
	struct block_device *d = c.pool->device;
	struct height now = height_now(d);
	struct heights *h = heights_of(p, d);
	if (is_higher(&now, &h->now))
		h->now = now;
	if (census_is_higher(d, census_moment(p->census, d)))
		census_take(p->census, d);
}

static void peak_process(struct analysis *a, uint32_t pid, const char *command)
{
	blocks_process(census_blocks(((struct peak *)a)->census), pid, command);
}

static bool peak_unordered(const struct analysis *a)
{
	return blocks_unordered(census_blocks(((const struct peak *)a)->census));
}

/* --- the answer --- */

/* Blocks first, by their bytes; of equal ones the older. */
static int heavier_first(const void *pa, const void *pb)
{
	const struct census_share *a = pa, *b = pb;

	if (!a->block != !b->block)
		return a->block ? -1 : 1;
	if (a->bytes != b->bytes)
		return a->bytes > b->bytes ? -1 : 1;
	if (!a->block)
		return 0;
	return (a->block->seq > b->block->seq) - (a->block->seq < b->block->seq);
}

static int larger_place(const void *pa, const void *pb)
{
	const struct peak_place *a = pa, *b = pb;

	if (a->bytes != b->bytes)
		return a->bytes > b->bytes ? -1 : 1;
	return (a->stack > b->stack) - (a->stack < b->stack);
}

static void add_places(struct peak_device *d)
{
	struct hmap by_stack = {0};
	size_t cap = 0;

	for (size_t i = 0; i < d->nblocks; i++) {
		const struct census_share *s = &d->shares.list[i];
		bool before = s->block->shadow && !s->block->stack;
		uint64_t key = before ? UINT32_MAX : s->block->stack, k = hmap_get(&by_stack, key);

		if (k == HMAP_NONE) {
			k = d->nplaces++;
			hmap_put(&by_stack, key, k);
			d->places = xgrow(d->places, &cap, d->nplaces, sizeof(*d->places));
			d->places[k] =
				(struct peak_place){.stack = s->block->stack, .before = before};
		}
		d->places[k].bytes += s->bytes;
		d->places[k].blocks++;
	}
	hmap_release(&by_stack);
	if (d->nplaces)
		qsort(d->places, d->nplaces, sizeof(*d->places), larger_place);
}

static void describe(struct peak *p, struct peak_device *d)
{
	struct heights all = *heights_of(p, d->device);

	settle(&all);
	if (p->has_steps)
		d->next = all.second;
	census_count(p->census, d->device, &d->shares);
	owner_tree_build(&d->tree, p->census, &d->shares);
	if (d->shares.n)
		qsort(d->shares.list, d->shares.n, sizeof(*d->shares.list), heavier_first);
	while (d->nblocks < d->shares.n && d->shares.list[d->nblocks].block)
		d->nblocks++;
	add_places(d);
}

static int higher_first(const void *pa, const void *pb)
{
	const struct peak_device *a = pa, *b = pb;

	if (peak_height(a) != peak_height(b))
		return peak_height(a) > peak_height(b) ? -1 : 1;
	if (a->device->process->pid != b->device->process->pid)
		return a->device->process->pid < b->device->process->pid ? -1 : 1;
	return (a->device->device > b->device->device) - (a->device->device < b->device->device);
}

struct peak_device *peak_devices(struct peak *p, size_t *out_n)
{
	struct blocks *b = census_blocks(p->census);
	struct peak_device *list = NULL;
	size_t n = 0, cap = 0;

	for (size_t i = 0; i < blocks_nprocesses(b); i++) {
		struct block_process *process = blocks_process_at(b, i);

		for (size_t k = 0; k < process->ndevices; k++) {
			struct block_device *d = process->devices[k];
			struct census_moment *m = census_moment(p->census, d);

			if (!m->taken)
				continue;
			list = xgrow(list, &cap, n + 1, sizeof(*list));
			list[n] = (struct peak_device){.device = d, .moment = m};
			describe(p, &list[n++]);
		}
	}
	if (n)
		qsort(list, n, sizeof(*list), higher_first);
	*out_n = n;
	return list;
}

void peak_devices_free(struct peak_device *list, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		census_shares_release(&list[i].shares);
		owner_tree_release(&list[i].tree);
		free(list[i].places);
	}
	free(list);
}

uint64_t peak_height(const struct peak_device *d)
{
	return d->device->has_driver ? d->moment->driver_bytes : d->moment->pool_bytes;
}

bool peak_is_above(const struct peak *p, const struct peak_device *d)
{
	return p->options.limit_bytes && d->device->device != DEV_HOST &&
	       peak_height(d) > p->options.limit_bytes;
}

uint64_t peak_gain(const struct peak_device *d)
{
	const struct census_moment *m = d->moment;

	if (m->driver_bytes != d->next.driver_bytes)
		return m->driver_bytes - d->next.driver_bytes;
	return m->pool_bytes - d->next.pool_bytes;
}

uint64_t peak_age(const struct peak_device *d, const struct block *b)
{
	return d->moment->time_ns > b->time_ns ? d->moment->time_ns - b->time_ns : 0;
}

uint64_t peak_lived_on(const struct peak_device *d, const struct block *b)
{
	uint64_t end = b->state == BLOCK_ALIVE ? b->pool->process->last_ns : b->free_ns;

	return end > d->moment->time_ns ? end - d->moment->time_ns : 0;
}

static size_t peak_findings(struct analysis *a)
{
	struct peak *p = (struct peak *)a;
	size_t n, found = 0;
	struct peak_device *list = peak_devices(p, &n);

	for (size_t i = 0; i < n; i++)
		found += peak_is_above(p, &list[i]);
	peak_devices_free(list, n);
	return found;
}

static void peak_free(struct analysis *a)
{
	struct peak *p = (struct peak *)a;

	for (size_t i = 0; i < p->nheights; i++)
		free(p->heights[i]);
	free(p->heights);
	census_free(p->census);
	free(p);
}

static const struct analysis_ops peak_ops = {
	.name = "peak",
	.attrs = CENSUS_ATTRS,
	.row = peak_row,
	.process = peak_process,
	.unordered = peak_unordered,
	.findings = peak_findings,
	.text = peak_text,
	.json = peak_json,
	.free = peak_free,
};

struct analysis *peak_new(const struct peak_options *o)
{
	struct peak *p = xcalloc(1, sizeof(*p));

	p->base.ops = &peak_ops;
	if (o)
		p->options = *o;
	p->census = census_new();
	return &p->base;
}
