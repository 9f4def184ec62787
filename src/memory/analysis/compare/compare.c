/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Rows into sequences of calls, and the pairing of two sequences. */
#include "memory/analysis/compare/compare.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/progress.h"
#include "memory/analysis/common/blocks.h"
#include "memory/analysis/compare/compare_impl.h"
#include "memory/dump/scan.h"
#include "wire/record.h"

struct compare *compare_new(unsigned level)
{
	struct compare *c = xcalloc(1, sizeof(*c));

	c->level = level;
	c->framework = TYPE_END;
	if (level == COMPARE_SITES)
		c->sites = sites_new(&c->names);
	return c;
}

static void input_release(struct compare_input *in)
{
	for (size_t i = 0; i < in->ndevices; i++) {
		struct compare_calls *d = &in->devices[i];

		free(d->names);
		free(d->kernel);
		free(d->framework.list);
		free(d->atb.list);
		free(d->items);
	}
	free(in->devices);
	hmap_release(&in->by_device);
	*in = (struct compare_input){0};
}

void compare_free(struct compare *c)
{
	if (!c)
		return;
	for (int i = 0; i < SIDES; i++)
		input_release(&c->input[i]);
	for (size_t i = 0; i < c->npairs; i++)
		align_release(&c->pairs[i].align);
	sites_free(c->sites);
	free(c->pairs);
	free(c->by_name);
	names_release(&c->names);
	buf_release(&c->notes);
	for (int i = 0; i < SIDES; i++)
		compare_source_release(&c->source[i]);
	free(c);
}

void compare_note(struct compare *c, const char *text)
{
	buf_addf(&c->notes, "%s\n", text);
}

bool compare_unordered(const struct compare *c, enum compare_side side)
{
	return c->sites ? sites_unordered(c->sites, side) : c->input[side].unordered;
}

void compare_restart(struct compare *c, enum compare_side side)
{
	if (c->sites)
		sites_restart(c->sites, side);
	input_release(&c->input[side]);
	c->input[side].sorting = true;
}

/* --- rows --- */

static struct compare_calls *device_of(struct compare_input *in, uint32_t device)
{
	if (in->last < in->ndevices && in->devices[in->last].device == device)
		return &in->devices[in->last];
	uint64_t found = hmap_get(&in->by_device, device);
	if (found == HMAP_NONE) {
		found = in->ndevices++;
		in->devices = xgrow(in->devices, &in->cap, in->ndevices, sizeof(*in->devices));
		in->devices[found] = (struct compare_calls){.device = device};
		hmap_put(&in->by_device, device, found);
	}
	in->last = (size_t)found;
	return &in->devices[found];
}

static void add_call(struct compare_calls *d, uint32_t name, bool kernel)
{
	d->names = xgrow(d->names, &d->names_cap, d->count + 1, sizeof(*d->names));
	d->kernel = xgrow(d->kernel, &d->kernel_cap, d->count + 1, sizeof(*d->kernel));
	d->names[d->count] = name;
	d->kernel[d->count] = kernel;
	d->count++;
}

/* The calls that still wait for a row of the pool have found it. */
static void add_size(struct compare_sizes *s, size_t calls, int64_t size)
{
	if (s->done == calls)
		return;
	s->list = xgrow(s->list, &s->cap, calls, sizeof(*s->list));
	while (s->done < calls)
		s->list[s->done++] = size;
}

static void take_item(struct compare_calls *d, const struct compare_item *item)
{
	if (item->what == ITEM_FRAMEWORK)
		add_size(&d->framework, d->count, item->size);
	else if (item->what == ITEM_ATB)
		add_size(&d->atb, d->count, item->size);
	else
		add_call(d, item->name, item->what == ITEM_KERNEL);
}

static void note_framework(struct compare *c, enum row_type type)
{
	if (type == TYPE_PTA_WORKSPACE)
		type = TYPE_PTA;
	if (c->framework == TYPE_END)
		c->framework = type;
	c->mixed |= c->framework != type;
}

