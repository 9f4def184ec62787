/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Call sites that grow, by the line of the program that names them: a loss that comes through several
 * call stacks is one loss, with one sum.
 */
#include <stdlib.h>
#include <xxhash.h>

#include "base/mem.h"
#include "memory/analysis/leaks/leaks_impl.h"
#include "wire/record.h"

/* Equal for call sites of one line in one pool. */
static uint64_t hash_place(const struct leaks *l, const struct leak_site *s)
{
	struct buf where = {0};
	const struct {
		uint64_t place;
		uint32_t pool, pinned, site, reserved;
	} id = {.place = stacks_place(leaks_stacks(l), s->stack, &where)
				 ? XXH3_64bits(where.data, where.len)
				 : 0,
		.pool = s->pool->number,
		.pinned = s->pinned,
		.site = where.len ? 0 : s->number + 1};

	buf_release(&where);
	return XXH3_64bits(&id, sizeof(id));
}

static uint64_t hash_via(const struct leaks *l, const struct leak_site *s)
{
	struct buf via = {0};
	uint64_t h =
		stacks_via(leaks_stacks(l), s->stack, &via) ? XXH3_64bits(via.data, via.len) : 0;

	buf_release(&via);
	return h;
}

static int by_allocation(const void *pa, const void *pb)
{
	const struct block *a = *(struct block *const *)pa, *b = *(struct block *const *)pb;

	return ORDER(a->seq, b->seq);
}

/* The sum of its call stacks, whose blocks go to `list`. */
static void sum_place(struct leak_place *p, struct block **list)
{
	uint32_t newest = 0;
	size_t n = 0;

	p->sum = p->stacks[0];
	if (p->nstacks == 1)
		return;
	for (size_t i = 0; i < p->nstacks; i++) {
		const struct leak_finding *f = &p->stacks[i];
		uint32_t last = f->first_step + f->span_steps - 1;

		newest = last > newest ? last : newest;
		for (uint64_t k = 0; k < f->blocks; k++)
			list[n++] = f->list[k];
	}
	SORT(list, n, by_allocation);
	leak_finding_sum(&p->sum, list, n);
	p->sum.span_steps = newest - p->sum.first_step + 1;
	p->sum.bytes_per_step = p->sum.bytes / p->sum.span_steps;
}

static bool is_ignored(const struct leaks *l, const struct leak_finding *finding)
{
	if (l->min_bytes != UINT64_MAX)
		return finding->bytes < l->min_bytes;
	return finding->site->pool->device->device == DEV_HOST &&
	       finding->bytes_per_step < LEAKS_HOST_MIN_BYTES_PER_STEP;
}

static int by_place(const void *pa, const void *pb)
{
	const struct leak_finding *a = pa, *b = pb;

	return ORDER(a->place, b->place) ?: ORDER(b->bytes, a->bytes)
	       ?: ORDER(a->site->number, b->site->number);
}

static int larger_first(const void *pa, const void *pb)
{
	const struct leak_place *a = pa, *b = pb;

	return ORDER(a->sum.ignored, b->sum.ignored) ?: ORDER(b->sum.bytes, a->sum.bytes)
	       ?: ORDER(a->sum.site->number, b->sum.site->number);
}

/* Finds the place of each of the n findings, and puts those of one behind each other. */
static void assign_places(const struct leaks *l, struct leak_answer *out, size_t n)
{
	struct hmap seen = {0};

	for (size_t i = 0; i < n; i++) {
		uint64_t key = hash_place(l, out->findings[i].site), at = hmap_get(&seen, key);

		if (at == HMAP_NONE) {
			at = out->nplaces++;
			hmap_put(&seen, key, at);
		}
		out->findings[i].place = (uint32_t)at;
	}
	SORT(out->findings, n, by_place);
	hmap_release(&seen);
}

/* Findings stand in the order of their places, so that those that count come first. */
static void order_places(struct leak_answer *out, size_t n)
{
	struct leak_finding *ordered = xcalloc(n + 1, sizeof(*ordered));
	size_t done = 0;

	SORT(out->places, out->nplaces, larger_first);
	for (size_t i = 0; i < out->nplaces; i++) {
		struct leak_place *p = &out->places[i];
		size_t from = done;

		for (size_t k = 0; k < p->nstacks; k++) {
			ordered[done] = p->stacks[k];
			ordered[done].place = (uint32_t)i;
			ordered[done++].ignored = p->sum.ignored;
		}
		p->stacks = &out->findings[from];
		out->losing += !p->sum.ignored;
		out->growing += p->sum.ignored ? 0 : p->nstacks;
		out->ignored += p->sum.ignored;
	}
	for (size_t i = 0; i < n; i++)
		out->findings[i] = ordered[i];
	free(ordered);
}

void leaks_group_places(struct leaks *l, struct leak_answer *out)
{
	size_t n = 0, blocks = 0, at = 0, end;

	for (; n < out->nfindings && out->findings[n].kind == LEAK_GROWTH; n++)
		blocks += out->findings[n].blocks;
	assign_places(l, out, n);
	out->places = xcalloc(out->nplaces + 1, sizeof(*out->places));
	out->grouped = xcalloc(blocks + 1, sizeof(struct block *));
	for (size_t i = 0; i < n; i = end) {
		struct leak_place *p = &out->places[out->findings[i].place];

		for (end = i + 1; end < n && out->findings[end].place == out->findings[i].place;
		     end++)
			p->mixed |= hash_via(l, out->findings[end].site) !=
				    hash_via(l, out->findings[i].site);
		p->stacks = &out->findings[i];
		p->nstacks = end - i;
		sum_place(p, out->grouped + at);
		p->sum.ignored = is_ignored(l, &p->sum);
		at += p->sum.blocks;
	}
	order_places(out, n);
}

struct leak_held leak_place_left(const struct leak_answer *a, const struct leak_place *p)
{
	struct leak_held all = {0};

	for (size_t i = 0; i < p->nstacks; i++) {
		struct leak_held left = leak_left_at_end(a, p->stacks[i].site);

		all.blocks += left.blocks;
		all.bytes += left.bytes;
	}
	return all;
}
