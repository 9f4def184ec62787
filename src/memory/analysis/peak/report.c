/* SPDX-License-Identifier: MulanPSL-2.0 */
/* The peak for people and for programs. */
#include "base/text/printable.h"
#include "formats/json_value.h"
#include "memory/analysis/common/block_steps.h"
#include "memory/analysis/common/breakdown_text.h"
#include "memory/analysis/common/fields.h"
#include "memory/analysis/common/frames.h"
#include "memory/analysis/peak/peak_impl.h"
#include "memory/analysis/processes/processes.h"
#include "memory/analysis/processes/programs.h"
#include "wire/record.h"

/* Moves those that are listed to the front, in their order; returns how many they are. */
static size_t choose_listed(const struct peak *p, struct peak_device *list, size_t n,
			    struct programs *programs)
{
	size_t listed = 0;

	for (size_t i = 0; i < n; i++)
		programs_add(programs, list[i].device->process, list[i].device->process->pid,
			     peak_is_above_limit(p, &list[i]) ? HELPER_BYTES
							      : peak_bytes(&list[i]));
	for (size_t i = 0; i < n; i++) {
		struct peak_device one = list[i];

		if (programs_is_helper(programs, one.device->process))
			continue;
		list[i] = list[listed];
		list[listed++] = one;
	}
	return listed;
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

/* --- the first paragraph --- */

static void describe_origin(struct peak *p, const struct peak_device *d, struct buf *out)
{
	size_t i = 0;

	while (i < d->nplaces && !d->places[i].stack)
		i++;
	if (i < d->nplaces && d->places[i].bytes)
		add_text(out, " The largest part from one place, {}, comes from {}.",
			 HELD(d->places[i].bytes, d->places[i].blocks),
			 WHERE_SITE(peak_stacks(p), &d->places[i]));
}

static void describe_next(const struct peak_device *d, struct buf *out)
{
	const struct breakdown_moment *m = d->moment;
	bool same_driver = m->driver_bytes == d->next.driver_bytes;
	/* What can be won by lowering this peak alone. */
	uint64_t gain = same_driver ? m->pool_bytes - d->next.pool_bytes
				    : m->driver_bytes - d->next.driver_bytes;

	if (!d->next.known || !(d->next.driver_bytes | d->next.pool_bytes))
		return;
	add_text(out, " The next highest moment, ");
	if (breakdown_is_after_steps(d->device->process, d->next.step))
		add_text(out, "after step {}, ", NUMBER(d->next.step - 1));
	else if (d->next.step)
		add_text(out, "in step {}, ", NUMBER(d->next.step));
	else if (d->device->process->by_call) /* the first one ends without having begun */
		add_text(out, "in the first step, ");
	else
		add_text(out, "outside of steps, ");
	if (!gain)
		add_text(out, "was as high.");
	else
		add_text(out,
			 same_driver ? "was {} lower inside the pools, with the same driver memory."
				     : "was {} lower: lowering this one alone gains no more.",
			 BYTES(gain));
}

static void describe_owners(struct peak *p, const struct peak_device *d, struct buf *out)
{
	breakdown_describe_device(p->breakdown, d->device, true, out);
	add_text(out, " peaked at {}", BYTES(peak_bytes(d)));
	breakdown_describe_when(p->breakdown, d->device, false, out);
	if (d->shares.bytes && !owner_tree_is_one_source(&d->tree)) { /* "100 % HOST" */
		add_text(out, ": ");
		owner_tree_answer(&d->tree, out);
	}
	add_text(out, ".");
}

static void describe_device(struct peak *p, const struct peak_device *d, struct buf *out)
{
	const struct block_process *process = d->device->process;
	/* Of a former image of the process nothing is known: facts are those of the newest. */
	bool newest = hmap_get_ptr(&p->base.blocks->by_pid, process->pid) == process;
	const struct process_facts *facts =
		p->base.processes && newest ? processes_find(p->base.processes, process->pid)
					    : NULL;

	if (p->options.groups.by != GROUPS_BY_OWNER)
		groups_describe(&d->groups, p->breakdown, d->device, "the peak of", out);
	else
		describe_owners(p, d, out);
	if (peak_is_above_limit(p, d))
		add_text(out, " That is {} above the limit of {}.",
			 BYTES(peak_bytes(d) - p->options.limit_bytes),
			 BYTES(p->options.limit_bytes));
	if (facts && d->device->device == DEV_HOST && process_is_sampled(facts) &&
	    !process_is_covered(facts))
		add_text(out, " {} more are not covered by what was recorded, see below.",
			 BYTES(facts->highest.not_covered));
	describe_origin(p, d, out);
	describe_next(d, out);
}

static void print_answer(struct peak *p, const struct peak_device *list, size_t n,
			 const struct report *r)
{
	struct buf t = {0};
	size_t said = 0;

	for (size_t i = 0; i < n && said < BREAKDOWN_MAX_ANSWERS; i++) {
		if (r->style->console && !peak_is_above_limit(p, &list[i]))
			continue;
		add_text(&t, said++ ? " " : "");
		describe_device(p, &list[i], &t);
	}
	if (!r->style->console)
		device_peaks_describe(&p->peaks, p->base.blocks, &t);
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
		report_add(r, "  {}: {}", POOL(p->pool->type), HELD(p->live_bytes, p->live_blocks));
		if (unused)
			report_add(r, ", {} free inside", BYTES(unused));
		if (!blocks_is_driver(p->pool->type) && p->reserved)
			report_add(r, ", {} reserved", BYTES(p->reserved));
		report_add(r, "\n");
	}
}

