/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "activity/windows/attribution.h"

#include "base/mem.h"
#include "base/text/text.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define MAX_OWNERS 65536u /* and as many texts of each kind; owner 0 is nobody */
#define MAX_MOMENTS 262144u /* of a thread: some seconds of a job that launches as fast as it can */
#define MAX_THREADS 1024u
#define MAX_LAUNCHES 262144u /* before the older half is forgotten */

/* From `at` on: a moment of a thread, or the number of an operation. */
struct since {
	uint64_t at;
	uint32_t owner;
};

struct history {
	struct since *list; /* ascending */
	size_t n, cap;
};

struct attribution {
	struct hmap places; /* id of a place -> its text */
	struct hmap texts; /* hash -> text */
	struct hmap owner_of; /* hash of layer, line and pass -> index */
	struct activity_owner **owners;
	size_t nowners, owners_cap;
	struct hmap moments; /* tid -> struct history */
	struct hmap operations; /* who counts them -> struct history */
	struct hmap launches[2]; /* correlation -> owner; the younger ones, the older ones */
	size_t nyounger, nthreads;
};

struct attribution *attribution_new(void)
{
	struct attribution *t = xcalloc(1, sizeof(*t));

	*XPUSH(t->owners, t->nowners, t->owners_cap) = NULL;
	return t;
}

static void release_pointers(struct hmap *m)
{
	uint64_t key, value;

	for (size_t at = 0; hmap_next(m, &at, &key, &value);)
		free((void *)(uintptr_t)value);
	hmap_release(m);
}

static void release_histories(struct hmap *m)
{
	uint64_t key, value;

	for (size_t at = 0; hmap_next(m, &at, &key, &value);)
		free(((struct history *)(uintptr_t)value)->list);
	release_pointers(m);
}

void attribution_free(struct attribution *t)
{
	if (!t)
		return;
	for (size_t i = 0; i < t->nowners; i++)
		free(t->owners[i]);
	free(t->owners);
	release_pointers(&t->texts);
	release_histories(&t->moments);
	release_histories(&t->operations);
	hmap_release(&t->places);
	hmap_release(&t->owner_of);
	hmap_release(&t->launches[0]);
	hmap_release(&t->launches[1]);
	free(t);
}

/* --- texts --- */

/* The same pointer for the same text; "" if there are too many. */
static const char *keep_text(struct attribution *t, const char *text, size_t len)
{
	struct buf clean = {0};
	const char *good = text_clean(text, &len, &clean);
	uint64_t key = XXH3_64bits(good, len);
	char *known = hmap_get_ptr(&t->texts, key);

	if (!known && t->texts.count < 4 * MAX_OWNERS) {
		known = xstrndup(good, len);
		hmap_put_ptr(&t->texts, key, known);
	}
	buf_release(&clean);
	return known ? known : "";
}

/* "train_step (/srv/job/train.py:18)" */
void attribution_place(struct attribution *t, const struct rec_python *r)
{
	size_t len;
	const char *function = rec_text(&r->head, &len);
	const char *end = memchr(function, '\0', len);
	size_t n = end ? (size_t)(end - function) : len;
	struct buf text = {0};

	if (t->places.count >= 4 * MAX_OWNERS)
		return;
	buf_add(&text, function, n);
	buf_add_str(&text, " (");
	if (end)
		buf_add(&text, end + 1, len - n - 1);
	buf_addf(&text, ":%u)", r->line);
	hmap_put_ptr(&t->places, r->id, (void *)(uintptr_t)keep_text(t, text.data, text.len));
	buf_release(&text);
}

/* --- owners --- */

/* `model:path:class`, see rec_layer. A model as a whole is called by its class. */
static void set_module(struct attribution *t, struct activity_owner *o, const char *text)
{
	const char *path = strchr(text, ':');
	const char *class_name = path ? strchr(path + 1, ':') : NULL;

	if (!class_name)
		return;
	o->model = keep_text(t, text, (size_t)(path - text));
	o->module_class = keep_text(t, class_name + 1, strlen(class_name + 1));
	size_t len = (size_t)(class_name - path - 1);
	o->module = len ? keep_text(t, path + 1, len) : o->model;
}

static struct activity_owner *make_owner(struct attribution *t, const struct rec_work *r,
					 struct texts *names)
{
	struct activity_owner *o = xcalloc(1, sizeof(*o));
	const char *line = r->line ? hmap_get_ptr(&t->places, r->line) : NULL;

	*o = (struct activity_owner){
		.model = "", .module = "", .module_class = "", .line = line ? line : ""};
	if (r->layer)
		set_module(t, o, texts_find(names, r->layer)->text);
	return o;
}

