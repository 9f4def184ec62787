/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "memory/analysis/owners/tree.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/text/printable.h"
#include "formats/json_value.h"
#include "memory/analysis/common/fields.h"
#include "memory/analysis/groups/groups.h"

#define MAX_DEPTH 16 /* levels; what is deeper stays one name */
#define MAX_ANSWER 4 /* leaves in a sentence */
#define FREE_NAME "free inside the pool"

/* All bytes of one owner, or all that are free in one kind of pool. */
struct entry {
	const char *path;
	size_t len;
	bool is_free;
	uint64_t bytes, blocks;
};

/* --- adding up --- */

struct name {
	const char *text;
	size_t len;
};

/* Takes the next name off path[*at]; the last one allowed takes all that is left. */
static bool next_name(const char *path, size_t len, unsigned depth, size_t *at, struct name *out)
{
	while (*at < len && path[*at] == '@')
		++*at;
	if (*at >= len)
		return false;
	out->text = path + *at;
	const char *end = depth < MAX_DEPTH ? memchr(out->text, '@', len - *at) : NULL;
	out->len = end ? (size_t)(end - out->text) : len - *at;
	*at += out->len;
	return true;
}

static int compare_names(const struct name *a, const struct name *b)
{
	size_t n = a->len < b->len ? a->len : b->len;
	int c = memcmp(a->text, b->text, n);

	return c ? c : (a->len > b->len) - (a->len < b->len);
}

static int by_path(const void *pa, const void *pb)
{
	const struct entry *a = pa, *b = pb;
	size_t at = 0, bt = 0;

	for (unsigned depth = 1;; depth++) {
		struct name x, y;
		bool more_a = next_name(a->path, a->len, depth, &at, &x);
		bool more_b = next_name(b->path, b->len, depth, &bt, &y);
		int c = more_a && more_b ? compare_names(&x, &y) : more_a - more_b;

		if (c)
			return c;
		if (!more_a)
			return a->is_free - b->is_free;
	}
}

static size_t node_new(struct owner_tree *t, size_t parent, const struct name *name,
		       const struct entry *e)
{
	t->nodes = xgrow(t->nodes, &t->cap, t->n + 1, sizeof(*t->nodes));
	struct owner_node *n = &t->nodes[t->n];
	*n = (struct owner_node){.parent = parent, .depth = t->n ? t->nodes[parent].depth + 1 : 0};
	if (name) {
		n->path = e->path;
		n->path_len = (size_t)(name->text - e->path) + name->len;
		n->name_len = name->len;
	}
	return t->n++;
}

static bool node_is(const struct owner_tree *t, size_t i, const struct name *name)
{
	const struct owner_node *n = &t->nodes[i];
	struct name own = {n->path + n->path_len - n->name_len, n->name_len};

	return !n->is_free && !compare_names(&own, name);
}

/* Entries come in the order of their paths: what is common with the last one is on `stack`. */
static void add_entry(struct owner_tree *t, const struct entry *e, size_t stack[MAX_DEPTH + 2],
		      unsigned *height)
{
	unsigned depth = 1;
	size_t at = 0, leaf = 0;
	struct name name;

	for (; next_name(e->path, e->len, depth, &at, &name); depth++) {
		if (depth >= *height || !node_is(t, stack[depth], &name)) {
			stack[depth] = node_new(t, leaf, &name, e);
			*height = depth + 1;
		}
		leaf = stack[depth];
	}
	*height = depth;
	if (e->is_free) {
		leaf = node_new(t, leaf, NULL, NULL);
		t->nodes[leaf].is_free = true;
		t->nodes[leaf].path = e->path;
		t->nodes[leaf].path_len = e->len;
	}
	t->nodes[leaf].own_bytes += e->bytes;
	t->nodes[leaf].own_blocks += e->blocks;
}

