/* SPDX-License-Identifier: MulanPSL-2.0 */
/* The clocks of inefficient memory: which call of its pool a row belongs to. */
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/mem.h"
#include "memory/analysis/inefficient/inefficient_impl.h"
#include "wire/record.h"

#define NO_KEY UINT64_MAX

int inefficient_family(enum row_type pool)
{
	if (pool == TYPE_ATB)
		return FAMILY_ATB;
	return pool == TYPE_PTA || pool == TYPE_TORCH ? FAMILY_PTA : -1;
}

/* --- names of operators --- */

/* Does the operator only make a tensor? Its result is announced as written all the same. */
static bool makes_only(const char *text, size_t len)
{
	static const char *const makers[] = {"empty", "zeros", "ones", "full"};
	const char *at = memmem(text, len, "aten.", 5), *end = text + len;

	if (!at)
		return false;
	at += 5;
	if (end - at > 4 && !memcmp(at, "new_", 4))
		at += 4;
	for (size_t i = 0; i < sizeof(makers) / sizeof(makers[0]); i++) {
		size_t n = strlen(makers[i]);
		if ((size_t)(end - at) >= n && !memcmp(at, makers[i], n))
			return true;
	}
	return false;
}

uint32_t inefficient_name(struct inefficient *a, const char *text, size_t len)
{
	return text_numbers_find(&a->names, text, len, MAX_NAMES);
}

bool inefficient_makes_only(struct inefficient *a, uint32_t name)
{
	struct numbered_text *l = name ? &a->names.list[name] : NULL;

	if (l && !l->own) /* 0: not looked up yet */
		l->own = makes_only(l->text, l->len) ? 2 : 1;
	return l && l->own == 2;
}

const char *inefficient_name_text(const struct inefficient *a, uint32_t name)
{
	return name ? text_numbers_text(&a->names, name) : NULL;
}

/* --- clocks --- */

static struct process_use *use_of(struct block_process *p)
{
	if (!p->own) {
		struct process_use *u = xcalloc(1, sizeof(*u));
		u->last_key = NO_KEY;
		p->own = u;
	}
	return p->own;
}

static uint64_t device_key(uint32_t device, int family)
{
	return (uint64_t)device << 1 | (unsigned)family;
}

static bool had_ops(struct block_process *p, uint32_t device, int family)
{
	const struct hmap *ops = &use_of(p)->ops_before;

	return hmap_get(ops, device_key(device, family)) != HMAP_NONE ||
	       hmap_get(ops, device_key(DEV_NONE, family)) != HMAP_NONE;
}

struct clock *inefficient_clock(struct block_pool *pool)
{
	int family = inefficient_family(pool->type);

	if (pool->own || family < 0)
		return pool->own;
	struct clock *c = xcalloc(1, sizeof(*c));
	c->pool = pool;
	c->has_ops = had_ops(pool->process, pool->device->device, family);
	pool->own = c;
	return c;
}

struct clock *inefficient_clock_find(const struct block_process *p, int family, uint32_t device)
{
	struct clock *only = NULL;
	size_t n = 0;

	for (size_t i = 0; i < p->npools; i++) {
		if (inefficient_family(p->pools[i]->type) != family || !p->pools[i]->own)
			continue;
		only = p->pools[i]->own;
		if (p->pools[i]->device->device == device)
			return only;
		n++;
	}
	return device == DEV_NONE && n == 1 ? only : NULL;
}

static uint32_t count_call(struct clock *c)
{
	if (c->calls < UINT32_MAX)
		c->calls++;
	return c->calls;
}

static void open_call(struct thread_ops *t, struct clock *c)
{
	t->clock = c;
	t->call = count_call(c);
	t->has_malloc = t->has_free = false;
	c->last_op = t->names[0];
	c->has_ops = true;
}

static void close_call(struct thread_ops *t)
{
	struct clock *c = t->clock;

	if (!t->call)
		return;
	/* A call of another thread may have begun later and ended before. */
	if (t->has_malloc && c->last_malloc < t->call)
		c->last_malloc = t->call;
	if (t->has_free && c->last_free < t->call)
		c->last_free = t->call;
	t->call = 0;
}

/* --- threads --- */

static struct thread_ops *thread_find(struct block_process *p, uint32_t tid, int family)
{
	struct process_use *u = use_of(p);
	uint64_t key = (uint64_t)tid << 1 | (unsigned)family;

	if (u->last_key != key) {
		u->last = hmap_get_ptr(&u->threads, key);
		u->last_key = key;
	}
	return u->last;
}

