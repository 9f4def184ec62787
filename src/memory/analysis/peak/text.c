/* SPDX-License-Identifier: MulanPSL-2.0 */
/* The peaks for people. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/text/plain_words.h"
#include "base/text/printable.h"
#include "memory/analysis/common/breakdown_text.h"
#include "memory/analysis/common/frames.h"
#include "memory/analysis/common/memory_words.h"
#include "memory/analysis/peak/peak_impl.h"

#define MAX_ANSWERS 3 /* devices in the first paragraph */
#define MAX_DEVICES 16 /* described; JSON has all */

struct view {
	struct page page;
	struct peak *peak;
};

static bool where_of(struct peak *p, uint32_t number, struct buf *out)
{
	return stacks_where(blocks_stacks(census_blocks(p->census)), number, out);
}

/* --- the first paragraph --- */

static void say_origin(struct peak *p, const struct peak_device *d, struct buf *out)
{
	struct buf where = {0};
	size_t i = 0;

	while (i < d->nplaces && !d->places[i].stack)
		i++;
	if (i < d->nplaces && d->places[i].bytes && where_of(p, d->places[i].stack, &where)) {
		buf_add_str(out, " The largest part from one place, ");
		words_held(out, d->places[i].bytes, d->places[i].blocks);
		buf_addf(out, ", comes from %s.", buf_str(&where));
	}
	buf_release(&where);
}

static void say_next(const struct peak_device *d, struct buf *out)
{
	uint64_t gain = peak_gain(d);

	if (!d->next.known || !(d->next.driver_bytes | d->next.pool_bytes))
		return;
	buf_add_str(out, " The next highest moment, ");
	if (census_is_after_steps(d->device->process, d->next.step))
		buf_addf(out, "after step %u, ", d->next.step - 1);
	else if (d->next.step)
		buf_addf(out, "in step %u, ", d->next.step);
	else if (d->device->process->by_call) /* the first one ends without having begun */
		buf_add_str(out, "in the first step, ");
	else
		buf_add_str(out, "outside of steps, ");
	if (!gain) {
		buf_add_str(out, "was as high.");
		return;
	}
	buf_add_str(out, "was ");
	words_bytes(out, gain);
	buf_add_str(out, d->moment->driver_bytes == d->next.driver_bytes
				 ? " lower inside the pools, with the same driver memory."
				 : " lower: lowering this one alone gains no more.");
}

static void say_device(struct peak *p, const struct peak_device *d, struct buf *out)
{
	census_say_device(p->census, d->device, true, out);
	buf_add_str(out, " peaked at ");
	words_bytes(out, peak_height(d));
	census_say_when(p->census, d->device, false, out);
	buf_add_str(out, d->shares.bytes ? ": " : "");
	owner_tree_answer(&d->tree, out);
	buf_add_char(out, '.');
	if (peak_is_above(p, d)) {
		buf_add_str(out, " That is ");
		words_bytes(out, peak_height(d) - p->options.limit_bytes);
		buf_add_str(out, " above the limit of ");
		words_bytes(out, p->options.limit_bytes);
		buf_add_char(out, '.');
	}
	say_origin(p, d, out);
	say_next(d, out);
}

static void answer(const struct view *g, const struct peak_device *list, size_t n)
{
	struct buf t = {0};
	size_t said = 0;

	if (!n)
		buf_add_str(&t, "No memory was allocated in these rows.");
	for (size_t i = 0; i < n && said < MAX_ANSWERS; i++) {
		if (g->page.style->console && !peak_is_above(g->peak, &list[i]))
			continue;
		buf_add_str(&t, said++ ? " " : "");
		say_device(g->peak, &list[i], &t);
	}
	if (n > MAX_ANSWERS && !g->page.style->console)
		buf_addf(&t, " %zu more %s below.", n - MAX_ANSWERS,
			 n - MAX_ANSWERS == 1 ? "is" : "are");
	page_paragraph(&g->page, 0, &t);
}

