/* SPDX-License-Identifier: MulanPSL-2.0 */
/* The leaks for programs; leaks.h names the keys. */
#include <stdlib.h>

#include "formats/json_value.h"
#include "memory/analysis/common/block_steps.h"
#include "memory/analysis/common/fields.h"
#include "memory/analysis/leaks/leaks_impl.h"

#define MAX_ALLOCATIONS 100 /* of a call site */

static const struct field allocation_fields[] = {
	FIELD_AS("address", FIELD_ADDRESS, struct block, ptr),
	FIELDS(struct block, bytes, step),
	FIELD("kernel", struct block, kernels),
	FIELDS(struct block, row, time_ns),
	{0},
};

static const struct field finding_fields[] = {
	FIELDS(struct leak_finding, blocks, bytes, steps, first_step, last_step, span_steps,
	       bytes_per_step),
	{0},
};

static json_t *held_value(const struct leak_held *held)
{
	json_t *o = json_object();

	put_number(o, "blocks", held->blocks);
	put_number(o, "bytes", held->bytes);
	return o;
}

static json_t *finding_value(const struct leaks *l, const struct leak_answer *a,
			     const struct leak_finding *f)
{
	static const char *const kinds[] = {"growth", "once", "stopped", "rolling", "held_by_pool"};
	struct leak_held left = leak_left_at_end(a, f->site);
	json_t *o = json_object();

	put_in_pool(o, f->site->pool);
	put_bool(o, "pinned", f->site->pinned);
	put_text(o, "kind", kinds[f->kind]);
	fields_put(o, finding_fields, f, NULL);
	if (f->kind != LEAK_OF_POOL) /* its blocks are left out there */
		json_object_set_new(o, "left_at_end", held_value(&left));
	put_number(o, "freed_blocks", f->site->freed_at_end);
	put_number(o, "longest_life_steps", f->site->life_at_end);
	put_known(o, "block_bytes", f->block_bytes, f->block_bytes);
	put_stack(o, leaks_stacks(l), f->site->stack);
	char *module = leak_module(l, f);
	put_text(o, "module", module);
	free(module);
	if (f->kind == LEAK_GROWTH)
		PUT_LIST(o, "allocations",
			 f->blocks < MAX_ALLOCATIONS ? f->blocks : MAX_ALLOCATIONS,
			 fields_object(allocation_fields, f->list[i], NULL));
	return o;
}

static json_t *place_value(const struct leaks *l, const struct leak_answer *a,
			   const struct leak_place *p)
{
	struct leak_held left = leak_place_left(a, p);
	json_t *o = json_object();
	struct buf where = {0};

	put_in_pool(o, p->sum.site->pool);
	put_bool(o, "pinned", p->sum.site->pinned);
	fields_put(o, finding_fields, &p->sum, NULL);
	json_object_set_new(o, "left_at_end", held_value(&left));
	put_number(o, "call_stacks", p->nstacks);
	put_text(o, "where",
		 (p->mixed ? stacks_place : stacks_where)(leaks_stacks(l), p->sum.site->stack,
							  &where)
			 ? buf_str(&where)
			 : NULL);
	buf_release(&where);
	return o;
}

/* The driver's alone, or all; never those that pools were cut from. */
static json_t *left_sites(const struct leaks *l, const struct leak_rest *rest, bool driver,
			  unsigned top)
{
	json_t *list = json_array();

	for (size_t i = 0; i < rest->n && json_array_size(list) < top; i++) {
		const struct leak_left *left = &rest->list[i];
		json_t *o;

		if (!leak_is_listed(left, driver))
			continue;
		o = json_object();
		put_device(o, left->site->pool->device->device);
		put_pool(o, left->site->pool->type);
		put_bool(o, "pinned", left->site->pinned);
		put_number(o, "blocks", left->blocks);
		put_number(o, "bytes", left->bytes);
		put_stack(o, leaks_stacks(l), left->site->stack);
		json_array_append_new(list, o);
	}
	return list;
}

static json_t *process_value(const struct leaks *l, const struct leak_rest *rest, unsigned top)
{
	const struct leak_process *own = rest->process->own;
	json_t *o = json_object(), *driver = json_object();

	put_number(o, "pid", rest->process->pid);
	put_text(o, "command", rest->process->command);
	put_number(o, "steps_ended", own ? own->ends : 0);
	put_number(o, "last_step", own ? own->last_step : 0);
	json_object_set_new(o, "steps", steps_json_of(rest->process));
	json_object_set_new(o, "left_at_end",
			    held_value(&(struct leak_held){rest->blocks, rest->bytes}));
	put_number(driver, "blocks", rest->driver.blocks);
	put_number(driver, "bytes", rest->driver.bytes);
	put_number(driver, "pool_blocks", rest->carved.blocks);
	put_number(driver, "pool_bytes", rest->carved.bytes);
	json_object_set_new(driver, "places", left_sites(l, rest, true, top));
	json_object_set_new(o, "driver_left", driver);
	if (!leak_has_steps(rest))
		json_object_set_new(o, "left_places", left_sites(l, rest, false, top));
	return o;
}

json_t *leaks_json(struct analysis *a, unsigned top)
{
	struct leaks *l = (struct leaks *)a;
	json_t *o = json_object(), *leaks = json_array(), *kept = json_array();
	struct leak_answer answer;

	leaks_judge(l, &answer);
	put_number(o, "findings", answer.growing);
	put_number(o, "ignored_places", answer.ignored);
	for (size_t i = 0; i < answer.nfindings; i++) {
		const struct leak_finding *f = &answer.findings[i];

		if (f->ignored)
			continue;
		if (f->kind == LEAK_GROWTH)
			json_array_append_new(leaks, finding_value(l, &answer, f));
		else if (json_array_size(kept) < top)
			json_array_append_new(kept, finding_value(l, &answer, f));
	}
	PUT_LIST(o, "places", answer.losing, place_value(l, &answer, &answer.places[i]));
	put_bool(o, "activations_kept", leaks_keep_activations(l, &answer));
	json_object_set_new(o, "leaks", leaks);
	put_text(o, "by", leaks_by_names[l->by]);
	if (l->by != LEAKS_BY_SITE)
		json_object_set_new(o, "growth", leaks_groups_json(l, &answer, top));
	json_object_set_new(o, "kept", kept);
	json_object_set_new(o, "grows_over_time", growth_json(l, &answer));
	json_object_set_new(o, "steps", steps_json(l->base.blocks));
	PUT_LIST(o, "processes", answer.nrests, process_value(l, &answer.rests[i], top));
	leak_answer_release(&answer);
	return o;
}