static int by_parent_and_bytes(const void *pa, const void *pb, void *arg)
{
	const struct owner_tree *t = arg;
	size_t i = *(const size_t *)pa, k = *(const size_t *)pb;
	const struct owner_node *a = &t->nodes[i], *b = &t->nodes[k];

	return ORDER(a->parent, b->parent) ?: ORDER(b->bytes, a->bytes) ?: ORDER(i, k);
}

static void link_children(struct owner_tree *t)
{
	for (size_t i = t->n; i-- > 0;) {
		struct owner_node *n = &t->nodes[i];
		n->bytes += n->own_bytes;
		n->blocks += n->own_blocks;
		if (i) {
			t->nodes[n->parent].bytes += n->bytes;
			t->nodes[n->parent].blocks += n->blocks;
		}
	}
	t->order = xcalloc(t->n, sizeof(*t->order));
	for (size_t i = 1; i < t->n; i++)
		t->order[i - 1] = i;
	qsort_r(t->order, t->n - 1, sizeof(*t->order), by_parent_and_bytes, t);
	for (size_t i = t->n - 1; i-- > 0;) {
		struct owner_node *parent = &t->nodes[t->nodes[t->order[i]].parent];
		parent->first = i;
		parent->nchildren++;
	}
}

/* Bytes by owner: numbers of owners first, then kinds of pools without one, then free bytes. */
static void add_up(struct breakdown *c, const struct breakdown_shares *s, struct entry *entries,
		   size_t nowners)
{
	for (size_t i = 0; i < s->n; i++) {
		const struct breakdown_share *share = &s->list[i];
		unsigned type = share->pool->type <= TYPE_END ? share->pool->type : TYPE_END;
		bool is_free = !share->block;
		bool known = !is_free && share->block->owner;
		size_t k =
			known ? share->block->owner : nowners + type + (is_free ? TYPE_END + 1 : 0);
		struct entry *e = &entries[k];

		if (!e->path) {
			e->path = known ? text_numbers_text(&c->blocks->owners, share->block->owner)
					: breakdown_source(type);
			if (!e->path[strspn(e->path, "@")])
				e->path = breakdown_source(type);
			e->len = strlen(e->path);
			e->is_free = is_free;
		}
		e->bytes += share->bytes;
		e->blocks += !is_free;
	}
}

void owner_tree_build(struct owner_tree *t, struct breakdown *c, const struct breakdown_shares *s)
{
	size_t nowners = c->blocks->owners.count, n = 0;
	size_t all = nowners + 2 * (TYPE_END + 1);
	struct entry *entries = xcalloc(all, sizeof(*entries));
	size_t stack[MAX_DEPTH + 2] = {0};
	unsigned height = 1;

	*t = (struct owner_tree){0};
	add_up(c, s, entries, nowners);
	for (size_t i = 0; i < all; i++)
		if (entries[i].path)
			entries[n++] = entries[i];
	SORT(entries, n, by_path);
	node_new(t, 0, NULL, NULL);
	for (size_t i = 0; i < n; i++)
		add_entry(t, &entries[i], stack, &height);
	free(entries);
	link_children(t);
}

void owner_tree_release(struct owner_tree *t)
{
	free(t->nodes);
	free(t->order);
	*t = (struct owner_tree){0};
}

static int by_own_bytes(const void *pa, const void *pb, void *arg)
{
	const struct owner_tree *t = arg;
	size_t i = *(const size_t *)pa, k = *(const size_t *)pb;

	return ORDER(t->nodes[k].own_bytes, t->nodes[i].own_bytes) ?: ORDER(i, k);
}

/* Numbers of the nodes with bytes of their own, the largest first; free() the result. */
static size_t *list_leaves(const struct owner_tree *t, size_t *out_n)
{
	size_t *list = xcalloc(t->n, sizeof(*list)), n = 0;

	for (size_t i = 0; i < t->n; i++)
		if (t->nodes[i].own_bytes)
			list[n++] = i;
	qsort_r(list, n, sizeof(*list), by_own_bytes, (void *)t);
	*out_n = n;
	return list;
}