static void print_sites(const struct peak *p, const struct peak_device *d, const struct report *r)
{
	const struct stacks *stacks = peak_stacks(p);

	if (stacks->count < 2)
		return;
	report_add(r, "\n  By call stack\n");
	for (size_t i = 0; i < d->nplaces && i < r->style->top; i++)
		report_call_site(r, 4, INK_PLAIN, stacks, &d->places[i]);
	if (d->nplaces > r->style->top)
		report_add(r, "    and {} more\n", NUMBER(d->nplaces - r->style->top));
}

/* The place and its caller, since it is often a helper that everybody uses. */
static void add_caller(const struct peak *p, uint32_t number, struct buf *out)
{
	struct stack s = stacks_get(peak_stacks(p), number);
	const char *text = !number ? NULL : s.py ? s.py : s.c;
	struct frame_line lines[2], via;
	size_t n = text ? frames_pick(text, s.py, lines, 2) : 0;

	for (size_t i = 0; i < n; i++) {
		add_text(out, i ? " < " : ", ");
		frame_describe(&lines[i], s.py, out);
		if (i || frame_origin(&lines[i], s.py) != FRAME_USER ||
		    !frames_via(text, &lines[i], s.py, &via))
			continue;
		add_text(out, " via ");
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

	add_text(&t, "{}", BYTES(s->bytes));
	print_cell(r, &t);
	add_text(&t, b->shadow ? ">{}" : "{}", DURATION(block_age(d, b)));
	print_cell(r, &t);
	if (b->state == BLOCK_FREED)
		add_text(&t, "{}", DURATION(block_lived_on(d, b)));
	else
		add_text(&t, "not freed");
	print_cell(r, &t);
	report_add(r, "  {}", PRINTABLE(block_owner(p, b)));
	add_caller(p, b->stack, r->out);
	report_add(r, "\n");
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
		report_add(r, "\n  The {} largest blocks\n", NUMBER(n));
	else
		report_add(r, "\n  The largest block\n");
	buf_addf(r->out, "  %12s  %12s  %12s  %s\n", "Bytes", "Age", "Freed after",
		 "Owner and place");
	for (size_t i = 0; i < n; i++) {
		print_block(p, d, &d->shares.list[i], r);
		pooled |= !blocks_is_driver(d->shares.list[i].pool->type);
	}
	if (!pooled || !d->device->has_driver)
		return;
	add_text(&t,
		 "Freeing a block of a pool makes room inside the pool. The driver's bytes fall "
		 "only if the pool then needs less memory.");
	report_paragraph(r, 0, &t);
}

static void print_device(struct peak *p, const struct peak_device *d, const struct report *r)
{
	struct buf heading = {0};

	breakdown_describe_device(p->breakdown, d->device, true, &heading);
	add_text(&heading, ": {}", BYTES(peak_bytes(d)));
	breakdown_describe_when(p->breakdown, d->device, false, &heading);
	report_heading(r, &heading);
	print_pools(d, r);
	report_add(r, "\n  By {}\n", TEXT(groups_by_names[p->options.groups.by]));
	if (p->options.groups.by != GROUPS_BY_OWNER)
		groups_print(&d->groups, r);
	else
		owner_tree_text(&d->tree, r->style->top, r->out);
	breakdown_describe_outside(d->device, &d->shares, r);
	print_sites(p, d, r);
	print_blocks(p, d, r);
}

void peak_text(struct analysis *a, const struct analysis_style *style, struct buf *out)
{
	struct report r = report_begin(style, out);
	struct peak *p = (struct peak *)a;
	size_t all, above = 0;
	struct peak_device *list = peak_list_devices(p, &all);
	struct programs programs = {0};
	size_t n = choose_listed(p, list, all, &programs);

	for (size_t i = 0; i < n; i++)
		above += peak_is_above_limit(p, &list[i]);
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
	peak_release_devices(list, all);
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
	put_bool(o, "above_limit", peak_is_above_limit(p, d));
	json_object_set_new(o, "next_highest", next_json(d));
	put_number(o, "owners_total", d->tree.nodes[0].nchildren);
	json_object_set_new(o, "owners", owner_tree_json(&d->tree, top));
	if (p->options.groups.by != GROUPS_BY_OWNER)
		groups_put(o, &d->groups, peak_stacks(p), top);
	put_number(o, "places_total", d->nsites);
	json_object_set_new(o, "places",
			    fields_list(site_fields, d->sites, d->nsites < top ? d->nsites : top,
					sizeof(*d->sites), peak_stacks(p)));
	put_number(o, "blocks_total", d->nblocks);
	PUT_LIST(o, "blocks", d->nblocks < top ? d->nblocks : top,
		 block_json(p, d, &d->shares.list[i]));
	return o;
}

json_t *peak_json(struct analysis *a, unsigned top)
{
	struct peak *p = (struct peak *)a;
	json_t *answer = json_object();
	size_t n;
	struct peak_device *list = peak_list_devices(p, &n);

	if (p->options.limit_bytes)
		put_number(answer, "limit_bytes", p->options.limit_bytes);
	put_bool(answer, "has_owners", breakdown_has_owners(p->breakdown));
	PUT_LIST(answer, "devices", n, device_json(p, &list[i], top));
	json_object_set_new(answer, "steps", steps_json(p->base.blocks));
	json_object_set_new(answer, "together", device_peaks_json(&p->peaks, p->base.blocks));
	peak_release_devices(list, n);
	return answer;
}
