/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Memory that ran out, for programs; oom.h names the keys. */
#include "memory/analysis/common/json.h"
#include "formats/json_value.h"
#include "memory/analysis/oom/oom_impl.h"

static json_t *pools_of(const struct oom_incident *i)
{
	json_t *list = json_array();

	for (unsigned k = 0; k < i->npools; k++) {
		const struct oom_pool *p = &i->pools[k];
		json_t *o = json_object();
		put_pool(o, p->type);
		put_number(o, "reserved_bytes", p->reserved);
		put_number(o, "allocated_bytes", p->allocated);
		put_number(o, "blocks", p->blocks);
		put_known(o, "free_bytes", p->mapped, p->free_bytes);
		put_known(o, "free_pieces", p->mapped, p->pieces);
		put_known(o, "largest_free_bytes", p->mapped, p->largest_free);
		json_array_append_new(list, o);
	}
	return list;
}

static json_t *blocks_of(const struct oom *o, const struct oom_list *l, unsigned top)
{
	json_t *list = json_array();

	for (size_t i = 0; i < l->n && i < top; i++) {
		const struct oom_block *b = &l->list[i];
		const char *owner = blocks_owner(o->blocks, b->owner);
		json_t *item = json_object();

		put_pool(item, b->type);
		put_address(item, "address", b->ptr);
		put_number(item, "bytes", b->bytes);
		put_number(item, "time_ns", b->time_ns);
		put_number(item, "step", b->step);
		put_where(item, blocks_stacks(o->blocks), b->stack);
		put_text(item, "owner", *owner ? owner : NULL);
		json_array_append_new(list, item);
	}
	return list;
}

static json_t *leak_of(const struct oom *o, const struct oom_leak *l)
{
	json_t *object = json_object();

	put_number(object, "bytes", l->bytes);
	put_number(object, "blocks", l->blocks);
	put_number(object, "places", l->places);
	put_number(object, "first_step", l->first_step);
	put_number(object, "last_step", l->last_step);
	put_where(object, blocks_stacks(o->blocks), l->stack);
	return object;
}

static json_t *device_memory_of(const struct oom_incident *i, const struct oom_answer *a)
{
	json_t *object = json_object();

	put_known(object, "total_bytes", a->has_total, a->total_bytes);
	put_known(object, "process_bytes", i->has_blocks, i->own_bytes);
	put_known(object, "outside_bytes", i->has_outside, i->outside_bytes);
	put_known(object, "others_bytes", i->has_others, i->others_bytes);
	put_known(object, "limit_bytes", i->limit != 0, i->limit);
	put_known(object, "free_bytes", a->has_free, a->free_bytes);
	return object;
}

static void put_request(json_t *object, const struct oom *o, const struct oom_incident *i)
{
	put_number(object, "pid", i->process->pid);
	put_text(object, "command", i->process->command);
	put_device(object, i->device);
	put_number(object, "tid", i->tid);
	put_number(object, "time_ns", i->first_ns);
	put_number(object, "after_ns", oom_less(i->first_ns, blocks_first_ns(o->blocks)));
	put_number(object, "step", i->step);
	put_number(object, "count", i->count);
	put_bool(object, "granted_later", i->granted);
	put_number(object, "requested_bytes", i->requested);
	put_text(object, "function", i->function);
	put_stack(object, blocks_stacks(o->blocks), i->stack);
}

static json_t *incident(const struct oom *o, const struct oom_incident *i, unsigned top)
{
	struct oom_answer a = oom_answer(o, i);
	struct buf reason = {0}, advice = {0};
	json_t *object = json_object();

	put_request(object, o, i);
	oom_reason(o, i, &a, &reason);
	oom_advice(o, i, &a, &advice);
	put_text(object, "verdict", oom_verdict_name(a.verdict));
	put_text(object, "reason", buf_str(&reason));
	put_text(object, "advice", buf_str(&advice));
	put_bool(object, "own_view_only", !a.has_free);
	json_object_set_new(object, "device_memory", device_memory_of(i, &a));
	json_object_set_new(object, "pools", pools_of(i));
	json_object_set_new(object, "leak", leak_of(o, &i->leak));
	json_object_set_new(object, "largest", blocks_of(o, &i->largest, top));
	json_object_set_new(object, "recent", blocks_of(o, &i->recent, top));
	buf_release(&reason);
	buf_release(&advice);
	return object;
}

json_t *oom_json(struct analysis *a, unsigned top)
{
	const struct oom *o = (const struct oom *)a;
	json_t *root = json_object(), *list = json_array();

	for (size_t i = 0; i < o->nincidents; i++)
		json_array_append_new(list, incident(o, o->incidents[i], top));
	put_number(root, "requests", o->requests);
	json_object_set_new(root, "incidents", list);
	return root;
}
