/* SPDX-License-Identifier: MulanPSL-2.0 */
/* The same as JSON; oom.h has the layout. */
#include "analyze/oom_impl.h"

#include "analyze/frames.h"

static void put(json_t *object, const char *key, json_t *value)
{
	json_object_set_new(object, key, value ? value : json_null());
}

/* Numbers of JSON have a sign; what is larger than that is no real size. */
static json_t *number(uint64_t v)
{
	return json_integer(v > INT64_MAX ? INT64_MAX : (json_int_t)v);
}

static json_t *known(bool is_known, uint64_t v)
{
	return is_known ? number(v) : json_null();
}

/* Foreign bytes may not be UTF-8; then their printable part. */
static json_t *text(const char *s, size_t len)
{
	json_t *t = s ? json_stringn(s, len) : NULL;

	if (t || !s)
		return t;
	struct buf ascii = {0};
	for (size_t i = 0; i < len; i++)
		buf_add_char(&ascii, s[i] >= ' ' && s[i] < 127 ? s[i] : '?');
	t = json_stringn(ascii.data ? ascii.data : "", ascii.len);
	buf_release(&ascii);
	return t;
}

static json_t *buf_text(struct buf *b)
{
	json_t *t = text(buf_str(b), b->len);

	buf_release(b);
	return t;
}

static json_t *where(const struct oom *o, uint32_t stack)
{
	struct buf b = {0};

	if (oom_where(o, stack, &b))
		return buf_text(&b);
	buf_release(&b);
	return json_null();
}

static json_t *lines(const char *stack)
{
	json_t *list = json_array();
	struct frame_line line;

	while (stack && frame_next(&stack, &line))
		json_array_append_new(list, text(line.text, line.len));
	return list;
}

static json_t *pools_of(const struct oom_incident *i)
{
	json_t *list = json_array();

	for (unsigned k = 0; k < i->npools; k++) {
		const struct oom_pool *p = &i->pools[k];
		json_t *o = json_object();
		put(o, "pool", json_string(row_type_text(p->type, ROW_SEED)));
		put(o, "reserved_bytes", number(p->reserved));
		put(o, "allocated_bytes", number(p->allocated));
		put(o, "blocks", number(p->blocks));
		put(o, "free_bytes", known(p->mapped, p->free_bytes));
		put(o, "free_pieces", known(p->mapped, p->pieces));
		put(o, "largest_free_bytes", known(p->mapped, p->largest_free));
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
		char ptr[24];
		json_t *item = json_object();
		snprintf(ptr, sizeof(ptr), "0x%016llx", (unsigned long long)b->ptr);
		put(item, "pool", json_string(row_type_text(b->type, ROW_SEED)));
		put(item, "ptr", json_string(ptr));
		put(item, "bytes", number(b->bytes));
		put(item, "time_ns", number(b->time_ns));
		put(item, "step", json_integer(b->step));
		put(item, "where", where(o, b->stack));
		put(item, "owner", *owner ? text(owner, strlen(owner)) : json_null());
		json_array_append_new(list, item);
	}
	return list;
}

static json_t *leak_of(const struct oom *o, const struct oom_leak *l)
{
	json_t *object = json_object();

	put(object, "bytes", number(l->bytes));
	put(object, "blocks", number(l->blocks));
	put(object, "places", number(l->places));
	put(object, "first_step", json_integer(l->first_step));
	put(object, "last_step", json_integer(l->last_step));
	put(object, "where", where(o, l->stack));
	return object;
}

static json_t *device_memory_of(const struct oom_incident *i, const struct oom_answer *a)
{
	json_t *object = json_object();

	put(object, "total_bytes", known(a->has_total, a->total_bytes));
	put(object, "process_bytes", known(i->has_blocks, i->own_bytes));
	put(object, "others_bytes", known(i->has_others, i->others_bytes));
	put(object, "free_bytes", known(a->has_free, a->free_bytes));
	return object;
}

static void put_request(json_t *object, const struct oom *o, const struct oom_incident *i)
{
	struct stack stack = stacks_get(blocks_stacks(o->blocks), i->stack);
	const char *command = i->process->command;
	char dev[16];

	put(object, "pid", json_integer(i->process->pid));
	put(object, "command", command ? text(command, strlen(command)) : json_null());
	put(object, "device", json_string(blocks_device_name(i->device, dev)));
	put(object, "tid", json_integer(i->tid));
	put(object, "time_ns", number(i->first_ns));
	put(object, "after_ns", number(oom_less(i->first_ns, blocks_first_ns(o->blocks))));
	put(object, "step", json_integer(i->step));
	put(object, "count", number(i->count));
	put(object, "granted_later", json_boolean(i->granted));
	put(object, "requested_bytes", number(i->requested));
	put(object, "function", text(i->function, strlen(i->function)));
	put(object, "where", where(o, i->stack));
	put(object, "c_stack", lines(i->stack ? stack.c : NULL));
	put(object, "python_stack", lines(i->stack ? stack.py : NULL));
}

static json_t *incident(const struct oom *o, const struct oom_incident *i, unsigned top)
{
	struct oom_answer a = oom_answer(o, i);
	struct buf reason = {0}, advice = {0};
	json_t *object = json_object();

	put_request(object, o, i);
	oom_reason(o, i, &a, &reason);
	oom_advice(o, i, &a, &advice);
	put(object, "verdict", json_string(oom_verdict_name(a.verdict)));
	put(object, "reason", buf_text(&reason));
	put(object, "advice", buf_text(&advice));
	put(object, "own_view_only", json_boolean(!a.has_free));
	put(object, "device_memory", device_memory_of(i, &a));
	put(object, "pools", pools_of(i));
	put(object, "leak", leak_of(o, &i->leak));
	put(object, "largest", blocks_of(o, &i->largest, top));
	put(object, "recent", blocks_of(o, &i->recent, top));
	return object;
}

json_t *oom_json(struct analysis *a, unsigned top)
{
	const struct oom *o = (const struct oom *)a;
	json_t *root = json_object(), *list = json_array();

	for (size_t i = 0; i < o->nincidents; i++)
		json_array_append_new(list, incident(o, o->incidents[i], top));
	put(root, "requests", number(o->requests));
	put(root, "incidents", list);
	return root;
}