/* --- one device --- */

static void heading(const struct view *g, const struct peak_device *d)
{
	struct buf t = {0};

	census_say_device(g->peak->census, d->device, true, &t);
	buf_add_str(&t, ": ");
	words_bytes(&t, peak_height(d));
	census_say_when(g->peak->census, d->device, false, &t);
	page_heading(&g->page, &t);
}

static void pool_lines(const struct view *g, const struct peak_device *d)
{
	for (size_t i = 0; i < d->moment->npools; i++) {
		const struct census_pool *p = &d->moment->pools[i];
		uint64_t unused = 0;

		for (size_t k = d->nblocks; k < d->shares.n; k++)
			if (d->shares.list[k].pool == p->pool)
				unused += d->shares.list[k].bytes;
		if (!p->live_bytes && !p->reserved && !unused)
			continue;
		buf_addf(g->page.out, "  %s: ", words_pool(p->pool->type));
		words_held(g->page.out, p->live_bytes, p->live_blocks);
		if (unused) {
			buf_add_str(g->page.out, ", ");
			words_bytes(g->page.out, unused);
			buf_add_str(g->page.out, " free inside");
		}
		if (!blocks_is_driver(p->pool->type) && p->reserved) {
			buf_add_str(g->page.out, ", ");
			words_bytes(g->page.out, p->reserved);
			buf_add_str(g->page.out, " reserved");
		}
		buf_add_char(g->page.out, '\n');
	}
}

static int larger_first(const void *pa, const void *pb)
{
	const struct peak_place *a = pa, *b = pb;

	if (a->bytes != b->bytes)
		return a->bytes > b->bytes ? -1 : 1;
	return (a->stack > b->stack) - (a->stack < b->stack);
}

/* Call stacks that read the same are one. Gives an array. */
static struct peak_place *merge_places(const struct stacks *stacks, const struct peak_device *d,
				       size_t *out_n)
{
	struct peak_place *list = xcalloc(d->nplaces + 1, sizeof(*list));
	struct hmap seen = {0};
	size_t n = 0;

	for (size_t i = 0; i < d->nplaces; i++) {
		const struct peak_place *p = &d->places[i];
		uint64_t looks = page_stack_hash(stacks_get(stacks, p->stack)) + p->before;
		uint64_t at = hmap_get(&seen, looks);

		if (at == HMAP_NONE) {
			hmap_put(&seen, looks, n);
			list[n++] = *p;
		} else {
			list[at].bytes += p->bytes;
			list[at].blocks += p->blocks;
		}
	}
	qsort(list, n, sizeof(*list), larger_first);
	hmap_release(&seen);
	*out_n = n;
	return list;
}

static void place_lines(const struct view *g, const struct peak_device *d)
{
	struct stacks *stacks = blocks_stacks(census_blocks(g->peak->census));

	if (stacks->count < 2)
		return;
	buf_add_str(g->page.out, "\n  By call stack\n");
	size_t n;
	struct peak_place *list = merge_places(stacks, d, &n);
	for (size_t i = 0; i < n && i < g->page.style->top; i++) {
		const struct peak_place *place = &list[i];
		struct stack s = stacks_get(stacks, place->stack);

		buf_add_str(g->page.out, "    ");
		words_held(g->page.out, place->bytes, place->blocks);
		buf_add_str(g->page.out, place->stack	 ? "\n"
					 : place->before ? ", allocated before recording began\n"
							 : ", no call stack recorded\n");
		page_stack(&g->page, 8, s);
	}
	if (n > g->page.style->top)
		buf_addf(g->page.out, "    and %zu more\n", n - g->page.style->top);
	free(list);
}