/* Whether the row matters, and as what. */
static bool sort_out(const struct compare *c, const struct row *row, enum compare_what *out)
{
	bool pool = row->event == ROW_MALLOC || row->event == ROW_FREE;

	switch (row->type) {
	case TYPE_PTA:
	case TYPE_PTA_WORKSPACE:
	case TYPE_MINDSPORE:
	case TYPE_TORCH:
		*out = ITEM_FRAMEWORK;
		return pool;
	case TYPE_ATB:
		*out = ITEM_ATB;
		return pool;
	case TYPE_ATEN_END:
	case TYPE_ATB_END:
		*out = ITEM_OPERATOR;
		return c->level & COMPARE_OPERATORS;
	case TYPE_KERNEL_LAUNCH:
		*out = ITEM_KERNEL;
		return c->level & COMPARE_KERNELS;
	default:
		return false;
	}
}

static int64_t size_of(const struct row *row)
{
	const struct attr *a = row_attr(row, ATTR_SIZE);
	uint64_t n = a ? a->number : 0;

	if (a && a->kind == ATTR_TEXT && a->text_len > 1 && a->text[0] == '-' &&
	    scan_u64(a->text + 1, a->text_len - 1, &n))
		return n > INT64_MAX ? INT64_MIN : -(int64_t)n;
	return a && a->kind == ATTR_NUMBER ? (int64_t)(n > INT64_MAX ? INT64_MAX : n) : 0;
}

static void keep_item(struct compare_calls *d, struct compare_item *item)
{
	item->order = d->nitems;
	LIST_ADD(d->items, d->nitems, d->items_cap, *item);
}

void compare_add(struct compare *c, enum compare_side side, const struct row *row)
{
	struct compare_input *in = &c->input[side];
	enum compare_what what;

	if (c->sites) {
		sites_add(c->sites, side, row);
		return;
	}
	if (row->hidden || row->device == DEV_NONE || row->device == DEV_HOST ||
	    !sort_out(c, row, &what))
		return;
	struct compare_calls *d = device_of(in, row->device);
	struct compare_item item = {.time_ns = row->time_ns, .id = row->id, .what = (uint8_t)what};
	if (what == ITEM_FRAMEWORK || what == ITEM_ATB) {
		item.size = size_of(row);
		in->framework_rows += what == ITEM_FRAMEWORK;
		in->atb_rows += what == ITEM_ATB;
		if (what == ITEM_FRAMEWORK)
			note_framework(c, row->type);
	} else {
		item.name = row->name ? names_of(&c->names, row->name, row->name_len)
				      : names_of(&c->names, "N/A", 3);
	}
	if (in->sorting) {
		keep_item(d, &item);
		return;
	}
	if (row->time_ns < d->last_time_ns ||
	    (row->time_ns == d->last_time_ns && row->id < d->last_id))
		in->unordered = true;
	d->last_time_ns = row->time_ns;
	d->last_id = row->id;
	take_item(d, &item);
}

/* --- sorting --- */

static int by_time(const void *pa, const void *pb)
{
	const struct compare_item *a = pa, *b = pb;

	return ORDER(a->time_ns, b->time_ns) ?: ORDER(a->id, b->id) ?: ORDER(a->order, b->order);
}

static void sort_rows(struct compare_input *in)
{
	for (size_t i = 0; i < in->ndevices; i++) {
		struct compare_calls *d = &in->devices[i];

		SORT(d->items, d->nitems, by_time);
		for (size_t k = 0; k < d->nitems; k++)
			take_item(d, &d->items[k]);
		free(d->items);
		d->items = NULL;
		d->nitems = d->items_cap = 0;
	}
}

/* --- the pairs --- */

static const struct compare_calls *find_device(const struct compare_input *in, uint32_t device)
{
	static const struct compare_calls none;
	uint64_t found = hmap_get(&in->by_device, device);

	return found == HMAP_NONE ? &none : &in->devices[found];
}

static int by_device(const void *pa, const void *pb)
{
	return ORDER(((const struct compare_pair *)pa)->device,
		     ((const struct compare_pair *)pb)->device);
}

