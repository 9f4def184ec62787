/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Modules of models. First a tree of all modules that blocks name, each with what it holds at the
 * moment; then modules that are numbered (h.0, h.1, …) and equal become one group, h.*. Modules are
 * equal if the weights inside of them are, by name and bytes; without weights, if they are of one
 * class. If only some of them are equal, the group says which: h.{1-11}.
 */
#include "memory/analysis/groups/lines.h"

#include <stdio.h>
#include <stdlib.h>
#include <xxhash.h>

#define MAX_DEPTH 64 /* parts of a path; what is deeper is one part */
#define USUAL_DEPTH 4
#define NO_MODULE SIZE_MAX

struct module {
	const char *name, *class_name; /* borrowed: text up to a . or : */
	size_t len, class_len;
	size_t parent, first_child, next; /* 0: none */
	uint64_t weights; /* hash of those inside; 0: there are none */
	struct group held; /* with all that is inside */
};

struct modules {
	struct module *list; /* the first is around all of them */
	size_t n, cap;
	struct hmap children; /* of parent and name */
	bool model_names; /* stand first */
	bool parameters; /* have groups of their own */
	unsigned depth;
	struct module_lines lines;
	struct groups *out;
};

/* --- the tree --- */

/* NO_MODULE: it is new, and there are too many. */
static size_t child_of(struct modules *m, size_t parent, const char *name, size_t len)
{
	uint64_t key = XXH3_64bits_withSeed(name, len, parent);
	uint64_t found = hmap_get(&m->children, key);

	if (found != HMAP_NONE)
		return found;
	if (m->n > GROUPS_MAX_MODULES)
		return NO_MODULE;
	hmap_put(&m->children, key, m->n);
	struct module new = {
		.name = name, .len = len, .parent = parent, .next = m->list[parent].first_child};
	m->list[parent].first_child = m->n;
	LIST_ADD(m->list, m->n, m->cap, new);
	return m->n - 1;
}

/* The module of a text, `model:path:class`; made if it is new. If there are too many, the one around
 * it that is known. */
static size_t module_of(struct modules *m, const char *text)
{
	size_t model = strcspn(text, ":"), at = 0, inner = 0;
	const char *path = text + model + (text[model] == ':');
	const char *end = path + strcspn(path, ":");

	if (model && (m->model_names || path == end))
		inner = child_of(m, at, text, model);
	for (unsigned depth = 0; path < end && inner != NO_MODULE; depth++) {
		size_t len = depth < MAX_DEPTH ? strcspn(path, ".:") : (size_t)(end - path);
		at = inner;
		inner = child_of(m, at, path, len);
		path += len + (path[len] == '.');
	}
	if (inner == NO_MODULE) {
		m->out->modules_left_out++;
		return at;
	}
	at = inner;
	if (*end && end[1] && !m->list[at].class_len) {
		m->list[at].class_name = end + 1;
		m->list[at].class_len = strlen(end + 1);
	}
	return at;
}

/* Do paths need the name of their model in front? There are several models, or its own paths say
 * nothing: those of a Sequential are 0.weight and 2.bias, those of a single Linear weight and bias. */
static bool needs_model_names(const struct blocks *b)
{
	const char *first = NULL;
	bool numbers = false, parts = false, tensors = false;

	for (uint32_t i = 1; i < b->layers.count; i++) {
		const char *text = text_numbers_text(&b->layers, i);
		size_t n = strcspn(text, ":"), digits = 0;

		if (!n || text[n] != ':')
			continue;
		if (first && strncmp(first, text, n + 1) != 0)
			return true;
		first = text;
		const char *path = text + n + 1, *end = path + strcspn(path, ":");
		digits = strspn(path, "0123456789");
		numbers |= digits && (path[digits] == '.' || path[digits] == ':');
		parts |= path < end && (*end && end[1]);
		parts |= memchr(path, '.', (size_t)(end - path)) != NULL;
		tensors |= path < end;
	}
	return numbers || (tensors && !parts);
}

static uint64_t hash_pair(uint64_t a, uint64_t b)
{
	uint64_t both[] = {a, b};

	return XXH3_64bits(both, sizeof(both));
}

static void add_lines(struct modules *m, const struct blocks *b, const struct block *block,
		      size_t module, uint64_t bytes)
{
	if (!m->out->options.lines)
		return;
	uint32_t place = lines_place(&m->lines, &m->out->places, &b->stacks, block->stack);
	for (size_t at = module; at && place; at = m->list[at].parent)
		lines_add(&m->lines, at, place, bytes);
}

/* Of a block in which several modules have tensors, such as the flat buffers of ZeRO: each its own; the
 * rest goes to what is around all of them. False: the share is too small for that. */
