/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "memory/analysis/groups/difference.h"

#include <stdlib.h>
#include <xxhash.h>

#include "base/mem.h"
#include "formats/json_value.h"
#include "memory/analysis/common/fields.h"
#include "memory/analysis/groups/moved_lines.h"

#define MAX_TYPES 3 /* in a sentence */
#define MAX_DEVICES 3

static void merge_sums(union group_sums *to, const union group_sums *from)
{
	for (size_t i = 0; i < GROUP_TYPES; i++)
		to->each[i] += from->each[i];
}

static struct group_pair *pair_of(struct groups_difference *d, uint32_t device,
				  const struct group *g)
{
	uint64_t key = XXH3_64bits_withSeed(g->name, strlen(g->name), device);
	uint64_t at = hmap_get(&d->by_name, key);

	if (at != HMAP_NONE)
		return &d->list[at];
	hmap_put(&d->by_name, key, d->n);
	LIST_ADD(d->list, d->n, d->cap,
		 (struct group_pair){.number = d->n,
				     .device = device,
				     .depth = g->depth,
				     .is_rest = g->is_rest,
				     .name = xstrdup(g->name)});
	return &d->list[d->n - 1];
}

static struct group_pair *device_of(struct groups_difference *d, uint32_t device)
{
	for (size_t i = 0; i < d->ndevices; i++)
		if (d->devices[i].device == device)
			return &d->devices[i];
	LIST_ADD(d->devices, d->ndevices, d->cap_devices, (struct group_pair){.device = device});
	return &d->devices[d->ndevices - 1];
}

/* Up to the number of the line: "train_step (train.py" */
static size_t function_length(const char *where)
{
	const char *file = strchr(where, '('), *line = file ? strchr(file, ':') : NULL;

	return line ? (size_t)(line - where) : strlen(where);
}

/* The line that is named is the largest of compare; where that has none, of base. */
static void add_line(struct groups_difference *d, enum difference_side side, struct group_pair *p,
		     const char *where, uint64_t bytes)
{
	uint64_t key = XXH3_64bits_withSeed(where, function_length(where), p->number);
	uint64_t at = hmap_get(&d->by_line, key);

	if (at == HMAP_NONE) {
		at = d->nlines;
		hmap_put(&d->by_line, key, at);
		LIST_ADD(d->lines, d->nlines, d->cap_lines, (struct pair_line){.next = p->lines});
		p->lines = d->nlines;
	}
	struct pair_line *l = &d->lines[at];
	bool first = !l->bytes[side];
	l->bytes[side] += (int64_t)bytes;
	if (!first && bytes <= l->most)
		return;
	free(l->where);
	l->where = xstrdup(where);
	l->most = bytes;
}

void difference_add(struct groups_difference *d, enum difference_side side, uint32_t device,
		    const struct groups *g)
{
	d->by = g->options.by;
	device_of(d, device)->bytes[side] += (int64_t)g->bytes;
	for (size_t i = 0; i < g->n; i++) {
		struct group_pair *p = pair_of(d, device, &g->list[i]);

		p->bytes[side] += (int64_t)g->list[i].bytes;
		merge_sums(&p->sums[side], &g->list[i].sums);
		for (size_t k = 0; k < g->list[i].nlines; k++)
			add_line(d, side, p,
				 text_numbers_text(&g->places, g->list[i].lines[k].place),
				 g->list[i].lines[k].bytes);
	}
}

static int64_t more_of(const struct group_pair *p)
{
	return p->bytes[DIFFERENCE_OTHER] - p->bytes[DIFFERENCE_BASE];
}

static uint64_t weight_of(const struct group_pair *p)
{
	int64_t more = more_of(p);

	return more < 0 ? -(uint64_t)more : (uint64_t)more;
}

static int heavier_first(const void *pa, const void *pb)
{
	const struct group_pair *a = pa, *b = pb;

	return ORDER(weight_of(b), weight_of(a))
		       ?: ORDER(a->device, b->device)
		       ?: ORDER(a->depth, b->depth)
		       ?: (a->name ? strcmp(a->name, b->name) : 0);
}

/* Those that one side has, to be freed. */
static struct moved_site *list_side(const struct groups_difference *d, unsigned side, size_t *out_n)
{
	struct moved_site *list = xcalloc(d->n + 1, sizeof(*list));
	size_t n = 0;

	for (size_t i = 0; i < d->n; i++) {
		const struct group_pair *p = &d->list[i];

		if (!p->bytes[side])
			continue;
		list[n] = (struct moved_site){.bytes = (uint64_t)p->bytes[side], .place = i};
		moved_site_read(&list[n++], p->name, strlen(p->name), p->device);
	}
	*out_n = n;
	return list;
}