/* Every device that has calls on either side, once, by number. */
static void list_pairs(struct compare *c)
{
	size_t most = c->input[0].ndevices + c->input[1].ndevices;

	c->pairs = xcalloc(most, sizeof(*c->pairs));
	for (int side = 0; side < SIDES; side++) {
		const struct compare_input *in = &c->input[side];

		for (size_t i = 0; i < in->ndevices; i++) {
			uint32_t device = in->devices[i].device;

			if (side && find_device(&c->input[0], device)->count)
				continue;
			if (in->devices[i].count)
				c->pairs[c->npairs++].device = device;
		}
	}
	SORT(c->pairs, c->npairs, by_device);
	for (size_t i = 0; i < c->npairs; i++)
		for (int side = 0; side < SIDES; side++)
			c->pairs[i].side[side] = find_device(&c->input[side], c->pairs[i].device);
}

static void on_progress(void *arg, uint64_t done, uint64_t total)
{
	progress_show(arg, "comparing", done, total);
}

static int align_pair(struct compare_pair *p, struct err *err)
{
	const struct compare_calls *a = p->side[COMPARE_BASE], *b = p->side[COMPARE_OTHER];
	struct align_pair sequences = {a->names, b->names, a->count, b->count};
	struct progress progress = {0};
	struct align_options options = {.progress = on_progress, .arg = &progress};

	if (a->count > ALIGN_MAX_LENGTH || b->count > ALIGN_MAX_LENGTH)
		return err_set(err, -EFBIG, "device %u has more than %d calls", p->device,
			       ALIGN_MAX_LENGTH);
	align_init(&p->align, &sequences, &options);
	progress_done(&progress);
	return 0;
}

static int64_t size_at(const struct compare *c, const struct compare_calls *d, size_t call)
{
	const struct compare_sizes *s = c->use_atb ? &d->atb : &d->framework;

	return call < s->done ? s->list[call] : 0;
}

bool compare_next(struct compare_walk *w, struct compare_line *out)
{
	const struct compare_pair *p = w->pair;

	w->align.align = &p->align;
	enum align_kind kind = align_next(&w->align);
	if (kind == ALIGN_END)
		return false;
	*out = (struct compare_line){.pair = p, .kind = kind};
	out->call[COMPARE_BASE] = w->align.x;
	out->call[COMPARE_OTHER] = w->align.y;
	if (kind != ALIGN_COMPARE)
		out->size[COMPARE_BASE] = size_at(w->compare, p->side[COMPARE_BASE], w->align.x);
	if (kind != ALIGN_BASE)
		out->size[COMPARE_OTHER] = size_at(w->compare, p->side[COMPARE_OTHER], w->align.y);
	int side = kind == ALIGN_COMPARE ? COMPARE_OTHER : COMPARE_BASE;
	out->name = p->side[side]->names[out->call[side]];
	out->kernel = p->side[side]->kernel[out->call[side]];
	return true;
}

bool compare_line_differs(const struct compare_line *line)
{
	return line->kind != ALIGN_BOTH || line->size[0] != line->size[1];
}

static void add_bytes(int64_t *sum, int64_t bytes)
{
	if (__builtin_add_overflow(*sum, bytes, sum))
		*sum = bytes < 0 ? INT64_MIN : INT64_MAX;
}

static void count_line(struct compare_counts *t, const struct compare_line *line)
{
	t->base += line->kind != ALIGN_COMPARE;
	t->compare += line->kind != ALIGN_BASE;
	t->both += line->kind == ALIGN_BOTH;
	t->only_base += line->kind == ALIGN_BASE;
	t->only_compare += line->kind == ALIGN_COMPARE;
	add_bytes(&t->base_bytes, line->size[COMPARE_BASE]);
	add_bytes(&t->compare_bytes, line->size[COMPARE_OTHER]);
	if (line->kind != ALIGN_BOTH)
		return;
	t->changed += compare_line_differs(line);
	add_bytes(&t->both_base_bytes, line->size[COMPARE_BASE]);
	add_bytes(&t->both_compare_bytes, line->size[COMPARE_OTHER]);
}

