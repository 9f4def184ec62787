/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "activity/owners/owners.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/compare.h"
#include "base/mem.h"

const char *const owners_by_names[] = {"name", "module", "line", NULL};

/* --- times --- */

bool owner_is_work(uint8_t kind)
{
	return kind == ACTIVITY_KERNEL || kind == ACTIVITY_COMMUNICATION ||
	       kind == ACTIVITY_MEMCPY || kind == ACTIVITY_MEMSET;
}

static struct owner_time *time_of(struct owner_times *t, const struct activity_owner *owner)
{
	uint64_t at = hmap_get(&t->by_owner, (uintptr_t)owner);

	if (!t->n)
		*XPUSH(t->list, t->n, t->cap) = (struct owner_time){0};
	if (!owner || (at == HMAP_NONE && t->n > OWNERS_MAX))
		return &t->list[0];
	if (at != HMAP_NONE)
		return &t->list[at];
	hmap_put(&t->by_owner, (uintptr_t)owner, t->n);
	struct owner_time *new = XPUSH(t->list, t->n, t->cap);
	*new = (struct owner_time){.owner = owner};
	return new;
}

void owner_times_count(struct owner_times *t, const struct activity_owner *owner, uint64_t ns)
{
	struct owner_time *o = time_of(t, owner);

	o->calls++;
	o->total_ns += ns;
}

void owner_times_add(struct owner_times *t, const struct activity *a)
{
	if (a->place != ACTIVITY_ON_DEVICE || !owner_is_work(a->kind))
		return;
	owner_times_count(t, a->owner, activity_ns(a));
	t->asked |= a->attributed || a->owner;
}

void owner_times_clear(struct owner_times *t)
{
	hmap_release(&t->by_owner);
	t->n = 0;
	t->asked = false;
}

void owner_times_release(struct owner_times *t)
{
	hmap_release(&t->by_owner);
	free(t->list);
	*t = (struct owner_times){0};
}

const struct activity_owner *owner_find(const struct activity_owner *like)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	static struct hmap known;
	const uint64_t key[] = {(uintptr_t)like->model, (uintptr_t)like->module,
				(uintptr_t)like->module_class, (uintptr_t)like->line,
				like->backward};
	uint64_t hash = XXH3_64bits(key, sizeof(key));

	pthread_mutex_lock(&lock);
	struct activity_owner *o = hmap_get_ptr(&known, hash);
	if (!o) {
		o = xcalloc(1, sizeof(*o));
		*o = *like;
		hmap_put_ptr(&known, hash, o);
	}
	pthread_mutex_unlock(&lock);
	return o;
}

/* --- groups --- */

static bool has_several_models(const struct owner_times *t)
{
	const char *first = NULL;

	for (size_t i = 1; i < t->n; i++) {
		const char *model = t->list[i].owner->model;
		if (!*model)
			continue;
		if (first && strcmp(first, model))
			return true;
		first = model;
	}
	return false;
}

static bool is_number(const char *part, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (part[i] < '0' || part[i] > '9')
			return false;
	return len && len < 8;
}

/* The path up to the depth; folded: with * for each number. True: all of it. */
static bool add_path(struct buf *out, const char *path, unsigned depth, bool folded)
{
	for (unsigned i = 0; *path; i++) {
		size_t len = strcspn(path, ".");

		if (depth && i == depth)
			return false;
		if (i)
			buf_add_char(out, '.');
		if (folded && is_number(path, len))
			buf_add_char(out, '*');
		else
			buf_add(out, path, len);
		path += len + (path[len] == '.');
	}
	return true;
}

static struct owner_group *group_of(struct owner_groups *g, struct buf *name,
				    const char *class_name)
{
	uint64_t key = XXH3_64bits_withSeed(buf_str(name), name->len, (uintptr_t)class_name);
	uint64_t at = hmap_get(&g->by_name, key);

	if (at != HMAP_NONE)
		return &g->list[at];
	hmap_put(&g->by_name, key, g->n);
	struct owner_group *new = XPUSH(g->list, g->n, g->cap);
	*new = (struct owner_group){.name = xstrndup(buf_str(name), name->len),
				    .module_class = class_name};
	return new;
}