/* A pair of what both have, each of which may be none. */
static struct group_pair join_sides(const struct groups_difference *d, size_t base, size_t other)
{
	const struct group_pair *from[2] = {base == MOVED_NONE ? NULL : &d->list[base],
					    other == MOVED_NONE ? NULL : &d->list[other]};
	const struct group_pair *named = from[1] ? from[1] : from[0];
	struct group_pair p = {.device = named->device,
			       .depth = named->depth,
			       .is_rest = named->is_rest,
			       .name = xstrdup(named->name)};

	for (unsigned side = 0; side < 2; side++)
		if (from[side]) {
			p.bytes[side] = from[side]->bytes[side];
			p.sums[side] = from[side]->sums[side];
		}
	if (from[0] && from[1] && from[0] != from[1])
		p.base_name = xstrdup(from[0]->name);
	return p;
}

static void release_pairs(struct group_pair *list, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		free(list[i].name);
		free(list[i].base_name);
	}
	free(list);
}

static void pair_moved_lines(struct groups_difference *d)
{
	size_t n[2], done = 0;
	struct moved_site *side[2] = {list_side(d, 0, &n[0]), list_side(d, 1, &n[1])};
	struct group_pair *list = xcalloc(n[0] + n[1] + 1, sizeof(*list));

	moved_sites_pair(side[0], n[0], side[1], n[1]);
	for (size_t i = 0; i < n[0]; i++)
		list[done++] = join_sides(d, side[0][i].place, side[0][i].pair);
	for (size_t i = 0; i < n[1]; i++)
		if (side[1][i].pair == MOVED_NONE)
			list[done++] = join_sides(d, MOVED_NONE, side[1][i].place);
	for (size_t i = 0; i < done; i++)
		d->nmoved += list[i].base_name != NULL;
	release_pairs(d->list, d->n);
	d->list = list;
	d->n = d->cap = done;
	free(side[0]);
	free(side[1]);
}

void difference_finish(struct groups_difference *d)
{
	if (d->by == GROUPS_BY_LINE)
		pair_moved_lines(d);
	SORT(d->list, d->n, heavier_first);
	SORT(d->devices, d->ndevices, heavier_first);
}

void difference_release(struct groups_difference *d)
{
	release_pairs(d->list, d->n);
	for (size_t i = 0; i < d->nlines; i++)
		free(d->lines[i].where);
	free(d->lines);
	hmap_release(&d->by_line);
	free(d->devices);
	hmap_release(&d->by_name);
	*d = (struct groups_difference){0};
}

uint64_t difference_count(const struct groups_difference *d)
{
	uint64_t n = 0;

	for (size_t i = 0; i < d->n; i++)
		n += weight_of(&d->list[i]) != 0;
	return n;
}

/* --- the answer --- */

/* The largest difference of a device; of modules the innermost that has nearly all of it. */
static const struct group_pair *pair_to_report(const struct groups_difference *d, uint32_t device)
{
	const struct group_pair *reported = NULL;

	for (size_t i = 0; i < d->n; i++) {
		const struct group_pair *p = &d->list[i];

		if (p->device != device || p->is_rest || !weight_of(p))
			continue;
		if (!reported)
			reported = p;
		size_t len = strlen(reported->name);
		bool inside = !strncmp(p->name, reported->name, len) && p->name[len] == '.';
		if (inside && group_is_nearly_all(weight_of(p), weight_of(reported)))
			reported = p;
	}
	return reported;
}

/* The line where most of a difference comes from; NULL: none has half of it. */
static const char *line_to_report(const struct groups_difference *d, const struct group_pair *p)
{
	int64_t sign = more_of(p) < 0 ? -1 : 1, most = 0;
	const char *where = NULL;

	for (size_t i = p->lines; i; i = d->lines[i - 1].next) {
		const struct pair_line *l = &d->lines[i - 1];
		int64_t more = sign * (l->bytes[DIFFERENCE_OTHER] - l->bytes[DIFFERENCE_BASE]);

		if (more <= most)
			continue;
		most = more;
		where = l->where;
	}
	return (uint64_t)most >= weight_of(p) / 2 ? where : NULL;
}

/* The types that differ in the direction of the whole. */
static void describe_types(const struct group_pair *p, struct buf *out)
{
	int64_t left[GROUP_TYPES];
	int sign = more_of(p) < 0 ? -1 : 1;

	for (size_t i = 0; i < GROUP_TYPES; i++)
		left[i] = sign * (int64_t)(p->sums[1].each[i] - p->sums[0].each[i]);
	for (unsigned shown = 0; shown < MAX_TYPES; shown++) {
		size_t most = 0;

		for (size_t i = 1; i < GROUP_TYPES; i++)
			if (left[i] > left[most])
				most = i;
		if (left[most] <= 0)
			return;
		add_text(out, "{}{} {}", TEXT(shown ? ", " : ": "), BYTES((uint64_t)left[most]),
			 TEXT(group_type_words(most)));
		left[most] = 0;
	}
}

