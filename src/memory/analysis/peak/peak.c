/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "memory/analysis/peak/peak.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/text/printable.h"
#include "formats/json_value.h"
#include "memory/analysis/common/breakdown_text.h"
#include "memory/analysis/common/fields.h"
#include "memory/analysis/common/frames.h"
#include "memory/analysis/owners/tree.h"
#include "memory/analysis/peak/together.h"
#include "memory/analysis/processes/processes.h"
#include "memory/analysis/processes/programs.h"
#include "wire/record.h"

/* How full a device was. */
struct height {
	uint64_t driver_bytes, pool_bytes;
	uint32_t step; /* 0: outside of steps */
	bool known;
};

/* The highest moments of a device by step; in own[1] of struct block_device. */
struct heights {
	struct height now; /* of the step that runs, or of the time between two */
	struct height first, second; /* of steps that have ended */
};

struct peak {
	struct analysis base;
	struct peak_options options;
	struct breakdown *breakdown;
	struct together together;
	struct heights **heights;
	size_t nheights, cap_heights;
	bool has_steps;
};

/* Everything about the peak of a device. */
struct peak_device {
	struct block_device *device;
	struct breakdown_moment *moment;
	struct breakdown_shares shares; /* blocks, the largest first; then what is free */
	size_t nblocks; /* of them */
	struct owner_tree tree;
	struct call_site *sites; /* the largest first */
	size_t nsites;
	struct call_site *places; /* the same, merged */
	size_t nplaces;
	struct height next; /* the highest of the other steps */
};

static const struct stacks *peak_stacks(const struct peak *p)
{
	return &p->base.blocks->stacks;
}

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

static void peak_row(struct analysis *a, const struct row *row)
{
	struct peak *p = (struct peak *)a;
	struct block_change c;

	breakdown_row(p->breakdown, row, &c);
	if (c.step_ended || c.step_begun)
		change_step(p, c.process);
	together_add(&p->together, &c, row->time_ns);
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

/* What the limit is about. */
static uint64_t peak_bytes(const struct peak_device *d)
{
	return d->device->has_driver ? d->moment->driver_bytes : d->moment->pool_bytes;
}

static bool is_above_limit(const struct peak *p, const struct peak_device *d)
{
	return p->options.limit_bytes && peak_bytes(d) > p->options.limit_bytes;
}

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
static struct peak_device *list_devices(struct peak *p, size_t *out_n)
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

/* Moves those that are listed to the front, in their order; returns how many they are. */
static size_t choose_listed(const struct peak *p, struct peak_device *list, size_t n,
			    struct programs *programs)
{
	size_t listed = 0;

	for (size_t i = 0; i < n; i++)
		programs_add(programs, list[i].device->process, list[i].device->process->pid,
			     is_above_limit(p, &list[i]) ? HELPER_BYTES : peak_bytes(&list[i]));
	for (size_t i = 0; i < n; i++) {
		struct peak_device one = list[i];

		if (programs_is_helper(programs, one.device->process))
			continue;
		list[i] = list[listed];
		list[listed++] = one;
	}
	return listed;
}

static void release_devices(struct peak_device *list, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		breakdown_shares_release(&list[i].shares);
		owner_tree_release(&list[i].tree);
		free(list[i].sites);
		free(list[i].places);
	}
	free(list);
}

/* How long the block had lived at the peak, and how long it lived on. */
static uint64_t block_age(const struct peak_device *d, const struct block *b)
{
	return d->moment->time_ns > b->time_ns ? d->moment->time_ns - b->time_ns : 0;
}

static uint64_t block_lived_on(const struct peak_device *d, const struct block *b)
{
	uint64_t end = b->state == BLOCK_ALIVE ? b->pool->process->last_ns : b->free_ns;

	return end > d->moment->time_ns ? end - d->moment->time_ns : 0;
}

static const char *block_owner(const struct peak *p, const struct block *b)
{
	const char *owner = text_numbers_text(&p->base.blocks->owners, b->owner);

	return *owner ? owner : breakdown_source(b->pool->type);
}

static size_t peak_findings(struct analysis *a)
{
	struct peak *p = (struct peak *)a;
	size_t n, found = 0;
	struct peak_device *list = list_devices(p, &n);

	for (size_t i = 0; i < n; i++)
		found += is_above_limit(p, &list[i]);
	release_devices(list, n);
	return found;
}