static bool add_parts(struct modules *m, const struct blocks *b, const struct breakdown_share *s,
		      const size_t *of_layer)
{
	const struct block_part *first = &b->parts[s->block->parts - 1];
	uint64_t left = s->bytes;

	for (uint32_t i = 0; i <= first->left; i++) {
		if (first[i].bytes > left)
			return false;
		left -= first[i].bytes;
	}
	for (uint32_t i = 0; i <= first->left; i++) {
		size_t module = of_layer[first[i].layer];

		group_add_part(&m->list[module].held, b, s->block, first[i].bytes);
		add_lines(m, b, s->block, module, first[i].bytes);
	}
	size_t around = of_layer[s->block->layer];
	group_add_rounding(&m->list[around].held, left);
	add_lines(m, b, s->block, around, left);
	return true;
}

static void add_share(struct modules *m, const struct blocks *b, const struct breakdown_share *s,
		      const size_t *of_layer)
{
	size_t module = of_layer[s->block->layer];

	if (s->block->parts && add_parts(m, b, s, of_layer))
		return;
	group_add_share(&m->list[module].held, b, s);
	add_lines(m, b, s->block, module, s->bytes);
}

/* Those inside come behind: from the last on, each is complete when it is added to its parent. */
static void sum_up(struct modules *m)
{
	for (size_t i = m->n - 1; i > 0; i--) {
		struct module *at = &m->list[i], *parent = &m->list[at->parent];
		uint64_t own = at->held.sums.of.weight;

		if (!at->first_child && own)
			at->weights = hash_pair(own, 1);
		if (at->weights)
			parent->weights += hash_pair(at->weights, XXH3_64bits(at->name, at->len));
		group_merge(&parent->held, &at->held);
	}
}

/* --- folding --- */

/* Modules that are one group. */
struct fold {
	size_t *at;
	size_t n, cap;
	uint64_t bytes;
};

static bool is_numbered(const struct module *m)
{
	for (size_t i = 0; i < m->len; i++)
		if (m->name[i] < '0' || m->name[i] > '9')
			return false;
	return m->len && m->len < 8;
}

static unsigned number_of(const struct module *m)
{
	return (unsigned)strtoul(m->name, NULL, 10);
}

/* The same for numbered modules that are equal. */
static uint64_t kind_of(const struct module *m)
{
	return m->weights ? hash_pair(m->weights, 2)
			  : hash_pair(XXH3_64bits(m->class_name, m->class_len), 3);
}

static bool has_name(const struct module *a, const struct module *b)
{
	return a->len == b->len && !memcmp(a->name, b->name, a->len);
}

struct folds {
	struct fold *list;
	size_t n, cap;
	size_t numbered; /* of them */
};

/* Where folds are, by the name and the kind of their first module. */
struct fold_index {
	struct hmap by_name, by_kind;
};

/* The one that a child belongs to; a new one if there is none. */
static struct fold *fold_for(const struct module *c, struct folds *all, struct fold_index *index)
{
	bool numbered = is_numbered(c);
	uint64_t name = XXH3_64bits(c->name, c->len), kind = numbered ? kind_of(c) : 0;
	uint64_t named = hmap_get(&index->by_name, name);
	uint64_t equal = numbered ? hmap_get(&index->by_kind, kind) : HMAP_NONE;

	if (named != HMAP_NONE || equal != HMAP_NONE) /* HMAP_NONE is the largest */
		return &all->list[named < equal ? named : equal];
	hmap_put(&index->by_name, name, all->n);
	if (numbered)
		hmap_put(&index->by_kind, kind, all->n);
	all->numbered += numbered;
	LIST_ADD(all->list, all->n, all->cap, (struct fold){0});
	return &all->list[all->n - 1];
}

static void fold_child(const struct modules *m, struct folds *all, struct fold_index *index,
		       size_t child)
{
	const struct module *c = &m->list[child];

	if (!c->held.bytes)
		return;
	struct fold *f = fold_for(c, all, index);
	LIST_ADD(f->at, f->n, f->cap, child);
	f->bytes += c->held.bytes;
}

static int by_bytes(const void *pa, const void *pb)
{
	const struct fold *a = pa, *b = pb;

	return ORDER(b->bytes, a->bytes) ?: ORDER(a->at[0], b->at[0]);
}

static int by_value(const void *pa, const void *pb)
{
	return ORDER(*(const unsigned *)pa, *(const unsigned *)pb);
}

/* "1-3,7" */
static void add_numbers(const struct modules *m, const struct fold *f, struct buf *out)
{
	unsigned *numbers = xcalloc(f->n, sizeof(*numbers));

	for (size_t i = 0; i < f->n; i++)
		numbers[i] = number_of(&m->list[f->at[i]]);
	SORT(numbers, f->n, by_value);
	for (size_t i = 0, k; i < f->n; i = k) {
		for (k = i + 1; k < f->n && numbers[k] <= numbers[k - 1] + 1; k++)
			;
		buf_addf(out, "%s%u", i ? "," : "", numbers[i]);
		if (numbers[k - 1] > numbers[i])
			buf_addf(out, "-%u", numbers[k - 1]);
	}
	free(numbers);
}