/* --- for people --- */

static bool is_ops(const struct owner_node *n)
{
	return !n->is_free && n->name_len == 3 && !memcmp(n->path + n->path_len - 3, "ops", 3);
}

static void add_share(struct buf *out, uint64_t part, uint64_t whole)
{
	double percent = whole ? (double)part * 100 / (double)whole : 0;

	if (part && percent < 0.05)
		buf_add_str(out, "<0.1 %");
	else
		buf_addf(out, "%.1f %%", percent);
}

struct line {
	const struct owner_tree *tree;
	struct buf *out;
	unsigned top;
};

static void put_line(const struct line *l, unsigned depth, uint64_t bytes, uint64_t blocks,
		     const char *name, size_t len)
{
	struct buf size = {0}, share = {0}, count = {0};

	add_text(&size, "{}", BYTES(bytes));
	add_share(&share, bytes, l->tree->nodes[0].bytes);
	if (blocks)
		add_text(&count, "{}", COUNT(blocks));
	buf_addf(l->out, "  %12s  %7s  %9s  %*s", buf_str(&size), buf_str(&share), buf_str(&count),
		 (int)depth * 2, "");
	text_add_printable(l->out, name, len);
	buf_add_char(l->out, '\n');
	buf_release(&size);
	buf_release(&share);
	buf_release(&count);
}

static void put_rest(const struct line *l, const struct owner_node *n, unsigned depth)
{
	uint64_t bytes = 0, blocks = 0;
	char name[48];

	if (n->nchildren <= l->top)
		return;
	for (size_t i = l->top; i < n->nchildren; i++) {
		const struct owner_node *child = &l->tree->nodes[l->tree->order[n->first + i]];
		bytes += child->bytes;
		blocks += child->blocks;
	}
	int len = snprintf(name, sizeof(name), "%zu more", n->nchildren - l->top);
	put_line(l, depth, bytes, blocks, name, (size_t)len);
}

/* What operators used, and all that there is of its parent: a line that says nothing more. */
static bool is_noise(const struct line *l, const struct owner_node *n)
{
	const struct owner_node *parent = &l->tree->nodes[n->parent];

	return is_ops(n) && n->depth > 1 && n->bytes == parent->bytes &&
	       n->blocks == parent->blocks;
}

/* `left_out`: how many of the nodes above have no line. */
static void put_node(const struct line *l, size_t number, unsigned left_out)
{
	const struct owner_node *n = &l->tree->nodes[number];
	unsigned depth = n->depth - left_out;

	if (n->is_free)
		put_line(l, depth - 1, n->bytes, 0, FREE_NAME, strlen(FREE_NAME));
	else if (number && is_noise(l, n))
		depth = n->depth - ++left_out;
	else if (number)
		put_line(l, depth - 1, n->bytes, n->blocks, n->path + n->path_len - n->name_len,
			 n->name_len);
	for (size_t i = 0; i < n->nchildren && i < l->top; i++)
		put_node(l, l->tree->order[n->first + i], left_out);
	put_rest(l, n, depth);
	if (number && n->nchildren && n->own_blocks)
		put_line(l, depth, n->own_bytes, n->own_blocks, "no label", strlen("no label"));
}

void owner_tree_text(const struct owner_tree *t, unsigned top, struct buf *out)
{
	struct line l = {t, out, top};

	buf_addf(out, "  %12s  %7s  %9s  %s\n", "Bytes", "Share", "Blocks", "Owner");
	put_node(&l, 0, 0);
}

/* What common labels mean. */
static const char *label_meaning(const char *name, size_t len)
{
	static const struct {
		const char *label, *words;
	} known[] = {
		{"weight", "weights"},
		{"weights", "weights"},
		{"sharded_weight", "sharded weights"},
		{"gradient", "gradients"},
		{"optimizer_state", "optimizer states"},
		{"buffer", "buffers"},
		{"activation", "activations"},
		{"backward", "what backward allocated"},
		{"optimizer", "what the optimizer's steps allocated"},
		{"kv_cache", "KV cache"},
		{"ops", "tensors of operators"},
	};

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (strlen(known[i].label) == len && !memcmp(known[i].label, name, len))
			return known[i].words;
	return NULL;
}