static void describe_device(const struct groups_difference *d, const struct group_pair *device,
			    struct buf *out)
{
	const struct group_pair *reported = pair_to_report(d, device->device);
	struct buf where = {0};

	words_device(&where, device->device, false);
	if (reported) {
		const char *more = more_of(reported) < 0 ? "less" : "more";
		if (d->by == GROUPS_BY_TYPE)
			add_text(out, "There are {} {} of {} than in base at the peak of {}",
				 BYTES(weight_of(reported)), TEXT(more), TEXT(reported->name),
				 TEXT(buf_str(&where)));
		else
			add_text(out, "{} holds {} {} than in base at the peak of {}",
				 PRINTABLE(reported->name), BYTES(weight_of(reported)), TEXT(more),
				 TEXT(buf_str(&where)));
		const char *line = line_to_report(d, reported);
		if (line)
			add_text(out, ", from {}", PRINTABLE(line));
		if (d->by != GROUPS_BY_TYPE)
			describe_types(reported, out);
		add_text(out, ". ");
	} else {
		add_text(out, "No {} holds another amount than in base at the peak of {}. ",
			 TEXT(groups_by_names[d->by]), TEXT(buf_str(&where)));
	}
	add_text(out, "The peak is {}, {} in base.", BYTES((uint64_t)device->bytes[1]),
		 BYTES((uint64_t)device->bytes[0]));
	buf_release(&where);
}

static const struct field pair_fields[] = {
	COLUMN("name", "Group", FIELD_TEXT, struct group_pair, name),
	COLUMN("device", "Device", FIELD_DEVICE, struct group_pair, device),
	FIELDS(struct group_pair, depth),
	FIELD_AS("rest", FIELD_BOOL, struct group_pair, is_rest),
	COLUMN("base_bytes", "Base", FIELD_SIGNED, struct group_pair, bytes[0]),
	COLUMN("compare_bytes", "Compare", FIELD_SIGNED, struct group_pair, bytes[1]),
	COLUMN("diff_bytes", "Difference", FIELD_DIFFERENCE, struct group_pair, bytes),
	{0},
};

void difference_text(const struct groups_difference *d, const struct report *r)
{
	const struct field_table table = {pair_fields, 1, 2, NULL};
	size_t n = (size_t)difference_count(d), shown = n < r->style->top ? n : r->style->top;
	struct buf answer = {0};

	for (size_t i = 0; i < d->ndevices && i < MAX_DEVICES; i++) {
		add_text(&answer, i ? " " : "");
		describe_device(d, &d->devices[i], &answer);
	}
	if (d->nmoved)
		add_text(&answer,
			 " Lines have moved: {} {} paired by function and file (the lines are "
			 "those of "
			 "compare).",
			 COUNT_OF(d->nmoved, "call site"), TEXT(words_was(d->nmoved)));
	report_paragraph(r, 0, &answer);
	if (!shown)
		return;
	report_add(r, "\n");
	report_fields(r, &table, d->list, shown, sizeof(*d->list));
	if (n > shown)
		report_more(r, 2, n - shown, "group");
}

/* --- JSON --- */

static json_t *pair_json(const struct groups_difference *d, const struct group_pair *p)
{
	json_t *o = fields_object(pair_fields, p, NULL), *types = json_object();

	for (size_t i = 0; i < GROUP_TYPES; i++)
		json_object_set_new(
			types, group_type_key(i),
			json_integer((json_int_t)(p->sums[1].each[i] - p->sums[0].each[i])));
	put_text(o, "base_name", p->base_name);
	json_object_set_new(o, "types", types);
	if (d->by == GROUPS_BY_MODULE)
		put_text(o, "where", line_to_report(d, p));
	return o;
}

void difference_put(json_t *o, const struct groups_difference *d, unsigned top)
{
	static const struct field device_fields[] = {
		FIELD_AS("device", FIELD_DEVICE, struct group_pair, device),
		FIELD("base_bytes", struct group_pair, bytes[0]),
		FIELD("compare_bytes", struct group_pair, bytes[1]),
		FIELD_AS("diff_bytes", FIELD_DIFFERENCE, struct group_pair, bytes),
		{0},
	};
	size_t n = (size_t)difference_count(d);

	put_bool(o, "identical", !n);
	put_text(o, "what", groups_by_names[d->by]);
	json_object_set_new(
		o, "devices",
		fields_list(device_fields, d->devices, d->ndevices, sizeof(*d->devices), NULL));
	put_number(o, "moved_groups", d->nmoved);
	put_number(o, "groups_total", n);
	PUT_LIST(o, "groups", n < top ? n : top, pair_json(d, &d->list[i]));
}
