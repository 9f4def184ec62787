/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "memory/analysis/compare/sites.h"

#include <errno.h>
#include <stdlib.h>
#include <xxhash.h>

#include "base/mem.h"
#include "formats/json_value.h"
#include "memory/analysis/common/fields.h"
#include "memory/analysis/common/frames.h"
#include "memory/analysis/compare/compare_impl.h"
#include "memory/analysis/groups/moved_lines.h"

#define MAX_FRAMES 5 /* that tell call sites apart */

static void side_release(struct sites_side *s)
{
	blocks_free(s->blocks);
	device_peaks_release(&s->peaks);
	hmap_release(&s->by_stack);
	hmap_release(&s->by_name);
	free(s->places);
	*s = (struct sites_side){0};
}

struct compare_sites *sites_new(struct names *names)
{
	struct compare_sites *s = xcalloc(1, sizeof(*s));

	s->names = names;
	for (int i = 0; i < SIDES; i++)
		s->side[i].blocks = blocks_new();
	return s;
}

void sites_free(struct compare_sites *s)
{
	if (!s)
		return;
	for (int i = 0; i < SIDES; i++)
		side_release(&s->side[i]);
	free(s->sites);
	free(s);
}

bool sites_unordered(const struct compare_sites *s, enum compare_side side)
{
	return s->side[side].blocks->unordered;
}

void sites_restart(struct compare_sites *s, enum compare_side side)
{
	side_release(&s->side[side]);
	s->side[side].blocks = blocks_new();
}

/* --- rows --- */

/* The frames of a call stack that are shown, innermost first; else the size of its blocks. */
static void add_name(const struct stacks *stacks, const struct block *b, struct buf *out)
{
	struct stack stack = stacks_get(stacks, b->stack);
	struct frame_line lines[MAX_FRAMES];
	const char *text = stack.py ? stack.py : stack.c;
	size_t n = b->stack && text ? frames_pick(text, stack.py != NULL, lines, MAX_FRAMES) : 0;

	for (size_t i = 0; i < n; i++) {
		add_text(out, i ? " < " : "");
		frame_describe(&lines[i], stack.py != NULL, out);
	}
	if (!n && b->stack)
		add_text(out, "an empty call stack");
	else if (!n)
		words_blocks_of(out, false, b->bytes, 0);
}

/* The place that a block is from, if it is not known by its call stack. */
static uint64_t find_place(struct compare_sites *s, struct sites_side *in, const struct block *b)
{
	struct buf name = {0};

	add_name(&in->blocks->stacks, b, &name);
	const struct {
		uint32_t device, type, name, reserved;
	} id = {b->pool->device->device, b->pool->type, names_of(s->names, name.data, name.len), 0};
	uint64_t key = XXH3_64bits(&id, sizeof(id)), found = hmap_get(&in->by_name, key);

	buf_release(&name);
	if (found != HMAP_NONE)
		return found;
	hmap_put(&in->by_name, key, in->nplaces);
	LIST_ADD(in->places, in->nplaces, in->cap,
		 (struct site_place){.device = id.device, .type = b->pool->type, .name = id.name});
	return in->nplaces - 1;
}

static struct site_place *place_of(struct compare_sites *s, struct sites_side *in,
				   const struct block *b)
{
	const struct {
		uint64_t bytes;
		uint32_t device, stack, type, reserved;
	} id = {b->stack ? 0 : b->bytes, b->pool->device->device, b->stack, b->pool->type, 0};
	uint64_t key = XXH3_64bits(&id, sizeof(id)), found = hmap_get(&in->by_stack, key);

	if (found == HMAP_NONE) {
		found = find_place(s, in, b);
		hmap_put(&in->by_stack, key, found);
	}
	return &in->places[found];
}

void sites_add(struct compare_sites *s, enum compare_side side, const struct row *row)
{
	struct sites_side *in = &s->side[side];
	struct block_change c;

	blocks_add(in->blocks, row, &c);
	device_peaks_add(&in->peaks, &c, row->time_ns);
	if (!c.block)
		return;
	struct site_sum *sum = &place_of(s, in, c.block)->sum;
	if (c.what == BLOCKS_ALLOC) {
		sum->allocations++;
		sum->live += c.block->bytes;
		if (sum->live > sum->most)
			sum->most = sum->live;
	} else if (c.what == BLOCKS_FREE || c.what == BLOCKS_LEFT) {
		sum->live -= c.block->bytes;
	}
}

/* --- pairing --- */

/* The places of a side, to be freed. */
static struct moved_site *list_places(const struct compare_sites *s, const struct sites_side *in)
{
	struct moved_site *list = xcalloc(in->nplaces + 1, sizeof(*list));