static void node_words(const struct owner_node *n, struct buf *out)
{
	const char *words =
		n->depth > 1 && !n->is_free
			? label_meaning(n->path + n->path_len - n->name_len, n->name_len)
			: NULL;

	if (n->is_free) {
		buf_add_str(out, "free inside the ");
		text_add_printable(out, n->path, n->path_len);
		buf_add_str(out, " pool");
		return;
	}
	if (words)
		buf_addf(out, "%s (", words);
	text_add_printable(out, n->path, n->path_len);
	if (words)
		buf_add_char(out, ')');
}

/*
 * A copy in which what operators used counts as what it is: PTA@activation@ops is one with
 * PTA@activation. Right below the source there is nothing that says more.
 */
static struct owner_tree without_ops(const struct owner_tree *t)
{
	struct owner_tree copy = {.n = t->n, .nodes = xcalloc(t->n, sizeof(*t->nodes))};

	memcpy(copy.nodes, t->nodes, t->n * sizeof(*t->nodes));
	for (size_t i = 1; i < t->n; i++) {
		struct owner_node *n = &copy.nodes[i];

		if (!is_ops(n) || n->depth < 3)
			continue;
		copy.nodes[n->parent].own_bytes += n->own_bytes;
		n->own_bytes = 0;
	}
	return copy;
}

void owner_tree_answer(const struct owner_tree *all, struct buf *out)
{
	uint64_t whole = all->nodes[0].bytes;
	struct owner_tree copy = without_ops(all), *t = &copy;
	size_t n;
	size_t *leaves = list_leaves(t, &n);
	unsigned shown = 0;

	for (; shown < n && shown < MAX_ANSWER; shown++) {
		const struct owner_node *leaf = &t->nodes[leaves[shown]];
		double percent = (double)leaf->own_bytes * 100 / (double)whole;

		if (percent < 0.5)
			break;
		buf_addf(out, "%s%.0f %% ", shown ? ", " : "", percent);
		node_words(leaf, out);
	}
	if (shown && shown < n)
		buf_addf(out, ", and %zu more owner%s", n - shown, n - shown == 1 ? "" : "s");
	free(leaves);
	owner_tree_release(t);
}

bool owner_tree_is_one_source(const struct owner_tree *t)
{
	for (size_t i = 0; i < t->n; i++) {
		const struct owner_node *n = &t->nodes[i];

		if (group_is_nearly_all(n->own_bytes, t->nodes[0].bytes))
			return !n->is_free && !(n->path_len && memchr(n->path, '@', n->path_len));
	}
	return false;
}

/* --- for programs --- */

static const struct field node_fields[] = {
	FIELDS(struct owner_node, bytes, blocks, own_bytes, own_blocks),
	FIELD("below_total", struct owner_node, nchildren),
	{0},
};

static json_t *children_json(const struct owner_tree *t, const struct owner_node *parent,
			     unsigned top)
{
	json_t *list = json_array();

	for (size_t i = 0; i < parent->nchildren && i < top; i++) {
		const struct owner_node *n = &t->nodes[t->order[parent->first + i]];
		json_t *o = json_object();

		json_object_set_new(o, "owner", text_value(n->path, n->path_len));
		if (n->is_free)
			put_bool(o, "free", true);
		fields_put(o, node_fields, n, NULL);
		json_object_set_new(o, "below", children_json(t, n, top));
		json_array_append_new(list, o);
	}
	return list;
}

json_t *owner_tree_json(const struct owner_tree *t, unsigned top)
{
	return children_json(t, &t->nodes[0], top);
}