/* --- the first paragraph --- */

static void say_origin(struct peak *p, const struct peak_device *d, struct buf *out)
{
	size_t i = 0;

	while (i < d->nplaces && !d->places[i].stack)
		i++;
	if (i < d->nplaces && d->places[i].bytes)
		say(out, " The largest part from one place, {}, comes from {}.",
		    HELD(d->places[i].bytes, d->places[i].blocks),
		    WHERE(peak_stacks(p), d->places[i].stack));
}

static void say_next(const struct peak_device *d, struct buf *out)
{
	const struct breakdown_moment *m = d->moment;
	bool same_driver = m->driver_bytes == d->next.driver_bytes;
	/* What can be won by lowering this peak alone. */
	uint64_t gain = same_driver ? m->pool_bytes - d->next.pool_bytes
				    : m->driver_bytes - d->next.driver_bytes;

	if (!d->next.known || !(d->next.driver_bytes | d->next.pool_bytes))
		return;
	say(out, " The next highest moment, ");
	if (breakdown_is_after_steps(d->device->process, d->next.step))
		say(out, "after step {}, ", NUMBER(d->next.step - 1));
	else if (d->next.step)
		say(out, "in step {}, ", NUMBER(d->next.step));
	else if (d->device->process->by_call) /* the first one ends without having begun */
		say(out, "in the first step, ");
	else
		say(out, "outside of steps, ");
	if (!gain)
		say(out, "was as high.");
	else
		say(out,
		    same_driver ? "was {} lower inside the pools, with the same driver memory."
				: "was {} lower: lowering this one alone gains no more.",
		    BYTES(gain));
}

static void say_device(struct peak *p, const struct peak_device *d, struct buf *out)
{
	const struct block_process *process = d->device->process;
	/* Of a former image of the process nothing is known: facts are those of the newest. */
	bool newest = hmap_get_ptr(&p->base.blocks->by_pid, process->pid) == process;
	const struct process_facts *facts =
		p->base.processes && newest ? processes_find(p->base.processes, process->pid)
					    : NULL;

	breakdown_say_device(p->breakdown, d->device, true, out);
	say(out, " peaked at {}", BYTES(peak_bytes(d)));
	breakdown_say_when(p->breakdown, d->device, false, out);
	say(out, d->shares.bytes ? ": " : "");
	owner_tree_answer(&d->tree, out);
	say(out, ".");
	if (is_above_limit(p, d))
		say(out, " That is {} above the limit of {}.",
		    BYTES(peak_bytes(d) - p->options.limit_bytes), BYTES(p->options.limit_bytes));
	if (facts && d->device->device == DEV_HOST && process_is_sampled(facts) &&
	    !process_is_covered(facts))
		say(out, " {} more are not covered by what was recorded, see below.",
		    BYTES(facts->highest.not_covered));
	say_origin(p, d, out);
	say_next(d, out);
}

static void print_answer(struct peak *p, const struct peak_device *list, size_t n,
			 const struct report *r)
{
	struct buf t = {0};
	size_t said = 0;

	for (size_t i = 0; i < n && said < BREAKDOWN_MAX_ANSWERS; i++) {
		if (r->style->console && !is_above_limit(p, &list[i]))
			continue;
		say(&t, said++ ? " " : "");
		say_device(p, &list[i], &t);
	}
	if (!r->style->console)
		together_say(&p->together, p->base.blocks, &t);
	breakdown_end_answer(n, &t, r);
}

/* --- one device --- */

static void print_pools(const struct peak_device *d, const struct report *r)
{
	for (size_t i = 0; i < d->moment->npools; i++) {
		const struct breakdown_pool *p = &d->moment->pools[i];
		uint64_t unused = 0;

		for (size_t k = d->nblocks; k < d->shares.n; k++)
			if (d->shares.list[k].pool == p->pool)
				unused += d->shares.list[k].bytes;
		if (!p->live_bytes && !p->reserved && !unused)
			continue;
		report_say(r, "  {}: {}", POOL(p->pool->type), HELD(p->live_bytes, p->live_blocks));
		if (unused)
			report_say(r, ", {} free inside", BYTES(unused));
		if (!blocks_is_driver(p->pool->type) && p->reserved)
			report_say(r, ", {} reserved", BYTES(p->reserved));
		report_say(r, "\n");
	}
}