static void add_name(const struct modules *m, const struct folds *all, const struct fold *f,
		     struct buf *path)
{
	const struct module *first = &m->list[f->at[0]];
	bool same = true;

	for (size_t i = 1; i < f->n; i++)
		same = same && has_name(first, &m->list[f->at[i]]);
	if (path->len)
		buf_add_char(path, '.');
	if (same) {
		buf_add(path, first->name, first->len);
	} else if (all->numbered == 1) { /* it is all that its parents have of them */
		buf_add_char(path, '*');
	} else {
		buf_add_char(path, '{');
		add_numbers(m, f, path);
		buf_add_char(path, '}');
	}
}

static void add_group(struct modules *m, const struct fold *f, unsigned depth, struct buf *path)
{
	struct group *g = groups_add(m->out, buf_str(path));
	struct hmap seen = {0};

	g->depth = depth;
	g->count = f->n;
	g->least_bytes = UINT64_MAX;
	for (size_t i = 0; i < f->n; i++) {
		const struct group *one = &m->list[f->at[i]].held;
		group_merge(g, one);
		g->least_bytes = one->bytes < g->least_bytes ? one->bytes : g->least_bytes;
		g->most_bytes = one->bytes > g->most_bytes ? one->bytes : g->most_bytes;
		lines_merge(&m->lines, f->at[i], g, &seen);
	}
	lines_sort(g);
	hmap_release(&seen);
}

/* And not a parameter. */
static bool is_module(const struct module *m)
{
	return m->class_len || m->first_child;
}

static void fold_children(const struct modules *m, const struct fold *f, struct folds *out)
{
	struct fold_index index = {0};

	for (size_t i = 0; i < f->n; i++) {
		size_t child = m->list[f->at[i]].first_child;

		for (; child; child = m->list[child].next)
			if (m->parameters || is_module(&m->list[child]))
				fold_child(m, out, &index, child);
	}
	SORT(out->list, out->n, by_bytes);
	hmap_release(&index.by_name);
	hmap_release(&index.by_kind);
}

/* One group says all if the only one inside of it has all of its bytes. */
static bool adds_nothing(const struct fold *f, const struct folds *inside)
{
	return inside->n == 1 && f->bytes == inside->list[0].bytes;
}

static void list_folds(struct modules *m, const struct folds *all, unsigned parts, unsigned depth,
		       struct buf *path)
{
	for (size_t i = 0; i < all->n; i++) {
		struct folds inside = {0};
		size_t len = path->len;

		add_name(m, all, &all->list[i], path);
		if (parts < m->depth)
			fold_children(m, &all->list[i], &inside);
		bool skip = adds_nothing(&all->list[i], &inside);
		if (!skip)
			add_group(m, &all->list[i], depth, path);
		list_folds(m, &inside, parts + 1, depth + !skip, path);
		path->len = len;
		for (size_t k = 0; k < inside.n; k++)
			free(inside.list[k].at);
		free(inside.list);
	}
}

/* What none of the modules that are told apart has. */
static void add_outside(struct groups *g, const struct group *outside)
{
	if (!outside->bytes)
		return;
	struct group *one = groups_add(g, GROUPS_OTHER_MODULES);
	one->is_rest = true;
	group_merge(one, outside);
}

void groups_add_modules(struct groups *g, const struct blocks *b, const struct breakdown_shares *s)
{
	struct modules m = {.model_names = needs_model_names(b),
			    .parameters = g->options.depth != 0,
			    .depth = g->options.depth ? g->options.depth : USUAL_DEPTH,
			    .out = g};
	size_t root = 0, *of_layer = xcalloc(b->layers.count + 1, sizeof(*of_layer));
	struct fold all = {&root, 1, 1, 0};
	struct folds top = {0};
	struct buf path = {0};

	LIST_ADD(m.list, m.n, m.cap, (struct module){.name = ""});
	for (uint32_t i = 1; i < b->layers.count; i++)
		of_layer[i] = module_of(&m, text_numbers_text(&b->layers, i));
	for (size_t i = 0; i < s->n; i++)
		if (s->list[i].block && s->list[i].block->layer)
			add_share(&m, b, &s->list[i], of_layer);
	struct group outside = m.list[0].held;
	sum_up(&m);
	g->has_modules = m.n > 1;
	m.parameters = true; /* of the model itself */
	fold_children(&m, &all, &top);
	m.parameters = g->options.depth != 0;
	list_folds(&m, &top, 1, 1, &path);
	add_outside(g, &outside);
	for (size_t k = 0; k < top.n; k++)
		free(top.list[k].at);
	free(top.list);
	free(m.list);
	free(of_layer);
	hmap_release(&m.children);
	lines_release(&m.lines);
	buf_release(&path);
}