static uint32_t add_owner(struct attribution *t, uint64_t key, struct activity_owner *o)
{
	hmap_put(&t->owner_of, key, t->nowners);
	*XPUSH(t->owners, t->nowners, t->owners_cap) = o;
	return (uint32_t)(t->nowners - 1);
}

/* 0: nobody. */
static uint32_t find_owner(struct attribution *t, const struct rec_work *r, struct texts *names)
{
	uint64_t parts[] = {r->layer, r->line};
	uint64_t key = XXH3_64bits(parts, sizeof(parts)), at;

	if (!r->layer && !r->line)
		return 0;
	at = hmap_get(&t->owner_of, key);
	if (at != HMAP_NONE)
		return (uint32_t)at;
	return t->nowners < MAX_OWNERS ? add_owner(t, key, make_owner(t, r, names)) : 0;
}

/* The same, of gradients. */
static uint32_t backward_of(struct attribution *t, uint32_t owner)
{
	uint64_t parts[] = {UINT64_MAX, owner};
	uint64_t key = XXH3_64bits(parts, sizeof(parts)), at = hmap_get(&t->owner_of, key);

	if (!owner)
		return 0;
	if (at != HMAP_NONE)
		return (uint32_t)at;
	if (t->nowners >= MAX_OWNERS)
		return owner;
	struct activity_owner *o = xcalloc(1, sizeof(*o));
	*o = *t->owners[owner];
	o->backward = true;
	return add_owner(t, key, o);
}

/* --- histories --- */

static struct history *history_of(struct attribution *t, struct hmap *m, uint64_t key, bool make)
{
	struct history *h = hmap_get_ptr(m, key);

	if (h || !make || t->nthreads >= MAX_THREADS)
		return h;
	t->nthreads++;
	h = xcalloc(1, sizeof(*h));
	hmap_put_ptr(m, key, h);
	return h;
}

/* What is behind it was somebody else's: a thread or a counter that begins anew. */
static void history_add(struct history *h, uint64_t at, uint32_t owner)
{
	while (h->n && h->list[h->n - 1].at >= at)
		h->n--;
	if (h->n == MAX_MOMENTS) {
		h->n /= 2;
		memmove(h->list, h->list + h->n, h->n * sizeof(*h->list));
	}
	*XPUSH(h->list, h->n, h->cap) = (struct since){at, owner};
}

/* The last one that is not behind it; 0: there is none. */
static uint32_t history_find(const struct history *h, uint64_t at)
{
	size_t low = 0, high = h ? h->n : 0;

	while (low < high) {
		size_t middle = (low + high) / 2;
		if (h->list[middle].at <= at)
			low = middle + 1;
		else
			high = middle;
	}
	return low ? h->list[low - 1].owner : 0;
}

void attribution_work(struct attribution *t, uint32_t tid, const struct rec_work *r,
		      struct texts *names)
{
	bool counted = r->sequence != WORK_NO_SEQUENCE;
	uint64_t number = r->sequence & ((1ull << WORK_THREAD_SHIFT) - 1);
	uint64_t counter = r->sequence >> WORK_THREAD_SHIFT;
	struct history *h;
	uint32_t owner;

	if (r->kind == WORK_BACKWARD) {
		h = history_of(t, &t->operations, counter, false);
		owner = counted ? backward_of(t, history_find(h, number)) : 0;
	} else {
		owner = find_owner(t, r, names);
		h = counted ? history_of(t, &t->operations, counter, true) : NULL;
		if (h)
			history_add(h, number, owner);
	}
	h = history_of(t, &t->moments, tid, true);
	if (h)
		history_add(h, r->wall_ns, owner);
}

void attribution_launch(struct attribution *t, const struct rec_launch *r)
{
	uint32_t owner = history_find(history_of(t, &t->moments, r->tid, false), r->wall_ns);

	if (t->nyounger++ >= MAX_LAUNCHES) {
		hmap_release(&t->launches[1]);
		t->launches[1] = t->launches[0];
		t->launches[0] = (struct hmap){0};
		t->nyounger = 1;
	}
	hmap_put(&t->launches[0], r->correlation, owner);
}

bool attribution_find(const struct attribution *t, uint64_t correlation,
		      const struct activity_owner **out)
{
	uint64_t at = hmap_get(&t->launches[0], correlation);

	*out = NULL;
	if (at == HMAP_NONE)
		at = hmap_get(&t->launches[1], correlation);
	if (at == HMAP_NONE)
		return false;
	*out = t->owners[at];
	return true;
}