	for (size_t i = 0; i < in->nplaces; i++) {
		const struct site_place *p = &in->places[i];
		const uint32_t context[] = {p->device, p->type};
		size_t len;
		const char *name = names_get(s->names, p->name, &len);

		list[i] = (struct moved_site){.bytes = p->sum.most, .place = i};
		moved_site_read(&list[i], name, len, XXH3_64bits(context, sizeof(context)));
	}
	return list;
}

static void add_site(struct compare_sites *s, const struct site_place *base,
		     const struct site_place *compare)
{
	const struct site_place *p = compare ? compare : base;
	struct site site = {.device = p->device,
			    .type = p->type,
			    .name = p->name,
			    .base_name = base ? base->name : p->name};

	if (base)
		site.base = base->sum;
	if (compare)
		site.compare = compare->sum;
	s->nmoved += site.name != site.base_name;
	LIST_ADD(s->sites, s->nsites, s->cap, site);
}

static void pair_places(struct compare_sites *s)
{
	const struct sites_side *base = &s->side[COMPARE_BASE], *other = &s->side[COMPARE_OTHER];
	struct moved_site *a = list_places(s, base), *b = list_places(s, other);

	moved_sites_pair(a, base->nplaces, b, other->nplaces);
	for (size_t i = 0; i < base->nplaces; i++)
		add_site(s, &base->places[a[i].place],
			 a[i].pair == MOVED_NONE ? NULL : &other->places[a[i].pair]);
	for (size_t i = 0; i < other->nplaces; i++)
		if (b[i].pair == MOVED_NONE)
			add_site(s, NULL, &other->places[b[i].place]);
	free(a);
	free(b);
}

static void count_left(struct compare_sites *s, struct sites_side *in)
{
	struct block_walk w = {.blocks = in->blocks};

	for (struct block *b; (b = blocks_next(&w));)
		place_of(s, in, b)->sum.left += b->bytes;
}

static bool site_differs(const struct site *s)
{
	return s->base.most != s->compare.most || s->base.left != s->compare.left;
}

static uint64_t site_weight(const struct site *s)
{
	uint64_t most = compare_distance(s->base.most, s->compare.most);
	uint64_t left = compare_distance(s->base.left, s->compare.left);

	return most > left ? most : left;
}

static int heavier_first(const void *pa, const void *pb)
{
	const struct site *a = pa, *b = pb;

	return ORDER(site_weight(b), site_weight(a)) ?: ORDER(a->device, b->device) ?: ORDER(a->name, b->name);
}

int sites_finish(struct compare_sites *s, struct err *err)
{
	for (int side = 0; side < SIDES; side++)
		count_left(s, &s->side[side]);
	pair_places(s);
	for (size_t i = 0; i < s->nsites; i++)
		s->ndifferent += site_differs(&s->sites[i]);
	SORT(s->sites, s->nsites, heavier_first);
	return s->nsites
		       ? 0
		       : err_set(err, -ENODATA,
				 "neither input has a row of memory: there is nothing to compare");
}

/* --- the answer --- */

static uint64_t peak_of(struct sites_side *in, uint32_t device)
{
	for (size_t i = 0; i < in->peaks.ndevices; i++) {
		struct device_peaks_device *d = &in->peaks.devices[i];

		if (d->device == device)
			return total_peak(d->has_driver ? &d->driver : &d->pools).bytes;
	}
	return 0;
}

struct device_row {
	uint32_t device;
	uint64_t base, compare;
};

/* The devices of both; the list is to be freed. */
static struct device_row *list_devices(struct compare_sites *s, size_t *out_n)
{
	struct device_row *list = NULL;
	size_t n = 0, cap = 0;

	for (int side = 0; side < SIDES; side++) {
		const struct device_peaks *t = &s->side[side].peaks;

		for (size_t i = 0; i < t->ndevices; i++) {
			uint32_t device = t->devices[i].device;
			size_t k = 0;

			while (k < n && list[k].device != device)
				k++;
			if (k == n)
				LIST_ADD(list, n, cap,
					 (struct device_row){device, peak_of(&s->side[0], device),
							     peak_of(&s->side[1], device)});
		}
	}
	*out_n = n;
	return list;
}

static void describe_device(const struct device_row *d, struct buf *out)
{
	words_device(out, d->device, true);
	if (d->base == d->compare)
		add_text(out, " peaked at {} in both.", BYTES(d->base));
	else
		add_text(out, " peaked {} {} in compare: {}, base {}.",
			 BYTES(compare_distance(d->base, d->compare)),
			 TEXT(d->compare > d->base ? "higher" : "lower"), BYTES(d->compare),
			 BYTES(d->base));
	add_text(out, " ");
}

