/* SPDX-License-Identifier: MulanPSL-2.0 */
/* The peaks for programs. */
#include <string.h>

#include "analyze/census_words.h"
#include "analyze/frames.h"
#include "analyze/peak_impl.h"

static json_t *lines_json(const char *text)
{
	json_t *lines = json_array();
	struct frame_line line;

	while (text && frame_next(&text, &line))
		json_array_append_new(lines, text_json(line.text, line.len));
	return lines;
}

static void put_where(struct peak *p, json_t *o, uint32_t number)
{
	struct buf where = {0};
	bool known = stacks_where(blocks_stacks(census_blocks(p->census)), number, &where);

	json_object_set_new(o, "where", known ? text_json(where.data, where.len) : json_null());
	buf_release(&where);
}

static json_t *place_json(struct peak *p, const struct peak_place *place)
{
	struct stack s = stacks_get(blocks_stacks(census_blocks(p->census)), place->stack);
	json_t *o = json_object();

	put_u64_value(o, "bytes", place->bytes);
	put_u64_value(o, "blocks", place->blocks);
	put_where(p, o, place->stack);
	json_object_set_new(o, "c_stack", lines_json(place->stack ? s.c : NULL));
	json_object_set_new(o, "python_stack", lines_json(place->stack ? s.py : NULL));
	return o;
}

static json_t *block_json(struct peak *p, const struct peak_device *d, const struct census_share *s)
{
	static const char *const ends[] = {
		[BLOCK_ALIVE] = "alive", [BLOCK_LEFT] = "left", [BLOCK_FREED] = "freed"};
	const struct block *b = s->block;
	const char *owner = blocks_owner(census_blocks(p->census), b->owner);
	json_t *o = json_object();
	struct buf ptr = {0};

	if (!*owner)
		owner = census_source(b->pool->type);
	buf_add_addr(&ptr, b->ptr);
	put_u64_value(o, "bytes", s->bytes);
	put_u64_value(o, "row", b->row);
	json_object_set_new(o, "ptr", text_json(ptr.data, ptr.len));
	json_object_set_new(o, "pool", json_string(row_type_text(b->pool->type, ROW_SEED)));
	json_object_set_new(o, "owner", text_json(owner, strlen(owner)));
	put_u64_value(o, "age_ns", peak_age(d, b));
	json_object_set_new(o, "older_than_recording", json_boolean(b->shadow));
	put_u64_value(o, "lived_on_ns", peak_lived_on(d, b));
	json_object_set_new(o, "end", json_string(ends[b->state]));
	put_where(p, o, b->stack);
	buf_release(&ptr);
	return o;
}

static json_t *next_json(const struct peak_device *d)
{
	json_t *o;

	if (!d->next.known)
		return json_null();
	o = json_object();
	put_u64_value(o, "step", d->next.step);
	put_u64_value(o, "driver_bytes", d->next.driver_bytes);
	put_u64_value(o, "allocated_in_pools_bytes", d->next.pool_bytes);
	return o;
}

static json_t *device_json(struct peak *p, const struct peak_device *d, unsigned top)
{
	json_t *o = census_device_json(p->census, d->device, &d->shares);
	json_t *places = json_array(), *blocks = json_array();

	put_u64_value(o, "peak_bytes", peak_height(d));
	json_object_set_new(o, "above_limit", json_boolean(peak_is_above(p, d)));
	json_object_set_new(o, "next_highest", next_json(d));
	put_u64_value(o, "owners_total", d->tree.nodes[0].nchildren);
	json_object_set_new(o, "owners", owner_tree_json(&d->tree, top));
	for (size_t i = 0; i < d->nplaces && i < top; i++)
		json_array_append_new(places, place_json(p, &d->places[i]));
	put_u64_value(o, "places_total", d->nplaces);
	json_object_set_new(o, "places", places);
	for (size_t i = 0; i < d->nblocks && i < top; i++)
		json_array_append_new(blocks, block_json(p, d, &d->shares.list[i]));
	put_u64_value(o, "blocks_total", d->nblocks);
	json_object_set_new(o, "blocks", blocks);
	return o;
}

json_t *peak_json(struct analysis *a, unsigned top)
{
	struct peak *p = (struct peak *)a;
	json_t *answer = json_object(), *devices = json_array();
	size_t n;
	struct peak_device *list = peak_devices(p, &n);

	if (p->options.limit_bytes)
		put_u64_value(answer, "limit_bytes", p->options.limit_bytes);
	json_object_set_new(answer, "has_owners", json_boolean(census_has_owners(p->census)));
	for (size_t i = 0; i < n; i++)
		json_array_append_new(devices, device_json(p, &list[i], top));
	json_object_set_new(answer, "devices", devices);
	peak_devices_free(list, n);
	return answer;
}
