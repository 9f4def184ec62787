/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Inefficient memory for programs; inefficient.h names the keys. */
#include "memory/analysis/common/json.h"
#include "formats/json_value.h"
#include "memory/analysis/inefficient/inefficient_impl.h"

static void put_pool_of(json_t *o, const struct block_pool *pool)
{
	put_number(o, "pid", pool->process->pid);
	put_device(o, pool->device->device);
	put_pool(o, pool->type);
}

static void put_waste(json_t *o, const struct waste *w)
{
	put_number(o, "blocks", w->blocks);
	put_number(o, "bytes", w->bytes);
	put_number(o, "at_peak_bytes", w->at_peak_bytes);
}

static json_t *pool_value(const struct pool_waste *w)
{
	json_t *o = json_object(), *kinds = json_object(), *unseen = json_object();
	const struct clock *c = w->clock;

	put_pool_of(o, c->pool);
	put_text(o, "command", c->pool->process->command);
	put_number(o, "blocks", c->pool->mallocs);
	put_number(o, "peak_bytes", c->peak_bytes);
	put_number(o, "peak_time_ns", c->peak_ns);
	put_number(o, "unused_at_peak_bytes", w->all.at_peak_bytes);
	put_number(unseen, "blocks", w->unseen_blocks);
	put_number(unseen, "bytes", w->unseen_bytes);
	json_object_set_new(o, "never_accessed", unseen);
	for (int k = 0; k < KINDS; k++) {
		json_t *kind = json_object();

		put_waste(kind, &w->kinds[k]);
		put_number(kind, "marked_blocks", c->marked_blocks[k]);
		put_number(kind, "marked_bytes", c->marked_bytes[k]);
		json_object_set_new(kinds, inefficient_kind_name((enum inefficient_kind)k), kind);
	}
	json_object_set_new(o, "kinds", kinds);
	return o;
}

static json_t *example_value(const struct verdict *v, const struct example *e)
{
	json_t *o = json_object();

	put_known(o, "allocation_id", !(e->key >> 63), e->key);
	put_address(o, "address", e->ptr);
	put_number(o, "bytes", e->bytes);
	put_number(o, "calls", e->wait.calls);
	put_text(o, "before", inefficient_name_text(v->a, e->wait.before));
	put_text(o, "after", inefficient_name_text(v->a, e->wait.after));
	return o;
}

static json_t *place_value(const struct verdict *v, const struct site *s)
{
	json_t *o = json_object(), *examples = json_array();
	struct waste w = {s->blocks, s->bytes, inefficient_site_cost(s)};

	put_text(o, "kind", inefficient_kind_name(s->kind));
	put_pool_of(o, s->pool);
	put_waste(o, &w);
	put_number(o, "longest_calls", s->longest_calls);
	put_stack(o, blocks_stacks(v->a->blocks), s->stack);
	for (size_t i = 0; i < EXAMPLES && i < s->blocks; i++)
		json_array_append_new(examples, example_value(v, &s->examples[i]));
	json_object_set_new(o, "examples", examples);
	return o;
}

static json_t *types_value(unsigned kinds)
{
	json_t *list = json_array();

	for (int k = 0; k < KINDS; k++)
		if (kinds >> k & 1)
			json_array_append_new(
				list, json_string(inefficient_kind_name((enum inefficient_kind)k)));
	return list;
}

json_t *inefficient_json(struct analysis *base, unsigned top)
{
	struct inefficient *a = (struct inefficient *)base;
	json_t *o = json_object(), *pools = json_array(), *places = json_array();
	struct verdict v;

	inefficient_verdict(a, &v);
	put_bool(o, "judged", v.accesses != 0);
	put_number(o, "rows", blocks_rows(a->blocks));
	put_number(o, "accesses", v.accesses);
	put_number(o, "operators", a->operators);
	put_number(o, "blocks", v.blocks);
	put_number(o, "idle_calls", a->options.idle_calls);
	put_number(o, "min_bytes", a->options.min_bytes);
	json_object_set_new(o, "types", types_value(a->options.kinds));
	for (size_t i = 0; i < v.npools; i++)
		json_array_append_new(pools, pool_value(&v.pools[i]));
	json_object_set_new(o, "pools", pools);
	put_number(o, "places_total", v.sites.n);
	for (size_t i = 0; i < v.sites.n && i < top; i++)
		json_array_append_new(places, place_value(&v, &v.sites.list[i]));
	json_object_set_new(o, "places", places);
	inefficient_verdict_release(&v);
	return o;
}
