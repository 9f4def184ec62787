/* SPDX-License-Identifier: MulanPSL-2.0 */
/* The leaks for programs; leaks.h names the keys. */
#include <stdlib.h>

#include "analyze/frames.h"
#include "analyze/leaks_impl.h"
#include "base/mem.h"

#define MAX_ALLOCATIONS 100

/* JSON numbers of ours are signed; nothing true is larger. */
static void put_u64(json_t *o, const char *key, uint64_t v)
{
	json_object_set_new(o, key, json_integer(v > INT64_MAX ? INT64_MAX : (json_int_t)v));
}

/* Text of foreign bytes: what is not UTF-8 is replaced. */
static json_t *text_value(const char *text, size_t len)
{
	json_t *v = json_stringn(text, len);

	if (v)
		return v;
	char *copy = xstrndup(text, len);
	for (size_t i = 0; i < len; i++)
		if (copy[i] & 0x80)
			copy[i] = '?';
	v = json_stringn(copy, len);
	free(copy);
	return v;
}

static void put_text(json_t *o, const char *key, const char *text)
{
	json_object_set_new(o, key, text ? text_value(text, strlen(text)) : json_null());
}

static json_t *stack_value(const char *text)
{
	json_t *lines = json_array();
	struct frame_line line;

	while (text && frame_next(&text, &line))
		json_array_append_new(lines, text_value(line.text, line.len));
	return lines;
}

static void put_stack(json_t *o, const struct leaks *l, const struct leak_site *s)
{
	struct stack stack = stacks_get(blocks_stacks(l->blocks), s->stack);
	struct buf where = {0};

	bool known = stacks_where(blocks_stacks(l->blocks), s->stack, &where);
	put_text(o, "where", known ? buf_str(&where) : NULL);
	json_object_set_new(o, "c_stack", stack_value(stack.c));
	json_object_set_new(o, "python_stack", stack_value(stack.py));
	buf_release(&where);
}

static void put_pool(json_t *o, const struct leak_site *s)
{
	char device[16];

	put_text(o, "device", blocks_device_name(s->pool->device->device, device));
	put_text(o, "pool", row_type_text(s->pool->type, ROW_SEED));
	json_object_set_new(o, "pinned", json_boolean(s->pinned));
}

static json_t *allocations_value(const struct leak_place *place)
{
	json_t *list = json_array();

	for (uint64_t i = 0; i < place->blocks && i < MAX_ALLOCATIONS; i++) {
		const struct block *b = place->list[i];
		json_t *o = json_object();
		struct buf address = {0};

		buf_add_addr(&address, b->ptr);
		put_text(o, "address", buf_str(&address));
		buf_release(&address);
		put_u64(o, "bytes", b->bytes);
		put_u64(o, "step", b->step);
		put_u64(o, "kernel", b->kernels);
		put_u64(o, "row", b->row);
		put_u64(o, "time_ns", b->time_ns);
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

	put_u64(o, "pid", place->site->pool->process->pid);
	put_pool(o, place->site);
	put_text(o, "kind", kinds[place->kind]);
	put_u64(o, "blocks", place->blocks);
	put_u64(o, "bytes", place->bytes);
	put_u64(o, "steps", place->steps);
	put_u64(o, "first_step", place->first_step);
	put_u64(o, "last_step", place->last_step);
	put_u64(o, "span_steps", place->span);
	put_u64(o, "bytes_per_step", place->bytes_per_step);
	put_u64(o, "freed_blocks", place->site->freed_at_end);
	put_u64(o, "longest_life_steps", place->site->life_at_end);
	if (place->block_bytes)
		put_u64(o, "block_bytes", place->block_bytes);
	else
		json_object_set_new(o, "block_bytes", json_null());
	put_stack(o, l, place->site);
	if (place->kind == LEAK_GROWTH)
		json_object_set_new(o, "allocations", allocations_value(place));
	return o;
}

static json_t *left_value(const struct leaks *l, const struct leak_left *left)
{
	json_t *o = json_object();

	put_pool(o, left->site);
	put_u64(o, "blocks", left->blocks);
	put_u64(o, "bytes", left->bytes);
	put_stack(o, l, left->site);
	return o;
}

/* The driver's alone, or all; never those that pools were cut from. */
static json_t *left_places(const struct leaks *l, const struct leak_rest *rest, bool driver,
			   unsigned top)
{
	json_t *list = json_array();

	for (size_t i = 0; i < rest->n && json_array_size(list) < top; i++)
		if (!rest->list[i].carved &&
		    (!driver || rest->list[i].site->pool->type == TYPE_HAL))
			json_array_append_new(list, left_value(l, &rest->list[i]));
	return list;
}

static json_t *process_value(const struct leaks *l, const struct leak_rest *rest, unsigned top)
{
	const struct leak_process *own = rest->process->own;
	json_t *o = json_object(), *left = json_object(), *driver = json_object();

	put_u64(o, "pid", rest->process->pid);
	put_text(o, "command", rest->process->command);
	put_u64(o, "steps_ended", own ? own->ends : 0);
	put_u64(o, "last_step", own ? own->last_step : 0);
	put_u64(left, "blocks", rest->blocks);
	put_u64(left, "bytes", rest->bytes);
	json_object_set_new(o, "left_at_end", left);
	put_u64(driver, "blocks", rest->driver_blocks);
	put_u64(driver, "bytes", rest->driver_bytes);
	put_u64(driver, "pool_blocks", rest->carved_blocks);
	put_u64(driver, "pool_bytes", rest->carved_bytes);
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
	put_u64(o, "findings", answer.growing);
	put_u64(o, "ignored_places", answer.ignored);
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
