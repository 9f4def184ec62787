/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Inefficient memory for programs; inefficient.h names the keys. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "analyze/frames.h"
#include "analyze/inefficient_impl.h"
#include "base/mem.h"

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

static void put_pool(json_t *o, const struct block_pool *pool)
{
	char dev[16];

	put_u64(o, "pid", pool->process->pid);
	put_text(o, "device", blocks_device_name(pool->device->device, dev));
	put_text(o, "pool", row_type_text(pool->type, ROW_SEED));
}

static void put_waste(json_t *o, const struct waste *w)
{
	put_u64(o, "blocks", w->blocks);
	put_u64(o, "bytes", w->bytes);
	put_u64(o, "at_peak_bytes", w->at_peak_bytes);
}

static json_t *pool_value(const struct pool_waste *w)
{
	json_t *o = json_object(), *kinds = json_object(), *unseen = json_object();
	const struct clock *c = w->clock;

	put_pool(o, c->pool);
	put_text(o, "command", c->pool->process->command);
	put_u64(o, "blocks", c->pool->mallocs);
	put_u64(o, "peak_bytes", c->peak_bytes);
	put_u64(o, "peak_time_ns", c->peak_ns);
	put_u64(o, "unused_at_peak_bytes", w->all.at_peak_bytes);
	put_u64(unseen, "blocks", w->unseen_blocks);
	put_u64(unseen, "bytes", w->unseen_bytes);
	json_object_set_new(o, "never_accessed", unseen);
	for (int k = 0; k < KINDS; k++) {
		json_t *kind = json_object();

		put_waste(kind, &w->kinds[k]);
		put_u64(kind, "marked_blocks", c->marked_blocks[k]);
		put_u64(kind, "marked_bytes", c->marked_bytes[k]);
		json_object_set_new(kinds, inefficient_kind_name((enum inefficient_kind)k), kind);
	}
	json_object_set_new(o, "kinds", kinds);
	return o;
}

static json_t *stack_value(const char *text)
{
	json_t *lines = json_array();
	struct frame_line line;

	while (text && frame_next(&text, &line))
		json_array_append_new(lines, text_value(line.text, line.len));
	return lines;
}

static json_t *example_value(const struct verdict *v, const struct example *e)
{
	json_t *o = json_object();
	char ptr[24];

	if (e->key >> 63)
		json_object_set_new(o, "allocation_id", json_null());
	else
		put_u64(o, "allocation_id", e->key);
	snprintf(ptr, sizeof(ptr), "0x%016" PRIx64, e->ptr);
	put_text(o, "ptr", ptr);
	put_u64(o, "bytes", e->bytes);
	put_u64(o, "calls", e->wait.calls);
	put_text(o, "before", inefficient_name_text(v->a, e->wait.before));
	put_text(o, "after", inefficient_name_text(v->a, e->wait.after));
	return o;
}

static json_t *place_value(const struct verdict *v, const struct site *s)
{
	struct stack stack = stacks_get(blocks_stacks(v->a->blocks), s->stack);
	json_t *o = json_object(), *examples = json_array();
	struct waste w = {s->blocks, s->bytes, inefficient_site_cost(s)};
	struct buf where = {0};

	put_text(o, "kind", inefficient_kind_name(s->kind));
	put_pool(o, s->pool);
	put_waste(o, &w);
	put_u64(o, "longest_calls", s->longest_calls);
	put_text(o, "where",
		 stacks_where(blocks_stacks(v->a->blocks), s->stack, &where) ? buf_str(&where)
									     : NULL);
	json_object_set_new(o, "c_stack", stack_value(stack.c));
	json_object_set_new(o, "python_stack", stack_value(stack.py));
	for (size_t i = 0; i < EXAMPLES && i < s->blocks; i++)
		json_array_append_new(examples, example_value(v, &s->examples[i]));
	json_object_set_new(o, "examples", examples);
	buf_release(&where);
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
	json_object_set_new(o, "judged", json_boolean(v.accesses != 0));
	put_u64(o, "rows", blocks_rows(a->blocks));
	put_u64(o, "accesses", v.accesses);
	put_u64(o, "operators", a->operators);
	put_u64(o, "blocks", v.blocks);
	put_u64(o, "idle_calls", a->options.idle_calls);
	put_u64(o, "min_bytes", a->options.min_bytes);
	json_object_set_new(o, "types", types_value(a->options.kinds));
	for (size_t i = 0; i < v.npools; i++)
		json_array_append_new(pools, pool_value(&v.pools[i]));
	json_object_set_new(o, "pools", pools);
	put_u64(o, "places_total", v.sites.n);
	for (size_t i = 0; i < v.sites.n && i < top; i++)
		json_array_append_new(places, place_value(&v, &v.sites.list[i]));
	json_object_set_new(o, "places", places);
	inefficient_verdict_release(&v);
	return o;
}