/* The place and who called it, since places are often a helper that everybody uses. */
static void add_place(struct peak *p, uint32_t number, struct buf *out)
{
	struct stack s = stacks_get(blocks_stacks(census_blocks(p->census)), number);
	struct frame_line lines[2];
	bool python = number && s.py;
	size_t n = number && (s.py || s.c) ? frames_pick(s.py ? s.py : s.c, python, lines, 2) : 0;

	for (size_t i = 0; i < n; i++) {
		buf_add_str(out, i ? " < " : ", ");
		frame_describe(&lines[i], python, out);
	}
}

static void block_line(const struct view *g, const struct peak_device *d,
		       const struct census_share *s)
{
	const struct block *b = s->block;
	const char *owner = blocks_owner(census_blocks(g->peak->census), b->owner);
	struct buf t = {0};

	if (!*owner)
		owner = census_source(b->pool->type);
	words_bytes(&t, s->bytes);
	buf_addf(g->page.out, "  %12s", buf_str(&t));
	buf_clear(&t);
	buf_add_str(&t, b->shadow ? ">" : "");
	words_time(&t, peak_age(d, b));
	buf_addf(g->page.out, "  %12s", buf_str(&t));
	buf_clear(&t);
	if (b->state == BLOCK_FREED)
		words_time(&t, peak_lived_on(d, b));
	else
		buf_add_str(&t, "to the end");
	buf_addf(g->page.out, "  %12s  ", buf_str(&t));
	buf_clear(&t);
	text_add_printable(g->page.out, owner, strlen(owner));
	add_place(g->peak, b->stack, g->page.out);
	buf_add_char(g->page.out, '\n');
	buf_release(&t);
}

static void block_lines(const struct view *g, const struct peak_device *d)
{
	size_t n = d->nblocks < g->page.style->top ? d->nblocks : g->page.style->top;
	bool pooled = false;
	struct buf t = {0};

	if (!n)
		return;
	if (n > 1)
		buf_addf(g->page.out, "\n  The %zu blocks that weigh most\n", n);
	else
		buf_add_str(g->page.out, "\n  The block that weighs most\n");
	buf_addf(g->page.out, "  %12s  %12s  %12s  %s\n", "Bytes", "Age", "Lived on",
		 "Owner and place");
	for (size_t i = 0; i < n; i++) {
		block_line(g, d, &d->shares.list[i]);
		pooled |= !blocks_is_driver(d->shares.list[i].pool->type);
	}
	if (!pooled || !d->device->has_driver)
		return;
	buf_add_str(&t, "A block of a pool makes room inside the pool when it goes; the driver's "
			"bytes fall as far as the pool can do with less memory then.");
	page_paragraph(&g->page, 0, &t);
}

static void describe_device(const struct view *g, const struct peak_device *d)
{
	heading(g, d);
	pool_lines(g, d);
	buf_add_str(g->page.out, "\n  By owner\n");
	owner_tree_text(&d->tree, g->page.style->top, g->page.out);
	census_say_outside(d->device, &d->shares, &g->page);
	place_lines(g, d);
	block_lines(g, d);
}

void peak_text(struct analysis *a, const struct analysis_style *style, struct buf *out)
{
	struct view g = {page_begin(style, out), (struct peak *)a};
	size_t n, above = 0;
	struct peak_device *list = peak_devices(g.peak, &n);

	for (size_t i = 0; i < n; i++)
		above += peak_is_above(g.peak, &list[i]);
	if (!style->console || above)
		answer(&g, list, n);
	for (size_t i = 0; i < n && i < MAX_DEVICES && !style->console && style->top; i++)
		describe_device(&g, &list[i]);
	if (n > MAX_DEVICES && !style->console)
		buf_addf(out, "\n%zu more are in the JSON.\n", n - MAX_DEVICES);
	if (!style->console)
		census_doubts(g.peak->census, n > 0, &g.page);
	if (!style->console && n && blocks_stacks(census_blocks(g.peak->census))->count < 2) {
		words_stacks_hint(out, words_is_python(list[0].device->process->command));
		buf_add_char(out, '\n');
	}
	peak_devices_free(list, n);
}