static void forget_threads(struct process_use *u)
{
	uint64_t key, value;
	size_t at = 0;

	while (hmap_next(&u->threads, &at, &key, &value))
		free((void *)(uintptr_t)value);
	hmap_release(&u->threads);
	u->last = NULL;
	u->last_key = NO_KEY;
}

static struct thread_ops *thread_of(struct block_process *p, uint32_t tid, int family)
{
	struct thread_ops *t = thread_find(p, tid, family);
	struct process_use *u = p->own;

	if (t)
		return t;
	if (u->threads.count >= MAX_THREADS) /* no process has so many: the input is strange */
		forget_threads(u);
	t = xcalloc(1, sizeof(*t));
	u->last_key = (uint64_t)tid << 1 | (unsigned)family;
	u->last = t;
	hmap_put_ptr(&u->threads, u->last_key, t);
	return t;
}

static void leave_all(struct thread_ops *t)
{
	close_call(t);
	t->depth = 0;
}

void inefficient_no_op(struct block_process *p, uint32_t tid)
{
	for (int family = 0; family < FAMILIES; family++) {
		struct thread_ops *t = thread_find(p, tid, family);
		if (t)
			leave_all(t);
	}
}

/* --- operators --- */

static void op_starts(struct inefficient *a, struct block_process *p, const struct row *row,
		      int family)
{
	struct thread_ops *t = thread_of(p, row->tid, family);

	if (t->depth >= MAX_NESTING || (t->depth && t->nested >= MAX_NESTED))
		leave_all(t);
	t->names[t->depth] = inefficient_name(a, row->name, row->name_len);
	if (t->depth++) {
		t->nested++;
		return;
	}
	t->nested = 0;
	a->operators++;
	struct clock *c = t->clock;
	if (!c || (row->device != DEV_NONE && c->pool->device->device != row->device))
		c = inefficient_clock_find(p, family, row->device);
	t->clock = c; /* NULL: its first memory event decides */
	if (c)
		open_call(t, c);
	else
		hmap_put(&use_of(p)->ops_before, device_key(row->device, family), 1);
}

/* Inner operators whose END is missing end with the outer one; an END nobody started is nothing. */
static void op_ends(struct inefficient *a, struct block_process *p, const struct row *row,
		    int family)
{
	struct thread_ops *t = thread_find(p, row->tid, family);
	uint32_t name = inefficient_name(a, row->name, row->name_len);

	for (unsigned i = t ? t->depth : 0; i; i--) {
		if (t->names[i - 1] != name)
			continue;
		t->depth = i - 1;
		if (!t->depth)
			close_call(t);
		return;
	}
}

void inefficient_op(struct inefficient *a, struct block_process *p, const struct row *row)
{
	switch (row->type) {
	case TYPE_ATEN_START:
		op_starts(a, p, row, FAMILY_PTA);
		break;
	case TYPE_ATB_START:
		op_starts(a, p, row, FAMILY_ATB);
		break;
	case TYPE_ATEN_END:
		op_ends(a, p, row, FAMILY_PTA);
		break;
	case TYPE_ATB_END:
		op_ends(a, p, row, FAMILY_ATB);
		break;
	default:
		break;
	}
}

uint32_t inefficient_call(struct block_process *p, const struct row *row, struct clock *c,
			  uint32_t *out_op)
{
	int family = inefficient_family(c->pool->type);
	struct thread_ops *t = thread_find(p, row->tid, family);

	if (t && t->depth) {
		if (!t->call || t->clock != c) {
			close_call(t);
			open_call(t, c);
		}
		t->has_malloc |= row->event == ROW_MALLOC;
		t->has_free |= row->event == ROW_FREE;
		*out_op = t->names[0];
		return t->call;
	}
	count_call(c);
	if (row->event == ROW_MALLOC)
		c->last_malloc = c->calls;
	else if (row->event == ROW_FREE)
		c->last_free = c->calls;
	*out_op = c->last_op;
	return c->calls;
}

void inefficient_calls_release(struct inefficient *a)
{
	for (size_t i = 0; i < a->base.blocks->nprocesses; i++) {
		struct block_process *p = a->base.blocks->processes[i];
		struct process_use *u = p->own;

		for (size_t k = 0; k < p->npools; k++)
			free(p->pools[k]->own);
		if (!u)
			continue;
		forget_threads(u);
		hmap_release(&u->tags);
		hmap_release(&u->ops_before);
		free(u);
	}
	text_numbers_release(&a->names);
}