static void print_sites(const struct peak *p, const struct peak_device *d, const struct report *r)
{
	const struct stacks *stacks = peak_stacks(p);

	if (stacks->count < 2)
		return;
	report_say(r, "\n  By call stack\n");
	for (size_t i = 0; i < d->nplaces && i < r->style->top; i++)
		report_call_site(r, 4, INK_PLAIN, stacks, &d->places[i]);
	if (d->nplaces > r->style->top)
		report_say(r, "    and {} more\n", NUMBER(d->nplaces - r->style->top));
}

/* The place and its caller, since it is often a helper that everybody uses. */
static void add_caller(const struct peak *p, uint32_t number, struct buf *out)
{
	struct stack s = stacks_get(peak_stacks(p), number);
	const char *text = !number ? NULL : s.py ? s.py : s.c;
	struct frame_line lines[2], via;
	size_t n = text ? frames_pick(text, s.py, lines, 2) : 0;

	for (size_t i = 0; i < n; i++) {
		say(out, i ? " < " : ", ");
		frame_describe(&lines[i], s.py, out);
		if (i || frame_origin(&lines[i], s.py) != FRAME_USER ||
		    !frames_via(text, &lines[i], s.py, &via))
			continue;
		say(out, " via ");
		frame_describe_call(&via, s.py, out);
	}
}

/* A cell of the list of blocks: text that is not older than its column is wide. */
static void print_cell(const struct report *r, struct buf *text)
{
	buf_addf(r->out, "  %12s", buf_str(text));
	buf_clear(text);
}

static void print_block(const struct peak *p, const struct peak_device *d,
			const struct breakdown_share *s, const struct report *r)
{
	const struct block *b = s->block;
	struct buf t = {0};

	say(&t, "{}", BYTES(s->bytes));
	print_cell(r, &t);
	say(&t, b->shadow ? ">{}" : "{}", DURATION(block_age(d, b)));
	print_cell(r, &t);
	if (b->state == BLOCK_FREED)
		say(&t, "{}", DURATION(block_lived_on(d, b)));
	else
		say(&t, "not freed");
	print_cell(r, &t);
	report_say(r, "  {}", PRINTABLE(block_owner(p, b)));
	add_caller(p, b->stack, r->out);
	report_say(r, "\n");
	buf_release(&t);
}

static void print_blocks(const struct peak *p, const struct peak_device *d, const struct report *r)
{
	size_t n = d->nblocks < r->style->top ? d->nblocks : r->style->top;
	bool pooled = false;
	struct buf t = {0};

	if (!n)
		return;
	if (n > 1)
		report_say(r, "\n  The {} largest blocks\n", NUMBER(n));
	else
		report_say(r, "\n  The largest block\n");
	buf_addf(r->out, "  %12s  %12s  %12s  %s\n", "Bytes", "Age", "Freed after",
		 "Owner and place");
	for (size_t i = 0; i < n; i++) {
		print_block(p, d, &d->shares.list[i], r);
		pooled |= !blocks_is_driver(d->shares.list[i].pool->type);
	}
	if (!pooled || !d->device->has_driver)
		return;
	say(&t, "Freeing a block of a pool makes room inside the pool. The driver's bytes fall "
		"only if the pool then needs less memory.");
	report_paragraph(r, 0, &t);
}

static void print_device(struct peak *p, const struct peak_device *d, const struct report *r)
{
	struct buf heading = {0};

	breakdown_say_device(p->breakdown, d->device, true, &heading);
	say(&heading, ": {}", BYTES(peak_bytes(d)));
	breakdown_say_when(p->breakdown, d->device, false, &heading);
	report_heading(r, &heading);
	print_pools(d, r);
	report_say(r, "\n  By owner\n");
	owner_tree_text(&d->tree, r->style->top, r->out);
	breakdown_say_outside(d->device, &d->shares, r);
	print_sites(p, d, r);
	print_blocks(p, d, r);
}

