/* SPDX-License-Identifier: MulanPSL-2.0 */
/* The leaks for programs; leaks.h names the keys. */
#include "memory/analysis/common/json.h"
#include "formats/json_value.h"
#include "memory/analysis/leaks/leaks_impl.h"

#define MAX_ALLOCATIONS 100

static void put_site(json_t *o, const struct leak_site *s)
{
	put_device(o, s->pool->device->device);
	put_pool(o, s->pool->type);
	put_bool(o, "pinned", s->pinned);
}

static json_t *allocations_value(const struct leak_place *place)
{
	json_t *list = json_array();

	for (uint64_t i = 0; i < place->blocks && i < MAX_ALLOCATIONS; i++) {
		const struct block *b = place->list[i];
		json_t *o = json_object();

		put_address(o, "address", b->ptr);
		put_number(o, "bytes", b->bytes);
		put_number(o, "step", b->step);
		put_number(o, "kernel", b->kernels);
		put_number(o, "row", b->row);
		put_number(o, "time_ns", b->time_ns);
		json_array_append_new(list, o);
	}
	return list;
}

static json_t *place_value(const struct leaks *l, const struct leak_place *place)
{
	static const char *const kinds[] = {[LEAK_GROWTH] = "growth",
					    [LEAK_ONCE] = "once",
					    [LEAK_STOPPED] = "stopped",
					    [LEAK_ROLLING] = "rolling",
					    [LEAK_OF_POOL] = "held_by_pool"};
	json_t *o = json_object();

	put_number(o, "pid", place->site->pool->process->pid);
	put_site(o, place->site);
	put_text(o, "kind", kinds[place->kind]);
	put_number(o, "blocks", place->blocks);
	put_number(o, "bytes", place->bytes);
	put_number(o, "steps", place->steps);
	put_number(o, "first_step", place->first_step);
	put_number(o, "last_step", place->last_step);
	put_number(o, "span_steps", place->span);
	put_number(o, "bytes_per_step", place->bytes_per_step);
	put_number(o, "freed_blocks", place->site->freed_at_end);
	put_number(o, "longest_life_steps", place->site->life_at_end);
	put_known(o, "block_bytes", place->block_bytes, place->block_bytes);
	put_stack(o, blocks_stacks(l->blocks), place->site->stack);
	if (place->kind == LEAK_GROWTH)
		json_object_set_new(o, "allocations", allocations_value(place));
	return o;
}

static json_t *left_value(const struct leaks *l, const struct leak_left *left)
{
	json_t *o = json_object();

	put_site(o, left->site);
	put_number(o, "blocks", left->blocks);
	put_number(o, "bytes", left->bytes);
	put_stack(o, blocks_stacks(l->blocks), left->site->stack);
	return o;
}

/* The driver's alone, or all; never those that pools were cut from. */
static json_t *left_places(const struct leaks *l, const struct leak_rest *rest, bool driver,
			   unsigned top)
{
	json_t *list = json_array();

	for (size_t i = 0; i < rest->n && json_array_size(list) < top; i++)
		if (!rest->list[i].carved &&
		    (!driver || blocks_is_device(rest->list[i].site->pool->type)))
			json_array_append_new(list, left_value(l, &rest->list[i]));
	return list;
}

static json_t *process_value(const struct leaks *l, const struct leak_rest *rest, unsigned top)
{
	const struct leak_process *own = rest->process->own;
	json_t *o = json_object(), *left = json_object(), *driver = json_object();

	put_number(o, "pid", rest->process->pid);
	put_text(o, "command", rest->process->command);
	put_number(o, "steps_ended", own ? own->ends : 0);
	put_number(o, "last_step", own ? own->last_step : 0);
	put_number(left, "blocks", rest->blocks);
	put_number(left, "bytes", rest->bytes);
	json_object_set_new(o, "left_at_end", left);
	put_number(driver, "blocks", rest->driver_blocks);
	put_number(driver, "bytes", rest->driver_bytes);
	put_number(driver, "pool_blocks", rest->carved_blocks);
	put_number(driver, "pool_bytes", rest->carved_bytes);
	json_object_set_new(driver, "places", left_places(l, rest, true, top));
	json_object_set_new(o, "driver_left", driver);
	if (!own || !own->ends)
		json_object_set_new(o, "left_places", left_places(l, rest, false, top));
	return o;
}

json_t *leaks_json(struct analysis *a, unsigned top)
{
	struct leaks *l = (struct leaks *)a;
	json_t *o = json_object(), *leaks = json_array(), *kept = json_array(),
	       *processes = json_array();
	struct leak_answer answer;

	leaks_judge(l, &answer);
	put_number(o, "findings", answer.growing);
	put_number(o, "ignored_places", answer.ignored);
	for (size_t i = 0; i < answer.nplaces; i++) {
		const struct leak_place *place = &answer.places[i];

		if (place->ignored)
			continue;
		if (place->kind == LEAK_GROWTH)
			json_array_append_new(leaks, place_value(l, place));
		else if (json_array_size(kept) < top)
			json_array_append_new(kept, place_value(l, place));
	}
	for (size_t i = 0; i < answer.nrests; i++)
		json_array_append_new(processes, process_value(l, &answer.rests[i], top));
	json_object_set_new(o, "leaks", leaks);
	json_object_set_new(o, "kept", kept);
	json_object_set_new(o, "processes", processes);
	leak_answer_release(&answer);
	return o;
}