/* One that stands for a single module has its name as it is. */
static void add_part(struct owner_group *group, struct buf *whole)
{
	uint64_t key = XXH3_64bits(buf_str(whole), whole->len);

	if (hmap_get(&group->parts, key) != HMAP_NONE)
		return;
	hmap_put(&group->parts, key, 1);
	group->count++;
}

static struct owner_group *module_group(struct owner_groups *g, const struct activity_owner *o,
					bool several, unsigned depth)
{
	struct buf name = {0}, whole = {0};

	if (several && *o->model && strcmp(o->model, o->module) != 0) {
		buf_addf(&name, "%s.", o->model);
		buf_addf(&whole, "%s.", o->model);
	}
	add_path(&whole, o->module, depth, false);
	bool all = add_path(&name, o->module, depth, true);
	if (!*o->module)
		buf_add_str(&name, OWNERS_NO_MODULE);
	struct owner_group *group = group_of(g, &name, all ? o->module_class : "");
	add_part(group, &whole);
	if (group->count == 1 && *o->module && strcmp(group->name, buf_str(&whole)) != 0) {
		free(group->name);
		group->name = xstrndup(buf_str(&whole), whole.len);
	} else if (group->count > 1 && strcmp(group->name, buf_str(&name)) != 0) {
		free(group->name);
		group->name = xstrndup(buf_str(&name), name.len);
	}
	buf_release(&name);
	buf_release(&whole);
	return group;
}

static struct owner_group *line_group(struct owner_groups *g, const struct activity_owner *o)
{
	struct buf name = {0};

	buf_add_str(&name, *o->line ? o->line : OWNERS_NO_LINE);
	struct owner_group *group = group_of(g, &name, "");
	group->count = 1;
	buf_release(&name);
	return group;
}

static struct owner_group *nobody_group(struct owner_groups *g)
{
	struct buf name = {0};

	buf_add_str(&name, OWNERS_NOBODY);
	struct owner_group *group = group_of(g, &name, "");
	group->is_nobody = true;
	buf_release(&name);
	return group;
}

static int by_time(const void *a, const void *b)
{
	const struct owner_group *x = a, *y = b;

	if (x->is_nobody != y->is_nobody)
		return x->is_nobody ? 1 : -1;
	if (x->total_ns != y->total_ns)
		return x->total_ns < y->total_ns ? 1 : -1;
	return strcmp(x->name, y->name);
}

void owner_groups_build(struct owner_groups *g, const struct owner_times *t, enum owners_by by,
			unsigned depth)
{
	bool several = has_several_models(t);

	for (size_t i = 0; i < t->n; i++) {
		const struct owner_time *o = &t->list[i];
		struct owner_group *group;

		if (!o->calls)
			continue;
		if (!o->owner)
			group = nobody_group(g);
		else if (by == OWNERS_BY_LINE)
			group = line_group(g, o->owner);
		else
			group = module_group(g, o->owner, several, depth);
		group->calls += o->calls;
		group->total_ns += o->total_ns;
		if (o->owner)
			*(o->owner->backward ? &group->backward_ns : &group->forward_ns) +=
				o->total_ns;
		else
			g->nobody_ns += o->total_ns;
		g->total_ns += o->total_ns;
	}
	for (size_t i = 0; i < g->n; i++)
		hmap_release(&g->list[i].parts);
	hmap_release(&g->by_name);
	if (g->n)
		qsort(g->list, g->n, sizeof(*g->list), by_time);
}

void owner_groups_release(struct owner_groups *g)
{
	for (size_t i = 0; i < g->n; i++)
		free(g->list[i].name);
	free(g->list);
	*g = (struct owner_groups){0};
}