static void peak_text(struct analysis *a, const struct analysis_style *style, struct buf *out)
{
	struct report r = report_begin(style, out);
	struct peak *p = (struct peak *)a;
	size_t all, above = 0;
	struct peak_device *list = list_devices(p, &all);
	struct programs programs = {0};
	size_t n = choose_listed(p, list, all, &programs);

	for (size_t i = 0; i < n; i++)
		above += is_above_limit(p, &list[i]);
	if (!style->console || above)
		print_answer(p, list, n, &r);
	if (!style->console) {
		for (size_t i = 0; i < n && i < BREAKDOWN_MAX_DEVICES && style->top; i++)
			print_device(p, &list[i], &r);
		breakdown_remarks(p->breakdown, n, &programs, &r);
		if (n && peak_stacks(p)->count < 2) {
			words_stacks_hint(out, words_is_python(list[0].device->process->command));
			buf_add_char(out, '\n');
		}
	}
	programs_release(&programs);
	release_devices(list, all);
}

/* --- JSON --- */

static const struct field site_fields[] = {
	FIELDS(struct call_site, bytes, blocks),
	FIELD_AS("where", FIELD_STACK, struct call_site, stack),
	{0},
};

static json_t *block_json(struct peak *p, const struct peak_device *d,
			  const struct breakdown_share *s)
{
	static const char *const ends[] = {
		[BLOCK_ALIVE] = "alive", [BLOCK_LEFT] = "left", [BLOCK_FREED] = "freed"};
	const struct block *b = s->block;
	json_t *o = json_object();

	put_number(o, "bytes", s->bytes);
	put_number(o, "row", b->row);
	put_address(o, "address", b->ptr);
	put_pool(o, b->pool->type);
	put_text(o, "owner", block_owner(p, b));
	put_number(o, "age_ns", block_age(d, b));
	put_bool(o, "older_than_recording", b->shadow);
	put_bool(o, "carried_over", b->carried);
	put_number(o, "lived_on_ns", block_lived_on(d, b));
	put_text(o, "end", ends[b->state]);
	put_where(o, peak_stacks(p), b->stack);
	return o;
}

static json_t *next_json(const struct peak_device *d)
{
	json_t *o;

	if (!d->next.known)
		return json_null();
	o = json_object();
	put_number(o, "step",
		   breakdown_is_after_steps(d->device->process, d->next.step) ? 0 : d->next.step);
	put_number(o, "driver_bytes", d->next.driver_bytes);
	put_number(o, "allocated_in_pools_bytes", d->next.pool_bytes);
	return o;
}

static json_t *device_json(struct peak *p, const struct peak_device *d, unsigned top)
{
	json_t *o = breakdown_device_json(p->breakdown, d->device, &d->shares);

	put_number(o, "peak_bytes", peak_bytes(d));
	put_bool(o, "above_limit", is_above_limit(p, d));
	json_object_set_new(o, "next_highest", next_json(d));
	put_number(o, "owners_total", d->tree.nodes[0].nchildren);
	json_object_set_new(o, "owners", owner_tree_json(&d->tree, top));
	put_number(o, "places_total", d->nsites);
	json_object_set_new(o, "places",
			    fields_list(site_fields, d->sites, d->nsites < top ? d->nsites : top,
					sizeof(*d->sites), peak_stacks(p)));
	put_number(o, "blocks_total", d->nblocks);
	PUT_LIST(o, "blocks", d->nblocks < top ? d->nblocks : top,
		 block_json(p, d, &d->shares.list[i]));
	return o;
}

static json_t *peak_json(struct analysis *a, unsigned top)
{
	struct peak *p = (struct peak *)a;
	json_t *answer = json_object();
	size_t n;
	struct peak_device *list = list_devices(p, &n);

	if (p->options.limit_bytes)
		put_number(answer, "limit_bytes", p->options.limit_bytes);
	put_bool(answer, "has_owners", breakdown_has_owners(p->breakdown));
	PUT_LIST(answer, "devices", n, device_json(p, &list[i], top));
	json_object_set_new(answer, "together", together_json(&p->together, p->base.blocks));
	release_devices(list, n);
	return answer;
}

/* --- the analysis --- */

static void peak_free(struct analysis *a)
{
	struct peak *p = (struct peak *)a;

	for (size_t i = 0; i < p->nheights; i++)
		free(p->heights[i]);
	free(p->heights);
	together_release(&p->together);
	breakdown_free(p->breakdown);
	free(p);
}

static const struct analysis_ops peak_ops = {
	.name = "peak",
	.attrs = BREAKDOWN_ATTRS,
	.row = peak_row,
	.process = analysis_blocks_process,
	.unordered = analysis_blocks_unordered,
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