static void count_pair(struct compare *c, struct compare_pair *p)
{
	struct compare_walk w = {.compare = c, .pair = p};
	struct compare_line line;

	while (compare_next(&w, &line)) {
		count_line(&p->counts, &line);
		count_line(&c->counts, &line);
		count_line(&c->by_name[line.name], &line);
	}
}

uint64_t compare_differences(const struct compare *c)
{
	if (c->sites)
		return c->sites->ndifferent;
	return c->counts.only_base + c->counts.only_compare + c->counts.changed;
}

bool compare_is_complete(const struct compare *c)
{
	return !loss_any(&c->input[COMPARE_BASE].loss) && !loss_any(&c->input[COMPARE_OTHER].loss);
}

/* --- what cannot be compared, and what the reader should know --- */

static int check_framework(struct compare *c, struct err *err)
{
	if (c->mixed)
		return err_set(err, -EBADMSG,
			       "there are rows of both PTA and MindSpore pools: memory of two "
			       "frameworks cannot be compared");
	if (c->framework == TYPE_MINDSPORE && c->level == COMPARE_OPERATORS)
		return err_set(err, -ENOTSUP,
			       "MindSpore has no operator rows to compare; record with "
			       "--level=kernel and compare with --level=kernel");
	c->use_atb = c->framework == TYPE_END && (c->input[0].atb_rows || c->input[1].atb_rows);
	return 0;
}

static const char *const side_names[SIDES] = {"base", "compare"};

static int no_calls(const struct compare *c, struct err *err)
{
	if (c->level == COMPARE_KERNELS)
		return err_set(err, -ENODATA,
			       "neither input has a KERNEL_LAUNCH row; kernels are recorded with "
			       "--level=kernel");
	bool asked = c->input[0].asked.operators && c->input[1].asked.operators;
	return err_set(
		err, -ENODATA,
		"neither input has an operator row (ATEN_END, ATB_END%s): %s; --level=kernel "
		"compares kernels, --level=site call sites",
		c->level & COMPARE_KERNELS ? ", KERNEL_LAUNCH" : "",
		asked ? "they were asked for, but the jobs announced no operators"
		      : "they are recorded with --events=launch, where the job announces "
			"operators");
}

static size_t calls_of(const struct compare_input *in)
{
	size_t n = 0;

	for (size_t i = 0; i < in->ndevices; i++)
		n += in->devices[i].count;
	return n;
}

static void note_sides(struct compare *c)
{
	const char *framework = compare_framework(c);

	if (!framework)
		compare_note(c, "There are no rows of a framework's pool (PTA, MindSpore, ATB), so "
				"all memory values are 0.");
	for (int side = 0; side < SIDES; side++) {
		const struct compare_input *in = &c->input[side];

		if (!calls_of(in))
			buf_addf(&c->notes, "The %s input has no %s rows at all.\n",
				 side_names[side], compare_noun(c));
		else if (framework && !(c->use_atb ? in->atb_rows : in->framework_rows))
			buf_addf(&c->notes,
				 "The %s input has no rows of the %s pool, so all its memory "
				 "values are 0.\n",
				 side_names[side], framework);
	}
}

static void note_devices(struct compare *c)
{
	size_t common = 0;

	for (size_t i = 0; i < c->npairs; i++)
		common += c->pairs[i].counts.base && c->pairs[i].counts.compare;
	if (!common && c->counts.base && c->counts.compare)
		compare_note(c, "The two inputs are of different devices, and calls are paired "
				"within a device only.");
}

int compare_finish(struct compare *c, struct err *err)
{
	if (c->sites)
		return sites_finish(c->sites, err);
	int r = check_framework(c, err);
	if (r < 0)
		return r;
	for (int side = 0; side < SIDES; side++)
		sort_rows(&c->input[side]);
	list_pairs(c);
	if (!c->npairs)
		return no_calls(c, err);
	c->by_name = xcalloc(c->names.count, sizeof(*c->by_name));
	for (size_t i = 0; i < c->npairs; i++) {
		r = align_pair(&c->pairs[i], err);
		if (r < 0)
			return r;
		count_pair(c, &c->pairs[i]);
	}
	note_sides(c);
	note_devices(c);
	return 0;
}