static void print_answer(struct compare_sites *s, const struct report *r)
{
	size_t n, more = 0, less = 0, left = 0;
	struct device_row *list = list_devices(s, &n);
	struct buf t = {0};

	for (size_t i = 0; i < n; i++)
		describe_device(&list[i], &t);
	free(list);
	for (size_t i = 0; i < s->ndifferent; i++) {
		more += s->sites[i].compare.most > s->sites[i].base.most;
		less += s->sites[i].compare.most < s->sites[i].base.most;
		left += s->sites[i].compare.left != s->sites[i].base.left;
	}
	if (!s->ndifferent)
		add_text(&t, "All {} held and left the same.", COUNT_OF(s->nsites, "call site"));
	else
		add_text(&t,
			 "Of {}, {} held more in compare and {} less; what was left behind differs "
			 "at {}.",
			 COUNT_OF(s->nsites, "call site"), COUNT(more), COUNT(less), COUNT(left));
	if (s->nmoved)
		add_text(
			&t,
			" Lines have moved: {} {} paired by function and file, and by the order of "
			"lines.",
			COUNT_OF(s->nmoved, "call site"), TEXT(words_was(s->nmoved)));
	report_paragraph(r, 0, &t);
}

static void print_site(const struct compare_sites *s, const struct site *site,
		       const struct report *r)
{
	size_t len;
	const char *name = names_get(s->names, site->name, &len);
	bool more = site->compare.most >= site->base.most;
	struct buf t = {0};

	add_text(&t, "{}{} held at most ({} instead of {}, {})", TEXT(more ? "+" : "-"),
		 BYTES(compare_distance(site->base.most, site->compare.most)),
		 BYTES(site->compare.most), BYTES(site->base.most), POOL(site->type));
	if (site->base.left != site->compare.left)
		add_text(&t, "; left {} instead of {}", BYTES(site->compare.left),
			 BYTES(site->base.left));
	report_paragraph(r, 2, &t);
	buf_addf(&t, "%.*s", (int)len, name);
	report_paragraph(r, 6, &t);
	if (site->base_name == site->name)
		return;
	name = names_get(s->names, site->base_name, &len);
	buf_addf(&t, "in base: %.*s", (int)len, name);
	report_paragraph(r, 6, &t);
}

void sites_text(struct compare_sites *s, const struct report *r)
{
	size_t n = s->ndifferent < r->style->top ? s->ndifferent : r->style->top;
	struct buf heading = {0};

	print_answer(s, r);
	if (!n)
		return;
	add_text(&heading, "Call sites that differ most ({} of {}):", NUMBER(n),
		 NUMBER(s->ndifferent));
	report_heading(r, &heading);
	for (size_t i = 0; i < n; i++)
		print_site(s, &s->sites[i], r);
}

static json_t *pair_json(uint64_t base, uint64_t compare)
{
	json_t *o = json_object();

	put_number(o, "base_bytes", base);
	put_number(o, "compare_bytes", compare);
	json_object_set_new(o, "diff_bytes", json_integer((json_int_t)(compare - base)));
	return o;
}

static json_t *site_json(const struct compare_sites *s, const struct site *site)
{
	json_t *o = json_object(), *calls = json_object();
	size_t len;
	const char *name = names_get(s->names, site->name, &len);

	put_device(o, site->device);
	put_pool(o, site->type);
	json_object_set_new(o, "name", text_value(name, len));
	name = names_get(s->names, site->base_name, &len);
	json_object_set_new(o, "base_name",
			    site->base_name == site->name ? json_null() : text_value(name, len));
	json_object_set_new(o, "held_at_most", pair_json(site->base.most, site->compare.most));
	json_object_set_new(o, "left", pair_json(site->base.left, site->compare.left));
	put_number(calls, "base", site->base.allocations);
	put_number(calls, "compare", site->compare.allocations);
	json_object_set_new(o, "allocations", calls);
	return o;
}

static json_t *device_json(const struct device_row *d)
{
	json_t *o = json_object();

	put_device(o, d->device);
	put_number(o, "base_peak_bytes", d->base);
	put_number(o, "compare_peak_bytes", d->compare);
	json_object_set_new(o, "diff_bytes", json_integer((json_int_t)(d->compare - d->base)));
	return o;
}

void sites_json(struct compare_sites *s, unsigned top, json_t *out)
{
	size_t n;
	struct device_row *list = list_devices(s, &n);

	PUT_LIST(out, "devices", n, device_json(&list[i]));
	free(list);
	put_number(out, "moved_sites", s->nmoved);
	put_number(out, "sites_total", s->ndifferent);
	PUT_LIST(out, "sites", s->ndifferent < top ? s->ndifferent : top,
		 site_json(s, &s->sites[i]));
}
