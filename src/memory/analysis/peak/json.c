/* SPDX-License-Identifier: MulanPSL-2.0 */
/* The peaks for programs. */
#include "memory/analysis/common/json.h"
#include "formats/json_value.h"
#include "memory/analysis/common/breakdown_text.h"
#include "memory/analysis/peak/peak_impl.h"

static const struct stacks *stacks_of_peak(struct peak *p)
{
	return blocks_stacks(census_blocks(p->census));
}

static json_t *place_json(struct peak *p, const struct peak_place *place)
{
	json_t *o = json_object();

	put_number(o, "bytes", place->bytes);
	put_number(o, "blocks", place->blocks);
	put_stack(o, stacks_of_peak(p), place->stack);
	return o;
}

static json_t *block_json(struct peak *p, const struct peak_device *d, const struct census_share *s)
{
	static const char *const ends[] = {
		[BLOCK_ALIVE] = "alive", [BLOCK_LEFT] = "left", [BLOCK_FREED] = "freed"};
	const struct block *b = s->block;
	const char *owner = blocks_owner(census_blocks(p->census), b->owner);
	json_t *o = json_object();

	if (!*owner)
		owner = census_source(b->pool->type);
	put_number(o, "bytes", s->bytes);
	put_number(o, "row", b->row);
	put_address(o, "address", b->ptr);
	put_pool(o, b->pool->type);
	put_text(o, "owner", owner);
	put_number(o, "age_ns", peak_age(d, b));
	put_bool(o, "older_than_recording", b->shadow);
	put_number(o, "lived_on_ns", peak_lived_on(d, b));
	put_text(o, "end", ends[b->state]);
	put_where(o, stacks_of_peak(p), b->stack);
	return o;
}

static json_t *next_json(const struct peak_device *d)
{
	json_t *o;

	if (!d->next.known)
		return json_null();
	o = json_object();
	put_number(o, "step",
		   census_is_after_steps(d->device->process, d->next.step) ? 0 : d->next.step);
	put_number(o, "driver_bytes", d->next.driver_bytes);
	put_number(o, "allocated_in_pools_bytes", d->next.pool_bytes);
	return o;
}

static json_t *device_json(struct peak *p, const struct peak_device *d, unsigned top)
{
	json_t *o = census_device_json(p->census, d->device, &d->shares);
	json_t *places = json_array(), *blocks = json_array();

	put_number(o, "peak_bytes", peak_height(d));
	put_bool(o, "above_limit", peak_is_above(p, d));
	json_object_set_new(o, "next_highest", next_json(d));
	put_number(o, "owners_total", d->tree.nodes[0].nchildren);
	json_object_set_new(o, "owners", owner_tree_json(&d->tree, top));
	for (size_t i = 0; i < d->nplaces && i < top; i++)
		json_array_append_new(places, place_json(p, &d->places[i]));
	put_number(o, "places_total", d->nplaces);
	json_object_set_new(o, "places", places);
	for (size_t i = 0; i < d->nblocks && i < top; i++)
		json_array_append_new(blocks, block_json(p, d, &d->shares.list[i]));
	put_number(o, "blocks_total", d->nblocks);
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
		put_number(answer, "limit_bytes", p->options.limit_bytes);
	put_bool(answer, "has_owners", census_has_owners(p->census));
	for (size_t i = 0; i < n; i++)
		json_array_append_new(devices, device_json(p, &list[i], top));
	json_object_set_new(answer, "devices", devices);
	peak_devices_free(list, n);
	return answer;
}
